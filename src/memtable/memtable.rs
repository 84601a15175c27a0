//! The memtable's state, its generations, epochs and views.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::descriptor::Layout;
use crate::base::ids::Sequence;
use crate::cache::budget::Budget;
use crate::io::memory::{PIECE_BYTES, Slabs};

use super::evict::Evictable;
use super::group::Groups;
use super::index::ShardedIndex;
use super::key::MemKey;
use super::location::{Location, MAX_PAGE_BYTES, Slot};
use super::log::Log;
use super::page::PagePool;
use super::sealed::SealedEpoch;
use super::sorted::Sorted;

/// How a memtable is made.
#[derive(Debug, Clone)]
pub struct MemtableConfig {
    /// Where its memory comes from.
    pub budget: Budget,
    /// Where pages of the usual size come from.
    pub slabs: Slabs,
    /// Size of a page in bytes, at most 256 KiB; a record that doesn't fit gets a page of its own.
    pub page_bytes: usize,
    /// Sequence of the first record: above every sequence that the version below holds.
    pub first_sequence: Sequence,
}

impl MemtableConfig {
    /// The usual page size, sequences from 1.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, slabs: Slabs::default(), page_bytes: MAX_PAGE_BYTES, first_sequence: 1 }
    }
}

/// A numbered view: the state as it was when the view was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewId(u64);

/// What a view sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    /// Records up to this sequence are visible.
    pub(super) sequence: Sequence,
    /// The version that belongs to the view holds all epochs up to this sequence.
    pub(super) adopted: Sequence,
}

/// Memory that is no longer needed and takes time to free: drop it on a worker.
#[derive(Debug, Default)]
pub struct Trash {
    pub(super) epochs: Vec<Arc<SealedEpoch>>,
    pub(super) members: Vec<Sorted>,
}

impl Trash {
    /// True when there is nothing to drop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty() && self.members.is_empty()
    }
}

/// Bytes and counts of a memtable, as of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemtableStats {
    /// Pages of the open epoch.
    pub dirty_bytes: u64,
    /// Pages of sealed epochs that are not adopted: they can't be evicted yet.
    pub sealed_unflushed_bytes: u64,
    /// Pages of adopted epochs and of the cache log.
    pub clean_bytes: u64,
    /// Free pages kept for reuse.
    pub pooled_bytes: u64,
    /// Hash tables, groups and their members.
    pub index_bytes: u64,
    /// Keys in the index outside groups.
    pub single_keys: usize,
    /// Groups.
    pub groups: usize,
    /// Open views.
    pub open_views: usize,
}

/// The last key that was found nowhere.
#[derive(Debug, Default)]
pub(super) struct AbsentMemo {
    key: Vec<u8>,
    generation: Sequence,
    adopted: Sequence,
}

/// What a search for a key found.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// The key's number, 0 for none.
    number: u64,
    /// Changes to the index before the search.
    changes: u64,
    place: Place,
    location: Option<Location>,
}

impl Default for Found {
    fn default() -> Self {
        Self { number: 0, changes: 0, place: Place::NoGroup, location: None }
    }
}

/// See the [module](super).
#[derive(Debug)]
pub struct Memtable {
    pub(super) log: Log,
    pub(super) singles: ShardedIndex,
    pub(super) groups: Groups,
    /// Sequence of records written now.
    pub(super) current: Sequence,
    /// First sequence of the open epoch.
    pub(super) epoch_first: Sequence,
    /// Epochs up to this sequence are in the version.
    pub(super) adopted: Sequence,
    /// Containers of sealed epochs that are not adopted, oldest first.
    pub(super) unadopted: VecDeque<u32>,
    /// Clean containers, next to be evicted first.
    pub(super) evictable: VecDeque<Evictable>,
    pub(super) views: BTreeMap<ViewId, Sight>,
    next_view: u64,
    pub(super) memo: AbsentMemo,
    /// What the last search for a numbered key found.
    found: Cell<Found>,
    /// Entries that were moved to another record so far.
    pub(super) moves: u64,
    /// Groups that may have become empty, to be looked at once what emptied them is adopted.
    pub(super) emptied: VecDeque<u32>,
    /// Groups that were made without members, oldest first; some have got members since.
    pub(super) noted_empty: VecDeque<u32>,
    /// Groups that keep members for views only, and how far they have been tidied since.
    pub(super) retaining: Vec<(u32, Option<Vec<u8>>)>,
    pub(super) scratch: Vec<u8>,
    pub(super) scratch_locations: Vec<Location>,
    pub(super) trash: Trash,
}

