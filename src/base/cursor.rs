//! The cursor contract, stated once for every sorted source of records.
//!
//! 1. A new cursor stands on its first record, or past the end.
//! 2. [`RecordCursor::record`] is the record it stands on; `None` past the end or after an error.
//! 3. [`RecordCursor::advance`] moves to the next one in the cursor's direction. Past the end it is a no-op.
//! 4. An error sticks: every later `advance` returns it again, `record` stays `None`.
//! 5. Forward cursors yield records in [`Record::order`], backward ones in exactly the reverse.

use super::record::Record;
use crate::Result;

/// Walks over sorted records. See the module for the contract.
pub trait RecordCursor {
    /// The record the cursor stands on.
    fn record(&self) -> Option<Record<'_>>;

    /// Moves on.
    ///
    /// # Errors
    /// Whatever the source failed with; it sticks.
    fn advance(&mut self) -> Result<()>;
}

impl<C: RecordCursor + ?Sized> RecordCursor for Box<C> {
    fn record(&self) -> Option<Record<'_>> {
        (**self).record()
    }

    fn advance(&mut self) -> Result<()> {
        (**self).advance()
    }
}

/// Which way a scan walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// Ascending keys.
    #[default]
    Forward,
    /// Descending keys.
    Backward,
}
