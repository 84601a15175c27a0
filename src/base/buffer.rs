//! Buffers whose memory, when it is much, leaves the process as soon as they are dropped.
//!
//! glibc's allocator raises the size from which it maps memory with each larger piece that is freed, up to 32 MiB, and
//! keeps twice as much at the end of each thread's heap. Workers that handle large values one after another would leave
//! tens of mebibytes behind that way (`tests/resident_memory.rs`).

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use memmap2::MmapMut;

/// From this size on a buffer has a map of its own.
pub const LARGE_BYTES: usize = 256 << 10;

/// Bytes of a length that only shrinks.
#[derive(Debug)]
pub struct Buffer {
    bytes: Source,
    length: usize,
}

#[derive(Debug)]
enum Source {
    Heap(Vec<u8>),
    Map(MmapMut),
}

impl Buffer {
    /// `length` zeros. Where a process may have no more maps, they come from the allocator.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        if length >= LARGE_BYTES
            && let Ok(map) = MmapMut::map_anon(length)
        {
            return Self { bytes: Source::Map(map), length };
        }
        Self::from(vec![0; length])
    }

    /// Leaves only the first `length` bytes, if there are more.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// The bytes, to be shared.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self.bytes {
            Source::Heap(mut bytes) => {
                bytes.truncate(self.length);
                Bytes::from(bytes)
            }
            Source::Map(map) => Bytes::from_owner(map).slice(..self.length),
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len(), bytes: Source::Heap(bytes) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.bytes {
            Source::Heap(bytes) => bytes,
            Source::Map(map) => map,
        };
        bytes.get(..self.length).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes: &mut [u8] = match &mut self.bytes {
            Source::Heap(bytes) => bytes,
            Source::Map(map) => map,
        };
        bytes.get_mut(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_ones_are_zeroed_shrink_and_can_be_shared() {
        for length in [0, 1, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 5] {
            let mut buffer = Buffer::zeroed(length);
            assert!(buffer.len() == length && buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            buffer.truncate(length + 1);
            assert_eq!(buffer.len(), length);
            buffer.truncate(length / 2);
            let shared = buffer.into_bytes();
            assert!(shared.len() == length / 2 && shared.iter().all(|byte| *byte == 7));
        }
    }
}