/// Members kept for views that are looked at in one step.
pub(super) const RETAINED_STEP: usize = 64;
/// Free pages kept at most, in bytes.
const POOL_BYTES: usize = 4 << 20;

impl Memtable {
    /// An empty memtable.
    #[must_use]
    pub fn new(config: MemtableConfig) -> Self {
        let page_bytes = config.page_bytes.clamp(256, MAX_PAGE_BYTES).next_multiple_of(8);
        let first = config.first_sequence.max(1);
        // Where pages are smaller than a piece, the budget is too small for tables a piece at a time.
        let slabs = (page_bytes == PIECE_BYTES).then(|| config.slabs.clone());
        let pool =
            PagePool::new(&config.budget, config.slabs.clone(), page_bytes, (POOL_BYTES / page_bytes).clamp(1, 64));
        Self {
            log: Log::new(pool),
            singles: ShardedIndex::new(&config.budget, slabs.clone()),
            groups: Groups::new(&config.budget, slabs),
            current: first,
            epoch_first: first,
            adopted: first - 1,
            unadopted: VecDeque::new(),
            evictable: VecDeque::new(),
            views: BTreeMap::new(),
            next_view: 1,
            memo: AbsentMemo::default(),
            found: Cell::new(Found::default()),
            moves: 0,
            emptied: VecDeque::new(),
            noted_empty: VecDeque::new(),
            retaining: Vec::new(),
            scratch: Vec::new(),
            scratch_locations: Vec::new(),
            trash: Trash::default(),
        }
    }

    /// Promises that records of `bytes`, all that is beside their values included, won't be refused until
    /// [`Memtable::end_promise`]. What others take of the budget meanwhile may carry it over its limit by as much.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Backpressure`] when there is no memory for them now.
    pub fn promise(&mut self, bytes: u64) -> crate::Result<()> {
        self.log.pool.promise(bytes)
    }

    /// Ends what [`Memtable::promise`] began.
    pub fn end_promise(&mut self) {
        self.log.pool.end_promise();
    }

    /// Sequence of records written now.
    #[must_use]
    pub fn current_sequence(&self) -> Sequence {
        self.current
    }

    /// Sequence up to which epochs are adopted.
    #[must_use]
    pub fn adopted_sequence(&self) -> Sequence {
        self.adopted
    }

    /// Seals everything written since the last freeze and returns it, perhaps empty. Takes a few
    /// allocations whatever the amount of data; the records stay in memory and readable.
    pub fn freeze(&mut self) -> Arc<SealedEpoch> {
        let (epoch, container) = self.log.seal(self.epoch_first, self.current);
        self.unadopted.push_back(container);
        self.current += 1;
        self.epoch_first = self.current;
        epoch
    }

    /// Sealed epochs that are not adopted, oldest first: with the version, what a reader on another
    /// thread needs.
    pub fn unadopted_epochs(&self) -> impl Iterator<Item = &Arc<SealedEpoch>> {
        self.unadopted.iter().filter_map(|container| self.log.epoch(*container))
    }

    /// Opens a view of the state as it is now, beside the version that is adopted now. Until it is
    /// closed, what it sees stays in memory or in that version.
    pub fn open_view(&mut self) -> ViewId {
        let id = ViewId(self.next_view);
        self.next_view += 1;
        self.views.insert(id, Sight { sequence: self.current, adopted: self.adopted });
        self.current += 1;
        id
    }

    /// Closes a view. One that isn't open is ignored.
    pub fn close_view(&mut self, view: ViewId) {
        self.views.remove(&view);
        self.release_retained(RETAINED_STEP);
    }

    /// Sequence up to which a view sees; `None` when it isn't open.
    #[must_use]
    pub fn view_sequence(&self, view: ViewId) -> Option<Sequence> {
        self.views.get(&view).map(|sight| sight.sequence)
    }

    /// What the present sees.
    pub(super) fn now(&self) -> Sight {
        Sight { sequence: Sequence::MAX - 1, adopted: self.adopted }
    }

    /// Records up to this sequence are in the version of every reader.
    pub(super) fn settled(&self) -> Sequence {
        self.views.values().map(|sight| sight.adopted).fold(self.adopted, Sequence::min)
    }

