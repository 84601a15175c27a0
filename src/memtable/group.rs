//! Groups: the members of one prefix in the order of their user keys.
//!
//! A small group is a sorted vector of slots with the first bytes of each user key beside them; a large
//! one has leaves ([`super::sorted`]). What a group knows beyond its members decides whether a read has to go below it.

use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::Bound;

use smallvec::SmallVec;

use crate::base::checksum;
use crate::base::cursor::Direction;
use crate::base::ids::Sequence;
use crate::base::short;
use crate::cache::budget::{Budget, Purpose, Reservation};
use crate::io::memory::Slabs;

use super::index::ShardedIndex;
use super::location::{Location, Slot};
use super::log::Log;
use super::sorted::{Sorted, SortedIter};

/// Members that need no memory beside the group's own: lists have one or two chunks more often than not.
const INLINE_MEMBERS: usize = 2;
/// Room for so many is made at a time in a vector.
const MORE_MEMBERS: usize = 4;
/// Members up to which a group is a vector.
const SMALL_MEMBERS: usize = 32;
/// The accounts of small allocations are settled with the budget in steps of this many bytes.
const SETTLE_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Member {
    head: u64,
    slot: Cell<Slot>,
}

#[derive(Debug)]
pub(super) enum Members {
    Small(SmallVec<[Member; INLINE_MEMBERS]>),
    Large(Sorted),
}

/// The first eight bytes as a number, zeros behind: its order never contradicts that of the keys.
fn head_of(user_key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = user_key.len().min(8);
    head[..len].copy_from_slice(&user_key[..len]);
    u64::from_be_bytes(head)
}

fn search(members: &[Member], log: &Log, user_key: &[u8]) -> Result<usize, usize> {
    let head = head_of(user_key);
    // All heads, in place of a binary search: there are few, and the cache misses of this loop overlap.
    let below: usize = members.iter().map(|member| usize::from(member.head < head)).sum();
    for (at, member) in members.iter().enumerate().skip(below) {
        if member.head != head {
            return Err(at);
        }
        match log.user_key(member.slot.get().location()).cmp(user_key) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(at),
            Ordering::Greater => return Err(at),
        }
    }
    Err(members.len())
}

impl Members {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Small(members) => members.len(),
            Self::Large(sorted) => sorted.len(),
        }
    }

    pub(super) fn find(&self, log: &Log, user_key: &[u8]) -> Option<&Cell<Slot>> {
        match self {
            Self::Small(members) => search(members, log, user_key).ok().map(|at| &members[at].slot),
            Self::Large(sorted) => sorted.find(log, user_key),
        }
    }

    /// Adds a member that isn't there.
    fn insert(&mut self, log: &Log, user_key: &[u8], slot: Slot) {
        match self {
            Self::Small(members) if members.len() < SMALL_MEMBERS => {
                let (Ok(at) | Err(at)) = search(members, log, user_key);
                if members.len() == members.capacity() {
                    members.reserve_exact(MORE_MEMBERS);
                }
                members.insert(at, Member { head: head_of(user_key), slot: Cell::new(slot) });
            }
            Self::Small(members) => {
                let mut sorted = Sorted::new();
                for slot in members.iter().map(|member| member.slot.get()) {
                    sorted.insert(log, log.user_key(slot.location()), slot);
                }
                sorted.insert(log, user_key, slot);
                *self = Self::Large(sorted);
            }
            Self::Large(sorted) => sorted.insert(log, user_key, slot),
        }
    }

    fn remove(&mut self, log: &Log, user_key: &[u8]) -> Option<Slot> {
        match self {
            Self::Small(members) => search(members, log, user_key).ok().map(|at| members.remove(at).slot.get()),
            Self::Large(sorted) => sorted.remove(log, user_key),
        }
    }

    /// Bytes that they take.
    #[inline]
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Small(members) if !members.spilled() => 0,
            Self::Small(members) => (members.capacity() * size_of::<Member>()) as u64,
            Self::Large(sorted) => sorted.size_bytes(),
        }
    }

    /// The slot of the greatest user key.
    #[inline]
    pub(super) fn last(&self) -> Option<&Cell<Slot>> {
        match self {
            Self::Small(members) => members.last().map(|member| &member.slot),
            Self::Large(sorted) => sorted.last(),
        }
    }

    /// The slots of all members.
    pub(super) fn all(&self, log: &Log) -> MemberIter<'_> {
        self.range(log, Bound::Unbounded, Bound::Unbounded)
    }

    /// The slots of the members within the bounds, which must not be crossed.
    pub(super) fn range(&self, log: &Log, from: Bound<&[u8]>, to: Bound<&[u8]>) -> MemberIter<'_> {
        match self {
            Self::Small(members) => {
                let start = match from {
                    Bound::Unbounded => 0,
                    Bound::Included(key) => search(members, log, key).unwrap_or_else(|at| at),
                    Bound::Excluded(key) => search(members, log, key).map_or_else(|at| at, |at| at + 1),
                };
                let end = match to {
                    Bound::Unbounded => members.len(),
                    Bound::Included(key) => search(members, log, key).map_or_else(|at| at, |at| at + 1),
                    Bound::Excluded(key) => search(members, log, key).unwrap_or_else(|at| at),
                };
                MemberIter::Small(members.get(start..end).unwrap_or_default().iter())
            }
            Self::Large(sorted) => MemberIter::Large(sorted.range(log, from, to)),
        }
    }
}

