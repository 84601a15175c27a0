//! Checkpoints as a job makes them: started by the owner, completed by a coordinator on another thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use highwater::{CheckpointKind, Coordinator, Operator, Ticket};

use super::engine::Engine;

/// Starts checkpoints of one backend and notes how long each call took.
pub struct Checkpointer {
    tickets: Sender<Ticket>,
    completed: Receiver<u64>,
    next: u64,
    in_flight: usize,
    /// Microseconds of each call of `checkpoint()`.
    pub call_us: Vec<f64>,
}

impl Checkpointer {
    pub fn new(engine: &Engine) -> Self {
        let coordinator = engine.env.coordinator(&[(&Operator::new("bench", 128), 1)]).unwrap();
        let (tickets, waiting) = channel();
        let (done, completed) = channel();
        std::thread::spawn(move || complete(coordinator, &waiting, &done));
        Self { tickets, completed, next: 1, in_flight: 0, call_us: Vec::new() }
    }

    /// Starts a checkpoint, unless the last three haven't completed.
    pub fn checkpoint(&mut self, engine: &mut Engine) {
        self.in_flight -= self.completed.try_iter().count();
        if self.in_flight >= 3 {
            return;
        }
        let start = Instant::now();
        let ticket = engine.backend.checkpoint(self.next, CheckpointKind::Incremental, b"offsets").unwrap();
        self.call_us.push(start.elapsed().as_nanos() as f64 / 1000.0);
        self.next += 1;
        self.in_flight += 1;
        self.tickets.send(ticket).unwrap();
    }

    /// Waits until all that were started are complete.
    pub fn wait(&mut self) {
        while self.in_flight > 0 {
            self.completed.recv().unwrap();
            self.in_flight -= 1;
        }
    }
}

fn complete(mut coordinator: Coordinator, tickets: &Receiver<Ticket>, done: &Sender<u64>) {
    for ticket in tickets {
        let part = ticket.wait(Duration::from_secs(120)).unwrap();
        let id = ticket.id().id;
        coordinator.add(part).unwrap();
        if done.send(id).is_err() {
            return;
        }
    }
}
