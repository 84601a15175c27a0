//! A shard of the index: open addressing over cache lines of eight one-word slots.
//!
//! An entry stands in its home line or, where that is full, in the next line that isn't. A search goes through a line
//! without branching on what it holds, so the processor runs ahead into the next operation while this one waits for
//! memory. Removing moves entries back into full lines, so that no marks of what was removed pile up.

use std::cell::Cell;

use super::location::{Location, Slot};
use super::table::{FULL_LINES, Line, Table, Tables, WIDTH};

/// Lines of the first table.
const FIRST_LINES: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    lines: Table,
    len: usize,
    depth: u32,
}

impl Line {
    /// A bit for each slot of this tag; slots without an entry may be among them.
    #[inline]
    fn matches(&self, tag: u64) -> u32 {
        let mut bits = 0;
        for (at, slot) in self.0.iter().enumerate() {
            bits |= u32::from(slot.get().tag() == tag) << at;
        }
        bits
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.0[WIDTH - 1].get() != Slot::EMPTY
    }

    /// Adds an entry behind the others; false when there is no room.
    fn push(&self, slot: Slot) -> bool {
        let free = self.0.iter().find(|s| s.get() == Slot::EMPTY);
        free.inspect(|free| free.set(slot)).is_some()
    }

    /// Takes an entry out; the last one takes its place.
    fn take(&self, at: usize) -> Slot {
        let last = self.0.iter().rposition(|s| s.get() != Slot::EMPTY).unwrap_or(at);
        let taken = self.0[at].replace(self.0[last].get());
        self.0[last].set(Slot::EMPTY);
        taken
    }
}

impl Shard {
    /// An empty one, without memory.
    pub(super) fn new(depth: u32) -> Self {
        Self { lines: Table::none(), len: 0, depth }
    }

    /// Leading bits of the hash that all its entries share.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes of its table, unless that is cut from a piece.
    pub(super) fn own_bytes(&self) -> u64 {
        self.lines.own_bytes()
    }

