//! What flows: records on the way to the subtasks, rows on the way to the sink.

use smallvec::SmallVec;

use crate::aggregate::Number;

/// The bytes of a key. Most keys are short and spare the allocation.
pub type Key = SmallVec<[u8; 24]>;

/// Which of a job's aggregations a record belongs to: `run` has one, the demo two.
pub type StreamId = u8;

/// A well-formed record of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The aggregation it belongs to.
    pub stream: StreamId,
    /// The key, as it stands in the input.
    pub key: Key,
    /// Event time in nanoseconds since 1970.
    pub time: i64,
    /// The value, where it is a number.
    pub value: Option<Number>,
    /// The reader's watermark before this record: the subtask advances to it first, so that neither results nor late counts depend on batches.
    pub watermark: i64,
}

/// A window that has fired, as a line of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The window's end.
    pub end: i64,
    /// The aggregation it belongs to.
    pub stream: StreamId,
    /// The key.
    pub key: Key,
    /// The line with its line feed.
    pub line: Vec<u8>,
}

impl Row {
    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.line.len()
    }
}

/// Timers that are looked at in one step.
const STEP_TIMERS: usize = 1024;

/// Bytes of rows that are given in one step: with those of the last window it may be one row more.
const STEP_BYTES: usize = 64 << 10;

/// What an operator gives in one step. Any number of windows may be due at one watermark; a step takes so many of them that barriers, and the memory
/// of those that the rows go through, needn't wait for all.
#[derive(Debug, Default)]
pub struct Fired {
    /// The rows of windows that have fired.
    pub rows: Vec<Row>,
    /// How many records were late.
    pub late: u64,
    timers: usize,
    bytes: usize,
}

impl Fired {
    /// Takes in the row of a window that has fired.
    pub fn push(&mut self, row: Row) {
        self.bytes += row.bytes();
        self.rows.push(row);
    }

    /// Counts a timer that was looked at.
    pub fn count_timer(&mut self) {
        self.timers += 1;
    }

    /// For tests: as if all but so many timers had been looked at.
    #[cfg(test)]
    pub fn leave_room_for(&mut self, timers: usize) {
        self.timers = STEP_TIMERS.saturating_sub(timers);
    }

    /// Whether what else is due waits for the next step.
    pub fn is_full(&self) -> bool {
        self.timers >= STEP_TIMERS || self.bytes >= STEP_BYTES
    }
}

/// What the reader sends to every subtask, in the same order to all.
#[derive(Debug)]
pub(super) enum ToSubtask {
    /// This subtask's records of a stretch of the input, and the watermark at its end.
    Batch {
        records: Vec<Record>,
        watermark: i64,
    },
    Barrier(std::sync::Arc<Barrier>),
}

/// What every subtask sends to the sink.
#[derive(Debug)]
pub(super) enum ToSink {
    /// What came of a step, and the time up to which all windows of this subtask have fired.
    Step { rows: Vec<Row>, late: u64, upto: i64 },
    /// With the time at which the subtask was done with its part.
    Barrier(std::sync::Arc<Barrier>, std::time::Instant),
}

/// The place in the stream at which a checkpoint cuts it.
#[derive(Debug)]
pub(super) struct Barrier {
    pub id: u64,
    pub position: crate::position::Position,
}
