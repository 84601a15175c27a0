//! The folded state of a lineage, and the pure rules by which a change makes the next one.

use std::collections::BTreeMap;
use std::time::Duration;

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

/// What the names of the pins of restores begin with.
const RESTORE_PIN: &str = "restore of epoch ";

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
        Self { name: format!("{RESTORE_PIN}{epoch}"), id, restored_by: Some(epoch) }
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

/// Where a lineage began as a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// URL of the root that it was made from, which holds what the forked checkpoint shares.
    pub url: String,
    /// The checkpoint there.
    pub source: CheckpointId,
    /// Name of the pin that holds it there.
    pub pin: String,
    /// The checkpoint that it became here.
    pub forked: CheckpointId,
    /// True until the pin has been released.
    pub pinned: bool,
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
    /// Of the current epoch, the oldest id that was in flight, or in doubt, when a newer checkpoint completed: it may reach
    /// what no completed one does. So a collector outside of the job knows what to hold back. `None` when there was none then.
    pub oldest_in_flight: Option<u64>,
    /// Where the lineage began, if it is a fork.
    pub origin: Option<Origin>,
    /// Attempt numbers of the last appends, with the epoch that each belonged to.
    pub(super) recent: Vec<(u64, WriterEpoch)>,
}

/// A change that somebody wants made. Made again from the newest state whenever an append lost its number.
#[derive(Debug, Clone)]
pub(in super::super) enum Change {
    /// Claim an epoch above the log's and all of these, and with `restores` pin the newest checkpoint for it.
    Claim { parents: Vec<WriterEpoch>, restores: bool },
    /// Complete a checkpoint, then retain the newest. With the oldest of those that are in flight besides.
    Complete { checkpoint: Box<CompletedCheckpoint>, retention: Retention, oldest_in_flight: Option<u64> },
    /// Note the oldest that is in flight: others have been given up.
    Settle { oldest_in_flight: Option<u64> },
    /// Hold a checkpoint.
    Pin(Pin),
    /// Drop a pin; with an id, only when it holds that checkpoint, and it must be there.
    Unpin { name: String, of: Option<CheckpointId> },
    /// Complete the first checkpoint of a fork.
    Fork { checkpoint: Box<CompletedCheckpoint>, origin: Box<Origin> },
    /// Note that the pin in the root that a fork was made from is gone.
    Release,
    /// Condemn one checkpoint that nobody needs.
    Condemn(CheckpointId),
    /// Retain the newest.
    Retain(Retention),
    /// Drop condemned checkpoints, unless others have joined them.
    Forget { condemned: Vec<Condemned> },
}

/// What is retained, and for how long what isn't stays.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Retention {
    /// Checkpoints to retain, however old.
    pub retain: usize,
    /// Others are retained for so many milliseconds after they completed.
    pub retain_for_ms: i64,
    /// The grace period in milliseconds.
    pub grace_ms: i64,
}

impl Retention {
    pub fn new(retain: usize, retain_for: Duration, grace: Duration) -> Self {
        let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self { retain, retain_for_ms: millis(retain_for), grace_ms: millis(grace) }
    }

    /// What was completed after this is retained for its age. Without an age nothing is, be its time in the future.
    pub fn since_ms(self, now_ms: i64) -> i64 {
        if self.retain_for_ms == 0 { i64::MAX } else { now_ms.saturating_sub(self.retain_for_ms) }
    }
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

    /// Checkpoints that fall out of retention: all but the newest `retain`, those completed after `since_ms`, the newest that
    /// later ones build on (FLINK-21351: a savepoint doesn't subsume the last checkpoint), and the pinned ones. One that reaches into
    /// another root goes once later ones build on one that doesn't, be it among the newest.
    #[must_use]
    pub fn beyond_retention(&self, retain: usize, since_ms: i64) -> Vec<CheckpointId> {
        let kept_from = self.checkpoints.len().saturating_sub(retain.max(1));
        let base = self.base().map(|c| c.id);
        let forked = self.origin.as_ref().map(|origin| origin.forked).filter(|forked| base > Some(*forked));
        let is_old = |at: usize, c: &CompletedCheckpoint| at < kept_from && c.completed_ms <= since_ms;
        let old = self.checkpoints.iter().enumerate().filter(|(at, c)| is_old(*at, c) || Some(c.id) == forked);
        let ids = old.map(|(_, c)| c.id);
        ids.filter(|id| Some(*id) != base && self.pins_of(*id).next().is_none()).collect()
    }

