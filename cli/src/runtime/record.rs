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

/// What an operator gives.
#[derive(Debug, Default)]
pub struct Fired {
    /// The rows of windows that have fired.
    pub rows: Vec<Row>,
    /// How many records were late.
    pub late: u64,
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

/// What every subtask sends to the sink: an answer to each message of the reader.
#[derive(Debug)]
pub(super) enum ToSink {
    Batch(Fired),
    /// With the time at which the subtask was done with its part.
    Barrier(std::sync::Arc<Barrier>, std::time::Instant),
}

/// The place in the stream at which a checkpoint cuts it.
#[derive(Debug)]
pub(super) struct Barrier {
    pub id: u64,
    pub position: crate::position::Position,
}
