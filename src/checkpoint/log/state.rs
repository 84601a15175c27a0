//! The folded state of a lineage, and the pure rules by which a change makes the next one.

use std::collections::BTreeMap;

use super::super::claim::Claim;
use super::super::completed::CompletedCheckpoint;
use super::Action;
use crate::base::ids::{CheckpointId, WriterEpoch};
use crate::base::limits::MAX_NAME_BYTES;
use crate::{Error, ErrorKind, Result};

/// Attempts that the state remembers, so that a lost answer is recognised however many entries followed.
const RECENT_ATTEMPTS: usize = 64;

/// Condemned checkpoints are put together when more entries than this would be needed.
const MAX_CONDEMNED: usize = 64;

/// Checkpoints that are condemned within this part of the grace period share an entry: they go that much later.
const CONDEMNED_STEPS: i64 = 32;

/// A checkpoint held against retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// Its name, unique in the log.
    pub name: String,
    /// The checkpoint.
    pub id: CheckpointId,
    /// For the pin of a restore: the epoch that restored. It goes with that epoch's first completed checkpoint that
    /// later ones build on, or when a successor claims.
    pub restored_by: Option<WriterEpoch>,
}

impl Pin {
    /// The pin of a restore of `id` by the attempt of `epoch`.
    pub(super) fn of_restore(epoch: WriterEpoch, id: CheckpointId) -> Self {
        Self { name: format!("restore of epoch {epoch}"), id, restored_by: Some(epoch) }
    }
}

/// Checkpoints that may no longer be restored from, their objects still there: all from `first` to `last`, both included,
/// that aren't retained. What belongs to them is known by its names ([`super::super::object_name`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condemned {
    /// The first.
    pub first: CheckpointId,
    /// The last.
    pub last: CheckpointId,
    /// When the first of them was condemned, wall milliseconds.
    pub since_ms: i64,
    /// When the last of them was condemned, wall milliseconds.
    pub condemned_ms: i64,
}

impl Condemned {
    /// True when `id`, if it isn't retained, is one of them.
    #[must_use]
    pub fn contains(&self, id: CheckpointId) -> bool {
        (self.first..=self.last).contains(&id)
    }

    /// One that contains what both contain, condemned when the later one was.
    fn join(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
            since_ms: self.since_ms.min(other.since_ms),
            condemned_ms: self.condemned_ms.max(other.condemned_ms),
        }
    }
}

/// What all entries of a log up to some number amount to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineageState {
    /// The newest claim.
    pub claim: Option<Claim>,
    /// Max parallelism of every operator that a completed checkpoint ever held.
    pub max_parallelism: BTreeMap<String, u32>,
    /// Greatest id ever completed.
    pub greatest_completed: Option<CheckpointId>,
    /// Completed checkpoints that may be restored from, oldest first.
    pub checkpoints: Vec<CompletedCheckpoint>,
    /// Pins, by name.
    pub pins: Vec<Pin>,
    /// Condemned checkpoints, those first that were condemned first. At most 64, however many checkpoints they are.
    pub condemned: Vec<Condemned>,
    /// Attempt numbers of the last appends, with the epoch that each belonged to.
    pub(super) recent: Vec<(u64, WriterEpoch)>,
}

/// A change that somebody wants made. Made again from the newest state whenever an append lost its number.
#[derive(Debug, Clone)]
pub(in super::super) enum Change {
    /// Claim an epoch above the log's and all of these, and with `restores` pin the newest checkpoint for it.
    Claim { parents: Vec<WriterEpoch>, restores: bool },
    /// Complete a checkpoint, then retain the newest.
    Complete { checkpoint: Box<CompletedCheckpoint>, retention: Retention },
    /// Hold a checkpoint.
    Pin(Pin),
    /// Drop a pin.
    Unpin { name: String },
    /// Retain the newest.
    Retain(Retention),
    /// Drop condemned checkpoints, unless others have joined them.
    Forget { condemned: Vec<Condemned> },
}

