//! Walks a range of a segment. Keeps to [`crate::base::cursor`].
//!
//! Three cursors stand in one another: the top-level index, an index partition, a data block. The key of an
//! index entry is a lower bound of its block, so a walk stops before it fetches a block beyond its range.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::{OwnedRecord, Record};
use crate::block::backward::Backward;
use crate::block::forward::Forward;
use crate::block::reader::Block;
use crate::version::segment_meta::BlockHandle;
use crate::{Error, Result};

use super::index;
use super::readahead::Readahead;
use super::reader::{Access, Segment, Stop, resident};

/// A walk through one block, either way.
#[derive(Debug)]
enum Walk {
    Forward(Forward),
    Backward(Backward),
    /// On this record, whose value and block were let go.
    Parked(OwnedRecord),
}

impl Walk {
    fn record(&self) -> Option<Record<'_>> {
        match self {
            Self::Forward(cursor) => cursor.record(),
            Self::Backward(cursor) => cursor.record(),
            Self::Parked(record) => Some(record.as_record()),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Self::Forward(cursor) => cursor.advance(),
            Self::Backward(cursor) => cursor.advance(),
            Self::Parked(_) => Err(Error::internal("a cursor moved on without its value")),
        }
    }
}

/// Stands on a record of a segment within a range, or past the range.
#[derive(Debug)]
pub struct SegmentCursor {
    segment: Arc<Segment>,
    range: KeyRange,
    direction: Direction,
    access: Access,
    top: Walk,
    index: Option<(Walk, BlockHandle)>,
    data: Option<(Walk, BlockHandle)>,
    /// True once the block that reaches the range's start has been opened on a walk backward.
    last_block: bool,
    ahead: Readahead,
    failed: Option<Error>,
}

impl Segment {
    /// A cursor over the records whose keys are in `range`, a scan's range within a reference's clip. A prefix
    /// delete at a key before the range isn't among them, though it may cover keys in it: ask
    /// [`Segment::prefix_delete`]. Without `fill`, blocks that aren't in the cache don't enter it: for walks that
    /// won't come again.
    ///
    /// # Errors
    /// Corruption and `Unsupported` that name file and offset; I/O errors.
    pub fn cursor(self: &Arc<Self>, range: &KeyRange, direction: Direction, fill: bool) -> Result<SegmentCursor> {
        self.cursor_with(range, direction, if fill { Access::Fill } else { Access::Bypass })
    }

    pub(super) fn cursor_with(
        self: &Arc<Self>,
        range: &KeyRange,
        direction: Direction,
        access: Access,
    ) -> Result<SegmentCursor> {
        let range = range.intersect(&self.meta().range);
        let top_handle = self.meta().top_index;
        let top = fetched(self.top(access))?;
        let top = open(top, direction, &range, true).map_err(|e| self.at(e, top_handle))?;
        let segment = Arc::clone(self);
        let (index, data, failed, last_block) = (None, None, None, range.is_empty());
        let ahead = Readahead::default();
        let mut cursor =
            SegmentCursor { segment, range, direction, access, top, index, data, last_block, ahead, failed };
        cursor.settle()?;
        Ok(cursor)
    }
}

/// A block that was allowed to be fetched.
fn fetched<T>(answer: Result<T, Stop>) -> Result<T> {
    resident(answer)?.ok_or_else(|| Error::internal("a block was not fetched"))
}

/// Opens a walk at the end of `block` where `range` begins in `direction`.
fn open(block: Block, direction: Direction, range: &KeyRange, is_index: bool) -> Result<Walk> {
    Ok(match (direction, &range.end) {
        (Direction::Forward, _) if is_index => Walk::Forward(Forward::floor(block, &range.start)?),
        (Direction::Forward, _) => Walk::Forward(Forward::seek(block, &range.start)?),
        (Direction::Backward, Some(end)) => Walk::Backward(Backward::before(block, end)?),
        (Direction::Backward, None) => Walk::Backward(Backward::last(block)?),
    })
}

impl SegmentCursor {
    /// Goes on until it stands on a record of the range, or past it.
    fn settle(&mut self) -> Result<()> {
        loop {
            match self.data.as_ref().map(|(walk, _)| walk.record()) {
                Some(Some(record)) => {
                    let past = match self.direction {
                        Direction::Forward => self.range.end.as_ref().is_some_and(|end| record.key >= end.as_slice()),
                        Direction::Backward => record.key < self.range.start.as_slice(),
                    };
                    if past {
                        self.data = None;
                    }
                    return Ok(());
                }
                Some(None) => self.data = None,
                None => {}
            }
            if !self.next_block()? {
                return Ok(());
            }
        }
    }

