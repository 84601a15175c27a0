//! Prefix deletes, and the tidying of groups that have become empty.
//!
//! A prefix delete of sequence s hides records of sequences below s. Members of the current generation
//! are therefore marked dead when they are few; otherwise the generation ends and the delete is written
//! in the next one, which costs the same whatever the size of the group.

use std::ops::Bound;

use crate::Result;
use crate::base::cursor::Direction;
use crate::base::record::{Kind, NEVER};

use super::group::{Members, Tombstone};
use super::key::{Below, MemKey};
use super::layout::NewRecord;
use super::location::Location;
use super::memtable::Memtable;

/// Members that a prefix delete looks at one by one.
const FEW_MEMBERS: usize = 64;
/// The same where it saves the tombstone.
const FEW_MEMBERS_TO_FORGET: usize = 256;

impl Memtable {
    /// Deletes every key of the group of `prefix`, in time that doesn't grow with their number.
    /// `below` is asked only when the group isn't in memory.
    ///
    /// # Errors
    /// As [`Memtable::put`].
    pub fn delete_prefix(&mut self, prefix: &[u8], below: impl FnOnce() -> Below) -> Result<()> {
        let key = MemKey::grouped(prefix, prefix.len());
        key.check(0)?;
        let Some(id) = self.groups.find_hashed(key.hash(), prefix) else {
            if below() == Below::NothingAtPrefix {
                return Ok(());
            }
            let location = self.append_prefix_delete(prefix, None)?;
            let id = self.groups.create(prefix);
            self.bury(id, location);
            self.group_shrank(id);
            return Ok(());
        };
        if self.views.is_empty() { self.drop_group(prefix, id) } else { self.hide_group(prefix, id) }
    }

    fn drop_group(&mut self, prefix: &[u8], id: u32) -> Result<()> {
        let group = self.groups.get(id);
        let members = group.members.len();
        if members == 0 && group.complete_at(self.current) {
            return Ok(());
        }
        if group.absent_epoch == self.epoch_first && members <= FEW_MEMBERS_TO_FORGET && self.leaves_nothing(id) {
            self.kill_open_members(id);
            self.groups.take_members(id);
            self.group_shrank(id);
            return Ok(());
        }
        let few = members <= FEW_MEMBERS;
        if !few {
            self.current += 1;
        }
        let location = self.place_prefix_delete(prefix, id)?;
        if few {
            self.kill_open_members(id);
        }
        if let Members::Large(sorted) = self.groups.take_members(id) {
            self.trash.members.push(sorted);
        }
        self.bury(id, location);
        self.group_shrank(id);
        Ok(())
    }

    /// True when no record of any member, nor an older one of its key, would outlive the group.
    fn leaves_nothing(&self, id: u32) -> bool {
        let mut iter = self.groups.get(id).members.all(&self.log);
        while let Some(slot) = iter.step(Direction::Forward) {
            let location = slot.get().location();
            if !self.log.is_open(location) || !self.log.header(location).absent_below() {
                return false;
            }
        }
        true
    }

    /// While views are open members stay for them, hidden from the present.
    fn hide_group(&mut self, prefix: &[u8], id: u32) -> Result<()> {
        self.current += 1;
        let location = self.place_prefix_delete(prefix, id)?;
        self.bury(id, location);
        self.retaining.push((id, None));
        Ok(())
    }

    /// The record of the group's prefix delete: the one it has, brought up to date, or a new one.
    fn place_prefix_delete(&mut self, prefix: &[u8], id: u32) -> Result<Location> {
        let old = self.groups.get(id).tombstone.and_then(|t| t.location);
        if let Some(old) = old {
            let (current, mut header) = (self.current, self.log.header(old));
            if self.is_mutable(old, header.sequence)
                && let Some((bytes, at)) = self.log.open_record(old)
            {
                header.sequence = current;
                header.write(bytes, at);
                return Ok(old);
            }
        }
        self.append_prefix_delete(prefix, old)
    }

    fn append_prefix_delete(&mut self, prefix: &[u8], old: Option<Location>) -> Result<Location> {
        let prev = old.filter(|_| !self.views.is_empty()).map(|old| self.log.link(old));
        self.log.append(&NewRecord {
            key: prefix,
            user_key_len: Some(0),
            kind: Kind::PrefixDelete,
            sequence: self.current,
            expiry: NEVER,
            absent_below: false,
            prev,
            value: [&[], &[]],
            spare: 0,
        })
    }

    fn bury(&mut self, id: u32, location: Location) {
        let sequence = self.current;
        let group = self.groups.get_mut(id);
        if !group.complete_at(sequence) {
            group.complete_since = sequence;
        }
        group.absent_epoch = 0;
        group.tombstone = Some(Tombstone { location: Some(location), sequence });
    }

    fn kill_open_members(&mut self, id: u32) {
        let mut doomed = std::mem::take(&mut self.scratch_locations);
        let members = &self.groups.get(id).members;
        let mut iter = members.all(&self.log);
        while let Some(slot) = iter.step(Direction::Forward) {
            doomed.push(slot.get().location());
        }
        for location in doomed.drain(..) {
            if self.log.is_open(location) {
                self.log.kill(location);
            } else {
                self.log.mark_gone(location);
            }
        }
        self.scratch_locations = doomed;
    }

    /// Called after a group lost members: an empty one goes when nothing rests on it.
    pub(super) fn group_shrank(&mut self, id: u32) {
        let settled = self.settled();
        let group = self.groups.get_mut(id);
        if group.members.len() > 0 {
            return;
        }
        let rests = group.silent_delete.max(group.tombstone.map_or(0, |t| t.sequence));
        if rests <= settled {
            self.groups.remove(id);
        } else if !group.queued {
            group.queued = true;
            self.emptied.push_back(id);
        }
    }

    /// Looks at up to `count` groups that were empty once.
    pub(super) fn look_at_emptied(&mut self, count: usize) {
        for _ in 0..count {
            let Some(id) = self.emptied.front().copied() else { return };
            let settled = self.settled();
            let group = self.groups.get_mut(id);
            let rests = group.silent_delete.max(group.tombstone.map_or(0, |t| t.sequence));
            if group.members.len() == 0 && rests > settled {
                return;
            }
            self.emptied.pop_front();
            group.queued = false;
            self.group_shrank(id);
        }
    }

    /// Drops members that were kept for views, once none is open: at most `count` looked at a call.
    pub(super) fn release_retained(&mut self, count: usize) {
        if !self.views.is_empty() {
            return;
        }
        let Some((id, from)) = self.retaining.pop() else { return };
        let members = &self.groups.get(id).members;
        let start = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_slice()));
        let mut iter = members.range(&self.log, start, Bound::Unbounded);
        let mut hidden: Vec<Vec<u8>> = Vec::new();
        let mut last = None;
        for _ in 0..count {
            let Some(slot) = iter.step(Direction::Forward) else {
                last = None;
                break;
            };
            let location = slot.get().location();
            let user_key = self.log.user_key(location).to_vec();
            if self.groups.get(id).hides(self.log.header(location).sequence) {
                hidden.push(user_key.clone());
            }
            last = Some(user_key);
        }
        if last.is_some() {
            self.retaining.push((id, last));
        }
        for user_key in hidden {
            self.groups.remove_member(&self.log, id, &user_key);
        }
        self.group_shrank(id);
    }
}
