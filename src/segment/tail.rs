//! What a read of a segment in a store needs, so that the needs of many segments can be met by requests made together.
//!
//! Behind the data lie filters, index partitions and the top-level index, in this order: the end of a file, read in one
//! request, leads to any block of data. Of a large segment it is read without the filters: asking for the block itself is
//! then no dearer than asking whether it is worth it.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::ops::Range;

use bytes::Bytes;

use crate::Result;
use crate::base::cursor::Direction;
use crate::base::key::KeyRange;
use crate::block::forward::Forward;
use crate::version::segment_meta::{BlockHandle, SegmentMeta};

use super::filter::{Filter, key_hash, prefix_delete_hash};
use super::index;
use super::reader::{Access, Segment, Stop, resident};

/// Longest end of a file that is read for its filters' sake.
const MAX_TAIL_BYTES: u64 = 512 << 10;

/// Share of a file that its index takes, about: an entry of some 30 bytes for a block of 8 KiB, and room for twice that.
const INDEX_SHARE: u64 = 128;

/// Bytes of a top-level index, about, and what is read at least.
const TOP_BYTES: u64 = 4 << 10;

/// Blocks of one segment that a walk asks for before its first step, and their bytes.
const WALK_BLOCKS: usize = 16;
const WALK_BYTES: u32 = 32 << 10;

/// Something of a segment that isn't in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Its end, for [`Segment::admit_tail`].
    Tail(Range<u64>),
    /// A block, for [`Segment::admit`].
    Block(BlockHandle),
}

impl Piece {
    /// Where it lies in the file.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Tail(range) => range.clone(),
            Self::Block(handle) => handle.offset..handle.offset.saturating_add(u64::from(handle.length_bytes)),
        }
    }
}

/// What a read needs next of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// What isn't in memory. More may be needed once it is.
    pub pieces: Vec<Piece>,
    /// True when the segment almost certainly has the record that is looked for.
    pub likely: bool,
}

/// The end of a segment's file as far as it is worth reading in one request: all its indexes, and its filters unless
/// they are large. A guess that errs costs another request.
#[must_use]
pub fn tail_range(meta: &SegmentMeta) -> Range<u64> {
    let end = meta.top_index.offset.saturating_add(u64::from(meta.top_index.length_bytes)).min(meta.length_bytes);
    let top = u64::from(meta.top_index.length_bytes).max(TOP_BYTES);
    let indexes = top + meta.length_bytes / INDEX_SHARE;
    // Ten bits a key, and as much again for prefixes in states that have groups.
    let filters = meta.entries.saturating_mul(5) / 2;
    let whole = indexes.saturating_add(filters);
    let length = if whole <= MAX_TAIL_BYTES { whole } else { indexes };
    end.saturating_sub(length)..end
}

impl Segment {
    /// What a point read of `key` needs; as for [`Segment::get`].
    ///
    /// # Errors
    /// Corruption of what is in memory.
    pub fn needs(&self, key: &[u8], prefix_len: Option<usize>) -> Result<Needs> {
        let mut needs = Needs::default();
        if let Some(prefix) = prefix_len.and_then(|len| key.get(..len)) {
            self.add_prefix_delete(prefix, &mut needs)?;
        }
        if self.meta().range.contains(key) {
            needs.likely = self.add(key, Some(key_hash(key)), &mut needs)?;
        }
        Ok(needs)
    }

    /// What the first steps of a walk through `range`, which overlaps the segment, need; and with `prefix` also what
    /// [`Segment::prefix_delete`] needs.
    ///
    /// # Errors
    /// Corruption of what is in memory.
    pub fn needs_of_walk(&self, range: &KeyRange, direction: Direction, prefix: Option<&[u8]>) -> Result<Needs> {
        let mut needs = Needs::default();
        if let Some(prefix) = prefix {
            self.add_prefix_delete(prefix, &mut needs)?;
        }
        match (direction, &range.end) {
            (Direction::Backward, Some(end)) => drop(self.add(end, None, &mut needs)?),
            (Direction::Backward, None) => drop(self.add(&[0xFF; 3], None, &mut needs)?),
            (Direction::Forward, end) => self.add_from(&range.start, end.as_deref(), &mut needs)?,
        }
        Ok(needs)
    }

