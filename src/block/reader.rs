//! Finds records in a block by key. The layout is drawn in [`super::builder`].
//!
//! Finding doesn't build keys: while an entry is known to be below the target, the length of what both have
//! in common says, with the next entry's shared length, whether that one is below, above, or to be compared
//! from there on. So an entry at which a search for `target` stops has the key
//! `target[..entry.shared] + suffix`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::cmp::Ordering;

use bytes::Bytes;

use crate::base::ids::Sequence;
use crate::{Error, Result};

use super::builder::{HEADER_BYTES, shared_len};
use super::entry::{self, Entry};

/// A block's raw bytes, its frame checked. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Block {
    bytes: Bytes,
    base: Sequence,
    /// Where entries end and restarts begin.
    entries_end: usize,
    restarts: usize,
}

/// Offsets of the two entries between which a searched key would stand.
#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    before: Option<usize>,
    after: Option<usize>,
}

impl Block {
    /// Checks the frame around the entries of an unsealed block.
    ///
    /// # Errors
    /// Corruption when the restarts don't fit, or there is none.
    #[inline]
    pub fn parse(bytes: Bytes) -> Result<Self> {
        let frame = || -> Option<(Sequence, usize, usize)> {
            let (head, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
            let (front, count) = bytes.split_last_chunk::<4>()?;
            let restarts = u32::from_le_bytes(*count) as usize;
            let entries_end = front.len().checked_sub(restarts.checked_mul(4)?)?;
            (restarts > 0 && entries_end > HEADER_BYTES).then_some((u64::from_le_bytes(*head), entries_end, restarts))
        };
        let Some((base, entries_end, restarts)) = frame() else {
            return Err(Error::corruption(format!("block of {} bytes: its restarts don't fit", bytes.len())));
        };
        Ok(Self { bytes, base, entries_end, restarts })
    }

    /// The raw bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Number of restarts, at least 1.
    pub(super) fn restarts(&self) -> usize {
        self.restarts
    }

    /// Where entries end.
    pub(super) fn entries_end(&self) -> usize {
        self.entries_end
    }

    /// The entry at `offset`; `None` where entries end.
    ///
    /// # Errors
    /// As [`entry::decode`].
    #[inline]
    pub fn entry_at(&self, offset: usize) -> Result<Option<Entry>> {
        if offset >= self.entries_end {
            return Ok(None);
        }
        entry::decode(self.entries(), offset, self.base).map(Some)
    }

    /// The bytes up to where entries end; offsets of entries count in them.
    #[inline]
    fn entries(&self) -> &[u8] {
        self.bytes.get(..self.entries_end).unwrap_or_default()
    }

    /// Offset of the restart with `number`; where entries end for the one after the last.
    ///
    /// # Errors
    /// Corruption when it lies outside of the entries.
    #[inline]
    pub(super) fn restart_offset(&self, number: usize) -> Result<usize> {
        if number >= self.restarts {
            return Ok(self.entries_end);
        }
        let at = self.entries_end + 4 * number;
        let found = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        let offset = found.map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize);
        if offset < HEADER_BYTES || offset >= self.entries_end {
            return Err(Error::corruption(format!("block restart {number} at byte {offset} of {}", self.entries_end)));
        }
        Ok(offset)
    }

    /// Key of the restart with `number`.
    #[inline]
    fn restart_key(&self, number: usize) -> Result<&[u8]> {
        let offset = self.restart_offset(number)?;
        let entries = self.entries();
        match entry::decode_key(entries, offset) {
            Some((0, suffix)) => Ok(entries.get(suffix).unwrap_or_default()),
            _ => Err(Error::corruption(format!("block restart {number} at byte {offset}: no entry with a whole key"))),
        }
    }

    #[inline]
    fn suffix(&self, entry: &Entry) -> &[u8] {
        self.bytes.get(entry.suffix.clone()).unwrap_or_default()
    }

