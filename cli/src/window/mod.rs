//! The windows: which ones a record belongs to, when they fire, which records come too late.
//!
//! - Enters: records of one subtask's keys in input order, each with the reader's watermark before it; watermarks.
//! - Leaves: the rows of windows that have fired, and how many records were late.
//! - Always holds: windows that the watermark has reached have fired before the next record is looked at, so results and late counts
//!   depend on the input alone, not on how records were batched or spread over subtasks.
//!
//! What windows remember lives behind [`WindowStore`]: in Highwater in the job, in a map in tests.

mod operator;
mod session;
mod store;
mod tumbling;

#[cfg(test)]
mod tests;

pub use operator::{StreamSpec, WindowOperator};
pub use session::stored as stored_session;
pub use store::{Timer, WindowStore};

/// How records are put into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Windows of one size that don't overlap, aligned to 1970.
    Tumbling {
        /// In nanoseconds.
        size: i64,
    },
    /// Windows that last until a key has been quiet for a while.
    Session {
        /// In nanoseconds.
        gap: i64,
    },
}

impl WindowKind {
    /// The one stream of a job that has no other.
    pub fn alone(self) -> StreamSpec {
        StreamSpec { kind: self, label: "" }
    }

    /// How far a window may reach from a record's time, in nanoseconds.
    pub fn reach(self) -> i64 {
        match self {
            Self::Tumbling { size } => size,
            Self::Session { gap } => gap,
        }
    }
}
