//! A sealed epoch: the pages of everything written between two freezes.
//!
//! Immutable, so that a flush and readers on other threads use it while the owner goes on. Sorting is
//! put off until somebody asks for order, on whatever thread that happens.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use crate::Result;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::Sequence;
use crate::base::key::KeyRange;
use crate::base::record::{Kind, Record};

use super::layout::Header;
use super::page::Page;

/// Page index and offset of a record.
#[derive(Debug, Clone, Copy)]
struct Position {
    page: u32,
    offset: u32,
}

/// Everything written between two freezes, never to change again.
#[derive(Debug)]
pub struct SealedEpoch {
    pub(super) pages: Vec<Page>,
    first: Sequence,
    last: Sequence,
    bytes: u64,
    records: u64,
    sorted: OnceLock<Vec<Position>>,
}

impl SealedEpoch {
    pub(super) fn new(pages: Vec<Page>, first: Sequence, last: Sequence) -> Self {
        let bytes = pages.iter().map(|p| p.bytes().len() as u64).sum();
        let records = pages.iter().map(|p| p.live as u64).sum();
        Self { pages, first, last, bytes, records, sorted: OnceLock::new() }
    }

    /// Lowest sequence a record in it can have.
    #[must_use]
    pub fn first_sequence(&self) -> Sequence {
        self.first
    }

    /// Highest sequence a record in it can have: what [`super::Memtable::adopt`] takes once it is flushed.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.last
    }

    /// Bytes of memory that its pages take.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// Records that were alive when it was sealed, superseded ones of open views included.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        self.records
    }

    /// True when there is nothing to flush.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Memory that the first sorted access takes at its height, in bytes: reserve that first.
    #[must_use]
    pub fn sort_bytes(&self) -> u64 {
        self.records * (size_of::<(u128, Position)>() + size_of::<Position>()) as u64
    }

    /// Builds the sorted view now. Later sorted accesses find it.
    pub fn sort(&self) {
        self.sorted();
    }

    /// A cursor over the records of `range`, one a key, but at a key whose newest record is a
    /// [`Kind::Merge`] also the older ones of this epoch down to the first that is none (there are
    /// several only when a view was opened in mid-epoch). Records that a prefix delete of this
    /// epoch hides are left out. Sorts on first use.
    #[must_use]
    pub fn cursor(self: &Arc<Self>, range: &KeyRange, direction: Direction) -> EpochCursor {
        let sorted = self.sorted();
        let from = sorted.partition_point(|p| self.record_at(*p).key < range.start.as_slice());
        let to = range
            .end
            .as_ref()
            .map_or(sorted.len(), |end| sorted.partition_point(|p| self.record_at(*p).key < end.as_slice()));
        EpochCursor { epoch: self.clone(), from, to: to.max(from), direction }
    }

    /// The records of `key` that matter, newest first, as [`SealedEpoch::cursor`] gives them; a prefix
    /// delete at `key` is not among them. Sorts on first use.
    pub fn get<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = Record<'a>> + 'a {
        let sorted = self.sorted();
        let from = sorted.partition_point(|p| self.record_at(*p).key < key);
        sorted[from..]
            .iter()
            .map(|p| self.record_at(*p))
            .take_while(move |r| r.key == key)
            .filter(|r| r.kind != Kind::PrefixDelete)
    }

    /// Sequence of the prefix delete at exactly `prefix`, if this epoch has one. Sorts on first use.
    #[must_use]
    pub fn prefix_delete(&self, prefix: &[u8]) -> Option<Sequence> {
        let sorted = self.sorted();
        let from = sorted.partition_point(|p| self.record_at(*p).key < prefix);
        let first = self.record_at(*sorted.get(from)?);
        (first.kind == Kind::PrefixDelete && first.key == prefix).then_some(first.sequence)
    }

    /// Takes the memory of page `index` out, once nobody else holds the epoch and it has been flushed.
    pub(super) fn take_page(&mut self, index: usize) -> Option<Page> {
        self.sorted = OnceLock::new();
        self.pages.get_mut(index).map(Page::take)
    }

    fn record_at(&self, position: Position) -> Record<'_> {
        let (bytes, at) = (self.pages[position.page as usize].bytes(), position.offset as usize);
        Header::read(bytes, at).record(bytes, at)
    }

    fn sorted(&self) -> &[Position] {
        self.sorted.get_or_init(|| self.sort_newest())
    }

    #[expect(clippy::cast_possible_truncation, reason = "page counts and offsets are far below 2^32")]
    fn sort_newest(&self) -> Vec<Position> {
        let mut all: Vec<(u128, Position)> = Vec::with_capacity(usize::try_from(self.records).unwrap_or(0));
        for (index, page) in self.pages.iter().enumerate() {
            let alive = page.headers().filter(|(_, header)| !header.is_dead());
            all.extend(alive.map(|(at, header)| {
                (key_head(header.key(page.bytes(), at)), Position { page: index as u32, offset: at as u32 })
            }));
        }
        all.sort_unstable_by(|(head_a, a), (head_b, b)| head_a.cmp(head_b).then_with(|| self.order(*a, *b)));
        let mut kept: Vec<Position> = Vec::with_capacity(all.len());
        let mut last: Option<Record<'_>> = None;
        let mut hiding: Option<Record<'_>> = None;
        for (_, position) in all {
            let record = self.record_at(position);
            if let Some(hiding) = hiding
                && record.sequence < hiding.sequence
                && record.key.starts_with(hiding.key)
            {
                continue;
            }
            let older = last.is_some_and(|l| {
                l.key == record.key
                    && (l.kind == Kind::PrefixDelete) == (record.kind == Kind::PrefixDelete)
                    && l.kind != Kind::Merge
            });
            if older {
                continue;
            }
            if record.kind == Kind::PrefixDelete {
                hiding = Some(record);
            }
            last = Some(record);
            kept.push(position);
        }
        kept.shrink_to_fit();
        kept
    }

    /// [`Record::order`]. Two records of one key and generation are a delete and the put that came after
    /// it: a member of a complete group was deleted without leaving an entry, then put again.
    fn order(&self, a: Position, b: Position) -> Ordering {
        let (a, b) = (self.record_at(a), self.record_at(b));
        a.order(&b).then_with(|| (a.kind == Kind::Delete).cmp(&(b.kind == Kind::Delete)))
    }
}

/// The first 16 bytes as a number, zeros behind: its order never contradicts that of the keys.
fn key_head(key: &[u8]) -> u128 {
    let mut head = [0; 16];
    let len = key.len().min(16);
    head[..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(head)
}

/// Walks over a sealed epoch in order. Owns its hold on the epoch.
#[derive(Debug)]
pub struct EpochCursor {
    epoch: Arc<SealedEpoch>,
    from: usize,
    to: usize,
    direction: Direction,
}

impl RecordCursor for EpochCursor {
    fn record(&self) -> Option<Record<'_>> {
        if self.from >= self.to {
            return None;
        }
        let index = match self.direction {
            Direction::Forward => self.from,
            Direction::Backward => self.to - 1,
        };
        self.epoch.sorted().get(index).map(|p| self.epoch.record_at(*p))
    }

    fn advance(&mut self) -> Result<()> {
        if self.from < self.to {
            match self.direction {
                Direction::Forward => self.from += 1,
                Direction::Backward => self.to -= 1,
            }
        }
        Ok(())
    }
}