    /// Number of the last restart whose key is below `target`, or with `or_equal` not above it; the first one
    /// when there is none.
    pub(super) fn last_restart_before(&self, target: &[u8], or_equal: bool) -> Result<usize> {
        let (mut low, mut high) = (0, self.restarts);
        // Invariant: restart `low` is before (or 0), restart `high` is not (or the end).
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let key = self.restart_key(middle)?;
            if is_before(key.cmp(target), or_equal) { low = middle } else { high = middle }
        }
        Ok(low)
    }

    fn gap(&self, target: &[u8], or_equal: bool) -> Result<Gap> {
        let restart = self.last_restart_before(target, or_equal)?;
        let entries = self.entries();
        let mut offset = self.restart_offset(restart)?;
        let mut gap = Gap::default();
        let mut key_len = 0;
        // What the entry before and `target` have in common; the entry before is before.
        let mut common = 0;
        while offset < entries.len() {
            let entry = entry::decode(entries, offset, self.base)?;
            if entry.shared > key_len {
                return Err(shares_too_much(&entry, key_len));
            }
            let order = match entry.shared.cmp(&common) {
                Ordering::Greater => Ordering::Less,
                Ordering::Less => Ordering::Greater,
                Ordering::Equal => {
                    let suffix = entries.get(entry.suffix.clone()).unwrap_or_default();
                    let rest = target.get(common..).unwrap_or_default();
                    let more = shared_len(suffix, rest);
                    common += more;
                    // The first bytes that differ decide; the end of a key is below any byte.
                    suffix.get(more).cmp(&rest.get(more))
                }
            };
            if !is_before(order, or_equal) {
                gap.after = Some(offset);
                return Ok(gap);
            }
            key_len = entry.key_len();
            gap.before = Some(offset);
            offset = entry.value.end;
        }
        Ok(gap)
    }

    fn entry_if(&self, offset: Option<usize>) -> Result<Option<Entry>> {
        offset.map_or(Ok(None), |offset| self.entry_at(offset))
    }

    /// The first entry whose key is `target` or above. Its key is `target[..shared]`, then its suffix.
    ///
    /// # Errors
    /// Corruption or `Unsupported`, as the entries are.
    pub fn lower_bound(&self, target: &[u8]) -> Result<Option<Entry>> {
        self.entry_if(self.gap(target, false)?.after)
    }

    /// The last entry whose key is `target` or below.
    ///
    /// # Errors
    /// As [`Block::lower_bound`].
    pub fn floor(&self, target: &[u8]) -> Result<Option<Entry>> {
        self.entry_if(self.gap(target, true)?.before)
    }

    /// The first entry at exactly `target`.
    ///
    /// # Errors
    /// As [`Block::lower_bound`].
    pub fn find(&self, target: &[u8]) -> Result<Option<Entry>> {
        let found = self.lower_bound(target)?;
        Ok(found.filter(|entry| target.get(entry.shared..) == Some(self.suffix(entry))))
    }

    /// The entry after `entry` when it has the same key.
    ///
    /// # Errors
    /// As [`Block::lower_bound`].
    pub fn next_of_same_key(&self, entry: &Entry, key: &[u8]) -> Result<Option<Entry>> {
        let next = self.entry_at(entry.value.end)?;
        Ok(next.filter(|next| {
            // At a restart nothing is shared, though the key may be the same.
            next.key_len() == key.len() && key.get(next.shared..) == Some(self.suffix(next))
        }))
    }

    /// The value of `entry`, sharing the block's memory.
    #[must_use]
    pub fn value(&self, entry: &Entry) -> Bytes {
        if entry.value.end <= self.bytes.len() { self.bytes.slice(entry.value.clone()) } else { Bytes::new() }
    }

    /// The value of `entry`, borrowed.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self, entry: &Entry) -> &[u8] {
        self.bytes.get(entry.value.clone()).unwrap_or_default()
    }

    /// Replaces the end of `key`, the key of the entry before, so that it is that of `entry`.
    #[inline]
    pub(super) fn complete_key(&self, key: &mut Vec<u8>, entry: &Entry) -> Result<()> {
        if entry.shared > key.len() {
            return Err(shares_too_much(entry, key.len()));
        }
        key.truncate(entry.shared);
        key.extend_from_slice(self.suffix(entry));
        Ok(())
    }
}

fn is_before(order: Ordering, or_equal: bool) -> bool {
    order == Ordering::Less || (or_equal && order == Ordering::Equal)
}

#[cold]
fn shares_too_much(entry: &Entry, key_len: usize) -> Error {
    Error::corruption(format!("entry at byte {}: shares {} bytes with a key of {key_len}", entry.offset, entry.shared))
}
