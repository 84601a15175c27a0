//! Many members of a group in the order of their user keys.
//!
//! Leaves hold up to [`LEAF_MEMBERS`] members, the heads of their user keys together and their slots together, so that a
//! search waits for memory once or twice; a tree of separators leads to the leaf. A leaf's members are at or above its
//! separator and below the next one. User keys beyond their heads are looked at in the log, and only where heads are equal.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use crate::base::cursor::Direction;

use super::location::Slot;
use super::log::Log;
use super::user_key::{Head, UserKey};

/// Most members of a leaf.
const LEAF_MEMBERS: usize = 64;
/// A leaf with fewer is joined with the next one where both fit with room to spare.
const FEW_MEMBERS: usize = LEAF_MEMBERS / 4;
const ROOMY_MEMBERS: usize = LEAF_MEMBERS / 4 * 3;

/// What a leaf costs: itself, and its entry in a B-tree two thirds full.
const LEAF_BYTES: u64 = (size_of::<Leaf>() + 16 + (size_of::<UserKey>() + 8) * 3 / 2) as u64;

/// Up to [`LEAF_MEMBERS`] members. The halves of their heads lie apart: the first ones alone decide most searches.
#[derive(Debug)]
struct Leaf {
    len: usize,
    first: [u64; LEAF_MEMBERS],
    second: [u64; LEAF_MEMBERS],
    slots: [Cell<Slot>; LEAF_MEMBERS],
}

impl Leaf {
    fn new() -> Box<Self> {
        let slots = [const { Cell::new(Slot::EMPTY) }; LEAF_MEMBERS];
        Box::new(Self { len: 0, first: [0; LEAF_MEMBERS], second: [0; LEAF_MEMBERS], slots })
    }

    fn slots(&self) -> &[Cell<Slot>] {
        &self.slots[..self.len]
    }

