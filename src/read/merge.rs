//! Merging sorted cursors.

use std::cmp::Ordering;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::record::Record;
use crate::{Error, Result};

/// From this size on a value is let go while the records of other sources come first, if they wait with too much.
const LARGE_BYTES: usize = 64 << 10;

/// Bytes of large values that may wait: what is more is read again when its turn comes. So a merge of many runs of large
/// values takes little more memory than one of them does.
const MAX_WAITING_BYTES: usize = 4 << 20;

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
    /// A value was let go, so the current one may have to be loaded.
    let_go: bool,
    error: Option<Error>,
}

impl<'a> MergeCursor<'a> {
    /// Merges `sources`, newest first, which all walk in `direction`. Each is taken when the ones before it have been
    /// looked at: where they are opened on the way, their first values aren't in memory all at once.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item = Box<dyn RecordCursor + 'a>>, direction: Direction) -> Self {
        let sources = sources.into_iter();
        let (expected, _) = sources.size_hint();
        let (held, waiting) = (Vec::with_capacity(expected), Vec::with_capacity(expected));
        let mut merged = Self { sources: held, waiting, direction, let_go: false, error: None };
        for (at, source) in sources.enumerate() {
            merged.sources.push(source);
            if let Err(error) = merged.enter(at) {
                merged.error = Some(error);
                break;
            }
        }
        if let Err(error) = merged.load_current() {
            merged.error = Some(error);
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
        if self.value_bytes(at) >= LARGE_BYTES {
            self.spare_waiting();
        }
        Ok(())
    }

    fn value_bytes(&self, at: usize) -> usize {
        self.record_of(at).map_or(0, |record| record.value.len())
    }

    /// Has the sources whose turn comes last let their values go, until those of the others aren't too much.
    #[cold]
    fn spare_waiting(&mut self) {
        let large = |bytes: &usize| *bytes >= LARGE_BYTES;
        let (_, others) = self.waiting.split_last().unwrap_or((&0, &[]));
        let mut total: usize = others.iter().map(|at| self.value_bytes(*at)).filter(large).sum();
        for place in 0..self.waiting.len().saturating_sub(1) {
            if total <= MAX_WAITING_BYTES {
                return;
            }
            let Some(at) = self.waiting.get(place).copied() else { return };
            let bytes = self.value_bytes(at);
            if large(&bytes)
                && let Some(source) = self.sources.get_mut(at)
            {
                source.let_go();
                self.let_go = true;
                total -= bytes;
            }
        }
    }

    fn load_current(&mut self) -> Result<()> {
        if !self.let_go {
            return Ok(());
        }
        let current = self.waiting.last().and_then(|at| self.sources.get_mut(*at));
        current.map_or(Ok(()), |source| source.load())
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
        self.enter(at)?;
        self.load_current()
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
