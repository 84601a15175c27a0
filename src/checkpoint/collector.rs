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
//!
//! The job's own collector works under its claim and knows what is in flight. One from outside has no claim, and fences
//! nobody: its entries leave the claim as it is, and a coordinator that finds its number taken makes its entry once more on top. What
//! may be in flight it reads from the log ([`LineageState::oldest_in_flight`]), in the same entry as what is complete. That is enough,
//! though more may be in flight: what is newer than the newest completed checkpoint reaches nothing that was condemned or settled
//! by then, and still doesn't when it is overtaken while the collector is at work.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::claim::Claim;
use super::gc::{self, Facts, Plan, References};
use super::log::{Change, LineageState, Retention, RootLog};
use crate::base::ids::CheckpointId;
use crate::io::store::Request;
use crate::{Error, ErrorKind, Result};

/// Completions that may come between reading the state and looking what is in flight before a run gives up.
const MAX_REREADS: u32 = 16;
/// Objects that are deleted together.
const DELETED_TOGETHER: usize = 32;

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
    /// True when the lineage is a fork that still holds a pin in its source: see [`super::fork::release`].
    pub is_pinned_elsewhere: bool,
}

/// How far a run is.
#[derive(Debug)]
pub enum Step<'a> {
    /// These were condemned.
    Condemned(&'a [CheckpointId]),
    /// This is what goes now.
    Planned(&'a Plan),
    /// So many more objects are gone.
    Deleted(usize),
}

/// Deletes what no checkpoint of a job reaches any more: from [`super::coordinator::Coordinator::collector`], or
/// [`Collector::outside`].
#[derive(Debug, Clone)]
pub struct Collector {
    log: RootLog,
    /// `None`: only what is condemned goes, and what nobody knows.
    retain: Option<Retention>,
    grace_ms: i64,
    job: Option<Job>,
}

/// The job that a collector belongs to.
#[derive(Debug, Clone)]
struct Job {
    claim: Claim,
    pending: Arc<Mutex<BTreeSet<u64>>>,
}

impl Collector {
    pub(super) fn new(log: RootLog, claim: Claim, retention: Retention, pending: Arc<Mutex<BTreeSet<u64>>>) -> Self {
        Self { log, retain: Some(retention), grace_ms: retention.grace_ms, job: Some(Job { claim, pending }) }
    }

    /// A collector of a root whose job runs elsewhere, or not at all. It needs no claim, and is safe beside the job.
    /// `retain`: how many checkpoints to keep, at least 1, and for how long those before them; others are condemned. Without it none
    /// is condemned. The grace period should be no shorter than the job's: it is how long a view or merge of the job may read on.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 checkpoints to keep.
    pub fn outside(log: RootLog, retain: Option<(usize, Duration)>, grace: Duration) -> Result<Self> {
        if retain.is_some_and(|(newest, _)| newest == 0) {
            return Err(Error::invalid("at least 1 checkpoint is retained"));
        }
        let grace_ms = Retention::new(1, Duration::ZERO, grace).grace_ms;
        let retain = retain.map(|(newest, age)| Retention::new(newest, age, grace));
        Ok(Self { log, retain, grace_ms, job: None })
    }

    /// Runs once. It lists the root and reads every manifest within reach: run it now and then (an eighth of the grace
    /// period is often enough), not after every checkpoint.
    ///
    /// # Errors
    /// `Fenced`; `NotFound` when the root holds no job; whatever `references` fails with on a manifest that must stay, in which case
    /// nothing was deleted; `Unavailable`, after which the next run goes on.
    pub fn run(&self, references: &References<'_>) -> Result<Collected> {
        self.run_watched(references, &mut |_| {})
    }

    /// As [`Collector::run`], and tells `watch` how far it is.
    ///
    /// # Errors
    /// As [`Collector::run`].
    pub fn run_watched(&self, references: &References<'_>, watch: &mut dyn FnMut(Step<'_>)) -> Result<Collected> {
        let before = self.current_state()?;
        let mut ids = self.beyond_retention(&before);
        if let Some(retention) = self.retain.filter(|_| !ids.is_empty()) {
            let entry = self.log.append(self.claim(), &Change::Retain(retention))?;
            // One that was pinned meanwhile stays.
            ids.retain(|id| entry.state.checkpoint(*id).is_err());
            watch(Step::Condemned(&ids));
        }
        let plan = self.plan(references)?;
        watch(Step::Planned(&plan));
        if let Some(claim) = self.claim() {
            self.log.check_claim(claim)?;
        }
        self.delete(&plan, watch)?;
        if !plan.forget.is_empty() {
            self.log.append(self.claim(), &Change::Forget { condemned: plan.forget.clone() })?;
        }
        Ok(Collected {
            condemned: ids.len(),
            forgotten: plan.checkpoints,
            objects: plan.all().count(),
            bytes: plan.bytes,
            is_pinned_elsewhere: before.origin.is_some_and(|origin| origin.pinned),
        })
    }

    /// What [`Collector::run`] would condemn and delete now. Changes nothing.
    ///
    /// # Errors
    /// As [`Collector::run`].
    pub fn preview(&self, references: &References<'_>) -> Result<(Vec<CheckpointId>, Plan)> {
        let mut ids = Vec::new();
        let plan = self.plan_after(references, &mut |state, now_ms| {
            ids = self.beyond_retention(state);
            let change = self.retain.map(Change::Retain);
            let changed = change.map(|change| state.apply(&change, 0, now_ms)).transpose()?.flatten();
            Ok(changed.map(|(state, _)| state))
        })?;
        Ok((ids, plan))
    }

    /// What goes now, as things stand in the log.
    ///
    /// # Errors
    /// As [`Collector::run`].
    pub fn plan(&self, references: &References<'_>) -> Result<Plan> {
        self.plan_after(references, &mut |_, _| Ok(None))
    }

    fn plan_after(
        &self,
        references: &References<'_>,
        change: &mut dyn FnMut(&LineageState, i64) -> Result<Option<LineageState>>,
    ) -> Result<Plan> {
        let store = self.log.store();
        let objects = store.list("")?;
        let leftovers = store.leftovers()?;
        let (state, held_back) = self.state_and_held_back()?;
        let now_ms = self.log.clock().now_ms();
        let state = change(&state, now_ms)?.unwrap_or(state);
        let facts = Facts {
            state: &state,
            now_ms,
            grace_ms: self.grace_ms,
            held_back,
            objects: &objects,
            leftovers: &leftovers,
        };
        gc::plan(&facts, references)
    }

    fn delete(&self, plan: &Plan, watch: &mut dyn FnMut(Step<'_>)) -> Result<()> {
        let store = self.log.store();
        for kind in [&plan.objects, &plan.manifests] {
            for some in kind.chunks(DELETED_TOGETHER) {
                let requests = some.iter().map(|doomed| Request::Delete(doomed.name.clone())).collect();
                store.together(requests).into_iter().try_for_each(|answer| answer.map(drop))?;
                watch(Step::Deleted(some.len()));
            }
        }
        for leftover in &plan.leftovers {
            store.delete_leftover(&leftover.name)?;
            watch(Step::Deleted(1));
        }
        Ok(())
    }

    fn claim(&self) -> Option<&Claim> {
        self.job.as_ref().map(|job| &job.claim)
    }

    fn beyond_retention(&self, state: &LineageState) -> Vec<CheckpointId> {
        let now_ms = self.log.clock().now_ms();
        self.retain.map_or_else(Vec::new, |r| state.beyond_retention(r.retain, r.since_ms(now_ms)))
    }

    fn current_state(&self) -> Result<LineageState> {
        let state = self.log.state()?;
        if let Some(claim) = self.claim() {
            claim.check(state.claim, self.log.store().url())?;
        }
        Ok(state)
    }

    /// The state, and whether a checkpoint in flight is older than the newest completed one.
    fn state_and_held_back(&self) -> Result<(LineageState, bool)> {
        let Some(job) = &self.job else {
            let state = self.log.state()?;
            let held_back = state.oldest_in_flight.is_some();
            return Ok((state, held_back));
        };
        // A checkpoint that completed between the two looks would be in neither, so they are repeated until the log stood
        // still.
        for _ in 0..MAX_REREADS {
            let Some(entry) = self.log.newest()? else { break };
            let oldest = job.pending.lock().first().copied();
            if self.log.newest()?.is_some_and(|again| again.number == entry.number) {
                let state = entry.state;
                job.claim.check(state.claim, self.log.store().url())?;
                let greatest = state.greatest_completed.filter(|id| id.epoch == job.claim.epoch);
                let held_back = oldest.zip(greatest).is_some_and(|(oldest, greatest)| oldest < greatest.id);
                return Ok((state, held_back));
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "collecting garbage: the root log never stood still"))
    }
}
