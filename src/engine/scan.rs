//! Scans of one (key, namespace) of a grouped state: borrowed ones, and cursors that live on while the host writes.

use std::ops::Bound;
use std::sync::Arc;

use super::backend::Backend;
use super::states::RawState;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::descriptor::Layout;
use crate::base::key::{KeyParts, KeyRange, prefix_end};
use crate::base::key_group::KeyGroup;
use crate::memtable::{ALL_USER_KEYS, GroupScan, GroupValues, UserKeyBounds, ViewId};
use crate::read::Tree;
use crate::read::{MergeCursor, PrefixDeletes, Resolver, VisibleCursor};
use crate::{Error, Result};

/// (group, key, namespace): what a scan runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// Key group.
    pub group: KeyGroup,
    /// Serialized key.
    pub key: &'a [u8],
    /// Serialized namespace.
    pub namespace: &'a [u8],
}

impl<'a> Prefix<'a> {
    /// The key of one entry below it.
    #[inline]
    #[must_use]
    pub fn parts(self, user_key: &'a [u8]) -> KeyParts<'a> {
        KeyParts { group: self.group, key: self.key, namespace: self.namespace, user_key }
    }
}

/// Entries cached by a [`Cursor`] at a time, and their bytes.
const CHUNK_ENTRIES: usize = 128;
const CHUNK_BYTES: usize = 64 << 10;

/// Walks over the entries of a prefix. Borrows the backend.
pub struct Scan<'a>(Walk<'a>);

enum Walk<'a> {
    /// Memory knows everything.
    Memory(GroupValues<'a>),
    /// Memory and tree.
    Merged(Box<Merged<'a>>),
}

struct Merged<'a> {
    cursor: VisibleCursor<'a>,
    prefix_len: usize,
    started: bool,
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scan")
    }
}

impl Scan<'_> {
    /// The next user key and value, valid until the next call; `None` at the end.
    ///
    /// # Errors
    /// What reading a segment or folding operands failed with; it sticks.
    #[expect(clippy::should_implement_trait, reason = "entries are borrowed from the scan, which iterators can't lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.0 {
            Walk::Memory(values) => Ok(values.next()),
            Walk::Merged(merged) => merged.next(),
        }
    }
}

impl Merged<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.started {
            self.cursor.advance()?;
        } else {
            self.started = true;
            self.cursor.status()?;
        }
        let prefix_len = self.prefix_len;
        Ok(self.cursor.entry().map(|entry| (entry.key.get(prefix_len..).unwrap_or_default(), entry.value)))
    }
}

#[cold]
fn no_ranges() -> Error {
    Error::invalid("a range over a state of single values; take a read view for a scan of the whole state")
}

/// The encoded keys of `prefix` within the bounds on user keys.
fn key_range(prefix: &[u8], bounds: UserKeyBounds<'_>) -> KeyRange {
    let with = |user_key: &[u8]| [prefix, user_key].concat();
    let after = |user_key: &[u8]| [prefix, user_key, &[0]].concat();
    let start = match bounds.0 {
        Bound::Unbounded => prefix.to_vec(),
        Bound::Included(key) => with(key),
        Bound::Excluded(key) => after(key),
    };
    let end = match bounds.1 {
        Bound::Unbounded => prefix_end(prefix),
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(with(key)),
    };
    KeyRange { start, end }
}

impl Backend {
    #[inline]
    fn take_prefix(&mut self, state: RawState, prefix: Prefix<'_>) -> Result<()> {
        self.take_key(state, prefix.parts(&[]))?;
        if self.key.layout() == Layout::Single { Err(no_ranges()) } else { Ok(()) }
    }

    /// The time that entries of a state are judged by; any time will do where none of them expires.
    #[inline]
    fn scan_time(&self) -> i64 {
        if self.key.ttl_ms().is_some() { self.shared.now_ms() } else { i64::MIN }
    }

    /// Scans the entries under a prefix whose user keys are within `bounds`; crossed bounds are an empty range.
    ///
    /// # Errors
    /// As [`Backend::get`]; `InvalidArgument` for a state of single values.
    pub fn scan(
        &mut self,
        state: RawState,
        prefix: Prefix<'_>,
        bounds: UserKeyBounds<'_>,
        direction: Direction,
    ) -> Result<Scan<'_>> {
        self.shared.check()?;
        self.take_prefix(state, prefix)?;
        let now_ms = self.scan_time();
        self.resolver.now_ms = now_ms;
        // States with groups have no merges.
        let alone = self.tree.version().is_empty();
        if bounds == ALL_USER_KEYS && !alone {
            self.bring_in()?;
        }
        if let Some(values) = self.memtable.values(self.key.bytes(), bounds, direction, now_ms, alone) {
            return Ok(Scan(Walk::Memory(values)));
        }
        let memory = self.memtable.scan(self.key.bytes(), bounds, direction);
        let complete = memory.is_complete();
        let source = Source { prefix: self.key.bytes(), bounds, direction, tree: &self.tree, resolver: &self.resolver };
        source.open(memory, complete)
    }

    /// Shows `visit` the greatest user key, at or after `from`, that memory holds under a prefix, with its value, and
    /// returns what it made of it. Nothing below memory is looked at and expiry isn't: this is for entries that can
    /// only have been written in the current generation, which memory holds for certain.
    ///
    /// # Errors
    /// As [`Backend::scan`].
    pub fn newest_in_memory<T>(
        &mut self,
        state: RawState,
        prefix: Prefix<'_>,
        from: &[u8],
        visit: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Result<Option<T>> {
        self.shared.check()?;
        self.take_prefix(state, prefix)?;
        let newest = self.memtable.newest(self.key.bytes(), from, i64::MIN);
        Ok(newest.map(|(user_key, value)| visit(user_key, value)))
    }

    /// Opens a cursor on the entries under a prefix as they are now. It borrows nothing: the host may go on writing,
    /// and the cursor doesn't see it. Close it: until then, what it may need is kept in memory or on disk.
    ///
    /// # Errors
    /// As [`Backend::scan`].
    pub fn open_cursor(
        &mut self,
        state: RawState,
        prefix: Prefix<'_>,
        bounds: UserKeyBounds<'_>,
        direction: Direction,
    ) -> Result<Cursor> {
        self.shared.check()?;
        self.take_prefix(state, prefix)?;
        let prefix = self.key.prefix().to_vec();
        let mut resolver = self.resolver.clone();
        resolver.now_ms = self.shared.now_ms();
        Ok(Cursor {
            view: self.memtable.open_view(),
            tree: self.tree.clone(),
            resolver,
            prefix,
            bounds: (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec)),
            direction,
            chunk: Vec::new(),
            ended: false,
        })
    }
}

