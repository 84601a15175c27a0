//! The sharded hash index: extendible hashing over small tables of one-word slots.
//!
//! A directory of 2^depth entries, read by the leading bits of the hash, leads to shards. A shard that
//! is full splits in two, and now and then the directory doubles; neither reads a record, because a
//! slot keeps enough of the hash. So no insert pays for more than one shard.

use std::cell::Cell;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::cache::budget::{Budget, Purpose, Reservation};

use super::location::{Location, Slot, TAG_BITS};

/// Entries at which a shard splits: what a table of 2,048 buckets holds, so a shard never grows.
const SHARD_ENTRIES: usize = 1792;
/// Bytes of a shard's table: 2,048 slots and control bytes, and what the allocator adds.
const SHARD_BYTES: u64 = 2048 * 9 + 64;
/// Directory bits at most; beyond, shards grow (with hashes this even, above 10^9 entries).
const MAX_DEPTH: u32 = 20;

#[derive(Debug)]
struct Shard {
    slots: HashTable<Cell<Slot>>,
    depth: u32,
}

/// Maps hashes to slots.
#[derive(Debug)]
pub(super) struct ShardedIndex {
    directory: Vec<u32>,
    shards: Vec<Shard>,
    depth: u32,
    len: usize,
    reservation: Reservation,
}

/// The hash inside a shard. All tags of a shard agree in their leading bits, so the rest is spread
/// over the whole word: hashbrown uses low bits for the bucket and the top seven to compare.
#[inline]
fn shard_hash(tag: u64) -> u64 {
    tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl ShardedIndex {
    pub(super) fn new(budget: &Budget) -> Self {
        Self {
            directory: vec![0],
            shards: vec![Shard { slots: HashTable::new(), depth: 0 }],
            depth: 0,
            len: 0,
            reservation: budget.force(Purpose::Index, 0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        // Twice, since a shift by 64 isn't one.
        let entry = hash >> 1 >> (63 - self.depth);
        self.directory[entry as usize] as usize
    }

    /// The slot of `hash` whose location satisfies `is`.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is: impl FnMut(Location) -> bool) -> Option<&Cell<Slot>> {
        let tag = Slot::tag_of(hash);
        let shard = &self.shards[self.shard_of(hash)];
        shard.slots.find(shard_hash(tag), |slot| slot.get().tag() == tag && is(slot.get().location()))
    }

    /// Adds a slot; the caller knows that its key has none.
    pub(super) fn insert(&mut self, hash: u64, location: Location) {
        let mut shard = self.shard_of(hash);
        while self.shards[shard].slots.len() >= SHARD_ENTRIES && self.shards[shard].depth < MAX_DEPTH {
            self.split(shard, hash);
            shard = self.shard_of(hash);
        }
        let slots = &mut self.shards[shard].slots;
        if slots.capacity() == 0 {
            *slots = HashTable::with_capacity(SHARD_ENTRIES);
            self.account();
        }
        let slots = &mut self.shards[shard].slots;
        slots.insert_unique(shard_hash(Slot::tag_of(hash)), Cell::new(Slot::new(hash, location)), |slot| {
            shard_hash(slot.get().tag())
        });
        self.len += 1;
    }

    /// Removes the slot of `hash` that leads to `location`.
    pub(super) fn remove(&mut self, hash: u64, location: Location) -> Option<Slot> {
        let tag = Slot::tag_of(hash);
        let shard = self.shard_of(hash);
        let found = self.shards[shard].slots.entry(
            shard_hash(tag),
            |slot| slot.get().tag() == tag && slot.get().location() == location,
            |slot| shard_hash(slot.get().tag()),
        );
        match found {
            Entry::Occupied(entry) => {
                self.len -= 1;
                Some(entry.remove().0.get())
            }
            Entry::Vacant(_) => None,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most 2^21 shards")]
    fn split(&mut self, shard: usize, hash: u64) {
        let depth = self.shards[shard].depth;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|s| [*s, *s]).collect();
            self.depth += 1;
        }
        let bit = TAG_BITS - 1 - depth;
        let old = std::mem::take(&mut self.shards[shard].slots);
        let mut halves = [HashTable::with_capacity(SHARD_ENTRIES), HashTable::with_capacity(SHARD_ENTRIES)];
        for slot in old {
            let tag = slot.get().tag();
            let half = &mut halves[(tag >> bit & 1) as usize];
            half.insert_unique(shard_hash(tag), slot, |s| shard_hash(s.get().tag()));
        }
        let new = self.shards.len() as u32;
        let [low, high] = halves;
        self.shards[shard] = Shard { slots: low, depth: depth + 1 };
        self.shards.push(Shard { slots: high, depth: depth + 1 });
        // The shard's directory entries stand side by side; the upper half of them goes to the new one.
        let span = 1_usize << (self.depth - depth);
        let first = (hash >> 1 >> (63 - self.depth)) as usize / span * span;
        self.directory[first + span / 2..first + span].fill(new);
        self.account();
    }

    fn account(&mut self) {
        let bytes = self.shards.len() as u64 * SHARD_BYTES + self.directory.len() as u64 * 4;
        self.reservation.force_resize(bytes);
    }
}
