//! Adoption, eviction and the cache log.
//!
//! Once the owner reads from a version that holds an epoch, the epoch's records are clean copies. They
//! go in the order in which they became clean, a few records at a time; one that was read since goes
//! to the cache log instead, where it has another turn.

use std::collections::VecDeque;

use crate::Result;
use crate::base::checksum;
use crate::base::cursor::Direction;
use crate::base::ids::Sequence;
use crate::base::record::{Kind, Record};

use super::key::{Below, MemKey};
use super::layout::{Header, NewRecord};
use super::location::{Link, Location, Slot};
use super::log::{Log, Previous};
use super::lookup::Lookup;
use super::memtable::Memtable;
use super::page::Memory;

/// Prefixes that are known to be empty at a time: a put of one usually follows at once.
const NOTED_EMPTY: usize = 64;

/// A clean container and how far its eviction has come.
#[derive(Debug)]
pub(super) struct Evictable {
    pub(super) container: u32,
    /// Last sequence of the epoch; 0 for a page of the cache log, which any view can do without.
    last: Sequence,
    page: usize,
    offset: usize,
}

/// Clean pages up to which memory is tidy, whatever they hold.
const TIDY_PAGES: usize = 16;

/// Which of the records that an index entry leads to stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Survivors {
    /// Those that were read since they became clean.
    Referenced,
    /// All values, and deletes that were read.
    Values,
}

impl Survivors {
    fn include(self, slot: Slot, header: &Header) -> bool {
        match header.kind() {
            Kind::Merge | Kind::PrefixDelete => false,
            Kind::Put if self == Self::Values => true,
            Kind::Put | Kind::Delete => slot.referenced(),
        }
    }

    /// The slot of a survivor that has moved. Where nothing is evicted, that it was read isn't forgotten.
    fn moved(self, slot: Slot, to: Location) -> Slot {
        let moved = slot.at(to);
        if self == Self::Values && slot.referenced() { moved.with_referenced() } else { moved }
    }
}

/// Copies the clean record at `location` to the cache log; `None` when there is no memory for it. `key` is its key, and has
/// its value behind it afterwards.
fn copy_clean(
    log: &mut Log,
    evictable: &mut VecDeque<Evictable>,
    key: &mut Vec<u8>,
    location: Location,
    header: &Header,
    memory: Memory,
) -> Option<Location> {
    let (record, prev) = (log.record(location), log.prev(location));
    let (sequence, kind, expiry) = (record.sequence, record.kind, record.expiry);
    let key_len = key.len();
    key.extend_from_slice(record.value);
    let (key, value) = key.split_at(key_len);
    let new = NewRecord {
        key,
        user_key_len: header.is_grouped().then_some(header.user_key_len()),
        kind,
        sequence,
        expiry,
        absent_below: false,
        prev,
        value: [value, &[]],
        spare: 0,
    };
    let (new, full) = log.append_clean(&new, memory).ok()?;
    evictable.extend(full.map(|container| Evictable { container, last: 0, page: 0, offset: 0 }));
    Some(new)
}

impl Memtable {
    /// Tells that the version now read from holds every epoch up to `through` (a
    /// [`SealedEpoch::last_sequence`](super::SealedEpoch::last_sequence)), in order. Their operands in
    /// memory no longer count, and they may be evicted.
    pub fn adopt(&mut self, through: Sequence) {
        self.adopted = self.adopted.max(through);
        while let Some(container) = self.unadopted.front().copied() {
            let last = self.log.epoch(container).map_or(0, |epoch| epoch.last_sequence());
            if last > self.adopted {
                break;
            }
            self.unadopted.pop_front();
            self.log.note_clean(container);
            self.evictable.push_back(Evictable { container, last, page: 0, offset: 0 });
        }
        self.look_at_emptied(8);
    }

    /// Evicts clean records until about `bytes` of pages have been gone through, and returns how many
    /// it went through: fewer when there is nothing more to evict, or an open view needs what is next.
    /// Memory comes back page by page, or with the whole epoch where a flush or a reader still holds it.
    pub fn evict_step(&mut self, bytes: u64) -> u64 {
        self.go_through(bytes, Survivors::Referenced)
    }

