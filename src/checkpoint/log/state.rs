//! The folded state of a lineage, and the pure rules by which a change makes the next one.

use std::collections::BTreeMap;

use super::super::claim::Claim;
use super::super::completed::CompletedCheckpoint;
use super::super::part::ObjectRef;
use super::Action;
use crate::base::ids::{CheckpointId, WriterEpoch};
use crate::base::limits::MAX_NAME_BYTES;
use crate::{Error, ErrorKind, Result};

/// Attempts that the state remembers, so that a lost answer is recognised however many entries followed.
const RECENT_ATTEMPTS: usize = 64;

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

/// A checkpoint that may no longer be restored from, its objects still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condemned {
    /// The checkpoint.
    pub id: CheckpointId,
    /// When it was condemned, wall milliseconds.
    pub condemned_ms: i64,
    /// Its manifests.
    pub manifests: Vec<ObjectRef>,
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
    /// Condemned checkpoints, oldest first.
    pub condemned: Vec<Condemned>,
    /// Attempt numbers of the last appends, with the epoch that each belonged to.
    pub(super) recent: Vec<(u64, WriterEpoch)>,
}

/// A change that somebody wants made. Made again from the newest state whenever an append lost its number.
#[derive(Debug, Clone)]
pub(in super::super) enum Change {
    /// Claim an epoch above the log's and all of these.
    Claim { parents: Vec<WriterEpoch> },
    /// Complete a checkpoint, then retain the newest `retain`.
    Complete { checkpoint: Box<CompletedCheckpoint>, retain: usize },
    /// Hold a checkpoint.
    Pin(Pin),
    /// Drop a pin.
    Unpin { name: String },
    /// Retain the newest `retain`.
    Retain { retain: usize },
    /// Drop condemned checkpoints.
    Forget { ids: Vec<CheckpointId> },
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
            let condemned = self.condemned.iter().any(|c| c.id == id);
            let why = if condemned { " is condemned: it fell out of retention" } else { "" };
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
            Change::Claim { parents } => Some(next.claim(parents, attempt)),
            Change::Complete { checkpoint, retain } => next.complete(checkpoint, *retain, now_ms)?,
            Change::Pin(pin) => next.pin(pin)?,
            Change::Unpin { name } => {
                next.pins.retain(|pin| pin.name != *name);
                (next.pins.len() < self.pins.len()).then(|| Action::Unpin { name: name.clone() })
            }
            Change::Retain { retain } => {
                let ids = next.condemn(*retain, now_ms);
                (!ids.is_empty()).then_some(Action::Condemn { ids })
            }
            Change::Forget { ids } => {
                next.condemned.retain(|c| !ids.contains(&c.id));
                (next.condemned.len() < self.condemned.len()).then(|| Action::Forget { ids: ids.clone() })
            }
        };
        Ok(action.map(|action| {
            let surplus = (next.recent.len() + 1).saturating_sub(RECENT_ATTEMPTS);
            next.recent.drain(..surplus);
            next.recent.push((attempt, next.claim.map_or(0, |claim| claim.epoch)));
            (next, action)
        }))
    }

    fn claim(&mut self, parents: &[WriterEpoch], attempt: u64) -> Action {
        let greatest = parents.iter().copied().chain(self.claim.map(|claim| claim.epoch)).max().unwrap_or(0);
        let epoch = greatest + 1;
        self.claim = Some(Claim { epoch, attempt });
        self.pins.retain(|pin| pin.restored_by.is_none());
        Action::Claim { epoch }
    }

    fn complete(&mut self, done: &CompletedCheckpoint, retain: usize, now_ms: i64) -> Result<Option<Action>> {
        let id = done.id;
        if let Ok(known) = self.checkpoint(id) {
            let same = known.parts == done.parts && known.metadata == done.metadata;
            return if same { Ok(None) } else { Err(already_exists(id)) };
        }
        if let Some(condemned) = self.condemned.iter().find(|c| c.id == id) {
            let same = condemned.manifests.iter().eq(done.manifests());
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
        let condemned = self.condemn(retain, now_ms);
        Ok(Some(Action::Complete { id, condemned }))
    }

    fn condemn(&mut self, retain: usize, now_ms: i64) -> Vec<CheckpointId> {
        let ids = self.beyond_retention(retain);
        let (gone, kept) = std::mem::take(&mut self.checkpoints).into_iter().partition(|c| ids.contains(&c.id));
        self.checkpoints = kept;
        let gone: Vec<CompletedCheckpoint> = gone;
        self.condemned.extend(gone.iter().map(|c| Condemned {
            id: c.id,
            condemned_ms: now_ms,
            manifests: c.manifests().cloned().collect(),
        }));
        self.condemned.sort_by_key(|c| c.id);
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
