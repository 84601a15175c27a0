//! The owner's receipt for a checkpoint: waitable from any thread, and a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::part::CheckpointPart;
use crate::base::ids::CheckpointId;
use crate::{Error, ErrorKind, Result};

#[derive(Default)]
struct Slot {
    outcome: Option<Result<CheckpointPart>>,
    wakers: Vec<Waker>,
}

struct Shared {
    id: CheckpointId,
    slot: Mutex<Slot>,
    done: Condvar,
}

/// Stands for a checkpoint that is being made in the background.
///
/// Waiting hands out the subtask's [`CheckpointPart`], which the coordinator collects. Dropping the ticket
/// changes nothing.
#[derive(Clone)]
pub struct Ticket {
    shared: Arc<Shared>,
}

impl Ticket {
    /// The checkpoint it stands for.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.shared.id
    }

    /// Waits until the subtask's part is durable.
    ///
    /// # Errors
    /// `Timeout` after `timeout` (the checkpoint goes on: wait again, or abort it); `Aborted`; else what it
    /// failed with.
    pub fn wait(&self, timeout: Duration) -> Result<CheckpointPart> {
        let mut slot = self.shared.slot.lock();
        if slot.outcome.is_none() {
            self.shared.done.wait_while_for(&mut slot, |slot| slot.outcome.is_none(), timeout);
        }
        match &slot.outcome {
            Some(outcome) => outcome.clone(),
            None => Err(Error::new(
                ErrorKind::Timeout,
                format!("checkpoint {} is not done after {} ms", self.shared.id, timeout.as_millis()),
            )),
        }
    }

    /// The outcome, if there is one yet.
    #[must_use]
    pub fn try_part(&self) -> Option<Result<CheckpointPart>> {
        self.shared.slot.lock().outcome.clone()
    }
}

impl Future for Ticket {
    type Output = Result<CheckpointPart>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.shared.slot.lock();
        if let Some(outcome) = &slot.outcome {
            return Poll::Ready(outcome.clone());
        }
        if !slot.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            slot.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({})", self.shared.id)
    }
}

/// The worker's end: completes the ticket once; dropped without that, the ticket fails as closed.
pub struct TicketSender {
    shared: Arc<Shared>,
}

impl TicketSender {
    /// A ticket and its worker's end.
    #[must_use]
    pub fn new(id: CheckpointId) -> (Self, Ticket) {
        let shared = Arc::new(Shared { id, slot: Mutex::default(), done: Condvar::new() });
        (Self { shared: shared.clone() }, Ticket { shared })
    }

    /// Hands the outcome to whoever waits. Only the first one counts.
    pub fn complete(&self, outcome: Result<CheckpointPart>) {
        let wakers = {
            let mut slot = self.shared.slot.lock();
            if slot.outcome.is_some() {
                return;
            }
            slot.outcome = Some(outcome);
            std::mem::take(&mut slot.wakers)
        };
        self.shared.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for TicketSender {
    fn drop(&mut self) {
        self.complete(Err(Error::new(
            ErrorKind::Closed,
            format!("the backend was closed before checkpoint {} was done", self.shared.id),
        )));
    }
}

impl std::fmt::Debug for TicketSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TicketSender({})", self.shared.id)
    }
}