/// Walks over members' slots from either end.
#[derive(Debug)]
pub(super) enum MemberIter<'a> {
    Small(std::slice::Iter<'a, Member>),
    Large(SortedIter<'a>),
}

impl<'a> MemberIter<'a> {
    #[inline]
    pub(super) fn step(&mut self, direction: Direction) -> Option<&'a Cell<Slot>> {
        match (self, direction) {
            (Self::Small(iter), Direction::Forward) => iter.next().map(|m| &m.slot),
            (Self::Small(iter), Direction::Backward) => iter.next_back().map(|m| &m.slot),
            (Self::Large(iter), direction) => iter.step(direction),
        }
    }
}

/// The newest prefix delete of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tombstone {
    /// Its record; `None` once that has been evicted, which is when every reader's version has it.
    pub(super) location: Option<Location>,
    pub(super) sequence: Sequence,
}

/// Everything in memory under one prefix. What most calls ask for comes first, in two lines of the cache.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    /// Beside the rest, so that comparing it costs no further cache miss; longer ones are on the heap.
    pub(super) prefix: SmallVec<[u8; 32]>,
    pub(super) members: Members,
    /// Newest prefix delete. Members older than it are only for views.
    pub(super) tombstone: Option<Tombstone>,
    /// Sequence of the newest prefix delete whose record was evicted, 0 for none: every view sees it.
    pub(super) settled_tombstone: Sequence,
    /// Reads as of this sequence or later need not go below: all that lives is among the members.
    /// `Sequence::MAX` when that isn't known.
    pub(super) complete_since: Sequence,
    /// First sequence of the epoch in which nothing at all lay below the prefix, 0 for none.
    pub(super) absent_epoch: Sequence,
    /// Newest delete whose record is in the log only. Until it is adopted the group must stay complete.
    pub(super) silent_delete: Sequence,
    /// The adopted sequence at which the version wasn't known to hold nothing below the prefix: it needn't be asked
    /// again before another is adopted.
    pub(super) asked_at: Sequence,
    /// The group waits in the queue of those that may have become empty.
    pub(super) queued: bool,
}

impl Group {
    pub(super) fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: SmallVec::from_slice(prefix),
            members: Members::Small(SmallVec::new()),
            tombstone: None,
            settled_tombstone: 0,
            complete_since: Sequence::MAX,
            absent_epoch: 0,
            silent_delete: 0,
            asked_at: Sequence::MAX,
            queued: false,
        }
    }

    /// True when a key that isn't among the members is absent for reads as of `sequence`.
    pub(super) fn complete_at(&self, sequence: Sequence) -> bool {
        self.complete_since != Sequence::MAX && self.complete_since <= sequence
    }

    /// True when a member written at `sequence` was deleted with its prefix since.
    pub(super) fn hides(&self, sequence: Sequence) -> bool {
        self.tombstone.is_some_and(|t| sequence < t.sequence)
    }
}

/// Groups by number. It grows by a chunk at a time, so that no step moves them all.
#[derive(Debug, Default)]
struct Slab(Vec<Vec<Group>>);

const CHUNK_GROUPS: usize = 256;

impl Slab {
    #[inline]
    fn get(&self, id: u32) -> &Group {
        &self.0[id as usize / CHUNK_GROUPS][id as usize % CHUNK_GROUPS]
    }

    #[inline]
    fn get_mut(&mut self, id: u32) -> &mut Group {
        &mut self.0[id as usize / CHUNK_GROUPS][id as usize % CHUNK_GROUPS]
    }

