//! Carries out what [`super::gc`] decides.
//!
//! 1. Condemn what is beyond retention (an entry in the log; fenced when superseded).
//! 2. List the root, read the state, and look which checkpoints are in flight.
//! 3. Plan.
//! 4. Check the claim once more, then delete: segments, then manifests, then leftovers.
//! 5. Forget the condemned checkpoints whose objects are gone (an entry in the log).
//!
//! A crash anywhere leaves a state from which the next run goes on. A collector that sleeps after step 4's check
//! and wakes under a successor deletes only what was beyond reach already: names are never used again.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::claim::Claim;
use super::gc::{self, Facts, Plan, References};
use super::log::{Change, LineageState, Retention, RootLog};
use crate::{Error, ErrorKind, Result};

/// Completions that may come between reading the state and looking what is in flight before a run gives up.
const MAX_REREADS: u32 = 16;

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Checkpoints condemned.
    pub condemned: usize,
    /// Condemned and aborted checkpoints whose manifests went.
    pub forgotten: usize,
    /// Objects deleted, leftovers included.
    pub objects: usize,
    /// Bytes deleted.
    pub bytes: u64,
}

/// Deletes what no checkpoint of a job reaches any more; from [`super::coordinator::Coordinator::collector`].
#[derive(Debug, Clone)]
pub struct Collector {
    log: RootLog,
    claim: Claim,
    retention: Retention,
    pending: Arc<Mutex<BTreeSet<u64>>>,
}

impl Collector {
    pub(super) fn new(log: RootLog, claim: Claim, retention: Retention, pending: Arc<Mutex<BTreeSet<u64>>>) -> Self {
        Self { log, claim, retention, pending }
    }

    /// Runs once. It lists the root and reads every manifest within reach: run it now and then (an eighth of the grace
    /// period is often enough), not after every checkpoint.
    ///
    /// # Errors
    /// `Fenced`; whatever `references` fails with on a manifest that must stay, in which case nothing was deleted;
    /// `Unavailable`, after which the next run goes on.
    pub fn run(&self, references: &References<'_>) -> Result<Collected> {
        let before = self.current_state()?;
        let condemned = before.beyond_retention(self.retention.retain).len();
        self.log.append(Some(&self.claim), &Change::Retain(self.retention))?;
        let plan = self.plan(references)?;
        self.log.check_claim(&self.claim)?;
        let store = self.log.store();
        for name in plan.objects.iter().chain(&plan.manifests) {
            store.delete(name)?;
        }
        for name in &plan.leftovers {
            store.delete_leftover(name)?;
        }
        if !plan.forget.is_empty() {
            self.log.append(Some(&self.claim), &Change::Forget { condemned: plan.forget.clone() })?;
        }
        Ok(Collected {
            condemned,
            forgotten: plan.checkpoints,
            objects: plan.objects.len() + plan.manifests.len() + plan.leftovers.len(),
            bytes: plan.bytes,
        })
    }

    /// What [`Collector::run`] would delete now, were what is beyond retention condemned already.
    ///
    /// # Errors
    /// As [`Collector::run`].
    pub fn plan(&self, references: &References<'_>) -> Result<Plan> {
        let store = self.log.store();
        let objects = store.list("")?;
        let leftovers = store.leftovers()?;
        let (state, held_back) = self.state_and_held_back()?;
        let facts = Facts {
            state: &state,
            now_ms: self.log.clock().now_ms(),
            grace_ms: self.retention.grace_ms,
            held_back,
            objects: &objects,
            leftovers: &leftovers,
        };
        gc::plan(&facts, references)
    }

    fn current_state(&self) -> Result<LineageState> {
        let state = self.log.state()?;
        self.claim.check(state.claim, self.log.store().url())?;
        Ok(state)
    }

    /// The state, and whether a checkpoint in flight is older than the newest completed one. A checkpoint that
    /// completed between the two looks would be in neither, so they are repeated until the log stood still.
    fn state_and_held_back(&self) -> Result<(LineageState, bool)> {
        for _ in 0..MAX_REREADS {
            let Some(entry) = self.log.newest()? else { break };
            let oldest = self.pending.lock().first().copied();
            if self.log.newest()?.is_some_and(|again| again.number == entry.number) {
                let state = entry.state;
                self.claim.check(state.claim, self.log.store().url())?;
                let greatest = state.greatest_completed.filter(|id| id.epoch == self.claim.epoch);
                let held_back = oldest.zip(greatest).is_some_and(|(oldest, greatest)| oldest < greatest.id);
                return Ok((state, held_back));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "collecting garbage: the root log never stood still"))
    }
}
