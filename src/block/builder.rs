//! Writes blocks.
//!
//! ```text
//! base sequence: u64 LE | entry* | restart offset: u32 LE * n | n: u32 LE
//! ```
//! A restart is an entry that shares nothing, so that reading can begin there; offsets count from the
//! block's first byte. Worked bytes: puts of "ab" = "1" and "ac" = "2" at sequence 7, a restart each 16:
//! `07 00 00 00 00 00 00 00 | 00 02 61 62 01 00 01 31 | 01 01 63 01 00 01 32 | 08 00 00 00 | 01 00 00 00`.

use crate::base::ids::Sequence;
use crate::base::record::Record;

use super::entry;

/// Bytes of the base sequence, where entries begin.
pub const HEADER_BYTES: usize = 8;

/// Entries from restart to restart in data blocks.
pub const DATA_INTERVAL: usize = 16;

/// Entries from restart to restart in index blocks, which are searched more than walked.
pub const INDEX_INTERVAL: usize = 4;

/// Most entries from restart to restart that a reader accepts.
pub const MAX_INTERVAL: usize = 256;

/// Collects sorted records into one block after another.
#[derive(Debug)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    since_restart: usize,
    base: Sequence,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// An empty block with a restart each `interval` entries (at most [`MAX_INTERVAL`]).
    #[must_use]
    pub fn new(interval: usize) -> Self {
        Self {
            bytes: Vec::new(),
            restarts: Vec::new(),
            interval: interval.clamp(1, MAX_INTERVAL),
            since_restart: 0,
            base: 0,
            last_key: Vec::new(),
        }
    }

    /// True when no record has been added since the last [`BlockBuilder::finish`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// Bytes that the block would have if it ended here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Appends a record, which the caller keeps in order and the block below 4 GiB.
    pub fn add(&mut self, record: &Record<'_>) {
        if self.restarts.is_empty() {
            self.base = record.sequence;
            self.bytes.extend_from_slice(&self.base.to_le_bytes());
        }
        let shared = if self.restarts.is_empty() || self.since_restart == self.interval {
            self.since_restart = 0;
            #[expect(clippy::cast_possible_truncation, reason = "a block is below 4 GiB")]
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            shared_len(&self.last_key, record.key)
        };
        self.since_restart += 1;
        entry::encode(&mut self.bytes, record, shared, self.base);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(record.key.get(shared..).unwrap_or_default());
    }

    /// The block's raw bytes; the builder is empty again.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for restart in &self.restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        #[expect(clippy::cast_possible_truncation, reason = "a block is below 4 GiB")]
        bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.restarts.clear();
        self.since_restart = 0;
        self.last_key.clear();
        bytes
    }
}

/// A block that holds `record` alone, without copying its value: what stands before it, and behind.
#[must_use]
pub fn around(record: &Record<'_>) -> (Vec<u8>, [u8; 8]) {
    let mut head = record.sequence.to_le_bytes().to_vec();
    entry::encode_head(&mut head, record, 0, record.sequence);
    // One restart, at the first entry.
    let mut tail = [0; 8];
    let (restart, count) = tail.split_at_mut(4);
    #[expect(clippy::cast_possible_truncation, reason = "it is 8")]
    restart.copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    count.copy_from_slice(&1_u32.to_le_bytes());
    (head, tail)
}

/// Length of the longest common prefix.
#[inline]
#[must_use]
pub fn shared_len(a: &[u8], b: &[u8]) -> usize {
    const WORD: usize = 8;
    let (mut whole_a, mut whole_b) = (a.chunks_exact(WORD), b.chunks_exact(WORD));
    let mut len = 0;
    while let (Some(a), Some(b)) = (whole_a.next(), whole_b.next()) {
        let (Ok(a), Ok(b)) = (<[u8; WORD]>::try_from(a), <[u8; WORD]>::try_from(b)) else { break };
        let difference = u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += WORD;
    }
    let (rest_a, rest_b) = (a.get(len..).unwrap_or_default(), b.get(len..).unwrap_or_default());
    len + rest_a.iter().zip(rest_b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::{Kind, NEVER};

    #[test]
    fn worked_bytes() {
        let mut builder = BlockBuilder::new(DATA_INTERVAL);
        for (key, value) in [(b"ab", b"1"), (b"ac", b"2")] {
            builder.add(&Record { key, sequence: 7, kind: Kind::Put, expiry: NEVER, value });
        }
        let len = builder.len();
        let bytes = builder.finish();
        assert_eq!(bytes.len(), len);
        let expected = [
            &[7, 0, 0, 0, 0, 0, 0, 0][..],
            &[0, 2, 0x61, 0x62, 1, 0, 1, 0x31],
            &[1, 1, 0x63, 1, 0, 1, 0x32],
            &[8, 0, 0, 0, 1, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
        assert!(builder.is_empty());
    }

    #[test]
    fn a_block_around_a_value_is_the_one_that_is_built() {
        for (value, expiry) in [(&b"1"[..], NEVER), (&[9; 300_000], 77)] {
            let record = Record { key: b"some key", sequence: 70_000, kind: Kind::Put, expiry, value };
            let mut builder = BlockBuilder::new(DATA_INTERVAL);
            builder.add(&record);
            let (head, tail) = around(&record);
            assert_eq!([&head[..], value, &tail].concat(), builder.finish());
        }
    }

    #[test]
    fn shared_lengths() {
        let long: Vec<u8> = (0..40).collect();
        for cut in 0..40 {
            assert_eq!(shared_len(&long, &long[..cut]), cut);
            let mut other = long.clone();
            other[cut] ^= 0x80;
            assert_eq!(shared_len(&long, &other), cut);
        }
        assert_eq!(shared_len(&long, &long), 40);
    }
}