    #[expect(clippy::cast_possible_truncation, reason = "groups are bounded by memory, far below 2^32")]
    fn push(&mut self, group: Group) -> u32 {
        match self.0.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_GROUPS => chunk.push(group),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_GROUPS);
                chunk.push(group);
                self.0.push(chunk);
            }
        }
        let chunk = self.0.len() - 1;
        (chunk * CHUNK_GROUPS + self.0[chunk].len() - 1) as u32
    }
}

/// All groups, found by prefix.
#[derive(Debug)]
pub(super) struct Groups {
    index: ShardedIndex,
    slab: Slab,
    free: Vec<u32>,
    /// Members added and removed so far.
    changes: u64,
    /// Members of all groups.
    members: usize,
    used_bytes: u64,
    reservation: Reservation,
}

impl Groups {
    pub(super) fn new(budget: &Budget, slabs: Option<Slabs>) -> Self {
        Self {
            index: ShardedIndex::new(budget, slabs),
            slab: Slab::default(),
            free: Vec::new(),
            changes: 0,
            members: 0,
            used_bytes: 0,
            reservation: budget.force(Purpose::Index, 0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Grows whenever a group or a member is added or removed.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes + self.index.changes()
    }

    /// Members of all groups.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.index.size_bytes() + self.used_bytes
    }

    pub(super) fn find(&self, prefix: &[u8]) -> Option<u32> {
        self.find_hashed(checksum::hash64(prefix), prefix)
    }

    /// As [`Groups::find`], the prefix's hash known.
    #[inline]
    pub(super) fn find_hashed(&self, hash: u64, prefix: &[u8]) -> Option<u32> {
        let is = |id: Location| short::equal(&self.slab.get(id.id()).prefix, prefix);
        self.index.find(hash, is).map(|slot| slot.get().location().id())
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &Group {
        self.slab.get(id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> &mut Group {
        self.slab.get_mut(id)
    }

    pub(super) fn create(&mut self, prefix: &[u8]) -> u32 {
        let group = Group::new(prefix);
        let id = if let Some(id) = self.free.pop() {
            *self.slab.get_mut(id) = group;
            id
        } else {
            self.slab.push(group)
        };
        self.index.insert(checksum::hash64(prefix), Location::of_id(id));
        self.charge(group_bytes(prefix));
        id
    }

    /// Removes a group that has no members.
    pub(super) fn remove(&mut self, id: u32) {
        let group = std::mem::replace(self.slab.get_mut(id), Group::new(&[]));
        if self.index.remove(checksum::hash64(&group.prefix), Location::of_id(id)).is_some() {
            self.free.push(id);
            self.refund(group_bytes(&group.prefix));
        }
    }

    pub(super) fn insert_member(&mut self, log: &Log, id: u32, user_key: &[u8], location: Location) {
        self.changes += 1;
        self.members += 1;
        let members = &mut self.slab.get_mut(id).members;
        let before = members.size_bytes();
        members.insert(log, user_key, Slot::new(0, location));
        let after = members.size_bytes();
        self.recharge(before, after);
    }

    pub(super) fn remove_member(&mut self, log: &Log, id: u32, user_key: &[u8]) -> Option<Slot> {
        self.changes += 1;
        let members = &mut self.slab.get_mut(id).members;
        let before = members.size_bytes();
        let removed = members.remove(log, user_key)?;
        if members.len() == 0 {
            *members = Members::Small(SmallVec::new());
        }
        let after = members.size_bytes();
        self.members -= 1;
        self.recharge(before, after);
        Some(removed)
    }

    /// Takes all members out; a large group's are left for the caller to drop where it doesn't hurt.
    pub(super) fn take_members(&mut self, id: u32) -> Members {
        self.changes += 1;
        let taken = std::mem::replace(&mut self.slab.get_mut(id).members, Members::Small(SmallVec::new()));
        self.members -= taken.len();
        self.refund(taken.size_bytes());
        taken
    }

    #[inline]
    fn recharge(&mut self, before: u64, after: u64) {
        if before != after {
            self.used_bytes = self.used_bytes + after - before;
            self.settle();
        }
    }

    fn charge(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.settle();
    }

    fn refund(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
        self.settle();
    }

    fn settle(&mut self) {
        if self.reservation.bytes().abs_diff(self.used_bytes) >= SETTLE_BYTES {
            self.reservation.force_resize(self.used_bytes);
        }
    }
}

fn group_bytes(prefix: &[u8]) -> u64 {
    let on_heap = if prefix.len() > 32 { prefix.len() + 16 } else { 0 };
    (size_of::<Group>() + on_heap) as u64
}
