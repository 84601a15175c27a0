//! Pieces of memory that come from the operating system and go back to it.
//!
//! What the allocator is given back it may keep: glibc's raises the size from which it maps memory with each large
//! piece that is freed, up to 32 MiB, and serves what is smaller from heaps that only shrink at their end. Pages are
//! made by owners and freed by workers all the time, and the process has to stay within its budget, so they are
//! mapped one by one (measured with values of up to 6 MiB under a budget of 64 MiB: `tests/resident_memory.rs`).

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Below this the allocator does better.
const MAP_FROM_BYTES: usize = 16 << 10;

/// Zeroed bytes of a fixed length.
#[derive(Debug)]
pub struct Memory(Inner);

#[derive(Debug)]
enum Inner {
    Mapped(MmapMut),
    Heap(Box<[u8]>),
}

impl Memory {
    /// `length` zeroed bytes. Where a process may have no more maps, they come from the allocator.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        if length >= MAP_FROM_BYTES
            && let Ok(map) = MmapMut::map_anon(length)
        {
            return Self(Inner::Mapped(map));
        }
        Self(Inner::Heap(vec![0; length].into_boxed_slice()))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self(Inner::Heap(Box::default()))
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Mapped(map) => map,
            Inner::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Mapped(map) => map,
            Inner::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_pieces_are_zeroed_and_writable() {
        for length in [0, 1, MAP_FROM_BYTES - 1, MAP_FROM_BYTES, MAP_FROM_BYTES + 1, 1 << 20] {
            let mut memory = Memory::zeroed(length);
            assert_eq!(memory.len(), length);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert_eq!(memory.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 7 * length);
        }
        assert!(Memory::default().is_empty());
    }
}