    /// The pins that hold a checkpoint.
    pub fn pins_of(&self, id: CheckpointId) -> impl Iterator<Item = &Pin> {
        self.pins.iter().filter(move |pin| pin.id == id)
    }

    /// True while a checkpoint that is retained, or condemned and still there, reaches into the root that the lineage was forked from.
    #[must_use]
    pub fn needs_origin(&self) -> bool {
        let needed = |id| self.checkpoint(id).is_ok() || self.condemned.iter().any(|c| c.contains(id));
        self.origin.as_ref().is_some_and(|origin| needed(origin.forked))
    }

    /// The newest checkpoint that later ones build on.
    pub(in super::super) fn base(&self) -> Option<&CompletedCheckpoint> {
        self.checkpoints.iter().rev().find(|c| !c.self_contained())
    }

    pub(super) fn remembers(&self, attempt: u64) -> bool {
        self.recent.iter().any(|(recent, _)| *recent == attempt)
    }

    pub(super) fn epoch_of_attempt(&self, attempt: u64) -> Option<WriterEpoch> {
        self.recent.iter().find(|(recent, _)| *recent == attempt).map(|(_, epoch)| *epoch)
    }

    /// The state after `change`, and what to write down; `None` when there is nothing to do.
    pub(in super::super) fn apply(&self, change: &Change, attempt: u64, now_ms: i64) -> Result<Option<(Self, Action)>> {
        let mut next = self.clone();
        let action = match change {
            Change::Claim { parents, restores } => Some(next.claim(parents, *restores, attempt)),
            Change::Complete { checkpoint, retention, oldest_in_flight } => {
                next.complete(checkpoint, *retention, *oldest_in_flight, now_ms)?
            }
            Change::Settle { oldest_in_flight } => {
                next.note_in_flight(*oldest_in_flight);
                (next.oldest_in_flight != self.oldest_in_flight).then_some(Action::Settle)
            }
            Change::Pin(pin) => next.pin(pin)?,
            Change::Unpin { name, of } => {
                if let Some(id) = of {
                    next.check_unpin(name, *id)?;
                }
                next.pins.retain(|pin| pin.name != *name);
                (next.pins.len() < self.pins.len()).then(|| Action::Unpin { name: name.clone() })
            }
            Change::Fork { checkpoint, origin } => next.fork(checkpoint, origin, now_ms)?,
            Change::Release => match next.origin.as_mut().filter(|origin| origin.pinned) {
                Some(origin) => {
                    origin.pinned = false;
                    Some(Action::Release { url: origin.url.clone() })
                }
                None => None,
            },
            Change::Condemn(id) => {
                next.check_unneeded(*id)?;
                next.condemn(&[*id], 0, now_ms);
                Some(Action::Condemn { ids: vec![*id] })
            }
            Change::Retain(retention) => {
                let ids = next.retain(*retention, now_ms);
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
        self.oldest_in_flight = None;
        self.pins.retain(|pin| pin.restored_by.is_none());
        let newest = self.latest().filter(|_| restores).map(|newest| newest.id);
        // A user's pin of that name, odd as it would be, stays what it is; the restore then says so.
        let pin =
            newest.map(|id| Pin::of_restore(epoch, id)).filter(|pin| self.pins.iter().all(|p| p.name != pin.name));
        self.pins.extend(pin);
        self.pins.sort_by(|a, b| a.name.cmp(&b.name));
        Action::Claim { epoch }
    }

    fn complete(
        &mut self,
        done: &CompletedCheckpoint,
        retention: Retention,
        oldest_in_flight: Option<u64>,
        now_ms: i64,
    ) -> Result<Option<Action>> {
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
        let greatest = self.greatest_completed.filter(|greatest| greatest.epoch == id.epoch);
        self.oldest_in_flight =
            oldest_in_flight.filter(|oldest| greatest.is_some_and(|greatest| *oldest < greatest.id));
        let condemned = self.retain(retention, now_ms);
        Ok(Some(Action::Complete { id, condemned }))
    }

    fn note_in_flight(&mut self, oldest: Option<u64>) {
        let epoch = self.claim.map(|claim| claim.epoch);
        let greatest = self.greatest_completed.filter(|greatest| Some(greatest.epoch) == epoch);
        self.oldest_in_flight = oldest.filter(|oldest| greatest.is_some_and(|greatest| *oldest < greatest.id));
    }

    fn fork(&mut self, done: &CompletedCheckpoint, origin: &Origin, now_ms: i64) -> Result<Option<Action>> {
        if self.greatest_completed.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "the root of a fork holds a job already"));
        }
        self.complete(done, Retention::new(1, Duration::ZERO, Duration::ZERO), None, now_ms)?;
        self.origin = Some(origin.clone());
        Ok(Some(Action::Fork { id: done.id, url: origin.url.clone() }))
    }

    fn retain(&mut self, retention: Retention, now_ms: i64) -> Vec<CheckpointId> {
        let ids = self.beyond_retention(retention.retain, retention.since_ms(now_ms));
        self.condemn(&ids, retention.grace_ms, now_ms);
        ids
    }

    fn condemn(&mut self, ids: &[CheckpointId], grace_ms: i64, now_ms: i64) {
        self.checkpoints.retain(|c| !ids.contains(&c.id));
        for id in ids {
            let new = Condemned { first: *id, last: *id, since_ms: now_ms, condemned_ms: now_ms };
            match self.condemned.last_mut() {
                Some(last) if now_ms.saturating_sub(last.since_ms) <= grace_ms / CONDEMNED_STEPS => {
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
    }

    /// Refuses a checkpoint that somebody may go on from: a restart from the newest, the running job from the newest that
    /// its later ones build on, and whoever has pinned it.
    fn check_unneeded(&self, id: CheckpointId) -> Result<()> {
        self.checkpoint(id)?;
        let pins: Vec<_> = self.pins_of(id).map(|pin| format!("`{}`", pin.name)).collect();
        if !pins.is_empty() {
            return Err(Error::invalid(format!("checkpoint {id} is pinned by {}", pins.join(", "))));
        }
        if self.latest().is_some_and(|newest| newest.id == id) {
            return Err(Error::invalid(format!("checkpoint {id} is the newest: a restart goes on from it")));
        }
        if self.base().is_some_and(|base| base.id == id) {
            return Err(Error::invalid(format!("checkpoint {id} is the newest that later ones build on")));
        }
        Ok(())
    }

    fn check_unpin(&self, name: &str, id: CheckpointId) -> Result<()> {
        match self.pins.iter().find(|pin| pin.name == name) {
            Some(pin) if pin.id != id => {
                Err(Error::invalid(format!("pin `{name}` holds checkpoint {}, not {id}", pin.id)))
            }
            Some(pin) if pin.restored_by.is_some() => Err(Error::invalid(format!(
                "pin `{name}` goes by itself, with the first checkpoint of the job that restored from {id}"
            ))),
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::NotFound, format!("checkpoint {id} has no pin `{name}`"))),
        }
    }

    fn pin(&mut self, pin: &Pin) -> Result<Option<Action>> {
        if pin.name.is_empty() || pin.name.len() > MAX_NAME_BYTES {
            return Err(Error::invalid(format!(
                "a pin's name is 1 to {MAX_NAME_BYTES} bytes long, not {}",
                pin.name.len()
            )));
        }
        if pin.restored_by.is_none() && pin.name.starts_with(RESTORE_PIN) {
            return Err(Error::invalid(format!(
                "pin `{}`: names that begin with `{RESTORE_PIN}` are those of restores",
                pin.name
            )));
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