    /// Adds the blocks in which a walk from `start` to `end` begins: with most groups of entries, all that it goes through.
    fn add_from(&self, start: &[u8], end: Option<&[u8]>, needs: &mut Needs) -> Result<()> {
        let top_handle = self.meta().top_index;
        let Some(top) = resident(self.top(Access::Resident))? else {
            push(needs, Piece::Tail(tail_range(self.meta())));
            return Ok(());
        };
        let mut partitions = Forward::floor(top, start).map_err(|e| self.at(e, top_handle))?;
        let (mut blocks, mut bytes) = (0, 0);
        while let Some(entry) = partitions.record() {
            let handle = index::decode_partition(entry.value).map_err(|e| self.at(e, top_handle))?.index;
            if blocks > 0 && end.is_some_and(|end| entry.key >= end) {
                return Ok(());
            }
            let Some(index) = resident(self.block(handle, Access::Resident))? else {
                push(needs, Piece::Block(handle));
                return Ok(());
            };
            let mut entries = Forward::floor(index, start).map_err(|e| self.at(e, handle))?;
            while let Some(entry) = entries.record() {
                if blocks == WALK_BLOCKS
                    || bytes >= WALK_BYTES
                    || (blocks > 0 && end.is_some_and(|end| entry.key >= end))
                {
                    return Ok(());
                }
                let block = index::decode_handle(entry.value).map_err(|e| self.at(e, handle))?;
                if resident(self.load(block, Access::Resident))?.is_none() {
                    push(needs, Piece::Block(block));
                }
                blocks += 1;
                bytes += block.length_bytes;
                entries.advance().map_err(|e| self.at(e, handle))?;
            }
            partitions.advance().map_err(|e| self.at(e, top_handle))?;
        }
        Ok(())
    }

    fn add_prefix_delete(&self, prefix: &[u8], needs: &mut Needs) -> Result<()> {
        if self.meta().prefix_deletes > 0 && self.meta().range.contains(prefix) {
            self.add(prefix, Some(prefix_delete_hash(prefix)), needs)?;
        }
        Ok(())
    }

    /// Adds what leads to the block for `key`, unless a filter in memory says that nothing of `hash` is there. True when
    /// one lets it pass.
    fn add(&self, key: &[u8], hash: Option<u64>, needs: &mut Needs) -> Result<bool> {
        let Some(partition) = resident(self.partition(key, Access::Resident))? else {
            push(needs, Piece::Tail(tail_range(self.meta())));
            return Ok(false);
        };
        let Some(partition) = partition else { return Ok(false) };
        let passes = match hash {
            Some(hash) => match resident(self.load(partition.filter, Access::Resident))? {
                Some(filter) => {
                    Some(Filter::parse(&filter).map_err(|e| self.at(e, partition.filter))?.may_contain(hash))
                }
                None => None,
            },
            None => None,
        };
        if passes == Some(false) {
            return Ok(false);
        }
        let Some(index) = resident(self.block(partition.index, Access::Resident))? else {
            push(needs, Piece::Block(partition.index));
            return Ok(false);
        };
        let Some(at) = index.floor(key).map_err(|e| self.at(e, partition.index))? else { return Ok(false) };
        let handle = index::decode_handle(index.value_bytes(&at)).map_err(|e| self.at(e, partition.index))?;
        if resident(self.load(handle, Access::Resident))?.is_none() {
            push(needs, Piece::Block(handle));
        }
        Ok(passes == Some(true))
    }

    /// Takes the bytes of a piece into the cache. What doesn't check out isn't taken: whoever reads it will fetch it
    /// again, and say so.
    pub fn admit(&self, piece: &Piece, bytes: &Bytes) {
        match piece {
            Piece::Tail(range) => self.admit_tail(range.start, bytes),
            Piece::Block(handle) => self.admit_block(*handle, bytes),
        }
    }

    /// Takes the end of the file, which begins at `offset`, apart, and its index and filter blocks into the cache.
    pub fn admit_tail(&self, offset: u64, bytes: &Bytes) {
        let part = |handle: BlockHandle| -> Option<Bytes> {
            let start = usize::try_from(handle.offset.checked_sub(offset)?).ok()?;
            let end = start.checked_add(handle.length_bytes as usize)?;
            (end <= bytes.len()).then(|| bytes.slice(start..end))
        };
        let top_handle = self.meta().top_index;
        let Some(top) = part(top_handle) else { return };
        self.admit_block(top_handle, &top);
        let Ok(Some(top)) = resident(self.top(Access::Resident)) else { return };
        let Ok(mut entries) = Forward::floor(top, &[]) else { return };
        while let Some(entry) = entries.record() {
            let Ok(partition) = index::decode_partition(entry.value) else { return };
            for handle in [partition.index, partition.filter] {
                if let Some(block) = part(handle) {
                    self.admit_block(handle, &block);
                }
            }
            if entries.advance().is_err() {
                return;
            }
        }
    }

    fn admit_block(&self, handle: BlockHandle, sealed: &Bytes) {
        let missing = matches!(self.load(handle, Access::Resident), Err(Stop::NotResident));
        if missing && sealed.len() == handle.length_bytes as usize {
            let _ = self.admit_sealed(handle, sealed);
        }
    }
}

fn push(needs: &mut Needs, piece: Piece) {
    if !needs.pieces.contains(&piece) {
        needs.pieces.push(piece);
    }
}