    /// True when the blocks at `lower_bound` and above are past the range of a walk forward.
    fn is_past(&self, lower_bound: &[u8]) -> bool {
        self.direction == Direction::Forward && self.range.end.as_ref().is_some_and(|end| lower_bound >= end.as_slice())
    }

    /// Opens the next data block; false when there is none in the range.
    fn next_block(&mut self) -> Result<bool> {
        while !self.last_block {
            let Some((walk, index_handle)) = &self.index else {
                if !self.next_partition()? {
                    return Ok(false);
                }
                continue;
            };
            let index_handle = *index_handle;
            let Some(entry) = walk.record() else {
                self.index = None;
                continue;
            };
            if self.is_past(entry.key) {
                return Ok(false);
            }
            let handle = index::decode_handle(entry.value).map_err(|e| self.segment.at(e, index_handle))?;
            let reaches_start = self.direction == Direction::Backward && entry.key <= self.range.start.as_slice();
            let block = self.fetch(handle)?;
            let data = open(block, self.direction, &self.range, false).map_err(|e| self.segment.at(e, handle))?;
            if let Some((walk, _)) = &mut self.index {
                walk.advance().map_err(|e| self.segment.at(e, index_handle))?;
            }
            self.last_block = reaches_start;
            self.data = Some((data, handle));
            return Ok(true);
        }
        Ok(false)
    }

    fn fetch(&mut self, handle: BlockHandle) -> Result<Block> {
        match (self.access, self.direction) {
            (Access::Bypass | Access::Source, Direction::Forward) => {
                self.segment.block_ahead(handle, self.access, &mut self.ahead)
            }
            _ => fetched(self.segment.block(handle, self.access)),
        }
    }

    /// Opens the block at `handle` again, on the record that it was parked on.
    fn reopen(&mut self, parked: &OwnedRecord, handle: BlockHandle) -> Result<Walk> {
        let block = self.fetch(handle)?;
        let end = Some([&parked.key, &[0][..]].concat());
        let range = KeyRange { start: parked.key.clone(), end };
        let segment = Arc::clone(&self.segment);
        let mut walk = open(block, self.direction, &range, false).map_err(|e| segment.at(e, handle))?;
        // At one key a prefix delete may stand first.
        while walk.record().is_some_and(|r| r.key == parked.key && r.kind != parked.kind) {
            walk.advance().map_err(|e| segment.at(e, handle))?;
        }
        match walk.record() {
            Some(r) if r.key == parked.key && r.sequence == parked.sequence => Ok(walk),
            _ => Err(segment.at(Error::corruption("a record that was read from it is gone"), handle)),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.failed = Some(error.clone());
        self.data = None;
    }

    fn next_partition(&mut self) -> Result<bool> {
        let (segment, top_handle) = (&self.segment, self.segment.meta().top_index);
        let Some(entry) = self.top.record() else { return Ok(false) };
        if self.is_past(entry.key) {
            return Ok(false);
        }
        let handle = index::decode_partition(entry.value).map_err(|e| segment.at(e, top_handle))?.index;
        let block = fetched(segment.block(handle, self.access))?;
        let walk = open(block, self.direction, &self.range, true).map_err(|e| segment.at(e, handle))?;
        self.top.advance().map_err(|e| segment.at(e, top_handle))?;
        self.index = Some((walk, handle));
        Ok(true)
    }
}

impl RecordCursor for SegmentCursor {
    #[inline]
    fn record(&self) -> Option<Record<'_>> {
        self.data.as_ref().and_then(|(walk, _)| walk.record())
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some((walk, handle)) = &mut self.data else { return Ok(()) };
        let handle = *handle;
        let moved = walk.advance().map_err(|e| self.segment.at(e, handle)).and_then(|()| self.settle());
        if let Err(error) = &moved {
            self.fail(error);
        }
        moved
    }

    /// Lets the whole block go: one that has a large value has little else.
    fn let_go(&mut self) {
        let Some((walk, _)) = &mut self.data else { return };
        let parked = walk.record().map(|record| OwnedRecord::from(Record { value: &[], ..record }));
        if let Some(parked) = parked {
            *walk = Walk::Parked(parked);
        }
    }

    fn load(&mut self) -> Result<()> {
        let Some((Walk::Parked(_), handle)) = &self.data else { return Ok(()) };
        let handle = *handle;
        let Some((Walk::Parked(parked), _)) = self.data.take() else { return Ok(()) };
        let loaded = self.reopen(&parked, handle);
        match loaded {
            Ok(walk) => self.data = Some((walk, handle)),
            Err(error) => {
                self.fail(&error);
                return Err(error);
            }
        }
        Ok(())
    }
}