/// What is retained, and for how long what isn't stays.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Retention {
    /// Checkpoints to retain.
    pub retain: usize,
    /// The grace period in milliseconds.
    pub grace_ms: i64,
}

impl LineageState {
    /// The newest completed checkpoint.
    #[must_use]
    pub fn latest(&self) -> Option<&CompletedCheckpoint> {
        self.checkpoints.last()
    }

    /// The retained checkpoint `id`.
    ///
    /// # Errors
    /// `NotFound`, also for a condemned one.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<&CompletedCheckpoint> {
        self.checkpoints.iter().find(|c| c.id == id).ok_or_else(|| {
            let condemned = self.condemned.iter().any(|c| c.contains(id));
            let why = if condemned { " is condemned: it fell out of retention, or was never completed" } else { "" };
            Error::new(ErrorKind::NotFound, format!("checkpoint {id}{why}"))
        })
    }

    /// The retained checkpoint that a user calls `text`: `epoch/id`, or `id` for that of its newest epoch.
    ///
    /// # Errors
    /// `InvalidArgument` when it is neither; `NotFound`.
    pub fn named(&self, text: &str) -> Result<&CompletedCheckpoint> {
        let number = |digits: &str| {
            let bad = |_| Error::invalid(format!("checkpoint `{text}`: `epoch/id` or `id` expected"));
            digits.parse::<u64>().map_err(bad)
        };
        if let Some((epoch, id)) = text.split_once('/') {
            return self.checkpoint(CheckpointId { epoch: number(epoch)?, id: number(id)? });
        }
        let id = number(text)?;
        let found = self.checkpoints.iter().rfind(|c| c.id.id == id);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("checkpoint {id}")))
    }

    /// Checkpoints that fall out of retention: all but the newest `retain`, the newest that later ones build on
    /// (FLINK-21351: a savepoint doesn't subsume the last checkpoint), and the pinned ones.
    #[must_use]
    pub fn beyond_retention(&self, retain: usize) -> Vec<CheckpointId> {
        let kept_from = self.checkpoints.len().saturating_sub(retain.max(1));
        let base = self.checkpoints.iter().rev().find(|c| !c.self_contained()).map(|c| c.id);
        let old = self.checkpoints.iter().take(kept_from).map(|c| c.id);
        old.filter(|id| Some(*id) != base && self.pins.iter().all(|pin| pin.id != *id)).collect()
    }

    pub(super) fn remembers(&self, attempt: u64) -> bool {
        self.recent.iter().any(|(recent, _)| *recent == attempt)
    }

    pub(super) fn epoch_of_attempt(&self, attempt: u64) -> Option<WriterEpoch> {
        self.recent.iter().find(|(recent, _)| *recent == attempt).map(|(_, epoch)| *epoch)
    }

    /// The state after `change`, and what to write down; `None` when there is nothing to do.
    pub(super) fn apply(&self, change: &Change, attempt: u64, now_ms: i64) -> Result<Option<(Self, Action)>> {
        let mut next = self.clone();
        let action = match change {
            Change::Claim { parents, restores } => Some(next.claim(parents, *restores, attempt)),
            Change::Complete { checkpoint, retention } => next.complete(checkpoint, *retention, now_ms)?,
            Change::Pin(pin) => next.pin(pin)?,
            Change::Unpin { name } => {
                next.pins.retain(|pin| pin.name != *name);
                (next.pins.len() < self.pins.len()).then(|| Action::Unpin { name: name.clone() })
            }
            Change::Retain(retention) => {
                let ids = next.condemn(*retention, now_ms);
                (!ids.is_empty()).then_some(Action::Condemn { ids })
            }
            Change::Forget { condemned } => {
                next.condemned.retain(|c| !condemned.contains(c));
                (next.condemned.len() < self.condemned.len()).then(|| Action::Forget { condemned: condemned.clone() })
            }
        };
        Ok(action.map(|action| {
            let surplus = (next.recent.len() + 1).saturating_sub(RECENT_ATTEMPTS);
            next.recent.drain(..surplus);
            next.recent.push((attempt, next.claim.map_or(0, |claim| claim.epoch)));
            (next, action)
        }))
    }

    fn claim(&mut self, parents: &[WriterEpoch], restores: bool, attempt: u64) -> Action {
        let greatest = parents.iter().copied().chain(self.claim.map(|claim| claim.epoch)).max().unwrap_or(0);
        let epoch = greatest + 1;
        self.claim = Some(Claim { epoch, attempt });
        self.pins.retain(|pin| pin.restored_by.is_none());
        let newest = self.latest().filter(|_| restores).map(|newest| newest.id);
        // A user's pin of that name, odd as it would be, stays what it is; the restore then says so.
        let pin =
            newest.map(|id| Pin::of_restore(epoch, id)).filter(|pin| self.pins.iter().all(|p| p.name != pin.name));
        self.pins.extend(pin);
        self.pins.sort_by(|a, b| a.name.cmp(&b.name));
        Action::Claim { epoch }
    }

    fn complete(&mut self, done: &CompletedCheckpoint, retention: Retention, now_ms: i64) -> Result<Option<Action>> {
        let id = done.id;
        if let Ok(known) = self.checkpoint(id) {
            let same = known.parts == done.parts && known.metadata == done.metadata;
            return if same { Ok(None) } else { Err(already_exists(id)) };
        }
        for (operator, _, max) in done.operators() {
            let known = *self.max_parallelism.entry(operator.to_owned()).or_insert(max);
            if known != max {
                return Err(Error::invalid(format!(
                    "checkpoint {id}: max parallelism of `{operator}` is {known} for ever, {max} found"
                )));
            }
        }
        let at = self.checkpoints.partition_point(|c| c.id < id);
        self.checkpoints.insert(at, done.clone());
        self.greatest_completed = self.greatest_completed.max(Some(id));
        if !done.self_contained() {
            self.pins.retain(|pin| pin.restored_by.is_none_or(|epoch| epoch > id.epoch));
        }
        let condemned = self.condemn(retention, now_ms);
        Ok(Some(Action::Complete { id, condemned }))
    }

    fn condemn(&mut self, retention: Retention, now_ms: i64) -> Vec<CheckpointId> {
        let ids = self.beyond_retention(retention.retain);
        self.checkpoints.retain(|c| !ids.contains(&c.id));
        for id in &ids {
            let new = Condemned { first: *id, last: *id, since_ms: now_ms, condemned_ms: now_ms };
            match self.condemned.last_mut() {
                Some(last) if now_ms.saturating_sub(last.since_ms) <= retention.grace_ms / CONDEMNED_STEPS => {
                    *last = last.join(new);
                }
                _ => self.condemned.push(new),
            }
        }
        // These would be gone if garbage were collected. The oldest, so that none waits for ever for younger ones.
        while self.condemned.len() > MAX_CONDEMNED {
            let oldest = self.condemned.remove(0);
            if let Some(next) = self.condemned.first_mut() {
                *next = next.join(oldest);
            }
        }
        ids
    }

    fn pin(&mut self, pin: &Pin) -> Result<Option<Action>> {
        if pin.name.len() > MAX_NAME_BYTES {
            return Err(Error::invalid(format!("a pin's name of {} bytes is over {MAX_NAME_BYTES}", pin.name.len())));
        }
        self.checkpoint(pin.id)?;
        match self.pins.iter_mut().find(|known| known.name == pin.name) {
            Some(known) if known == pin => return Ok(None),
            // A restore that starts over may choose another checkpoint.
            Some(known) if known.restored_by.is_some() && pin.restored_by.is_some() => *known = pin.clone(),
            Some(known) => {
                let (name, id) = (&known.name, known.id);
                return Err(Error::new(ErrorKind::AlreadyExists, format!("pin `{name}` holds checkpoint {id}")));
            }
            None => {
                self.pins.push(pin.clone());
                self.pins.sort_by(|a, b| a.name.cmp(&b.name));
            }
        }
        Ok(Some(Action::Pin { name: pin.name.clone(), id: pin.id }))
    }
}

fn already_exists(id: CheckpointId) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("checkpoint {id}"))
}
