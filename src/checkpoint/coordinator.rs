//! Collects the subtasks' parts of each checkpoint, and appends the one entry that makes it complete.
//!
//! ```text
//!              every part is there and the entry stands
//! begun ------------------------------------------------> completed
//!   |                                                         |  a newer one completes
//!   | abort, or a successor claims                            v
//!   +----------------------------> aborted                condemned -- grace period --> forgotten
//! ```
//!
//! Several may be begun at once and may complete in any order; whichever has the greatest id is the newest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::claim::Claim;
use super::collector::Collector;
use super::completed::CompletedCheckpoint;
use super::log::{Change, MAX_JOB_METADATA_BYTES, Retention, RootLog};
use super::part::CheckpointPart;
use crate::base::ids::CheckpointId;
use crate::base::meters;
use crate::io::metered::{MeteredStore, StoreRequests};
use crate::{Error, ErrorKind, Result};

/// How a coordinator goes about it.
#[derive(Debug, Clone)]
pub struct CoordinatorSettings {
    /// Completed checkpoints that are kept, at least 1.
    pub retain: usize,
    /// How long a condemned checkpoint's objects stay for those that are still reading them.
    pub grace: Duration,
    /// A checkpoint that isn't complete after this long is [`Coordinator::expired`].
    pub timeout: Duration,
    /// Checkpoints in flight from which on a due one is skipped, at least 1.
    pub max_in_flight: usize,
    /// Aborted checkpoints in a row that are put up with; `None` for any number.
    pub tolerated_failures: Option<u32>,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            retain: 3,
            grace: Duration::from_secs(3600),
            timeout: Duration::from_secs(60),
            max_in_flight: 4,
            tolerated_failures: Some(3),
        }
    }
}

/// Answer to [`Coordinator::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Send the barrier.
    Started(CheckpointId),
    /// Too many are in flight: send none. Counted.
    Skipped,
}

/// What a coordinator has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoordinatorStats {
    /// Checkpoints completed.
    pub completed: u64,
    /// Checkpoints aborted.
    pub aborted: u64,
    /// Due checkpoints that were skipped.
    pub skipped: u64,
    /// Aborted ones since the last completed one.
    pub consecutive_failures: u32,
}

#[derive(Debug)]
struct Pending {
    begun_ns: u64,
    metadata: Vec<u8>,
    parts: BTreeMap<(String, u32), CheckpointPart>,
}

/// One job's coordinator, for as long as its claim stands. Calls block on the store.
#[derive(Debug)]
pub struct Coordinator {
    log: RootLog,
    claim: Claim,
    expected: BTreeMap<String, u32>,
    settings: CoordinatorSettings,
    pending: BTreeMap<u64, Pending>,
    /// Ids whose completion was tried and may yet turn out to have been written down, aborted or not.
    in_doubt: BTreeSet<u64>,
    /// Ids in `pending` and `in_doubt`, shared with collectors: what they may reach must stay.
    pending_ids: Arc<Mutex<BTreeSet<u64>>>,
    greatest_begun: Option<u64>,
    stats: CoordinatorStats,
    fenced: Option<Error>,
    /// The store whose requests are counted, and what had been asked of it when a checkpoint completed last.
    requests: Option<(Arc<MeteredStore>, StoreRequests)>,
}

impl Coordinator {
    /// Claims the root of `log` for a new attempt at its job; see [`RootLog::claim`]. Every subtask's backend is opened
    /// with the claim.
    ///
    /// # Errors
    /// As [`RootLog::claim`].
    pub fn claim(log: &RootLog) -> Result<Claim> {
        log.claim(&[])
    }

