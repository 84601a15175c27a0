//! Merging sorted cursors.

use std::cmp::Ordering;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::record::Record;
use crate::{Error, Result};

/// All records of several cursors in one order. Where two records compare equal, the one of the source that
/// was given first counts as newer.
///
/// A source that stands on no record is asked again, since by contract it may have ended or failed; so is
/// this cursor: past the end, [`RecordCursor::advance`] or [`MergeCursor::status`] tells which.
pub struct MergeCursor<'a> {
    sources: Vec<Box<dyn RecordCursor + 'a>>,
    /// Sources that stand on a record; the last one's is the current one.
    waiting: Vec<usize>,
    direction: Direction,
    error: Option<Error>,
}

impl<'a> MergeCursor<'a> {
    /// Merges `sources`, newest first, which all walk in `direction`.
    #[must_use]
    pub fn new(sources: Vec<Box<dyn RecordCursor + 'a>>, direction: Direction) -> Self {
        let waiting = Vec::with_capacity(sources.len());
        let mut merged = Self { sources, waiting, direction, error: None };
        for at in 0..merged.sources.len() {
            if let Err(error) = merged.enter(at) {
                merged.error = Some(error);
                break;
            }
        }
        merged
    }

    /// The error that stopped the cursor, if one did.
    ///
    /// # Errors
    /// That error.
    pub fn status(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Index of the source of the current record.
    #[must_use]
    pub fn source(&self) -> Option<usize> {
        self.waiting.last().copied().filter(|_| self.error.is_none())
    }

    fn record_of(&self, at: usize) -> Option<Record<'_>> {
        self.sources.get(at).and_then(|source| source.record())
    }

    /// Puts source `at` where its record belongs among those waiting.
    fn enter(&mut self, at: usize) -> Result<()> {
        if self.record_of(at).is_none() {
            // At its end this is a no-op; after an error it repeats the error.
            if let Some(source) = self.sources.get_mut(at) {
                source.advance()?;
            }
            if self.record_of(at).is_none() {
                return Ok(());
            }
        }
        let mut place = self.waiting.len();
        while let Some(other) = place.checked_sub(1).and_then(|p| self.waiting.get(p)) {
            if self.comes_first(at, *other) {
                break;
            }
            place -= 1;
        }
        self.waiting.insert(place, at);
        Ok(())
    }

    fn comes_first(&self, a: usize, b: usize) -> bool {
        let order = match (self.record_of(a), self.record_of(b)) {
            (Some(x), Some(y)) => x.order(&y).then(a.cmp(&b)),
            _ => Ordering::Equal,
        };
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    fn step(&mut self) -> Result<()> {
        let Some(at) = self.waiting.pop() else { return Ok(()) };
        if let Some(source) = self.sources.get_mut(at) {
            source.advance()?;
        }
        self.enter(at)
    }
}

impl RecordCursor for MergeCursor<'_> {
    fn record(&self) -> Option<Record<'_>> {
        self.record_of(self.source()?)
    }

    fn advance(&mut self) -> Result<()> {
        self.status()?;
        let stepped = self.step();
        if let Err(error) = &stepped {
            self.error = Some(error.clone());
        }
        stepped
    }
}
