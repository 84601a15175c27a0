//! Puts, deletes and appends.
//!
//! Every write finds the newest record of its key, then either changes it in place (it belongs to the
//! open epoch and no view sees it) or appends a record and moves the index entry. Appending is the
//! only step that can fail, and it comes first.

use crate::Result;
use crate::base::record::{ExpiryMs, Kind, NEVER};

use super::key::{Below, MemKey};
use super::layout::{Header, NewRecord};
use super::location::{Link, Location};
use super::memtable::{Memtable, Place, RETAINED_STEP};

/// Room for a value from which on a delete is not written over it.
const LARGE_ROOM_BYTES: usize = 32;

/// What a write wants to leave behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'a> {
    pub(super) kind: Kind,
    pub(super) expiry: ExpiryMs,
    /// The value is these two, one behind the other.
    pub(super) value: [&'a [u8]; 2],
    /// Bytes to keep free behind the value when it has to move.
    pub(super) spare: usize,
    /// Older record to link to even when no view is open: what the operands apply to.
    pub(super) prev: Option<Link>,
}

impl<'a> Write<'a> {
    pub(super) fn put(value: &'a [u8], expiry: ExpiryMs) -> Self {
        Self { kind: Kind::Put, expiry, value: [value, &[]], spare: 0, prev: None }
    }

    pub(super) fn delete() -> Self {
        Self { kind: Kind::Delete, expiry: NEVER, value: [&[], &[]], spare: 0, prev: None }
    }
}

impl Memtable {
    /// Sets the value of `key`. `below` is asked only where memory can't tell (the key isn't in it): what
    /// it says lets a key that dies young leave nothing behind.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when key or value is over the limits,
    /// [`crate::ErrorKind::Backpressure`] when there is no memory. Nothing has changed then.
    ///
    /// # Examples
    /// ```
    /// use highwater::base::record::NEVER;
    /// use highwater::cache::budget::Budget;
    /// use highwater::memtable::{Below, Lookup, MemKey, Memtable, MemtableConfig};
    ///
    /// let mut memtable = Memtable::new(MemtableConfig::new(Budget::new(16 << 20)));
    /// let key = MemKey::single(b"\0\x01\0\0\0\x2Auser-7");
    /// memtable.put(key, b"41", NEVER, Below::unknown)?;
    /// memtable.put(key, b"42", NEVER, Below::unknown)?;
    /// assert!(matches!(memtable.lookup(key), Lookup::Record(record) if record.value == b"42"));
    /// # Ok::<(), highwater::Error>(())
    /// ```
    #[inline]
    pub fn put(
        &mut self,
        key: MemKey<'_>,
        value: &[u8],
        expiry: ExpiryMs,
        below: impl FnOnce() -> Below,
    ) -> Result<()> {
        key.check(value.len())?;
        match self.locate(&key) {
            (place, Some(location)) => {
                let header = self.log.header(location);
                if self.write_in_place(place, location, header, Kind::Put, value, expiry) {
                    return Ok(());
                }
                self.supersede(&key, place, location, &header, &Write::put(value, expiry))
            }
            (place, None) => {
                let below = self.ask(&key, place, below);
                self.insert(&key, place, &Write::put(value, expiry), below)
            }
        }
    }

    /// Deletes `key`; a tombstone is written unless nothing can lie below. `below` as for [`Memtable::put`].
    ///
    /// # Errors
    /// As [`Memtable::put`].
    pub fn delete(&mut self, key: MemKey<'_>, below: impl FnOnce() -> Below) -> Result<()> {
        key.check(0)?;
        let (place, found) = self.locate(&key);
        let Some(location) = found else {
            let below = self.ask(&key, place, below);
            return match (below, place) {
                (Below::Unknown, _) => self.insert(&key, place, &Write::delete(), below),
                _ => Ok(()),
            };
        };
        let header = self.log.header(location);
        if header.kind() == Kind::Delete || self.is_hidden(place, header.sequence) {
            return Ok(());
        }
        if header.absent_below() && self.is_mutable(location, header.sequence) {
            self.remove_entry(&key, place, location);
            self.log.kill(location);
            // A put that follows, as it does where rows are replaced, can be forgotten too.
            self.note_absent(key);
            return Ok(());
        }
        match place {
            Place::Member(id) if self.views.is_empty() && self.groups.get(id).complete_at(self.current) => {
                self.delete_silently(&key, id, location, &header)
            }
            // In place it would keep the value's page among those of the dead.
            _ if header.room as usize >= LARGE_ROOM_BYTES && self.log.parts_deletes() => {
                let parted = self.supersede(&key, place, location, &header, &Write::delete());
                // Without memory for that it is.
                parted.or_else(|_| self.overwrite(&key, place, location, &Write::delete()))
            }
            _ => self.overwrite(&key, place, location, &Write::delete()),
        }
    }

    /// Asks what lies below a key that isn't in memory: the group first, then the memo, then the caller.
    pub(super) fn ask(&mut self, key: &MemKey<'_>, place: Place, below: impl FnOnce() -> Below) -> Below {
        match place {
            Place::Member(id) if self.groups.get(id).complete_at(self.current) => Below::NothingAtKey,
            Place::Member(id) if !self.noted_absent(key) => self.ask_for_group(id, below),
            // Only the caller can speak for a whole group.
            Place::NoGroup => match below() {
                Below::Unknown if self.noted_absent(key) => Below::NothingAtKey,
                other => other,
            },
            _ if self.noted_absent(key) => Below::NothingAtKey,
            _ => below(),
        }
    }

