//! The seal around every block of a segment file.
//!
//! ```text
//! stored bytes | compression: u8 | raw length: u32 LE | checksum: u64 LE
//! ```
//! The checksum is the XXH3-64 of all before it, seeded with [`seed`] of segment id and offset: the right
//! bytes at another place, or in a file of another id, don't validate. Worked bytes: raw `61 62` as block 0
//! of segment 1, uncompressed: `61 62 | 00 | 02 00 00 00 | fb e5 ca a1 56 30 0f 6e`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bytes::Bytes;

use crate::base::buffer::Buffer;
use crate::base::checksum::{self, Hasher};
use crate::base::compression::Compression;
use crate::base::ids::SegmentId;
use crate::base::limits::{MAX_ENCODED_KEY_BYTES, MAX_VALUE_BYTES};
use crate::{Error, ErrorKind, Result};

/// Bytes that the seal adds.
pub const SEAL_BYTES: usize = HEAD_BYTES + 8;

/// Those of them that the checksum covers.
const HEAD_BYTES: usize = 5;

/// Longest value of one record: a value of the greatest size with as much in operands.
pub const MAX_RECORD_VALUE_BYTES: usize = 2 * MAX_VALUE_BYTES;

/// Longest block before compression: one record of the greatest size, and room for what stands around it.
pub const MAX_BLOCK_BYTES: usize = MAX_RECORD_VALUE_BYTES + 2 * MAX_ENCODED_KEY_BYTES + (1 << 20);

/// Seed of the checksum of the block at `offset` of `segment`.
#[must_use]
pub fn seed(segment: SegmentId, offset: u64) -> u64 {
    checksum::hash64_seeded(&offset.to_le_bytes(), segment.0)
}

