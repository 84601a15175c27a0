//! Keys in a flat store of bytes, as Flink's RocksDB backend lays them out.
//!
//! ```text
//! value, list   key group u16 | key 16 | [namespace u64]
//! map           key group u16 | key 16 | user key u64
//! timer         key group u16 | time u64 | key 16                big-endian
//! ```

use crate::values::Key;

/// Key groups of the operator, as many as on Highwater's side.
pub const KEY_GROUPS: u16 = 128;

/// Bytes of an encoded timer.
pub const TIMER_BYTES: usize = 26;

/// The group of a key.
#[inline]
pub fn key_group(key: &Key) -> u16 {
    u16::from_be_bytes([key[0], key[1]]) % KEY_GROUPS
}

/// An encoded key.
#[derive(Debug, Clone, Copy)]
pub struct Encoded {
    bytes: [u8; TIMER_BYTES],
    len: u8,
}

impl Encoded {
    /// Of a value or list without namespaces.
    #[inline]
    pub fn key(key: &Key) -> Self {
        let mut bytes = [0; TIMER_BYTES];
        bytes[..2].copy_from_slice(&key_group(key).to_be_bytes());
        bytes[2..18].copy_from_slice(key);
        Self { bytes, len: 18 }
    }

    /// Of one with a namespace, or of an entry of a map.
    #[inline]
    pub fn entry(key: &Key, number: u64) -> Self {
        let mut encoded = Self::key(key);
        encoded.bytes[18..].copy_from_slice(&number.to_be_bytes());
        encoded.len = 26;
        encoded
    }

    /// Of a timer.
    #[inline]
    pub fn timer(key: &Key, time: u64) -> [u8; TIMER_BYTES] {
        let mut bytes = [0; TIMER_BYTES];
        bytes[..2].copy_from_slice(&key_group(key).to_be_bytes());
        bytes[2..10].copy_from_slice(&time.to_be_bytes());
        bytes[10..].copy_from_slice(key);
        bytes
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The number in eight bytes.
#[inline]
pub fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |word| u64::from_be_bytes(*word))
}
