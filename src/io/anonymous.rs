//! Memory straight from the system, for what is large and comes and goes: pages of records.
//!
//! An allocator keeps what it was given back, in pieces between other pieces, so a process that frees its pages
//! doesn't get smaller, and a budget isn't kept. An anonymous map is exact: dropped, it is gone.
//! `cargo bench --bench memtable` (group `page memory`) compares the two.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

use crate::{Error, ErrorKind, Result};

/// Zeroed memory of a fixed length. The default holds none.
#[derive(Debug, Default)]
pub struct AnonymousMemory(Option<MmapMut>);

impl AnonymousMemory {
    /// `length_bytes` zeros; the system hands out its pages as they are touched.
    ///
    /// # Errors
    /// `ResourceExhausted` when the system has no more.
    pub fn new(length_bytes: usize) -> Result<Self> {
        if length_bytes == 0 {
            return Ok(Self(None));
        }
        MmapMut::map_anon(length_bytes).map(|map| Self(Some(map))).map_err(|e| {
            Error::with_source(ErrorKind::ResourceExhausted, format!("mapping {length_bytes} bytes of memory"), e)
        })
    }
}

impl Deref for AnonymousMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for AnonymousMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_writable_and_as_long_as_asked_for() {
        for length in [0, 1, 4095, 4096, 1 << 20] {
            let mut memory = AnonymousMemory::new(length).unwrap();
            assert_eq!(memory.len(), length);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
        assert!(AnonymousMemory::default().is_empty());
    }

    #[test]
    fn more_than_there_is_is_refused() {
        let error = AnonymousMemory::new(usize::MAX / 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    }
}
