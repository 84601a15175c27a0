//! What a job asks of the store that its checkpoints are in. Highwater implements it; tests do in memory.

use crate::exit::Outcome;
use crate::runtime::{Coordinator, Snapshots, StagedRows, Ticket};
use crate::window::WindowStore;

/// The newest completed checkpoint of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its id.
    pub id: u64,
    /// Keyed subtasks that wrote it.
    pub parallelism: u32,
    /// The metadata of the sink's part.
    pub metadata: Vec<u8>,
}

/// A job that may write: restored, ready for records.
pub struct Started<K, R, C> {
    /// The state of each keyed subtask.
    pub keyed: Vec<K>,
    /// The state of the sink.
    pub rows: R,
    /// Completes the checkpoints; expects a part of every subtask and one of the sink.
    pub coordinator: C,
    /// The first id that is free.
    pub first_checkpoint: u64,
}

/// The part type that a state's tickets give.
pub type PartOf<S> = <<S as Snapshots>::Ticket as Ticket>::Part;

/// What [`Engine::start`] gives.
pub type StartedOn<E> = Started<<E as Engine>::Keyed, <E as Engine>::Rows, <E as Engine>::Coordinator>;

/// A store of checkpoints, and the state that lives on it.
pub trait Engine {
    /// State of a keyed subtask.
    type Keyed: WindowStore + Snapshots;
    /// State of the sink.
    type Rows: StagedRows + Snapshots<Ticket = <Self::Keyed as Snapshots>::Ticket>;
    /// Completes checkpoints.
    type Coordinator: Coordinator<Part = PartOf<Self::Keyed>>;

    /// The store's name, for messages.
    fn place(&self) -> String;

    /// Whether the store holds a job's results: a completed checkpoint. One that was only claimed holds nothing to lose. Changes nothing.
    ///
    /// # Errors
    ///
    /// The store can't be read.
    fn holds_job(&mut self) -> Outcome<bool>;

    /// The newest completed checkpoint. Changes nothing.
    ///
    /// # Errors
    ///
    /// The store can't be read; the newest checkpoint is unreadable (exit code 3: older ones are not fallen back to in silence).
    fn newest(&mut self) -> Outcome<Option<Newest>>;

    /// Bytes of all objects that the newest completed checkpoint reaches, each once; `None` where there is none. Changes nothing.
    ///
    /// # Errors
    ///
    /// As [`newest`](Self::newest).
    fn newest_bytes(&mut self) -> Outcome<Option<u64>>;

    /// Claims the store for this process: from now on no other process can complete a checkpoint there.
    ///
    /// # Errors
    ///
    /// The store can't be written; a successor has claimed it meanwhile (4).
    fn claim(&mut self) -> Outcome<()>;

    /// Restores the state of `from` at `parallelism`, or begins without any; comes after [`claim`](Self::claim).
    ///
    /// # Errors
    ///
    /// The checkpoint can't be restored (3).
    fn start(&mut self, from: Option<&Newest>, parallelism: u32) -> Outcome<StartedOn<Self>>;

    /// Takes down that the job has caught up with its input.
    fn caught_up(&self) {}
}
