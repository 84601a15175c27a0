//! The sharded hash index: extendible hashing over small tables of one-word slots.
//!
//! A directory of 2^depth entries, read by the leading bits of the hash, leads to shards. A shard that
//! is full splits in two, and now and then the directory doubles; neither reads a record, because a
//! slot keeps enough of the hash. So no insert pays for more than one shard. Within a shard a key's slot
//! stands at its home or shortly behind it, mostly in the same cache line: a probe costs one miss.

use std::cell::Cell;

use crate::cache::budget::{Budget, Purpose, Reservation};
use crate::io::memory::Slabs;

use super::location::{Location, Slot, TAG_BITS};
use super::shard::Shard;
use super::table::Tables;

/// Directory bits at most; beyond, shards grow (with hashes this even, above 10^9 entries).
const MAX_DEPTH: u32 = 20;

/// Maps hashes to slots.
#[derive(Debug)]
pub(super) struct ShardedIndex {
    directory: Vec<u32>,
    shards: Vec<Shard>,
    tables: Tables,
    /// What shards have from the allocator.
    own_bytes: u64,
    depth: u32,
    len: usize,
    /// Entries added and removed so far.
    changes: u64,
    reservation: Reservation,
}

impl ShardedIndex {
    pub(super) fn new(budget: &Budget, slabs: Option<Slabs>) -> Self {
        Self {
            tables: Tables::new(slabs),
            directory: vec![0],
            shards: vec![Shard::new(0)],
            own_bytes: 0,
            depth: 0,
            len: 0,
            changes: 0,
            reservation: budget.force(Purpose::Index, 0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Grows whenever a key is added or removed.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    #[inline]
    fn entry_of(&self, hash: u64) -> usize {
        // Twice, since a shift by 64 isn't one.
        (hash >> 1 >> (63 - self.depth)) as usize
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        self.directory[self.entry_of(hash)] as usize
    }

    /// The slot of `hash` whose location satisfies `is`.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl FnMut(Location) -> bool) -> Option<&Cell<Slot>> {
        self.shards[self.shard_of(hash)].find(Slot::tag_of(hash), is)
    }

    /// Adds a slot; the caller knows that its key has none.
    pub(super) fn insert(&mut self, hash: u64, location: Location) {
        let mut shard = self.shard_of(hash);
        while self.shards[shard].is_full() {
            if self.shards[shard].may_split() && self.shards[shard].depth() < MAX_DEPTH {
                self.split(shard, hash);
                shard = self.shard_of(hash);
            } else {
                self.own_bytes -= self.shards[shard].own_bytes();
                self.shards[shard].grow(&mut self.tables);
                self.own_bytes += self.shards[shard].own_bytes();
                self.account();
            }
        }
        self.shards[shard].insert(Slot::new(hash, location));
        self.len += 1;
        self.changes += 1;
    }

    /// Removes the slot of `hash` that leads to `location`.
    pub(super) fn remove(&mut self, hash: u64, location: Location) -> Option<Slot> {
        let shard = self.shard_of(hash);
        let removed = self.shards[shard].remove(Slot::tag_of(hash), location)?;
        self.len -= 1;
        self.changes += 1;
        Some(removed)
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 2^21 shards")]
    fn split(&mut self, shard: usize, hash: u64) {
        let depth = self.shards[shard].depth();
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|s| [*s, *s]).collect();
            self.depth += 1;
        }
        let upper = self.shards[shard].split(TAG_BITS - 1 - depth, &mut self.tables);
        self.own_bytes += upper.own_bytes();
        let new = self.shards.len() as u32;
        self.shards.push(upper);
        // The shard's directory entries stand side by side; the upper half of them goes to the new one.
        let span = 1_usize << (self.depth - depth);
        let first = self.entry_of(hash) / span * span;
        self.directory[first + span / 2..first + span].fill(new);
        self.account();
    }

    fn account(&mut self) {
        let directory = size_of_val(&*self.directory) as u64;
        self.reservation.force_resize(self.own_bytes + self.tables.pieces_bytes() + directory);
    }
}