/// Memory and tree under one prefix.
pub(super) struct Source<'a, 'b> {
    pub prefix: &'a [u8],
    pub bounds: UserKeyBounds<'b>,
    pub direction: Direction,
    pub tree: &'a Tree,
    pub resolver: &'a Resolver,
}

impl<'a> Source<'a, '_> {
    /// What is visible of `memory`, and of the tree unless memory is complete.
    fn open(&self, memory: GroupScan<'a>, complete: bool) -> Result<Scan<'a>> {
        let cursor = self.visible(memory, complete)?;
        Ok(Scan(Walk::Merged(Box::new(Merged { cursor, prefix_len: self.prefix.len(), started: false }))))
    }

    /// As [`Source::open`], with expiries.
    pub fn visible(&self, memory: GroupScan<'a>, complete: bool) -> Result<VisibleCursor<'a>> {
        let buried = memory.prefix_delete();
        let memory = std::iter::once(Box::new(memory) as Box<dyn RecordCursor + 'a>);
        let mut deleted = buried;
        let mut range = None;
        if !complete && !self.tree.version().is_empty() {
            let scanned = key_range(self.prefix, self.bounds);
            self.tree.fetch_for_scan(&scanned, Some(self.prefix), self.direction);
            deleted = deleted.max(self.tree.prefix_delete(self.prefix)?);
            range = Some(scanned).filter(|range| !range.is_empty());
        }
        let below = range.into_iter().flat_map(|range| self.tree.cursors(&range, self.direction, true));
        let merged = MergeCursor::new(memory.chain(below), self.direction);
        let deleted = PrefixDeletes::Known(deleted);
        Ok(VisibleCursor::new(merged, self.direction, self.resolver.clone(), deleted))
    }
}

/// An owned position in the entries of a prefix as they were when it was opened.
#[derive(Debug)]
pub struct Cursor {
    view: ViewId,
    tree: Arc<Tree>,
    resolver: Resolver,
    prefix: Vec<u8>,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    direction: Direction,
    /// Entries read ahead, next one last.
    chunk: Vec<(Vec<u8>, Vec<u8>)>,
    ended: bool,
}

impl Cursor {
    /// Puts the next user key and value into the buffers; false at the end. `backend` must be the one that opened
    /// the cursor.
    ///
    /// # Errors
    /// As [`Scan::next`]; a later call tries again.
    pub fn next(&mut self, backend: &mut Backend, user_key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        backend.shared.check()?;
        if self.chunk.is_empty() && !self.ended {
            self.read_ahead(backend)?;
        }
        let Some((next_key, next_value)) = self.chunk.pop() else { return Ok(false) };
        (*user_key, *value) = (next_key, next_value);
        Ok(true)
    }

    /// Gives up the cursor and what is kept for it.
    pub fn close(self, backend: &mut Backend) {
        backend.memtable.close_view(self.view);
    }

    fn read_ahead(&mut self, backend: &Backend) -> Result<()> {
        let bounds = (as_slice(&self.bounds.0), as_slice(&self.bounds.1));
        let memory = backend.memtable.scan_at(self.view, &self.prefix, bounds, self.direction);
        let complete = memory.is_complete();
        let source = Source {
            prefix: &self.prefix,
            bounds,
            direction: self.direction,
            tree: &self.tree,
            resolver: &self.resolver,
        };
        let mut scan = source.open(memory, complete)?;
        let mut chunk = Vec::new();
        let mut bytes = 0;
        while chunk.len() < CHUNK_ENTRIES && bytes < CHUNK_BYTES {
            let Some((user_key, value)) = scan.next()? else {
                self.ended = true;
                break;
            };
            bytes += user_key.len() + value.len();
            chunk.push((user_key.to_vec(), value.to_vec()));
        }
        drop(scan);
        if let Some((last, _)) = chunk.last() {
            let beyond = Bound::Excluded(last.clone());
            match self.direction {
                Direction::Forward => self.bounds.0 = beyond,
                Direction::Backward => self.bounds.1 = beyond,
            }
        }
        chunk.reverse();
        self.chunk = chunk;
        Ok(())
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