    /// True when a good part of what clean pages hold has been written anew or deleted since:
    /// [`Memtable::tidy_step`] gives its memory back.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        let entries = (self.singles.len() + self.groups.members()) as u64;
        self.log.clean_records() > entries * 2 && self.log.clean_pages() > TIDY_PAGES
    }

    /// Goes through about `bytes` of clean pages, as [`Memtable::evict_step`] does, but evicts no value: those that
    /// count move on, and memory holds about what is alive.
    pub fn tidy_step(&mut self, bytes: u64) -> u64 {
        self.go_through(bytes, Survivors::Values)
    }

    fn go_through(&mut self, bytes: u64, survivors: Survivors) -> u64 {
        let mut done = 0;
        self.release_retained(super::memtable::RETAINED_STEP);
        if self.evictable.is_empty()
            && let Some(container) = self.log.close_cache_page()
        {
            self.evictable.push_back(Evictable { container, last: 0, page: 0, offset: 0 });
        }
        while done < bytes {
            let settled = self.settled();
            let Some(front) = self.evictable.front() else { break };
            if front.last > settled {
                break;
            }
            let (container, page, offset) = (front.container, front.page, front.offset);
            match self.evict_from(container, page, offset, bytes - done, survivors) {
                Some(gone) => done += gone,
                None => break,
            }
        }
        self.look_at_emptied(8);
        done
    }

    /// Gives the free pages back to the budget, and forgets which prefixes are empty.
    pub fn release_pool(&mut self) {
        while let Some(id) = self.noted_empty.pop_front() {
            self.group_shrank(id);
        }
        self.log.pool.clear();
    }

    /// Goes through a part of a page; `None` when nothing could be done.
    fn evict_from(
        &mut self,
        container: u32,
        page: usize,
        offset: usize,
        bytes: u64,
        survivors: Survivors,
    ) -> Option<u64> {
        let Some(used) = self.log.pages_of(container).get(page).map(|page| page.used) else {
            self.evictable.pop_front();
            self.trash.epochs.extend(self.log.release_container(container));
            return Some(0);
        };
        let mut at = offset;
        while at < used && ((at - offset) as u64) < bytes {
            let pages = self.log.pages_of(container);
            let header = Header::read(pages[page].bytes(), at);
            let location = Location::new(pages[page].id, at);
            // A view may see what the index leads past.
            let is_gone = header.is_dead() || self.views.is_empty() && self.log.is_gone(location);
            if !is_gone && !self.evict_record(location, &header, survivors) {
                break;
            }
            at += header.size();
        }
        if at >= used {
            self.log.release_page(container, page);
        }
        if let Some(front) = self.evictable.front_mut() {
            (front.page, front.offset) = if at >= used { (page + 1, 0) } else { (page, at) };
        }
        (at > offset || at >= used).then_some((at - offset) as u64)
    }

    /// Takes one record out of the index, unless it survives; false when it has to stay where it is until a view is closed.
    fn evict_record(&mut self, location: Location, header: &Header, survivors: Survivors) -> bool {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend_from_slice(self.log.record(location).key);
        let evicted = if header.is_grouped() {
            self.evict_member(&mut key, location, header, survivors)
        } else {
            self.evict_single(&mut key, location, header, survivors);
            true
        };
        self.scratch = key;
        evicted
    }

    fn evict_single(&mut self, key: &mut Vec<u8>, location: Location, header: &Header, survivors: Survivors) {
        let hash = checksum::hash64(key);
        let Some(slot) = self.singles.find(hash, |l| l == location) else { return };
        let value = slot.get();
        if survivors.include(value, header)
            && let Some(new) = copy_clean(&mut self.log, &mut self.evictable, key, location, header, Memory::Asked)
        {
            slot.set(survivors.moved(value, new));
            self.moves += 1;
        } else {
            self.singles.remove(hash, location);
        }
    }

    /// As [`Memtable::evict_record`]. `key` may be made longer.
    fn evict_member(&mut self, key: &mut Vec<u8>, location: Location, header: &Header, survivors: Survivors) -> bool {
        let (prefix, user_key) = key.split_at(key.len() - header.user_key_len());
        let Some(id) = self.groups.find(prefix) else { return true };
        let settled = self.settled();
        if header.kind() == Kind::PrefixDelete {
            let group = self.groups.get_mut(id);
            group.settled_tombstone = group.settled_tombstone.max(header.sequence);
            if let Some(tombstone) = group.tombstone.as_mut().filter(|t| t.location == Some(location)) {
                tombstone.location = None;
                self.group_shrank(id);
            }
            return true;
        }
        let group = self.groups.get(id);
        let Some(slot) = group.members.find(&self.log, user_key) else { return true };
        let value = slot.get();
        if value.location() != location {
            return self.evict_superseded(id, value.location(), location, header);
        }
        // The group must stay complete until its silent deletes have arrived below.
        let must_stay = group.silent_delete > settled;
        let may_stay = survivors.include(value, header) && !group.hides(header.sequence);
        let prefix_len = prefix.len();
        if must_stay || may_stay {
            let memory = Memory::of(must_stay);
            let copied = copy_clean(&mut self.log, &mut self.evictable, key, location, header, memory);
            if let Some(new) = copied {
                slot.set(survivors.moved(value, new));
                self.moves += 1;
                return true;
            }
        }
        self.groups.get_mut(id).absent_epoch = 0;
        if header.kind() != Kind::Delete {
            self.end_completeness(id, self.first_tombstone_after(id, header.sequence));
        }
        let user_key = &key[prefix_len..header.key_len as usize];
        self.groups.remove_member(&self.log, id, user_key);
        self.group_shrank(id);
        true
    }

    /// The record at `location` is older than its key's newest: only views may see it, through links.
    fn evict_superseded(&mut self, id: u32, newest: Location, location: Location, header: &Header) -> bool {
        let group = self.groups.get(id);
        if self.views.is_empty() || group.complete_since == Sequence::MAX || header.kind() == Kind::Delete {
            return true;
        }
        let Some(successor) = self.log.successor(newest, location) else { return true };
        if group.silent_delete > self.settled() {
            return false;
        }
        let seen_until = self.log.header(successor).sequence.min(self.first_tombstone_after(id, header.sequence));
        self.end_completeness(id, seen_until);
        true
    }

    /// Sequence of the prefix delete that hid what was written at `sequence`; the greatest there is when
    /// none did.
    fn first_tombstone_after(&self, id: u32, sequence: Sequence) -> Sequence {
        let Some(newest) = self.groups.get(id).tombstone.filter(|t| t.sequence > sequence) else {
            return Sequence::MAX;
        };
        let mut first = newest.sequence;
        let mut next = newest.location;
        while let Some(location) = next {
            let at = self.log.header(location).sequence;
            if at <= sequence {
                break;
            }
            first = at;
            next = match self.log.previous(location) {
                Previous::At(previous) => Some(previous),
                Previous::None | Previous::Evicted => None,
            };
        }
        let settled = self.groups.get(id).settled_tombstone;
        if settled > sequence { first.min(settled) } else { first }
    }

    /// A member that reads before `until` see is gone: they have to go below. Reads since don't, so
    /// that they keep relying on deletes that are not below yet.
    fn end_completeness(&mut self, id: u32, until: Sequence) {
        let group = self.groups.get_mut(id);
        group.complete_since = group.complete_since.max(until);
    }

    fn append_clean(
        &mut self,
        key: MemKey<'_>,
        record: &Record<'_>,
        prev: Option<Link>,
        memory: Memory,
    ) -> Result<Location> {
        let new = NewRecord {
            key: record.key,
            user_key_len: key.user_key_len(),
            kind: record.kind,
            sequence: record.sequence,
            expiry: record.expiry,
            absent_below: false,
            prev,
            value: [record.value, &[]],
            spare: 0,
        };
        let (location, full) = self.log.append_clean(&new, memory)?;
        self.evictable.extend(full.map(|container| Evictable { container, last: 0, page: 0, offset: 0 }));
        Ok(location)
    }

    /// Keeps a clean copy of what the version holds for `key`: `record` is the newest [`Kind::Put`]
    /// with the folded value and the sequence of the newest record. It was read from the version
    /// adopted at `read_at` (an [`Memtable::adopted_sequence`]). Refused, with `false`, when memory
    /// says something about the key, when another version has been adopted since, or when there is no
    /// memory.
    pub fn promote(&mut self, key: MemKey<'_>, record: &Record<'_>, read_at: Sequence) -> bool {
        let fits = record.kind == Kind::Put && record.key == key.bytes() && key.check(record.value.len()).is_ok();
        if !fits || read_at != self.adopted || !matches!(self.lookup(key), Lookup::Unknown) {
            return false;
        }
        let (place, found) = self.locate(&key);
        // An adopted merge record stands there: what views see through it stays linked.
        let prev = found.filter(|_| !self.views.is_empty()).map(|location| self.log.link(location));
        let Ok(new) = self.append_clean(key, record, prev, Memory::Asked) else { return false };
        match found {
            Some(location) => self.move_entry(&key, place, location, new),
            None => self.insert_entry(&key, place, new, Below::Unknown),
        }
        true
    }

    /// Tells that every entry that lives under `prefix` in the version adopted at `read_at` has been
    /// promoted or is in memory, with no eviction in between: scans and misses of the group then stay
    /// in memory. Ignored when a member has operands that are not folded, or when another version has been adopted.
    /// That nothing lives under a prefix is known only for a while, but long enough for a put that follows.
    pub fn mark_complete(&mut self, prefix: &[u8], read_at: Sequence) {
        if read_at != self.adopted {
            return;
        }
        let id = self.groups.find(prefix).unwrap_or_else(|| self.note_empty(prefix));
        // Operands rest on a value below: no group that holds some is complete.
        let mut members = self.groups.get(id).members.all(&self.log);
        while let Some(slot) = members.step(Direction::Forward) {
            if self.log.header(slot.get().location()).kind() == Kind::Merge {
                return;
            }
        }
        let current = self.current;
        let group = self.groups.get_mut(id);
        if !group.complete_at(current) {
            group.complete_since = current;
        }
    }

    /// Makes a group without members, and gives up the oldest one that has stayed so.
    fn note_empty(&mut self, prefix: &[u8]) -> u32 {
        if self.noted_empty.len() >= NOTED_EMPTY
            && let Some(oldest) = self.noted_empty.pop_front()
        {
            self.group_shrank(oldest);
        }
        let id = self.groups.create(prefix);
        self.noted_empty.push_back(id);
        id
    }
}
