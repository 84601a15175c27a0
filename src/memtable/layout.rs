//! The bytes of a record in a page.
//!
//! ```text
//! key length u32 | meta u32 | value length u32 | room u32 | sequence u64
//!   | expiry i64, if flagged | link u64, if flagged | key | value, `room` bytes of which value length count
//! meta: kind 3 bits | flags 8 bits | user key length 18 bits
//! ```
//! Records start at multiples of 8; the padding behind the value belongs to its room. Numbers are
//! little-endian. These bytes never leave the process.

use crate::base::ids::Sequence;
use crate::base::limits::MAX_COMPOSED_KEY_BYTES;
use crate::base::record::{ExpiryMs, Kind, NEVER, Record};

use super::location::Link;

const FIXED_BYTES: usize = 24;
const FLAG_SHIFT: u32 = 3;
const USER_KEY_SHIFT: u32 = 11;
const _: () = assert!(MAX_COMPOSED_KEY_BYTES < 1 << 18, "a length of a user key has 18 bits");

/// The record has a field for its expiry.
const EXPIRY: u32 = 1;
/// The record has a field for the record before it.
const PREV: u32 = 2;
/// Without this record the key is absent: no older record of it is in memory or below.
const ABSENT_BELOW: u32 = 4;
/// The record doesn't count.
const DEAD: u32 = 8;
/// The record belongs to a group.
const GROUPED: u32 = 16;

/// The fixed part of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) key_len: u32,
    meta: u32,
    pub(super) value_len: u32,
    pub(super) room: u32,
    pub(super) sequence: Sequence,
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[inline]
fn put_word(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

impl Header {
    /// Reads the header at `at`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub(super) fn read(bytes: &[u8], at: usize) -> Self {
        let fixed = &bytes[at..at + FIXED_BYTES];
        let (a, b) = (word(fixed, 0), word(fixed, 8));
        Self {
            key_len: a as u32,
            meta: (a >> 32) as u32,
            value_len: b as u32,
            room: (b >> 32) as u32,
            sequence: word(fixed, 16),
        }
    }

    /// Writes the header at `at`.
    #[inline]
    pub(super) fn write(&self, bytes: &mut [u8], at: usize) {
        let fixed = &mut bytes[at..at + FIXED_BYTES];
        put_word(fixed, 0, u64::from(self.key_len) | u64::from(self.meta) << 32);
        put_word(fixed, 8, u64::from(self.value_len) | u64::from(self.room) << 32);
        put_word(fixed, 16, self.sequence);
    }

    /// The key of the record at `at`, whose header isn't asked for anything else.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub(super) fn key_at(bytes: &[u8], at: usize) -> &[u8] {
        let word = word(bytes, at);
        Self { key_len: word as u32, meta: (word >> 32) as u32, value_len: 0, room: 0, sequence: 0 }.key(bytes, at)
    }

    #[inline]
    fn flag(&self, flag: u32) -> bool {
        self.meta >> FLAG_SHIFT & flag != 0
    }

    fn set_flag(&mut self, flag: u32, on: bool) {
        let bit = flag << FLAG_SHIFT;
        self.meta = if on { self.meta | bit } else { self.meta & !bit };
    }

    #[inline]
    pub(super) fn kind(&self) -> Kind {
        match self.meta & 7 {
            1 => Kind::Put,
            3 => Kind::Merge,
            4 => Kind::PrefixDelete,
            _ => Kind::Delete,
        }
    }

    #[inline]
    pub(super) fn set_kind(&mut self, kind: Kind) {
        self.meta = self.meta & !7 | kind as u32;
    }

    #[inline]
    pub(super) fn has_expiry(&self) -> bool {
        self.flag(EXPIRY)
    }

    pub(super) fn absent_below(&self) -> bool {
        self.flag(ABSENT_BELOW)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.flag(DEAD)
    }

    pub(super) fn set_dead(&mut self) {
        self.set_flag(DEAD, true);
    }

    pub(super) fn is_grouped(&self) -> bool {
        self.flag(GROUPED)
    }

    #[inline]
    pub(super) fn user_key_len(&self) -> usize {
        (self.meta >> USER_KEY_SHIFT) as usize
    }

    #[inline]
    fn key_offset(&self) -> usize {
        FIXED_BYTES + 8 * (self.flag(EXPIRY) as usize) + 8 * (self.flag(PREV) as usize)
    }

    #[inline]
    pub(super) fn value_offset(&self) -> usize {
        self.key_offset() + self.key_len as usize
    }

    /// Bytes from this record to the next.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.value_offset() + self.room as usize
    }

    #[inline]
    pub(super) fn key<'a>(&self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        let start = at + self.key_offset();
        &bytes[start..start + self.key_len as usize]
    }

    /// The part of the key that says where in its group the record stands.
    #[inline]
    pub(super) fn user_key<'a>(&self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        let key = self.key(bytes, at);
        &key[key.len() - self.user_key_len()..]
    }

    #[inline]
    pub(super) fn value<'a>(&self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        let start = at + self.value_offset();
        &bytes[start..start + self.value_len as usize]
    }

    #[inline]
    pub(super) fn expiry(&self, bytes: &[u8], at: usize) -> ExpiryMs {
        if self.flag(EXPIRY) { word(bytes, at + FIXED_BYTES).cast_signed() } else { NEVER }
    }

    #[inline]
    pub(super) fn set_expiry(&self, bytes: &mut [u8], at: usize, expiry: ExpiryMs) {
        debug_assert!(self.flag(EXPIRY) || expiry == NEVER);
        if self.flag(EXPIRY) {
            put_word(bytes, at + FIXED_BYTES, expiry.cast_unsigned());
        }
    }

    pub(super) fn prev(&self, bytes: &[u8], at: usize) -> Option<Link> {
        let field = at + FIXED_BYTES + 8 * (self.flag(EXPIRY) as usize);
        self.flag(PREV).then(|| Link::from_bits(word(bytes, field)))
    }

    #[inline]
    pub(super) fn record<'a>(&self, bytes: &'a [u8], at: usize) -> Record<'a> {
        Record {
            key: self.key(bytes, at),
            sequence: self.sequence,
            kind: self.kind(),
            expiry: self.expiry(bytes, at),
            value: self.value(bytes, at),
        }
    }
}