    /// The coordinator of the attempt that holds `claim`, for these operators (name, parallelism).
    ///
    /// # Errors
    /// `InvalidArgument` for no operators, a parallelism of 0, a name given twice, or settings of 0; `Fenced` when
    /// the claim was superseded; those of [`RootLog::state`].
    pub fn new(log: RootLog, claim: Claim, operators: &[(String, u32)], settings: CoordinatorSettings) -> Result<Self> {
        if settings.retain == 0 || settings.max_in_flight == 0 {
            return Err(Error::invalid("a coordinator retains at least 1 checkpoint and allows at least 1 in flight"));
        }
        let expected: BTreeMap<String, u32> = operators.iter().cloned().collect();
        if expected.is_empty() || expected.len() < operators.len() || expected.values().any(|p| *p == 0) {
            return Err(Error::invalid(format!("operators with their parallelism expected, {operators:?} found")));
        }
        let state = log.state()?;
        claim.check(state.claim, log.store().url())?;
        let ours = state.greatest_completed.filter(|id| id.epoch == claim.epoch);
        Ok(Self {
            log,
            claim,
            expected,
            settings,
            pending: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            pending_ids: Arc::default(),
            greatest_begun: ours.map(|id| id.id),
            stats: CoordinatorStats::default(),
            fenced: None,
            requests: None,
        })
    }

    /// Counts what is asked of `store` from one completed checkpoint to the next, for metrics.
    pub fn count_requests_of(&mut self, store: Arc<MeteredStore>) {
        let so_far = store.requests();
        self.requests = Some((store, so_far));
    }

    /// Begins checkpoint `id`, unless too many are in flight.
    ///
    /// # Errors
    /// `AlreadyExists` when `id` isn't greater than all before it; `Fenced`; `Aborted` when more checkpoints in a
    /// row have failed than are tolerated.
    pub fn begin(&mut self, id: u64) -> Result<Begin> {
        self.check_fenced()?;
        self.check_failures()?;
        if let Some(greatest) = self.greatest_begun.filter(|greatest| id <= *greatest) {
            let epoch = self.claim.epoch;
            let message = format!("checkpoint {epoch}/{id}: ids grow, and {epoch}/{greatest} has been begun");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        if self.pending.len() >= self.settings.max_in_flight {
            self.stats.skipped += 1;
            meters::CHECKPOINTS_SKIPPED.counter(&[]).increment(1);
            return Ok(Begin::Skipped);
        }
        self.insert(id);
        Ok(Begin::Started(self.id(id)))
    }

    /// Attaches metadata to the whole of checkpoint `id`, which must be in flight; at most 1 MiB. Every log entry
    /// carries it for as long as the checkpoint is retained.
    ///
    /// # Errors
    /// `InvalidArgument` when it is too long; `NotFound` when the checkpoint isn't in flight.
    pub fn set_metadata(&mut self, id: u64, metadata: Vec<u8>) -> Result<()> {
        let full = self.id(id);
        if metadata.len() > MAX_JOB_METADATA_BYTES {
            let len = metadata.len();
            return Err(Error::invalid(format!(
                "checkpoint {full}: metadata of {len} bytes is over {MAX_JOB_METADATA_BYTES}"
            )));
        }
        match self.pending.get_mut(&id) {
            Some(pending) => {
                pending.metadata = metadata;
                Ok(())
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("checkpoint {full} isn't in flight"))),
        }
    }