    /// True when another entry has no room: at thirteen sixteenths, where few lines are full.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.lines.len() * (WIDTH * 13 / 16)
    }

    /// True when it is as large as it should become.
    pub(super) fn may_split(&self) -> bool {
        self.lines.len() >= FULL_LINES
    }

    /// The line of a tag. All tags of a shard agree in their leading bits, so the rest is spread over the whole word.
    #[inline]
    fn home(&self, tag: u64) -> usize {
        (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.lines.len().wrapping_sub(1)
    }

    #[inline]
    fn next(&self, line: usize) -> usize {
        (line + 1) & (self.lines.len() - 1)
    }

    #[inline]
    fn position(&self, tag: u64, mut is: impl FnMut(Location) -> bool) -> Option<(usize, usize)> {
        let mut at = self.home(tag);
        loop {
            let line = self.lines.get(at)?;
            let mut matches = line.matches(tag);
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize % WIDTH;
                let found = line.0[slot].get();
                if found != Slot::EMPTY && is(found.location()) {
                    return Some((at, slot));
                }
                matches &= matches - 1;
            }
            if !line.is_full() {
                return None;
            }
            at = self.next(at);
        }
    }

    /// The slot of `tag` whose location satisfies `is`.
    #[inline]
    pub(super) fn find(&self, tag: u64, is: impl FnMut(Location) -> bool) -> Option<&Cell<Slot>> {
        self.position(tag, is).map(|(line, slot)| &self.lines[line].0[slot])
    }

    /// Adds a slot; there is room for it.
    pub(super) fn insert(&mut self, slot: Slot) {
        debug_assert!(!self.is_full());
        let mut at = self.home(slot.tag());
        while !self.lines[at].push(slot) {
            at = self.next(at);
        }
        self.len += 1;
    }

    /// Removes the slot of `tag` that leads to `location`.
    pub(super) fn remove(&mut self, tag: u64, location: Location) -> Option<Slot> {
        let (mut hole, slot) = self.position(tag, |l| l == location)?;
        let mut was_full = self.lines[hole].is_full();
        let removed = self.lines[hole].take(slot);
        self.len -= 1;
        // Behind a line that was full there may be entries that belong into it or before it.
        let mut at = hole;
        while was_full {
            at = self.next(at);
            if at == hole {
                break;
            }
            let is_full = self.lines[at].is_full();
            if let Some(slot) = self.overflowed(hole, at) {
                let moved = self.lines[at].take(slot);
                self.lines[hole].push(moved);
                hole = at;
            }
            was_full = is_full;
        }
        Some(removed)
    }

    /// An entry in line `at` whose way there from its home leads through line `hole`.
    fn overflowed(&self, hole: usize, at: usize) -> Option<usize> {
        let mask = self.lines.len() - 1;
        let distance = at.wrapping_sub(hole) & mask;
        self.lines[at].0.iter().position(|slot| {
            let slot = slot.get();
            slot != Slot::EMPTY && at.wrapping_sub(self.home(slot.tag())) & mask >= distance
        })
    }

    /// Doubles the table.
    pub(super) fn grow(&mut self, tables: &mut Tables) {
        let count = if self.lines.is_empty() { FIRST_LINES } else { self.lines.len() * 2 };
        let old = std::mem::replace(self, Self { lines: tables.make(count), len: 0, depth: self.depth });
        old.slots().for_each(|slot| self.insert(slot));
    }

    /// Moves the entries whose tag has `bit` set into a shard of their own.
    pub(super) fn split(&mut self, bit: u32, tables: &mut Tables) -> Self {
        self.depth += 1;
        let mut upper = Self { lines: tables.make(self.lines.len()), len: 0, depth: self.depth };
        let slots: Vec<Slot> = self.slots().collect();
        self.len = 0;
        self.lines.iter().flat_map(|line| &line.0).for_each(|slot| slot.set(Slot::EMPTY));
        for slot in slots {
            if slot.tag() >> bit & 1 == 1 { upper.insert(slot) } else { self.insert(slot) }
        }
        upper
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        let slots = self.lines.iter().flat_map(|line| &line.0).map(Cell::get);
        slots.filter(|slot| *slot != Slot::EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::base::checksum;
    use crate::io::memory::Slabs;

    fn hash_of(key: u32) -> u64 {
        // Few homes, so that slots crowd and wrap around.
        checksum::hash64(&key.to_le_bytes()) & !(0xFF << 40)
    }

    #[test]
    fn slots_that_crowd_and_are_removed_in_any_order_are_found_as_in_a_map() {
        let (mut shard, mut model) = (Shard::new(0), HashMap::new());
        let mut tables = Tables::new(None);
        for step in 0..60_000_u32 {
            let key = checksum::hash64(&step.to_be_bytes()) as u32 % 700;
            let (hash, location) = (hash_of(key), Location::new(key, 8));
            if model.remove(&key).is_some() {
                assert!(shard.remove(Slot::tag_of(hash), location).is_some());
            } else {
                if shard.is_full() {
                    shard.grow(&mut tables);
                }
                shard.insert(Slot::new(hash, location));
                model.insert(key, location);
            }
            let probe = step % 700;
            let found = shard.find(Slot::tag_of(hash_of(probe)), |l| l == Location::new(probe, 8));
            assert_eq!(found.map(|slot| slot.get().location()), model.get(&probe).copied());
        }
        assert_eq!(shard.len, model.len());
    }

    #[test]
    fn splitting_loses_nothing_and_sends_each_slot_to_its_half() {
        let (mut shard, mut tables) = (Shard::new(3), Tables::new(Some(Slabs::default())));
        for key in 0..1000 {
            if shard.is_full() {
                shard.grow(&mut tables);
            }
            shard.insert(Slot::new(checksum::hash64(&[key as u8, (key >> 8) as u8]), Location::new(key, 16)));
        }
        let upper = shard.split(20, &mut tables);
        assert_eq!(shard.len + upper.len, 1000);
        assert!(shard.slots().all(|slot| slot.tag() >> 20 & 1 == 0));
        assert!(upper.slots().all(|slot| slot.tag() >> 20 & 1 == 1));
        assert_eq!(upper.depth(), 4);
    }
}
