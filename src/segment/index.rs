//! Values of index entries: where blocks lie.
//!
//! ```text
//! in a partition:          offset: varint | length: varint
//! in the top-level index:  offset, length of the index partition | offset, length of the filter partition
//! ```
//! Worked bytes: the block at 300 of 64 bytes: `AC 02 40`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::Result;
use crate::base::wire::{self, Reader};
use crate::version::segment_meta::BlockHandle;

/// A pair of partitions for the same keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Partition {
    /// Index partition.
    pub index: BlockHandle,
    /// Filter partition.
    pub filter: BlockHandle,
}

/// Appends a handle.
pub fn put_handle(out: &mut Vec<u8>, handle: BlockHandle) {
    wire::put_varint(out, handle.offset);
    wire::put_varint(out, u64::from(handle.length_bytes));
}

fn handle(reader: &mut Reader<'_>) -> Result<BlockHandle> {
    let offset = reader.varint()?;
    let length = reader.varint()?;
    let length_bytes = u32::try_from(length).map_err(|_| reader.corrupt(&format!("block of {length} bytes")))?;
    Ok(BlockHandle { offset, length_bytes })
}

/// Reads the value of an entry in an index partition.
///
/// # Errors
/// Corruption when it isn't one handle.
pub fn decode_handle(value: &[u8]) -> Result<BlockHandle> {
    let mut reader = Reader::new(value, "index entry");
    let found = handle(&mut reader)?;
    reader.finish()?;
    Ok(found)
}

/// Reads the value of an entry in the top-level index.
///
/// # Errors
/// Corruption when it isn't two handles.
pub fn decode_partition(value: &[u8]) -> Result<Partition> {
    let mut reader = Reader::new(value, "top-level index entry");
    let found = Partition { index: handle(&mut reader)?, filter: handle(&mut reader)? };
    reader.finish()?;
    Ok(found)
}

/// The shortest start of `first` that is above `before`, the greatest key of the block before.
#[must_use]
pub fn separator(before: &[u8], first: &[u8]) -> Vec<u8> {
    let shared = crate::block::builder::shared_len(before, first);
    first.get(..=shared).unwrap_or(first).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_bytes() {
        let mut out = Vec::new();
        put_handle(&mut out, BlockHandle { offset: 300, length_bytes: 64 });
        assert_eq!(out, [0xAC, 2, 0x40]);
        assert_eq!(decode_handle(&out).unwrap(), BlockHandle { offset: 300, length_bytes: 64 });
        assert!(decode_handle(&[1]).is_err());
        assert!(decode_handle(&[1, 2, 3]).is_err());
        assert!(decode_handle(&[1, 0x80, 0x80, 0x80, 0x80, 0x10]).is_err());
        assert!(decode_partition(&out).is_err());
    }

    #[test]
    fn separators_part_their_neighbours() {
        for (before, first, expected) in [
            (&b""[..], &b"a"[..], &b"a"[..]),
            (b"abc", b"abd", b"abd"),
            (b"ab", b"abc", b"abc"),
            (b"a", b"bcd", b"b"),
            (&[0, 5, 0xFF], &[0, 6, 1, 2], &[0, 6]),
            (&[0xFF], &[0xFF, 0], &[0xFF, 0]),
        ] {
            let found = separator(before, first);
            assert_eq!(found, expected);
            assert!(before < found.as_slice() && found.as_slice() <= first);
        }
    }
}
