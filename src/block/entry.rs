//! One record in a block.
//!
//! ```text
//! shared: varint | unshared: varint | unshared key bytes | flags: u8 | sequence: varint | [expiry: i64 LE]
//!   | value length: varint | value
//! ```
//! The key is the first `shared` bytes of the key before, then the unshared ones; it stands first because
//! searches look at little else. Flags: the low four bits are the kind's tag, bit 4 says that an expiry
//! follows (none: never), the rest must be 0. The sequence stands as its wrapping difference from the block's
//! base, zigzag. Worked bytes: key `61 64` after key `61 63`, put of "v", sequence = base + 1, no expiry:
//! `01 01 | 64 | 01 02 01 | 76`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::ops::Range;

use crate::base::ids::Sequence;
use crate::base::limits::MAX_ENCODED_KEY_BYTES;
use crate::base::record::{ExpiryMs, Kind, NEVER, Record};
use crate::base::wire::put_varint;
use crate::{Error, ErrorKind, Result};

const KIND_MASK: u8 = 0x0F;
const EXPIRES: u8 = 0x10;

/// A record as it lies in a block: ranges are of the block's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it starts.
    pub offset: usize,
    /// Key bytes it shares with the key before.
    pub shared: usize,
    /// The other key bytes.
    pub suffix: Range<usize>,
    /// What it says.
    pub kind: Kind,
    /// Its sequence.
    pub sequence: Sequence,
    /// Its expiry.
    pub expiry: ExpiryMs,
    /// Its value; ends where the next entry starts.
    pub value: Range<usize>,
}

impl Entry {
    /// Length of its key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.shared + self.suffix.len()
    }

    /// The record, its key from `key` and its value from the `block` it lies in.
    #[must_use]
    pub fn record<'a>(&self, key: &'a [u8], block: &'a [u8]) -> Record<'a> {
        Record {
            key,
            sequence: self.sequence,
            kind: self.kind,
            expiry: self.expiry,
            value: block.get(self.value.clone()).unwrap_or_default(),
        }
    }
}

/// Appends `record`, the first `shared` bytes of whose key are those of the key before.
pub fn encode(out: &mut Vec<u8>, record: &Record<'_>, shared: usize, base: Sequence) {
    encode_head(out, record, shared, base);
    out.extend_from_slice(record.value);
}

/// Appends what stands before the value.
pub fn encode_head(out: &mut Vec<u8>, record: &Record<'_>, shared: usize, base: Sequence) {
    let suffix = record.key.get(shared..).unwrap_or_default();
    put_varint(out, shared as u64);
    put_varint(out, suffix.len() as u64);
    out.extend_from_slice(suffix);
    let expires = record.expiry != NEVER;
    out.push(record.kind as u8 | if expires { EXPIRES } else { 0 });
    put_varint(out, zigzag(record.sequence.wrapping_sub(base)));
    if expires {
        out.extend_from_slice(&record.expiry.to_le_bytes());
    }
    put_varint(out, record.value.len() as u64);
}

/// Reads the entry at `offset` of `bytes`, which end where the entries do.
///
/// # Errors
/// Corruption when it leads outside of `bytes`; `Unsupported` for kinds and flags of newer versions.
#[inline(always)]
pub fn decode(bytes: &[u8], offset: usize, base: Sequence) -> Result<Entry> {
    try_decode(bytes, offset, base).ok_or_else(|| explain(bytes, offset))
}