/// Appends `raw`, compressed where asked and worth it, and its seal.
///
/// # Errors
/// Internal when `raw` is over [`MAX_BLOCK_BYTES`].
pub fn seal(raw: &[u8], method: Compression, seed: u64, out: &mut Vec<u8>) -> Result<()> {
    let packed = method.compress(raw);
    let head = head(raw.len(), if packed.is_some() { method } else { Compression::None })?;
    let start = out.len();
    out.extend_from_slice(packed.as_deref().unwrap_or(raw));
    out.extend_from_slice(&head);
    let sum = checksum::hash64_seeded(out.get(start..).unwrap_or_default(), seed);
    out.extend_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// As [`seal`] for a large block that comes in parts, which aren't copied unless it is compressed: what is stored in their
/// place if it was, and the seal that stands behind.
///
/// # Errors
/// As [`seal`].
pub fn seal_parts(parts: &[&[u8]], method: Compression, seed: u64) -> Result<(Option<Buffer>, [u8; SEAL_BYTES])> {
    let length = parts.iter().map(|part| part.len()).sum();
    let packed = match method {
        Compression::None => None,
        Compression::Zstd | Compression::Lz4 => {
            let (mut raw, mut at) = (Buffer::zeroed(length), 0);
            for part in parts {
                let end = at + part.len();
                raw.get_mut(at..end).into_iter().for_each(|to| to.copy_from_slice(part));
                at = end;
            }
            method.compress(&raw)
        }
    };
    let head = head(length, if packed.is_some() { method } else { Compression::None })?;
    let mut hasher = Hasher::seeded(seed);
    match &packed {
        Some(packed) => hasher.update(packed),
        None => parts.iter().for_each(|part| hasher.update(part)),
    }
    hasher.update(&head);
    let mut end = [0; SEAL_BYTES];
    let (front, sum) = end.split_at_mut(HEAD_BYTES);
    front.copy_from_slice(&head);
    sum.copy_from_slice(&hasher.finish().to_le_bytes());
    Ok((packed, end))
}

/// The part of the seal that the checksum covers.
fn head(raw_length: usize, stored_as: Compression) -> Result<[u8; HEAD_BYTES]> {
    let length = u32::try_from(raw_length).ok().filter(|_| raw_length <= MAX_BLOCK_BYTES);
    let Some(length) = length else {
        return Err(Error::internal(format!("block of {raw_length} bytes is over the limit of {MAX_BLOCK_BYTES}")));
    };
    let [a, b, c, d] = length.to_le_bytes();
    Ok([stored_as as u8, a, b, c, d])
}

/// Checks a sealed block and gives its raw bytes, in the memory of `sealed` where they stand as they are.
///
/// # Errors
/// Corruption when the seal is broken, saying what was expected and found; `Unsupported` for an unknown
/// compression.
pub fn unseal(sealed: impl Into<Buffer>, seed: u64) -> Result<Bytes> {
    let mut sealed = sealed.into();
    match check(&sealed, seed)? {
        (stored, Compression::None, raw_length) if stored.len() == raw_length => {
            sealed.truncate(raw_length);
            Ok(sealed.into_bytes())
        }
        (stored, method, raw_length) => method.decompress(stored, raw_length).map(Buffer::into_bytes),
    }
}

/// As [`unseal`], of bytes that are only borrowed.
///
/// # Errors
/// As [`unseal`].
pub fn unseal_copy(sealed: &[u8], seed: u64) -> Result<Bytes> {
    let (stored, method, raw_length) = check(sealed, seed)?;
    method.decompress(stored, raw_length).map(Buffer::into_bytes)
}

/// What a seal says once its checksum holds: the stored bytes, how they are stored, and their raw length.
fn check(sealed: &[u8], seed: u64) -> Result<(&[u8], Compression, usize)> {
    let short = || Error::corruption("block shorter than its seal");
    let (summed, sum) = sealed.split_last_chunk::<8>().ok_or_else(short)?;
    let expected = u64::from_le_bytes(*sum);
    let found = checksum::hash64_seeded(summed, seed);
    if expected != found {
        return Err(Error::corruption(format!("block checksum {expected:016x} expected, {found:016x} found")));
    }
    let (rest, raw_length) = summed.split_last_chunk::<4>().ok_or_else(short)?;
    let (tag, stored) = rest.split_last().ok_or_else(short)?;
    let raw_length = u32::from_le_bytes(*raw_length) as usize;
    if raw_length > MAX_BLOCK_BYTES {
        return Err(Error::corruption(format!("block of {raw_length} bytes is over the limit of {MAX_BLOCK_BYTES}")));
    }
    let method = Compression::from_tag(*tag)
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("block compression {tag}")))?;
    Ok((stored, method, raw_length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(raw: &[u8], method: Compression, seed: u64) -> Vec<u8> {
        let mut out = Vec::new();
        seal(raw, method, seed, &mut out).unwrap();
        out
    }

    #[test]
    fn worked_bytes() {
        let bytes = sealed(b"ab", Compression::None, seed(SegmentId(1), 0));
        let text: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(text.join(" "), "61 62 00 02 00 00 00 fb e5 ca a1 56 30 0f 6e");
        assert_eq!(bytes.len(), 2 + SEAL_BYTES);
    }

    #[test]
    fn a_block_sealed_in_parts_is_the_same() {
        let random: Vec<u8> = (0..40_000_u64).flat_map(|n| checksum::hash64(&n.to_le_bytes()).to_le_bytes()).collect();
        for raw in [&random[..], &[7; 300_000], b"ab"] {
            for method in [Compression::None, Compression::Zstd] {
                let parts = raw.split_at(raw.len() / 3);
                let (packed, end) = seal_parts(&[parts.0, parts.1], method, 5).unwrap();
                assert_eq!([packed.as_deref().unwrap_or(raw), &end].concat(), sealed(raw, method, 5));
            }
        }
    }

    #[test]
    fn compression_pays_or_is_left() {
        let repetitive = vec![7; 4096];
        let random: Vec<u8> = (0..512_u64).flat_map(|n| checksum::hash64(&n.to_le_bytes()).to_le_bytes()).collect();
        for method in [Compression::Zstd, Compression::Lz4] {
            let bytes = sealed(&repetitive, method, 1);
            assert!(bytes.len() < 200);
            assert_eq!(unseal(bytes, 1).unwrap(), repetitive);
            let bytes = sealed(&random, method, 1);
            assert_eq!(bytes.len(), random.len() + SEAL_BYTES);
            assert_eq!(unseal(bytes, 1).unwrap(), random);
        }
    }

    #[test]
    fn borrowed_bytes_give_what_owned_ones_do() {
        for (raw, method) in [(&b"payload"[..], Compression::None), (&[7; 4096], Compression::Lz4)] {
            let bytes = sealed(raw, method, 5);
            assert_eq!(unseal_copy(&bytes, 5).unwrap(), raw);
            assert!(unseal_copy(&bytes, 6).is_err() && unseal_copy(&bytes[1..], 5).is_err());
        }
    }

    #[test]
    fn another_place_or_segment_or_byte_does_not_validate() {
        let here = seed(SegmentId(3), 4096);
        let bytes = sealed(b"payload", Compression::None, here);
        assert_eq!(unseal(bytes.clone(), here).unwrap(), "payload");
        for elsewhere in [seed(SegmentId(3), 0), seed(SegmentId(4), 4096)] {
            assert_eq!(unseal(bytes.clone(), elsewhere).unwrap_err().kind(), ErrorKind::Corruption);
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            assert!(unseal(flipped, here).is_err(), "byte {at}");
            assert!(unseal(bytes[..at].to_vec(), here).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn an_unknown_compression_is_unsupported_and_a_wild_length_is_refused() {
        let resealed = |tag: u8, length: u32| {
            let mut out = vec![1, 2, 3, tag];
            out.extend_from_slice(&length.to_le_bytes());
            let sum = checksum::hash64_seeded(&out, 9);
            out.extend_from_slice(&sum.to_le_bytes());
            unseal(out, 9).unwrap_err().kind()
        };
        assert_eq!(resealed(3, 3), ErrorKind::Unsupported);
        assert_eq!(resealed(0, 4), ErrorKind::Corruption);
        for method in [1, 2] {
            assert_eq!(resealed(method, u32::MAX), ErrorKind::Corruption);
            assert_eq!(resealed(method, 3), ErrorKind::Corruption);
        }
    }
}
