//! Values that grow at their end.

use smallvec::SmallVec;

use crate::Result;
use crate::base::record::{Kind, NEVER};

use super::key::MemKey;
use super::layout::Header;
use super::location::{Link, Location};
use super::memtable::{Memtable, Place};
use super::write::Write;

impl Memtable {
    /// Appends `suffix` to the value of `key` when memory holds one, in place when there is room.
    /// Returns the value's new length, or `None` when memory holds no value of the key (nothing was
    /// done) or one that may expire.
    ///
    /// # Errors
    /// As [`Memtable::put`].
    pub fn append(&mut self, key: MemKey<'_>, suffix: &[u8]) -> Result<Option<usize>> {
        let (place, Some(location)) = self.locate(&key) else { return Ok(None) };
        let header = self.log.header(location);
        if header.kind() != Kind::Put || header.has_expiry() || self.is_hidden(place, header.sequence) {
            return Ok(None);
        }
        let len = header.value_len as usize + suffix.len();
        key.check(len)?;
        self.extend(&key, place, location, suffix, usize::MAX, None)?;
        Ok(Some(len))
    }

    /// Appends `suffix` to the value of the greatest user key in the group that `prefix` names, in place when there is
    /// room. False, and nothing done, where that key lies before `from`, where memory holds no value there or one that may
    /// expire, and where more than `most` bytes would come of it.
    ///
    /// # Errors
    /// As [`Memtable::put`].
    pub fn append_newest(&mut self, prefix: MemKey<'_>, from: &[u8], suffix: &[u8], most: usize) -> Result<bool> {
        let Some(id) = self.groups.find_hashed(prefix.hash(), prefix.prefix()) else { return Ok(false) };
        let Some(newest) = self.groups.get(id).members.last() else { return Ok(false) };
        let location = newest.get().location();
        let (header, place) = (self.log.header(location), Place::Member(id));
        if header.kind() != Kind::Put
            || header.has_expiry()
            || header.value_len as usize + suffix.len() > most
            || self.is_hidden(place, header.sequence)
            || self.log.user_key(location) < from
        {
            return Ok(false);
        }
        if self.extend_in_place(location, header, suffix) {
            return Ok(true);
        }
        let key: SmallVec<[u8; 64]> = SmallVec::from_slice(self.log.record(location).key);
        let key = MemKey::grouped(&key, key.len() - header.user_key_len());
        key.check(header.value_len as usize + suffix.len())?;
        self.extend(&key, place, location, suffix, most, None)?;
        Ok(true)
    }

    /// Makes the value (or the operands) at `location` longer. It will never be longer than `most`. `prev` is for a record
    /// that moves.
    pub(super) fn extend(
        &mut self,
        key: &MemKey<'_>,
        place: Place,
        location: Location,
        suffix: &[u8],
        most: usize,
        prev: Option<Link>,
    ) -> Result<()> {
        let header = self.log.header(location);
        let len = header.value_len as usize + suffix.len();
        if self.extend_in_place(location, header, suffix) {
            return Ok(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(self.log.record(location).value);
        let write = Write {
            kind: header.kind(),
            expiry: NEVER,
            value: [&scratch, suffix],
            spare: len.clamp(16, 1 << 20).min(most.saturating_sub(len)),
            prev,
        };
        let result = self.supersede(key, place, location, &header, &write);
        self.scratch = scratch;
        result
    }

    /// Makes the value at `location` longer where it lies; false when that can't be.
    #[inline]
    fn extend_in_place(&mut self, location: Location, mut header: Header, suffix: &[u8]) -> bool {
        let (current, len) = (self.current, header.value_len as usize + suffix.len());
        if len > header.room as usize || !self.is_mutable(location, header.sequence) {
            return false;
        }
        let Some((bytes, at)) = self.log.open_record(location) else { return false };
        let end = at + header.value_offset() + header.value_len as usize;
        bytes[end..end + suffix.len()].copy_from_slice(suffix);
        #[expect(clippy::cast_possible_truncation, reason = "at most `room`, which is 32 bits wide")]
        let value_len = len as u32;
        header.value_len = value_len;
        header.sequence = current;
        header.write(bytes, at);
        true
    }
}
