//! What the runtime asks of the parts it runs. The job implements these over Highwater; tests over maps in memory.

use std::time::Duration;

use crossbeam::channel::Receiver;

use crate::exit::Outcome;
use crate::position::Position;
use crate::runtime::{Fired, Record, Row};

/// Where records come from.
pub trait Source: Send {
    /// Appends the records of the next event (often one, perhaps none) and returns its time; `None` at the end.
    ///
    /// # Errors
    ///
    /// The input is malformed or can't be read.
    fn next(&mut self, records: &mut Vec<Record>) -> Outcome<Option<i64>>;

    /// Where the source stands. The runtime fills in the watermark and whether the input has ended.
    fn position(&self) -> Position;
}

/// The operator of one keyed subtask.
pub trait KeyedOperator: Send {
    /// The state it lives in.
    type Snapshots: Snapshots;

    /// Takes a record, after the record's watermark. What is due and hasn't fired yet, because `fired` is full, must make no difference to it.
    ///
    /// # Errors
    ///
    /// The state can't be used.
    fn on_record(&mut self, record: &Record, fired: &mut Fired) -> Outcome<()>;

    /// Moves on to `watermark`, unless that lies behind, and fires what is due until `fired` is full. False where more is due: the next call, with
    /// the same watermark, goes on.
    ///
    /// # Errors
    ///
    /// The state can't be used.
    fn on_watermark(&mut self, watermark: i64, fired: &mut Fired) -> Outcome<bool>;

    /// Every window that ends at or before this time has been given, and none will be any more.
    fn fired_upto(&self) -> i64;

    /// The state, to checkpoint it.
    fn snapshots(&mut self) -> &mut Self::Snapshots;
}

/// News about a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// It is complete.
    Confirm(u64),
    /// It was given up.
    Abort(u64),
}

/// State that can be checkpointed.
pub trait Snapshots: Send {
    /// What stands for a part that is still being written.
    type Ticket: Ticket;

    /// Hands over the news about checkpoints. The runtime reads them between messages; state that waits for room in the middle of a call reads
    /// them itself meanwhile, as what makes room may be the very abort that is waiting there. A closed channel means that the run is over.
    fn listen(&mut self, controls: Receiver<Control>) {
        drop(controls);
    }

    /// The next of the news that the state itself read, and acted on, while it waited.
    fn heard(&mut self) -> Option<Control> {
        None
    }

    /// Takes down how long a barrier was waited for on all ways to this state.
    fn aligned(&mut self, waited: Duration) {
        let _ = waited;
    }

    /// Freezes the state as it is now, together with `metadata`; returns at once.
    ///
    /// # Errors
    ///
    /// The checkpoint can't be taken.
    fn checkpoint(&mut self, id: u64, metadata: &[u8]) -> Outcome<Self::Ticket>;

    /// Acts on news about a checkpoint.
    ///
    /// # Errors
    ///
    /// The state can't be used.
    fn control(&mut self, control: Control) -> Outcome<()>;
}

/// One subtask's part of a checkpoint, on its way to the store.
pub trait Ticket: Send {
    /// What the coordinator collects.
    type Part: Send;

    /// The part once it is stored, without waiting for it; not called again after that.
    fn poll(&mut self) -> Option<Outcome<Self::Part>>;
}

/// What a completed checkpoint takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Bytes of segments that were uploaded for it; those that one before it, which was given up, had uploaded don't count again.
    pub delta_bytes: u64,
    /// Bytes that its parts reach; an object that several share, as after a rescale, counts for each.
    pub full_bytes: u64,
}

/// Makes a checkpoint complete once all its parts are stored.
pub trait Coordinator {
    /// What it collects.
    type Part;

    /// Begins checkpoint `id`, before any barrier is sent; ids grow.
    ///
    /// # Errors
    ///
    /// This job has been fenced (exit code 4).
    fn begin(&mut self, id: u64) -> Outcome<()>;

    /// Attaches the job's metadata to checkpoint `id`; comes before the sink's part of it.
    ///
    /// # Errors
    ///
    /// The checkpoint can't be completed.
    fn describe(&mut self, id: u64, metadata: Vec<u8>) -> Outcome<()>;

    /// Takes a part of checkpoint `id`; with the last one the checkpoint is complete. A store that is away for the moment is no
    /// error: the checkpoint stays under way, for [`retry`](Self::retry).
    ///
    /// # Errors
    ///
    /// The checkpoint can't be completed, or this job has been fenced (exit code 4).
    fn add(&mut self, id: u64, part: Self::Part) -> Outcome<Option<Completed>>;

    /// Tries again to complete what only the store kept from it. Called a few times a second.
    ///
    /// # Errors
    ///
    /// This job has been fenced (exit code 4).
    fn retry(&mut self) -> Outcome<Vec<(u64, Completed)>>;

    /// Gives checkpoint `id` up.
    fn abort(&mut self, id: u64);

    /// Everything that this process has uploaded: manifests, retries and aborted checkpoints included.
    fn uploaded_bytes(&self) -> u64;
}

/// Rows on their way to the output, in state that is part of every checkpoint.
///
/// They wait twice: *held*, ordered by (end, stream, key), for rows that come before them; then *staged*, in pieces by their offset in the output, for a
/// checkpoint to complete.
pub trait StagedRows: Send {
    /// Keeps a row until it is released.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn hold(&mut self, row: &Row) -> Outcome<()>;

    /// The end of the first row that is held.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    fn first_held(&mut self) -> Outcome<Option<i64>>;

    /// Takes the first rows that are held out of the state and appends their lines to `out`: those that end by `upto`, until they are
    /// `bytes` long. Returns how many. Rows that are held later must come after those that were released.
    ///
    /// # Errors
    ///
    /// The state can't be read or written.
    fn release(&mut self, upto: i64, bytes: usize, out: &mut Vec<u8>) -> Outcome<u64>;

    /// Keeps the bytes for `offset`.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn stage(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()>;

    /// The bytes for `offset`.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    fn staged(&mut self, offset: u64) -> Outcome<Option<Vec<u8>>>;

    /// Forgets the bytes for `offset`.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn unstage(&mut self, offset: u64) -> Outcome<()>;
}
