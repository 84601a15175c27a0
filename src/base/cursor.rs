//! The cursor contract, stated once for every sorted source of records.
//!
//! 1. A new cursor stands on its first record, or past the end.
//! 2. [`RecordCursor::record`] is the record it stands on; `None` past the end or after an error.
//! 3. [`RecordCursor::advance`] moves to the next one in the cursor's direction. Past the end it is a no-op.
//! 4. An error sticks: every later `advance` returns it again, `record` stays `None`.
//! 5. Forward cursors yield records in [`Record::order`], backward ones in exactly the reverse.
//! 6. A cursor that waits for others may be told to let the value of its record go ([`RecordCursor::let_go`]). The record
//!    then shows no value and the cursor doesn't advance, until [`RecordCursor::load`] has brought it back.

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

    /// Frees the memory of the record's value, where that can be read again.
    fn let_go(&mut self) {}

    /// Brings back what [`RecordCursor::let_go`] freed; a no-op where nothing was.
    ///
    /// # Errors
    /// As [`RecordCursor::advance`].
    fn load(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<C: RecordCursor + ?Sized> RecordCursor for Box<C> {
    fn record(&self) -> Option<Record<'_>> {
        (**self).record()
    }

    fn advance(&mut self) -> Result<()> {
        (**self).advance()
    }

    fn let_go(&mut self) {
        (**self).let_go();
    }

    fn load(&mut self) -> Result<()> {
        (**self).load()
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