    /// Place of `user_key`, or where it would stand.
    #[inline]
    fn search(&self, log: &Log, user_key: &[u8], head: Head) -> Result<usize, usize> {
        let (first, second) = head.halves();
        // All of them, in place of a binary search: the cache misses of this loop overlap.
        let below: usize = self.first[..self.len].iter().map(|other| usize::from(*other < first)).sum();
        let same = self.first[below..self.len].iter().take_while(|other| **other == first).count();
        let (mut low, mut high) = (below, below + same);
        while low < high {
            let middle = low + (high - low) / 2;
            let order = self.second[middle].cmp(&second).then_with(|| {
                if head.is_whole() {
                    return Ordering::Equal;
                }
                log.user_key(self.slots[middle].get().location()).cmp(user_key)
            });
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// As [`Leaf::search`], which is spared where `hint` turns out to be the place.
    #[inline]
    fn search_near(&self, log: &Log, user_key: &[u8], head: Head, hint: usize) -> Result<usize, usize> {
        let wanted = head.halves();
        let at = |place: usize| (self.first[place], self.second[place]);
        if hint <= self.len && (hint == 0 || at(hint - 1) < wanted) {
            if hint == self.len || wanted < at(hint) {
                return Err(hint);
            }
            let is_same = || head.is_whole() || log.user_key(self.slots[hint].get().location()) == user_key;
            if wanted == at(hint) && is_same() {
                return Ok(hint);
            }
        }
        self.search(log, user_key, head)
    }

    /// How many members are below `bound` as the start of a range.
    fn start(&self, log: &Log, bound: Bound<&[u8]>) -> usize {
        match bound {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.search(log, key, Head::of(key)).unwrap_or_else(|at| at),
            Bound::Excluded(key) => self.search(log, key, Head::of(key)).map_or_else(|at| at, |at| at + 1),
        }
    }

    /// How many members are within `bound` as the end of a range.
    fn end(&self, log: &Log, bound: Bound<&[u8]>) -> usize {
        match bound {
            Bound::Unbounded => self.len,
            Bound::Included(key) => self.search(log, key, Head::of(key)).map_or_else(|at| at, |at| at + 1),
            Bound::Excluded(key) => self.search(log, key, Head::of(key)).unwrap_or_else(|at| at),
        }
    }

    /// Adds a member to a leaf that has room.
    fn insert(&mut self, at: usize, head: Head, slot: Slot) {
        self.first.copy_within(at..self.len, at + 1);
        self.second.copy_within(at..self.len, at + 1);
        self.slots[at..=self.len].rotate_right(1);
        (self.first[at], self.second[at]) = head.halves();
        self.slots[at].set(slot);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> Slot {
        let slot = self.slots[at].get();
        self.first.copy_within(at + 1..self.len, at);
        self.second.copy_within(at + 1..self.len, at);
        self.slots[at..self.len].rotate_left(1);
        self.len -= 1;
        slot
    }

    fn split_off(&mut self, at: usize) -> Box<Self> {
        let mut right = Self::new();
        right.append_from(self, at);
        self.len = at;
        right
    }

    /// Appends the members of `other` from its place `at` on.
    fn append_from(&mut self, other: &Self, at: usize) {
        let end = self.len + other.len - at;
        self.first[self.len..end].copy_from_slice(&other.first[at..other.len]);
        self.second[self.len..end].copy_from_slice(&other.second[at..other.len]);
        self.slots[self.len..end].clone_from_slice(&other.slots[at..other.len]);
        self.len = end;
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sorted {
    /// By separator; the first one is the empty key, and always there.
    leaves: BTreeMap<UserKey, Box<Leaf>>,
    len: usize,
    separator_bytes: u64,
    /// Where in its leaf the last search ended: what is found is often removed next, what isn't is often added.
    hint: Cell<usize>,
}

impl Sorted {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            leaves: BTreeMap::from([(UserKey::new(&[]), Leaf::new())]),
            len: 0,
            separator_bytes: 0,
            hint: Cell::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that it takes.
    pub(super) fn size_bytes(&self) -> u64 {
        self.leaves.len() as u64 * LEAF_BYTES + self.separator_bytes
    }

    #[inline]
    pub(super) fn find(&self, log: &Log, user_key: &[u8]) -> Option<&Cell<Slot>> {
        let key = UserKey::new(user_key);
        let head = key.head();
        let (_, leaf) = self.leaves.range(..=key).next_back()?;
        let found = leaf.search(log, user_key, head);
        let (Ok(at) | Err(at)) = found;
        self.hint.set(at);
        found.ok().map(|at| &leaf.slots[at])
    }

    /// Adds a member that isn't there.
    pub(super) fn insert(&mut self, log: &Log, user_key: &[u8], slot: Slot) {
        let key = UserKey::new(user_key);
        let head = key.head();
        let Some((_, leaf)) = self.leaves.range_mut(..=key).next_back() else { return };
        let (Ok(at) | Err(at)) = leaf.search_near(log, user_key, head, self.hint.get());
        self.len += 1;
        if leaf.len < LEAF_MEMBERS {
            return leaf.insert(at, head, slot);
        }
        // At the end a full leaf stays full: what is added in order fills leaves.
        let middle = if at == LEAF_MEMBERS { LEAF_MEMBERS } else { LEAF_MEMBERS / 2 };
        let mut right = leaf.split_off(middle);
        if at < middle {
            leaf.insert(at, head, slot);
        } else {
            right.insert(at - middle, head, slot);
        }
        let first = if at == middle { user_key } else { log.user_key(right.slots[0].get().location()) };
        let separator = UserKey::new(first);
        self.separator_bytes += separator.heap_bytes();
        self.leaves.insert(separator, right);
    }

    pub(super) fn remove(&mut self, log: &Log, user_key: &[u8]) -> Option<Slot> {
        let key = UserKey::new(user_key);
        let head = key.head();
        let (separator, leaf) = self.leaves.range_mut(..=key).next_back()?;
        let at = leaf.search_near(log, user_key, head, self.hint.get()).ok()?;
        let slot = leaf.remove(at);
        self.len -= 1;
        let left = leaf.len;
        if left < FEW_MEMBERS {
            let separator = separator.clone();
            self.thin_out(separator, left);
        }
        Some(slot)
    }

    /// The leaf at `separator` has become small: it goes, or it is joined with a neighbour.
    fn thin_out(&mut self, separator: UserKey, left: usize) {
        if left == 0 && !separator.is_empty() {
            self.take(&separator);
            return;
        }
        let roomy = |leaf: &Leaf| leaf.len + left <= ROOMY_MEMBERS;
        let before = self.leaves.range(..&separator).next_back().filter(|(_, leaf)| roomy(leaf));
        let behind = || self.leaves.range((Bound::Excluded(&separator), Bound::Unbounded)).next();
        let (into, from) = match (before, behind()) {
            (Some((before, _)), _) => (before.clone(), separator),
            (None, Some((behind, leaf))) if roomy(leaf) => (separator, behind.clone()),
            _ => return,
        };
        let Some(right) = self.take(&from) else { return };
        if let Some(leaf) = self.leaves.get_mut(&into) {
            leaf.append_from(&right, 0);
        }
    }

    fn take(&mut self, separator: &UserKey) -> Option<Box<Leaf>> {
        let leaf = self.leaves.remove(separator)?;
        self.separator_bytes -= separator.heap_bytes();
        Some(leaf)
    }

    /// The slot of the greatest user key.
    #[inline]
    pub(super) fn last(&self) -> Option<&Cell<Slot>> {
        // Only the first leaf may be empty.
        self.leaves.last_key_value().and_then(|(_, leaf)| leaf.slots().last())
    }

    /// The slots within the bounds, which must not be crossed.
    pub(super) fn range(&self, log: &Log, from: Bound<&[u8]>, to: Bound<&[u8]>) -> SortedIter<'_> {
        let start = match from {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => {
                self.leaves.range(..=UserKey::new(key)).next_back().map(|(separator, _)| separator)
            }
        };
        let end = match to {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(key) | Bound::Excluded(key) => Bound::Included(UserKey::new(key)),
        };
        let mut leaves = match start {
            Some(start) => self.leaves.range((Bound::Included(start), end.as_ref())),
            None => self.leaves.range((Bound::Unbounded, end.as_ref())),
        };
        let (mut front, mut back) = ([].iter(), [].iter());
        if let Some((_, first)) = leaves.next() {
            let start = first.start(log, from);
            if let Some((_, last)) = leaves.next_back() {
                front = first.slots()[start..].iter();
                back = last.slots()[..last.end(log, to)].iter();
            } else {
                front = first.slots().get(start..first.end(log, to)).unwrap_or_default().iter();
            }
        }
        SortedIter { front, leaves, back }
    }
}

/// Walks over slots from either end.
#[derive(Debug)]
pub(super) struct SortedIter<'a> {
    front: std::slice::Iter<'a, Cell<Slot>>,
    leaves: btree_map::Range<'a, UserKey, Box<Leaf>>,
    back: std::slice::Iter<'a, Cell<Slot>>,
}

impl<'a> SortedIter<'a> {
    #[inline]
    pub(super) fn step(&mut self, direction: Direction) -> Option<&'a Cell<Slot>> {
        match direction {
            Direction::Forward => loop {
                if let Some(slot) = self.front.next() {
                    return Some(slot);
                }
                let Some((_, leaf)) = self.leaves.next() else { return self.back.next() };
                self.front = leaf.slots().iter();
            },
            Direction::Backward => loop {
                if let Some(slot) = self.back.next_back() {
                    return Some(slot);
                }
                let Some((_, leaf)) = self.leaves.next_back() else { return self.front.next_back() };
                self.back = leaf.slots().iter();
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::checksum::hash64;
    use crate::base::record::NEVER;
    use crate::cache::budget::Budget;
    use crate::memtable::{Below, MemKey, Memtable, MemtableConfig};

    const PREFIX: &[u8] = b"\0\x01\0\0\0\x2Ak";

    /// Keys that differ early, at the end of the head, and only behind it.
    fn user_key(n: u64) -> Vec<u8> {
        let number = n.to_be_bytes();
        match n % 4 {
            0 => number[6..].to_vec(),
            1 => [&[7; 9][..], &number[2..]].concat(),
            2 => [&[7; 20][..], &number[6..]].concat(),
            _ => [&[7; 14][..], &vec![0; (n / 4 % 9) as usize]].concat(),
        }
    }

    struct World {
        memtable: Memtable,
        model: BTreeMap<Vec<u8>, u64>,
    }

    impl World {
        fn put(&mut self, n: u64) {
            let user_key = user_key(n);
            let key = [PREFIX, &user_key].concat();
            let key = MemKey::grouped(&key, PREFIX.len());
            self.memtable.put(key, &n.to_le_bytes(), NEVER, || Below::NothingAtPrefix).unwrap();
            self.model.insert(user_key, n);
        }

        fn delete(&mut self, n: u64) {
            let user_key = user_key(n);
            let key = [PREFIX, &user_key].concat();
            self.memtable.delete(MemKey::grouped(&key, PREFIX.len()), || Below::NothingAtPrefix).unwrap();
            self.model.remove(&user_key);
        }

        fn check(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = Vec::new();
                let values = self.memtable.values(PREFIX, (from, to), direction, i64::MIN, true).unwrap();
                found.extend(values.map(|(key, value)| (key.to_vec(), value.to_vec())));
                if direction == Direction::Backward {
                    found.reverse();
                }
                let expected = self.model.range::<[u8], _>((from, to));
                let expected: Vec<_> = expected.map(|(key, n)| (key.clone(), n.to_le_bytes().to_vec())).collect();
                assert_eq!(found, expected, "{from:?} {to:?} {direction:?}");
            }
        }
    }

    #[test]
    fn members_of_large_groups_are_those_of_an_ordered_map() {
        let memtable = Memtable::new(MemtableConfig::new(Budget::new(64 << 20)));
        let mut world = World { memtable, model: BTreeMap::new() };
        let random = |n: u64| hash64(&n.to_le_bytes());
        // Grows in order, grows at random, shrinks at random, drains from the front, grows again.
        (0..2000).for_each(|n| world.put(n));
        (0..3000).for_each(|n| world.put(random(n) % 10_000));
        for n in 0..12_000 {
            world.delete(random(n) % 10_000);
            if n % 500 == 0 {
                world.check(Bound::Unbounded, Bound::Unbounded);
            }
        }
        (0..10_000).filter(|n| n % 3 > 0).for_each(|n| world.delete(n));
        world.check(Bound::Unbounded, Bound::Unbounded);
        (0..5000).for_each(|n| world.put(random(n) % 10_000));
        for n in 0..300 {
            let (a, b) = (user_key(random(n) % 10_000), user_key(random(n + 1000) % 10_000));
            let (from, to) = if a <= b { (&*a, &*b) } else { (&*b, &*a) };
            world.check(Bound::Included(from), Bound::Excluded(to));
            if from < to {
                world.check(Bound::Excluded(from), Bound::Included(to));
                world.check(Bound::Excluded(from), Bound::Excluded(to));
            }
            world.check(Bound::Included(from), Bound::Included(to));
            world.check(Bound::Unbounded, Bound::Included(to));
        }
        let all: Vec<u64> = world.model.values().copied().collect();
        all.iter().for_each(|n| world.delete(*n));
        world.check(Bound::Unbounded, Bound::Unbounded);
        assert!(world.model.is_empty());
    }

    #[test]
    fn a_group_that_shrinks_gives_its_leaves_back() {
        let budget = Budget::new(64 << 20);
        let mut memtable = Memtable::new(MemtableConfig::new(budget.clone()));
        let key = |n: u64| [PREFIX, &n.to_be_bytes()].concat();
        let put = |memtable: &mut Memtable, n| {
            memtable.put(MemKey::grouped(&key(n), PREFIX.len()), b"", NEVER, || Below::NothingAtPrefix).unwrap();
        };
        (0..100_000).for_each(|n| put(&mut memtable, n));
        let full = memtable.stats().index_bytes;
        for n in (0..100_000).filter(|n| n % 20 > 0) {
            memtable.delete(MemKey::grouped(&key(n), PREFIX.len()), || Below::NothingAtPrefix).unwrap();
        }
        let sparse = memtable.stats().index_bytes;
        assert!(sparse < full / 8, "{sparse} bytes of {full} for a twentieth of the members");
        (0..100_000)
            .for_each(|n| memtable.delete(MemKey::grouped(&key(n), PREFIX.len()), || Below::NothingAtPrefix).unwrap());
        assert!(memtable.stats().index_bytes < 64 << 10);
    }
}
