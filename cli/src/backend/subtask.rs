//! What both kinds of subtasks have in common: a backend, and patience with it.

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError};
use highwater::io::retry::may_pass;
use highwater::{Backend, CheckpointKind, CheckpointPart, ErrorKind};

use crate::backend::{Context, checkpoint_failure, failure};
use crate::exit::{Failure, Outcome};
use crate::runtime::{Control, Snapshots, Ticket};

/// Between two attempts of a call that there was no room for.
const PAUSE: Duration = Duration::from_millis(5);

/// A backend with the news about its checkpoints.
#[derive(Debug)]
pub struct Subtask {
    backend: Backend,
    controls: Option<Receiver<Control>>,
    heard: VecDeque<Control>,
}

impl Subtask {
    pub fn new(backend: Backend) -> Self {
        Self { backend, controls: None, heard: VecDeque::new() }
    }

    /// Makes a call, again and again while storage is behind, or the store is away that holds what is asked for. Meanwhile news are
    /// acted on, since an abort may be what makes room.
    pub fn call<T>(&mut self, mut call: impl FnMut(&mut Backend) -> highwater::Result<T>) -> Outcome<T> {
        loop {
            match call(&mut self.backend) {
                Err(error) if error.kind() == ErrorKind::Backpressure => self.wait(&failure(&error))?,
                // Before the run has begun there is somebody to tell.
                Err(error) if self.controls.is_some() && may_pass(&error) => self.wait(&failure(&error))?,
                settled => return settled.outcome(),
            }
        }
    }

    fn wait(&mut self, why: &Failure) -> Outcome<()> {
        let Some(controls) = &self.controls else {
            std::thread::sleep(PAUSE);
            return Ok(());
        };
        match controls.recv_timeout(PAUSE) {
            Ok(control) => {
                self.heard.push_back(control);
                self.act(control)
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // The run is over: nobody is left to make room.
            Err(RecvTimeoutError::Disconnected) => Err(why.clone()),
        }
    }

    fn act(&mut self, control: Control) -> Outcome<()> {
        match control {
            Control::Confirm(id) => self.backend.confirm(id),
            Control::Abort(id) => self.backend.abort(id),
        }
        .outcome()
    }
}

/// State that lives in the backend of one subtask, and is checkpointed with it.
pub trait OnSubtask: Send {
    /// The subtask.
    fn subtask(&mut self) -> &mut Subtask;
}

impl<S: OnSubtask> Snapshots for S {
    type Ticket = PartTicket;

    fn listen(&mut self, controls: Receiver<Control>) {
        self.subtask().controls = Some(controls);
    }

    fn heard(&mut self) -> Option<Control> {
        self.subtask().heard.pop_front()
    }

    fn aligned(&mut self, waited: Duration) {
        self.subtask().backend.report_alignment(waited);
    }

    fn checkpoint(&mut self, id: u64, metadata: &[u8]) -> Outcome<PartTicket> {
        let backend = &mut self.subtask().backend;
        backend.checkpoint(id, CheckpointKind::Incremental, metadata).map(PartTicket).outcome()
    }

    fn control(&mut self, control: Control) -> Outcome<()> {
        self.subtask().act(control)
    }
}

/// The library's ticket.
#[derive(Debug)]
pub struct PartTicket(highwater::Ticket);

impl Ticket for PartTicket {
    type Part = CheckpointPart;

    fn poll(&mut self) -> Option<Outcome<CheckpointPart>> {
        self.0.try_part().map(|part| part.map_err(|error| checkpoint_failure(&error)))
    }
}