    /// Notes that `key` was found neither here nor in the version. A put of it that comes next can then
    /// be forgotten when the key dies young.
    pub fn note_absent(&mut self, key: MemKey<'_>) {
        self.memo.key.clear();
        self.memo.key.extend_from_slice(key.bytes());
        self.memo.generation = self.current;
        self.memo.adopted = self.adopted;
    }

    pub(super) fn noted_absent(&self, key: &MemKey<'_>) -> bool {
        self.memo.generation == self.current && self.memo.adopted == self.adopted && self.memo.key == key.bytes()
    }

    /// What has piled up to be dropped; take it every now and then and drop it on a worker.
    pub fn take_trash(&mut self) -> Trash {
        std::mem::take(&mut self.trash)
    }

    /// Bytes and counts. Walks over the clean containers, of which there are few.
    #[must_use]
    pub fn stats(&self) -> MemtableStats {
        let sealed = |containers: &mut dyn Iterator<Item = u32>| {
            containers.filter_map(|c| self.log.epoch(c)).map(|e| e.size_bytes()).sum()
        };
        MemtableStats {
            dirty_bytes: self.log.open_bytes(),
            sealed_unflushed_bytes: sealed(&mut self.unadopted.iter().copied()),
            clean_bytes: self.log.cache_bytes() + sealed(&mut self.evictable.iter().map(|e| e.container)),
            pooled_bytes: self.log.pool.free_bytes(),
            index_bytes: self.singles.size_bytes() + self.groups.size_bytes(),
            single_keys: self.singles.len(),
            groups: self.groups.len(),
            open_views: self.views.len(),
        }
    }

    /// Bytes of the open epoch's pages, at hand without a walk.
    #[inline]
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.log.open_bytes()
    }

    /// Grows with every 16 KiB that writes have added to the log: a write after which it has grown is the time to
    /// look after memory.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.log.ticks()
    }

    /// Pages that writes have taken since the memtable was made.
    #[inline]
    #[must_use]
    pub fn pages_taken(&self) -> u64 {
        self.log.pages_taken()
    }

    /// The entry of a key outside groups.
    #[inline]
    pub(super) fn find_single(&self, hash: u64, key: &[u8]) -> Option<&Cell<Slot>> {
        self.singles.find(hash, |location| self.log.key_is(location, key))
    }

    /// Where a key has its place in the index, and its newest record there: as the last search found it, when it was
    /// for the same key and no entry has been added, removed or moved since.
    #[inline]
    pub(super) fn locate(&self, key: &MemKey<'_>) -> (Place, Option<Location>) {
        let found = self.found.get();
        let changes = self.singles.changes() + self.groups.changes() + self.moves;
        if found.number == key.number() && found.number != 0 && found.changes == changes {
            return (found.place, found.location);
        }
        self.search_anew(key, changes)
    }

    #[inline(never)]
    fn search_anew(&self, key: &MemKey<'_>, changes: u64) -> (Place, Option<Location>) {
        let (place, slot) = self.search(key);
        let location = slot.map(|slot| slot.get().location());
        if let Some(slot) = slot {
            self.touch(slot);
        }
        self.found.set(Found { number: key.number(), changes, place, location });
        (place, location)
    }

    #[inline]
    fn search(&self, key: &MemKey<'_>) -> (Place, Option<&Cell<Slot>>) {
        match key.layout() {
            Layout::Single => (Place::Single(key.hash()), self.find_single(key.hash(), key.bytes())),
            Layout::Grouped => match self.groups.find_hashed(key.hash(), key.prefix()) {
                Some(id) => (Place::Member(id), self.groups.get(id).members.find(&self.log, key.user_key())),
                None => (Place::NoGroup, None),
            },
        }
    }

    /// True when the record may be changed where it lies: nobody but the present sees it.
    #[inline]
    pub(super) fn is_mutable(&self, location: Location, sequence: Sequence) -> bool {
        self.is_unseen(sequence) && self.log.is_open(location)
    }

    /// True when no view sees a record of this sequence.
    #[inline]
    pub(super) fn is_unseen(&self, sequence: Sequence) -> bool {
        sequence == self.current || self.views.is_empty()
    }

    #[inline]
    pub(super) fn is_hidden(&self, place: Place, sequence: Sequence) -> bool {
        matches!(place, Place::Member(id) if self.groups.get(id).hides(sequence))
    }
}

/// A key's place in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the table of single records, under this hash.
    Single(u64),
    /// In this group.
    Member(u32),
    /// In a group that doesn't exist yet.
    NoGroup,
}
