//! Fewer, longer reads for walks that go through much of a file once.
//!
//! A walk's first block is read alone; while misses go on, each read takes twice as much as the last, up to
//! [`READAHEAD_BYTES`]. From an object store that is the difference between a request a block and one for many.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::Result;
use crate::base::buffer::Buffer;
use crate::io::files::ReadAt;
use crate::version::segment_meta::BlockHandle;

/// Most bytes that one walk holds ahead.
pub const READAHEAD_BYTES: usize = 256 << 10;

/// First read that takes more than its block.
const START_BYTES: usize = 16 << 10;

/// Bytes of a file that were read ahead.
#[derive(Debug, Default)]
pub(super) struct Readahead {
    offset: u64,
    bytes: Vec<u8>,
    next_bytes: usize,
}

impl Readahead {
    /// The bytes of the block at `handle`, which lies within the source.
    pub(super) fn read(&mut self, source: &dyn ReadAt, handle: BlockHandle) -> Result<Buffer> {
        if let Some(found) = self.held(handle) {
            return Ok(found.to_vec().into());
        }
        let length = handle.length_bytes as usize;
        let left = usize::try_from(source.len().saturating_sub(handle.offset)).unwrap_or(usize::MAX);
        let wanted = self.next_bytes.min(left);
        self.next_bytes = (self.next_bytes * 2).clamp(START_BYTES, READAHEAD_BYTES);
        if wanted > length {
            self.bytes.resize(wanted, 0);
            self.offset = handle.offset;
            if source.read_at(handle.offset, &mut self.bytes).is_ok() {
                return Ok(self.held(handle).unwrap_or_default().to_vec().into());
            }
            // What fails may lie behind the block.
            self.bytes.clear();
        }
        let mut block = Buffer::zeroed(length);
        source.read_at(handle.offset, &mut block)?;
        Ok(block)
    }

    fn held(&self, handle: BlockHandle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(handle.length_bytes as usize)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::testing::MemoryFile;

    #[test]
    fn reads_grow_and_give_the_right_bytes() {
        let file = MemoryFile::new((0..=255).cycle().take(1 << 20).collect());
        let mut ahead = Readahead::default();
        for offset in (0..1 << 20).step_by(4096) {
            let block = ahead.read(file.as_ref(), BlockHandle { offset, length_bytes: 4096 }).unwrap();
            assert!(block.iter().enumerate().all(|(n, byte)| *byte == (n % 256) as u8));
        }
        let reads = file.reads.lock();
        assert_eq!(reads[..3], [(0, 4096), (4096, 16 << 10), (20 << 10, 32 << 10)]);
        assert!(reads.len() < 12 && reads.iter().all(|(_, len)| *len <= READAHEAD_BYTES));
    }

    #[test]
    fn a_fault_behind_the_block_does_not_fail_it() {
        let file = MemoryFile::new(vec![7; 100_000]);
        file.failing.lock().insert(9000);
        let mut ahead = Readahead::default();
        for offset in [0, 4096] {
            ahead.read(file.as_ref(), BlockHandle { offset, length_bytes: 4096 }).unwrap();
        }
        assert!(ahead.read(file.as_ref(), BlockHandle { offset: 8192, length_bytes: 4096 }).is_err());
    }
}