    /// Takes in a part. Returns the checkpoint when that was the last one and the checkpoint is complete: durable, and
    /// what a restore from now on finds. A part that comes again changes nothing, except that completing is tried again
    /// when it failed; one for an aborted checkpoint is ignored. A part of a checkpoint that was never begun
    /// here, and is newer than all that were, begins it.
    ///
    /// # Errors
    /// `InvalidArgument` for a part that this job doesn't expect; `AlreadyExists` for another part in the place of one
    /// that is there; `Fenced`. `Unavailable` and the like leave the checkpoint in flight, complete or not: call
    /// again, or [`Coordinator::retry_ready`], or abort it.
    pub fn add(&mut self, part: CheckpointPart) -> Result<Option<CompletedCheckpoint>> {
        self.check_fenced()?;
        self.check_part(&part)?;
        let id = part.checkpoint.id;
        if !self.pending.contains_key(&id) && self.greatest_begun.is_none_or(|greatest| id > greatest) {
            self.insert(id);
        }
        let Some(pending) = self.pending.get_mut(&id) else { return Ok(None) };
        let place = (part.operator.clone(), part.subtask);
        match pending.parts.get(&place) {
            Some(known) if *known != part => {
                let message = format!(
                    "checkpoint {}: subtask {} of `{}` has reported another part",
                    part.checkpoint, part.subtask, part.operator
                );
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
            Some(_) => {}
            None => {
                pending.parts.insert(place, part);
            }
        }
        self.complete_if_ready(id)
    }

    /// Tries again to complete checkpoints whose parts are all there but whose entry couldn't be written, oldest first.
    ///
    /// # Errors
    /// As [`Coordinator::add`].
    pub fn retry_ready(&mut self) -> Result<Vec<CompletedCheckpoint>> {
        self.check_fenced()?;
        let ids: Vec<u64> = self.pending.keys().copied().collect();
        let mut completed = Vec::new();
        for id in ids {
            completed.extend(self.complete_if_ready(id)?);
        }
        Ok(completed)
    }

    /// Gives up checkpoint `id`; parts that still come are ignored. False when it wasn't in flight.
    ///
    /// A checkpoint whose completion failed half-way may turn out complete all the same: then it is one that a restore
    /// may find, though nobody was told.
    ///
    /// # Errors
    /// `Aborted` when more checkpoints in a row have now failed than are tolerated.
    pub fn abort(&mut self, id: u64) -> Result<bool> {
        if self.pending.remove(&id).is_none() {
            return Ok(false);
        }
        if !self.in_doubt.contains(&id) {
            self.pending_ids.lock().remove(&id);
        }
        self.stats.aborted += 1;
        meters::CHECKPOINTS_ABORTED.counter(&[]).increment(1);
        self.stats.consecutive_failures += 1;
        self.check_failures()?;
        Ok(true)
    }

    /// Checkpoints that have been in flight for longer than the timeout: abort them, here and at the subtasks.
    #[must_use]
    pub fn expired(&self) -> Vec<u64> {
        let now_ns = self.log.clock().monotonic_ns();
        let late = |p: &Pending| Duration::from_nanos(now_ns.saturating_sub(p.begun_ns)) >= self.settings.timeout;
        self.pending.iter().filter(|(_, pending)| late(pending)).map(|(id, _)| *id).collect()
    }

    /// Ids in flight, oldest first.
    #[must_use]
    pub fn in_flight(&self) -> Vec<u64> {
        self.pending.keys().copied().collect()
    }

    /// The error that says so, once a successor has been seen.
    #[must_use]
    pub fn fenced(&self) -> Option<&Error> {
        self.fenced.as_ref()
    }

    /// Counts.
    #[must_use]
    pub fn stats(&self) -> CoordinatorStats {
        self.stats
    }

    /// The claim it works under.
    #[must_use]
    pub fn claimed(&self) -> Claim {
        self.claim
    }

    /// A garbage collector for this job, to be run where blocking harms nobody.
    #[must_use]
    pub fn collector(&self) -> Collector {
        Collector::new(self.log.clone(), self.claim, self.retention(), self.pending_ids.clone())
    }

    fn retention(&self) -> Retention {
        let grace_ms = i64::try_from(self.settings.grace.as_millis()).unwrap_or(i64::MAX);
        Retention { retain: self.settings.retain, grace_ms }
    }

    fn id(&self, id: u64) -> CheckpointId {
        CheckpointId { epoch: self.claim.epoch, id }
    }

    fn insert(&mut self, id: u64) {
        let begun_ns = self.log.clock().monotonic_ns();
        self.pending_ids.lock().insert(id);
        self.pending.insert(id, Pending { begun_ns, metadata: Vec::new(), parts: BTreeMap::new() });
        self.greatest_begun = Some(id);
    }

    fn check_fenced(&self) -> Result<()> {
        self.fenced.clone().map_or(Ok(()), Err)
    }

    fn check_failures(&self) -> Result<()> {
        let failures = self.stats.consecutive_failures;
        match self.settings.tolerated_failures {
            Some(tolerated) if failures > tolerated => {
                let message = format!("{failures} checkpoints in a row have failed, {tolerated} are tolerated");
                Err(Error::new(ErrorKind::Aborted, message))
            }
            _ => Ok(()),
        }
    }

    fn check_part(&self, part: &CheckpointPart) -> Result<()> {
        let (id, ours) = (part.checkpoint, self.claim.epoch);
        if id.epoch != ours {
            // An older one comes from a zombie; a newer one says that we are it.
            let kind = if id.epoch > ours { ErrorKind::Fenced } else { ErrorKind::InvalidArgument };
            return Err(Error::new(kind, format!("part of checkpoint {id} under a claim of epoch {ours}")));
        }
        if self.expected.get(&part.operator) != Some(&part.parallelism) {
            return Err(Error::invalid(format!(
                "part of checkpoint {id} from `{}` at parallelism {}: {:?} expected",
                part.operator, part.parallelism, self.expected
            )));
        }
        part.check()
    }

    fn complete_if_ready(&mut self, id: u64) -> Result<Option<CompletedCheckpoint>> {
        let expected = self.expected.values().map(|p| *p as usize).sum::<usize>();
        let Some(pending) = self.pending.get(&id).filter(|p| p.parts.len() == expected) else { return Ok(None) };
        let checkpoint = CompletedCheckpoint {
            id: self.id(id),
            completed_ms: self.log.clock().now_ms(),
            metadata: pending.metadata.clone(),
            parts: pending.parts.values().cloned().collect(),
        };
        let change = Change::Complete { checkpoint: Box::new(checkpoint.clone()), retention: self.retention() };
        self.in_doubt.insert(id);
        let entry = self.log.append(Some(&self.claim), &change).inspect_err(|error| {
            if error.kind() == ErrorKind::Fenced {
                self.fenced = Some(error.clone());
            }
        })?;
        // As the log has it: an earlier try may have written it down.
        let checkpoint = entry.state.checkpoint(checkpoint.id).cloned().unwrap_or(checkpoint);
        let begun_ns = self.pending.remove(&id).map(|pending| pending.begun_ns);
        // The entry stands, so whatever was sent before it and never answered has come too late.
        let settled = std::mem::take(&mut self.in_doubt);
        self.pending_ids.lock().retain(|id| self.pending.contains_key(id) || !settled.contains(id));
        self.stats.completed += 1;
        self.stats.consecutive_failures = 0;
        self.show(&checkpoint, begun_ns);
        Ok(Some(checkpoint))
    }

    /// Shows a complete checkpoint to whoever watches.
    fn show(&mut self, checkpoint: &CompletedCheckpoint, begun_ns: Option<u64>) {
        let now_ns = self.log.clock().monotonic_ns();
        if let Some(begun_ns) = begun_ns {
            let took = Duration::from_nanos(now_ns.saturating_sub(begun_ns));
            meters::CHECKPOINT_DURATION.histogram(&[]).record(took);
            tracing::debug!(id = %checkpoint.id, ?took, "checkpoint completed");
        }
        meters::CHECKPOINTS_COMPLETED.counter(&[]).increment(1);
        meters::CHECKPOINT_LAST_COMPLETED.gauge(&[]).set(checkpoint.completed_ms as f64 / 1e3);
        if let Some((store, before)) = &mut self.requests {
            let so_far = store.requests();
            let asked = so_far.since(before);
            *before = so_far;
            meters::CHECKPOINT_REQUESTS.histogram(&[]).record(asked.total() as f64);
            meters::CHECKPOINT_COST.histogram(&[]).record(asked.cost_usd());
        }
    }
}