    /// Asks for a group that memory knows in part, once for each version.
    fn ask_for_group(&mut self, id: u32, below: impl FnOnce() -> Below) -> Below {
        if self.groups.get(id).asked_at == self.adopted {
            return Below::Unknown;
        }
        let answer = below();
        if answer == Below::Unknown {
            self.groups.get_mut(id).asked_at = self.adopted;
        }
        answer
    }

    /// Writes over the newest record of `key`.
    #[inline]
    pub(super) fn overwrite(
        &mut self,
        key: &MemKey<'_>,
        place: Place,
        location: Location,
        write: &Write<'_>,
    ) -> Result<()> {
        let header = self.log.header(location);
        if write.value[1].is_empty()
            && self.write_in_place(place, location, header, write.kind, write.value[0], write.expiry)
        {
            return Ok(());
        }
        self.supersede(key, place, location, &header, write)
    }

    /// Changes the record at `location`, whose header is `header`, where it lies; false when that can't be.
    #[inline]
    fn write_in_place(
        &mut self,
        place: Place,
        location: Location,
        mut header: Header,
        kind: Kind,
        value: &[u8],
        expiry: ExpiryMs,
    ) -> bool {
        let current = self.current;
        if value.len() > header.room as usize
            || expiry != NEVER && !header.has_expiry()
            || !self.is_unseen(header.sequence)
            || self.is_hidden(place, header.sequence)
        {
            return false;
        }
        let Some((bytes, at)) = self.log.open_record(location) else { return false };
        #[expect(clippy::cast_possible_truncation, reason = "at most `room`, which is 32 bits wide")]
        let value_len = value.len() as u32;
        header.value_len = value_len;
        header.sequence = current;
        header.set_kind(kind);
        header.write(bytes, at);
        header.set_expiry(bytes, at, expiry);
        let start = at + header.value_offset();
        bytes[start..start + value.len()].copy_from_slice(value);
        true
    }

    /// Appends a record that takes the place of the one at `location`.
    #[inline(never)]
    pub(super) fn supersede(
        &mut self,
        key: &MemKey<'_>,
        place: Place,
        location: Location,
        old: &Header,
        write: &Write<'_>,
    ) -> Result<()> {
        let dies = self.is_mutable(location, old.sequence) && !self.is_hidden(place, old.sequence);
        let prev = if dies {
            self.log.prev(location)
        } else if self.views.is_empty() {
            write.prev
        } else {
            Some(self.log.link(location))
        };
        let new = self.log.append(&NewRecord {
            key: key.bytes(),
            user_key_len: key.user_key_len(),
            kind: write.kind,
            sequence: self.current,
            expiry: write.expiry,
            absent_below: dies && old.absent_below() && write.kind == Kind::Put,
            prev,
            value: write.value,
            spare: write.spare,
        })?;
        // In this order: a group finds its members through the records they lead to.
        self.move_entry(key, place, location, new);
        if dies {
            self.log.kill(location);
        } else {
            self.log.mark_gone(location);
        }
        Ok(())
    }

    /// Writes the first record in memory of `key`.
    #[inline(never)]
    pub(super) fn insert(&mut self, key: &MemKey<'_>, place: Place, write: &Write<'_>, below: Below) -> Result<()> {
        let new = self.log.append(&NewRecord {
            key: key.bytes(),
            user_key_len: key.user_key_len(),
            kind: write.kind,
            sequence: self.current,
            expiry: write.expiry,
            absent_below: below != Below::Unknown && write.kind == Kind::Put,
            prev: write.prev,
            value: write.value,
            spare: write.spare,
        })?;
        self.insert_entry(key, place, new, below);
        Ok(())
    }

    pub(super) fn insert_entry(&mut self, key: &MemKey<'_>, place: Place, new: Location, below: Below) {
        let id = match place {
            Place::Single(hash) => return self.singles.insert(hash, new),
            Place::Member(id) => id,
            Place::NoGroup => {
                let id = self.groups.create(key.prefix());
                if below == Below::NothingAtPrefix {
                    let group = self.groups.get_mut(id);
                    group.complete_since = 0;
                    group.absent_epoch = self.epoch_first;
                }
                id
            }
        };
        self.groups.insert_member(&self.log, id, key.user_key(), new);
        self.look_at_emptied(1);
        self.release_retained(RETAINED_STEP);
    }

    pub(super) fn move_entry(&mut self, key: &MemKey<'_>, place: Place, old: Location, new: Location) {
        let slot = match place {
            Place::Single(hash) => self.singles.find(hash, |location| location == old),
            Place::Member(id) => self.groups.get(id).members.find(&self.log, key.user_key()),
            Place::NoGroup => None,
        };
        debug_assert!(slot.is_some(), "an entry that was just found");
        self.moves += 1;
        if let Some(slot) = slot {
            slot.set(slot.get().at(new));
        }
    }

    fn remove_entry(&mut self, key: &MemKey<'_>, place: Place, location: Location) {
        match place {
            Place::Single(hash) => {
                self.singles.remove(hash, location);
            }
            Place::Member(id) => {
                self.groups.remove_member(&self.log, id, key.user_key());
                self.group_shrank(id);
            }
            Place::NoGroup => {}
        }
    }

    /// In a complete group a key without a member is absent, so a delete need only reach the segments:
    /// its record goes to the log, and nobody who scans the group wades through it.
    fn delete_silently(&mut self, key: &MemKey<'_>, id: u32, location: Location, old: &Header) -> Result<()> {
        self.overwrite(key, Place::Member(id), location, &Write::delete())?;
        debug_assert!(old.kind() != Kind::Delete);
        self.groups.remove_member(&self.log, id, key.user_key());
        self.groups.get_mut(id).silent_delete = self.current;
        self.group_shrank(id);
        Ok(())
    }
}
