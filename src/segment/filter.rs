//! Filter partitions: blocked Bloom filters.
//!
//! ```text
//! line: 64 bytes, at least one | ... | probes: u8
//! ```
//! A hash picks one line by its high half and `probes` bits in it by its low half, so a probe touches one
//! cache line. With ten bits a key and six probes about one absent key in a hundred passes. Worked bytes:
//! the filter of no hashes is 64 zero bytes and `06`.
//!
//! Three kinds of hashes share a filter, each under a seed of its own: keys, prefixes that have entries, and
//! prefixes that were deleted.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::base::checksum::hash64_seeded;
use crate::{Error, Result};

const LINE_BYTES: usize = 64;
const BITS_PER_HASH: usize = 10;
const PROBES: u8 = 6;
/// Most probes that a reader accepts; more would only set more bits.
const MAX_PROBES: u8 = 30;

const KEY_SEED: u64 = 0x6b65_7900;
const PREFIX_SEED: u64 = 0x7072_6566;
const PREFIX_DELETE_SEED: u64 = 0x6465_6c65;

/// Hash of a key that has a record other than a prefix delete.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    hash64_seeded(key, KEY_SEED)
}

/// Hash of a prefix under which something is said.
#[inline]
#[must_use]
pub fn prefix_hash(prefix: &[u8]) -> u64 {
    hash64_seeded(prefix, PREFIX_SEED)
}

/// Hash of a prefix at which a prefix delete stands.
#[inline]
#[must_use]
pub fn prefix_delete_hash(prefix: &[u8]) -> u64 {
    hash64_seeded(prefix, PREFIX_DELETE_SEED)
}

/// Bytes of a filter over so many hashes.
#[must_use]
pub fn filter_bytes(hashes: usize) -> usize {
    lines_for(hashes) * LINE_BYTES + 1
}

fn lines_for(hashes: usize) -> usize {
    (hashes * BITS_PER_HASH).div_ceil(LINE_BYTES * 8).max(1)
}

/// The filter over `hashes`.
#[must_use]
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let lines = lines_for(hashes.len());
    let mut bytes = vec![0; lines * LINE_BYTES];
    for hash in hashes {
        let start = line_of(*hash, lines) * LINE_BYTES;
        let Some(line) = bytes.get_mut(start..start + LINE_BYTES) else { continue };
        for bit in bits_of(*hash, PROBES) {
            if let Some(byte) = line.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
    }
    bytes.push(PROBES);
    bytes
}

#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

#[inline]
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let mut mixed = hash as u32;
    (0..probes).map(move |_| {
        mixed = mixed.wrapping_mul(0x9e37_79b9);
        (mixed >> 23) as usize
    })
}

/// A filter, read.
#[derive(Debug, Clone, Copy)]
pub struct Filter<'a> {
    bytes: &'a [u8],
    lines: usize,
    probes: u8,
}

impl<'a> Filter<'a> {
    /// Checks the frame of an unsealed filter.
    ///
    /// # Errors
    /// Corruption when it isn't whole lines and a sensible number of probes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        match bytes.split_last() {
            Some((probes, lines))
                if (1..=MAX_PROBES).contains(probes) && !lines.is_empty() && lines.len().is_multiple_of(LINE_BYTES) =>
            {
                Ok(Self { bytes: lines, lines: lines.len() / LINE_BYTES, probes: *probes })
            }
            _ => Err(Error::corruption(format!("filter of {} bytes isn't whole lines", bytes.len()))),
        }
    }

    /// False when nothing with this hash was put in.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        let start = line_of(hash, self.lines) * LINE_BYTES;
        let line = self.bytes.get(start..start + LINE_BYTES).and_then(|line| line.first_chunk::<LINE_BYTES>());
        let Some(line) = line else { return true };
        bits_of(hash, self.probes).all(|bit| line.get(bit / 8).is_none_or(|byte| byte & (1 << (bit % 8)) != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|n| key_hash(&n.to_be_bytes())).collect()
    }

    #[test]
    fn worked_bytes() {
        let mut expected = vec![0; 64];
        expected.push(6);
        assert_eq!(build(&[]), expected);
        assert_eq!(filter_bytes(0), 65);
    }

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        for count in [1_u64, 10, 100, 8192] {
            let bytes = build(&hashes(0, count));
            assert_eq!(bytes.len(), filter_bytes(usize::try_from(count).unwrap()));
            let filter = Filter::parse(&bytes).unwrap();
            assert!(hashes(0, count).iter().all(|h| filter.may_contain(*h)));
            let passed = hashes(1 << 32, 10_000).iter().filter(|h| filter.may_contain(**h)).count();
            assert!(passed < 200, "{passed} of 10,000 absent keys passed a filter of {count}");
        }
    }

    #[test]
    fn the_three_kinds_do_not_answer_for_one_another() {
        let bytes = build(&(0..100_u64).map(|n| prefix_hash(&n.to_be_bytes())).collect::<Vec<_>>());
        let filter = Filter::parse(&bytes).unwrap();
        let passed = (0..100_u64)
            .flat_map(|n| [key_hash(&n.to_be_bytes()), prefix_delete_hash(&n.to_be_bytes())])
            .filter(|h| filter.may_contain(*h))
            .count();
        assert!(passed < 12, "{passed}");
    }

    #[test]
    fn broken_frames_are_corruption() {
        for bytes in [vec![], vec![6], vec![0; 64], vec![0; 65], [vec![0; 64], vec![31]].concat(), vec![6; 66]] {
            assert!(Filter::parse(&bytes).is_err());
        }
    }
}