/// A record to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewRecord<'a> {
    pub(super) key: &'a [u8],
    /// `None` for a record that is no part of a group.
    pub(super) user_key_len: Option<usize>,
    pub(super) kind: Kind,
    pub(super) sequence: Sequence,
    pub(super) expiry: ExpiryMs,
    pub(super) absent_below: bool,
    pub(super) prev: Option<Link>,
    /// The value is these two, one behind the other.
    pub(super) value: [&'a [u8]; 2],
    /// Bytes to keep free behind the value.
    pub(super) spare: usize,
}

impl NewRecord<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "lengths are checked at the door: all far below 4 GiB")]
    pub(super) fn header(&self) -> Header {
        let flags = if self.expiry == NEVER { 0 } else { EXPIRY }
            | if self.prev.is_some() { PREV } else { 0 }
            | if self.absent_below { ABSENT_BELOW } else { 0 }
            | if self.user_key_len.is_some() { GROUPED } else { 0 };
        let user_key_len = self.user_key_len.unwrap_or(0) as u32;
        let value_len = self.value[0].len() + self.value[1].len();
        let mut header = Header {
            key_len: self.key.len() as u32,
            meta: self.kind as u32 | flags << FLAG_SHIFT | user_key_len << USER_KEY_SHIFT,
            value_len: value_len as u32,
            room: 0,
            sequence: self.sequence,
        };
        let end = (header.value_offset() + value_len + self.spare).next_multiple_of(8);
        header.room = (end - header.value_offset()) as u32;
        header
    }

    /// Writes the record at `at`; the caller has made sure of [`Header::size`] bytes.
    pub(super) fn write(&self, header: &Header, bytes: &mut [u8], at: usize) {
        header.write(bytes, at);
        header.set_expiry(bytes, at, self.expiry);
        if let Some(prev) = self.prev {
            put_word(bytes, at + FIXED_BYTES + 8 * (header.has_expiry() as usize), prev.bits());
        }
        let key = at + header.key_offset();
        let value = at + header.value_offset();
        bytes[key..value].copy_from_slice(self.key);
        let middle = value + self.value[0].len();
        bytes[value..middle].copy_from_slice(self.value[0]);
        bytes[middle..middle + self.value[1].len()].copy_from_slice(self.value[1]);
    }
}
