//! Checkpoints at intervals, and what became of each.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::store::Store;

/// A complete checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Seconds from the start of the run to its start.
    pub at_s: f64,
    /// How long the owner was held up, microseconds.
    pub sync_us: f64,
    /// From its start until it was complete, milliseconds.
    pub duration_ms: f64,
    /// State uploaded for it, bytes.
    pub uploaded_bytes: u64,
    /// What it refers to, bytes.
    pub referenced_bytes: u64,
}

/// Checkpoints of a run, written by whoever completes them.
#[derive(Debug, Clone)]
pub struct CheckpointLog {
    start: Instant,
    done: Arc<Mutex<Vec<Checkpoint>>>,
}

impl CheckpointLog {
    /// An empty one.
    pub fn new() -> Self {
        Self { start: Instant::now(), done: Arc::default() }
    }

    /// Notes a checkpoint that is complete now.
    pub fn complete(&self, began: Instant, sync: Duration, uploaded_bytes: u64, referenced_bytes: u64) {
        let checkpoint = Checkpoint {
            at_s: (began - self.start).as_secs_f64(),
            sync_us: sync.as_secs_f64() * 1e6,
            duration_ms: began.elapsed().as_secs_f64() * 1e3,
            uploaded_bytes,
            referenced_bytes,
        };
        self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(checkpoint);
    }

    /// Those that began at `since` or later, by then counted from it.
    pub fn since(&self, since: Instant) -> Vec<Checkpoint> {
        let offset = (since - self.start).as_secs_f64();
        let done = self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut found: Vec<_> = done.iter().filter(|c| c.at_s >= offset).copied().collect();
        found.iter_mut().for_each(|c| c.at_s -= offset);
        found
    }
}

/// Starts a checkpoint whenever one is due, at most one at a time, as Flink does.
#[derive(Debug)]
pub struct Schedule {
    every: Option<Duration>,
    next: Instant,
    /// How long each call held the owner up.
    pub syncs: Vec<Duration>,
}

impl Schedule {
    /// From now on, `every` so often.
    pub fn new(every: Option<Duration>) -> Self {
        Self { every, next: Instant::now() + every.unwrap_or_default(), syncs: Vec::new() }
    }

    /// True when there are any.
    pub fn is_on(&self) -> bool {
        self.every.is_some()
    }

    /// Starts one when it is due.
    pub fn look(&mut self, store: &mut impl Store, now: Instant) -> Result<()> {
        let Some(every) = self.every.filter(|_| now >= self.next) else { return Ok(()) };
        if let Some(sync) = store.checkpoint()? {
            self.syncs.push(sync);
            while self.next <= now {
                self.next += every;
            }
        }
        Ok(())
    }
}