/// The key part alone: shared length and the place of the unshared bytes.
#[inline(always)]
pub(super) fn decode_key(bytes: &[u8], offset: usize) -> Option<(usize, Range<usize>)> {
    let head = bytes.get(offset..)?;
    let (shared, unshared, at) = match head.first_chunk::<2>() {
        Some([shared, unshared]) if (shared | unshared) < 0x80 => {
            (u64::from(*shared), u64::from(*unshared), offset + 2)
        }
        _ => {
            let mut at = offset;
            (number(bytes, &mut at)?, number(bytes, &mut at)?, at)
        }
    };
    let limit = MAX_ENCODED_KEY_BYTES as u64;
    if shared > limit || unshared > limit || shared + unshared > limit {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded just above")]
    let (shared, end) = (shared as usize, at + unshared as usize);
    (end <= bytes.len()).then_some((shared, at..end))
}

#[inline(always)]
fn try_decode(bytes: &[u8], offset: usize, base: Sequence) -> Option<Entry> {
    let (shared, suffix) = decode_key(bytes, offset)?;
    let rest = bytes.get(suffix.end..)?;
    let (flags, delta, expiry, value_len, at) = match rest.first_chunk::<3>() {
        Some([flags, delta, value_len]) if (flags | delta | value_len) < 0x80 && flags & EXPIRES == 0 => {
            (*flags, u64::from(*delta), NEVER, u64::from(*value_len), suffix.end + 3)
        }
        _ => decode_rest(bytes, suffix.end)?,
    };
    let kind = Kind::from_tag(flags & KIND_MASK).filter(|_| flags & !(KIND_MASK | EXPIRES) == 0)?;
    let end = usize::try_from(value_len).ok().and_then(|len| at.checked_add(len))?;
    let sound = end <= bytes.len() && (expiry == NEVER || kind == Kind::Put);
    let sequence = base.wrapping_add(unzigzag(delta));
    sound.then_some(Entry { offset, shared, suffix, kind, sequence, expiry, value: at..end })
}

/// Flags, sequence, expiry and value length of any form, and where they end.
#[inline(never)]
fn decode_rest(bytes: &[u8], mut at: usize) -> Option<(u8, u64, ExpiryMs, u64, usize)> {
    let flags = *bytes.get(at)?;
    at += 1;
    let delta = number(bytes, &mut at)?;
    let mut expiry = NEVER;
    if flags & EXPIRES != 0 {
        expiry = i64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?);
        at += 8;
    }
    Some((flags, delta, expiry, number(bytes, &mut at)?, at))
}

/// Why the entry at `offset` can't be read.
#[cold]
#[inline(never)]
fn explain(bytes: &[u8], offset: usize) -> Error {
    let Some((shared, suffix)) = decode_key(bytes, offset) else {
        return Error::corruption(format!("entry at byte {offset}: its key leads beyond byte {}", bytes.len()));
    };
    let flags = bytes.get(suffix.end).copied().unwrap_or_default();
    let known = Kind::from_tag(flags & KIND_MASK).is_some() && flags & !(KIND_MASK | EXPIRES) == 0;
    if suffix.end < bytes.len() && !known {
        return Error::new(ErrorKind::Unsupported, format!("entry at byte {offset}: flags {flags:#04x}"));
    }
    Error::corruption(format!(
        "entry at byte {offset}: flags {flags:#04x} and value after a key of {shared} + {} bytes lead beyond byte {}",
        suffix.len(),
        bytes.len()
    ))
}

/// A LEB128 number, most often of one byte; `None` when it is cut or longer than 64 bits.
#[inline]
fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7F);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Small numbers for small differences of either sign.
fn zigzag(difference: u64) -> u64 {
    let sign = if difference >> 63 == 0 { 0 } else { u64::MAX };
    (difference << 1) ^ sign
}

fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_bytes() {
        let record = Record { key: b"ad", sequence: 8, kind: Kind::Put, expiry: NEVER, value: b"v" };
        let mut out = Vec::new();
        encode(&mut out, &record, 1, 7);
        assert_eq!(out, [1, 1, 0x64, 1, 2, 1, 0x76]);
        let entry = decode(&out, 0, 7).unwrap();
        assert_eq!(entry.record(b"ad", &out), record);
        assert_eq!((entry.shared, entry.suffix, entry.value), (1, 2..3, 6..7));
    }

    #[test]
    fn every_sequence_and_expiry_round_trips() {
        for base in [0, 1, 1 << 63, u64::MAX] {
            for sequence in [0, 1, 77, (1 << 63) - 1, 1 << 63, u64::MAX] {
                for expiry in [i64::MIN, -1, 0, 1, NEVER - 1, NEVER] {
                    let record = Record { key: b"", sequence, kind: Kind::Put, expiry, value: b"" };
                    let mut out = Vec::new();
                    encode(&mut out, &record, 0, base);
                    assert_eq!(decode(&out, 0, base).unwrap().record(b"", &out), record);
                }
            }
        }
    }

    #[test]
    fn reserved_kinds_and_flags_are_unsupported() {
        for flags in [0, 5, 15, 0x21, 0x41, 0x81, 0xFF] {
            let error = decode(&[0, 0, flags, 0, 0], 0, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{flags:#x}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_use() {
        let huge = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        let inputs: [Vec<u8>; 6] = [
            [&huge[..], &[0, 1, 0, 0]].concat(),
            [&[0], &huge[..], &[1, 0, 0]].concat(),
            [&[0, 0, 1, 0], &huge[..]].concat(),
            [&huge[..9], &[0x7F]].concat(),
            vec![0, 0, 0x11, 0, 1, 2, 3],
            vec![0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for input in inputs {
            assert_eq!(decode(&input, 0, 0).unwrap_err().kind(), ErrorKind::Corruption, "{input:x?}");
        }
        assert!(decode(&[], 5, 0).is_err());
    }
}
