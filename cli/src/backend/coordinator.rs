//! Completing checkpoints in the root log.

use std::sync::Arc;
use std::time::Duration;

use highwater::base::random::SeededRandom;
use highwater::checkpoint::log::RootLog;
use highwater::io::retry::{Cancel, RetryPolicy, may_pass};
use highwater::io::store::Store;
use highwater::{Begin, CheckpointPart, CompletedCheckpoint};

use crate::backend::counted::CountedStore;
use crate::backend::garbage::GarbageThread;
use crate::backend::{Context, checkpoint_failure, clock};
use crate::exit::{Failure, Outcome};
use crate::runtime::{Completed, Coordinator};

/// How long a call goes on trying while the store is away. The thread that waits also looks at signals and the clock, and tries again
/// itself a little later.
const PATIENCE: Duration = Duration::from_millis(300);

/// The library's coordinator, with a thread that collects garbage for it.
#[derive(Debug)]
pub struct RootCoordinator {
    inner: highwater::Coordinator,
    store: Arc<CountedStore>,
    garbage: GarbageThread,
}

/// The log of `store` for a thread that mustn't wait long.
pub fn impatient_log(store: Arc<dyn Store>) -> RootLog {
    let policy = RetryPolicy { deadline: PATIENCE, ..RetryPolicy::default() };
    RootLog::with_retries(store, clock(), Arc::new(SeededRandom::from_system()), policy, Cancel::new())
}

impl RootCoordinator {
    pub(super) fn new(inner: highwater::Coordinator, store: Arc<CountedStore>, garbage: GarbageThread) -> Self {
        Self { inner, store, garbage }
    }
}

fn completed(checkpoint: &CompletedCheckpoint) -> Completed {
    Completed {
        delta_bytes: checkpoint.parts().iter().map(|part| part.delta_bytes).sum(),
        full_bytes: checkpoint.full_bytes(),
    }
}

impl Coordinator for RootCoordinator {
    type Part = CheckpointPart;

    fn begin(&mut self, id: u64) -> Outcome<()> {
        self.garbage.check()?;
        match self.inner.begin(id).outcome()? {
            Begin::Started(_) => Ok(()),
            Begin::Skipped => Err(Failure::internal(format!("checkpoint {id} was skipped, which isn't its part"))),
        }
    }

    fn describe(&mut self, id: u64, metadata: Vec<u8>) -> Outcome<()> {
        self.inner.set_metadata(id, metadata).outcome()
    }

    fn add(&mut self, _id: u64, part: CheckpointPart) -> Outcome<Option<Completed>> {
        match self.inner.add(part) {
            Err(error) if may_pass(&error) => Ok(None),
            added => Ok(added.map_err(|error| checkpoint_failure(&error))?.as_ref().map(completed)),
        }
    }

    fn retry(&mut self) -> Outcome<Vec<(u64, Completed)>> {
        self.garbage.check()?;
        match self.inner.retry_ready() {
            Err(error) if may_pass(&error) => Ok(Vec::new()),
            tried => Ok(tried.outcome()?.iter().map(|done| (done.id().id, completed(done))).collect()),
        }
    }

    fn abort(&mut self, id: u64) {
        // Any number of failures is put up with, so this has no error.
        let _ = self.inner.abort(id);
    }

    fn settle(&mut self) {
        if let Err(error) = self.inner.settle() {
            tracing::info!(%error, "a collector from outside may hold garbage back until the job's next claim");
        }
    }

    fn uploaded_bytes(&self) -> u64 {
        self.store.uploaded_bytes()
    }
}
