//! The sink's staged rows.

use crossbeam::channel::Receiver;
use highwater::{Backend, KeyedState, ValueState};

use crate::backend::Context;
use crate::backend::subtask::{PartTicket, Subtask};
use crate::exit::Outcome;
use crate::runtime::{Control, Snapshots, StagedRows};

/// Pieces of output by their offset.
#[derive(Debug)]
pub struct SinkRows {
    subtask: Subtask,
    pieces: ValueState<u64, Vec<u8>>,
}

impl SinkRows {
    /// The rows in `backend`.
    ///
    /// # Errors
    ///
    /// The backend holds another state under this name.
    pub fn new(mut backend: Backend) -> Outcome<Self> {
        let pieces = backend.value_state("staged rows").outcome()?;
        Ok(Self { subtask: Subtask::new(backend), pieces })
    }
}

impl StagedRows for SinkRows {
    fn stage(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()> {
        let (pieces, bytes) = (self.pieces, bytes.to_vec());
        self.subtask.call(|backend| pieces.put(backend, &offset, &bytes))
    }

    fn staged(&mut self, offset: u64) -> Outcome<Option<Vec<u8>>> {
        let pieces = self.pieces;
        self.subtask.call(|backend| pieces.get(backend, &offset))
    }

    fn unstage(&mut self, offset: u64) -> Outcome<()> {
        let pieces = self.pieces;
        self.subtask.call(|backend| pieces.clear(backend, &offset))
    }
}

impl Snapshots for SinkRows {
    type Ticket = PartTicket;

    fn listen(&mut self, controls: Receiver<Control>) {
        self.subtask.listen(controls);
    }

    fn heard(&mut self) -> Option<Control> {
        self.subtask.heard()
    }

    fn checkpoint(&mut self, id: u64, metadata: &[u8]) -> Outcome<PartTicket> {
        self.subtask.checkpoint(id, metadata)
    }

    fn control(&mut self, control: Control) -> Outcome<()> {
        self.subtask.act(control)
    }
}
