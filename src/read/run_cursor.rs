//! A walk through one run of a tree.

use std::ops::Range;
use std::sync::Arc;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::Record;
use crate::segment::cursor::SegmentCursor;
use crate::segment::reader::Segment;
use crate::version::Run;
use crate::{Error, Result};

/// A run with its segments opened, in the order of its references.
#[derive(Debug, Clone)]
pub(super) struct OpenRun {
    pub(super) run: Run,
    pub(super) segments: Arc<[Arc<Segment>]>,
}

/// The records of a run within a range, each segment's only within its clip. Owns what it reads from.
pub struct RunCursor {
    run: OpenRun,
    range: KeyRange,
    direction: Direction,
    fill: bool,
    /// Indexes of references not yet begun.
    left: Range<usize>,
    current: Option<SegmentCursor>,
    error: Option<Error>,
}

impl RunCursor {
    /// A cursor on the first record. An error on the way there sticks and shows at the first `advance`.
    pub(super) fn new(run: OpenRun, range: KeyRange, direction: Direction, fill: bool) -> Self {
        let left = run.run.overlapping(&range);
        let mut cursor = Self { run, range, direction, fill, left, current: None, error: None };
        if let Err(error) = cursor.settle() {
            cursor.fail(error);
        }
        cursor
    }

    fn fail(&mut self, error: Error) {
        self.current = None;
        self.error = Some(error);
    }

    /// Goes on to the next segment while the current one has no record left.
    fn settle(&mut self) -> Result<()> {
        loop {
            if let Some(current) = &mut self.current {
                if current.record().is_some() {
                    return Ok(());
                }
                // It may have failed rather than ended.
                current.advance()?;
                if current.record().is_some() {
                    return Ok(());
                }
                self.current = None;
            }
            let next = match self.direction {
                Direction::Forward => self.left.next(),
                Direction::Backward => self.left.next_back(),
            };
            let Some(at) = next else { return Ok(()) };
            let (Some(r), Some(segment)) = (self.run.run.refs().get(at), self.run.segments.get(at)) else {
                return Err(Error::internal("a run without its segments"));
            };
            let range = self.range.intersect(r.clip());
            self.current = Some(segment.cursor(&range, self.direction, self.fill)?);
        }
    }
}

impl RecordCursor for RunCursor {
    fn record(&self) -> Option<Record<'_>> {
        self.current.as_ref().and_then(RecordCursor::record)
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let moved = current.advance().and_then(|()| self.settle());
        if let Err(error) = &moved {
            self.fail(error.clone());
        }
        moved
    }

    fn let_go(&mut self) {
        if let Some(current) = &mut self.current {
            current.let_go();
        }
    }

    fn load(&mut self) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let loaded = current.load();
        if let Err(error) = &loaded {
            self.fail(error.clone());
        }
        loaded
    }
}
