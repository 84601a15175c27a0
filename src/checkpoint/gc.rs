//! What may be deleted: a pure decision over a log's state and a listing.
//!
//! An object's name says which checkpoint it was made for, if for one alone, and so does what a checkpoint's part says
//! of the names that its subtask has settled. So nothing has to be remembered of checkpoints that are gone but their ids.
//! Live is what a checkpoint reaches that is retained (as pinned ones are), or condemned for less than the grace
//! period or held back. Of what isn't live, this goes once it is older than the grace period:
//!
//! - everything of an older writer epoch;
//! - what was made for a checkpoint of the current epoch that is condemned, or that is aborted and older than the newest
//!   completed one;
//! - shared segments of the current epoch that the newest checkpoint that others build on has settled: uploads
//!   that were given up and tried again under another name, or whose segments were merged away;
//! - leftovers of interrupted writes.
//!
//! A pending checkpoint newer than the newest completed one needs nothing held: its own objects bear its id, and of
//! shared ones it may reach none that was settled without being live. An older one, still in flight while its
//! successor has completed, may reach what only condemned ones still reach, or nobody: while there is one, nothing of
//! the current epoch goes and all condemned checkpoints are held back.
//!
//! This rests on rules for those who upload. An incremental checkpoint refers to a segment by the name under which the
//! last incremental one (or the restore) knew it, never by that of a self-contained checkpoint's copy. And it settles no
//! name that a newer one may refer to ([`super::part::CheckpointPart::settled`]).

use std::collections::BTreeSet;

use super::completed::CompletedCheckpoint;
use super::log::{Condemned, LineageState};
use super::object_name::{ObjectKind, ObjectName, operator_folder};
use super::part::{CheckpointPart, ObjectRef};
use crate::base::ids::CheckpointId;
use crate::io::store::ObjectEntry;
use crate::{Error, Result};

/// Leftovers younger than this are left alone even without a grace period: somebody may be writing them.
const LEFTOVER_MIN_AGE_MS: i64 = 60_000;

/// Reads a manifest and returns the names of all segments of this root that it reaches.
pub type References<'a> = dyn Fn(&ObjectRef) -> Result<Vec<String>> + 'a;

/// What a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The log's state.
    pub state: &'a LineageState,
    /// Wall milliseconds.
    pub now_ms: i64,
    /// The grace period in milliseconds.
    pub grace_ms: i64,
    /// True while a checkpoint is in flight that is older than the newest completed one.
    pub held_back: bool,
    /// All objects below the root.
    pub objects: &'a [ObjectEntry],
    /// Leftovers of interrupted writes.
    pub leftovers: &'a [ObjectEntry],
}

/// What to delete, in this order, and then to forget.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Segments.
    pub objects: Vec<Doomed>,
    /// Manifests; last, so that none is there without its segments having been, for longer than a moment.
    pub manifests: Vec<Doomed>,
    /// Leftovers.
    pub leftovers: Vec<Doomed>,
    /// Checkpoints that the manifests are of.
    pub checkpoints: usize,
    /// Condemned checkpoints to forget once all that is gone.
    pub forget: Vec<Condemned>,
    /// Bytes of all that goes.
    pub bytes: u64,
    /// True when condemned checkpoints, and what the current epoch left behind, stay for now: a checkpoint may still be in flight
    /// that is older than the newest completed one.
    pub held_back: bool,
}

impl Plan {
    /// All that goes, in order.
    pub fn all(&self) -> impl Iterator<Item = &Doomed> {
        self.objects.iter().chain(&self.manifests).chain(&self.leftovers)
    }
}

/// What goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Its name below the root.
    pub name: String,
    /// Its length.
    pub length_bytes: u64,
}

impl Doomed {
    fn new(object: &ObjectEntry) -> Self {
        Self { name: object.name.clone(), length_bytes: object.length_bytes }
    }
}

/// What becomes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays, and what it refers to.
    Live,
    /// It stays.
    Kept,
    /// It goes unless something live refers to it.
    Goes,
}

impl Facts<'_> {
    fn old(&self, ms: i64) -> bool {
        ms.saturating_add(self.grace_ms) <= self.now_ms
    }

    fn is_due(&self, condemned: &Condemned) -> bool {
        !self.held_back && self.old(condemned.condemned_ms)
    }

    /// By name and age alone.
    fn fate(&self, name: &ObjectName, object: &ObjectEntry) -> Fate {
        let epoch = self.state.claim.map_or(0, |claim| claim.epoch);
        let own = name.checkpoint.map(|id| CheckpointId { epoch: name.epoch, id });
        if let Some(id) = own {
            let mut condemned = self.state.condemned.iter().filter(|c| c.contains(id)).peekable();
            if condemned.peek().is_some() {
                return if condemned.all(|c| self.is_due(c)) { Fate::Goes } else { Fate::Live };
            }
        }
        let given_up = match own {
            _ if name.epoch != epoch => name.epoch < epoch,
            _ if self.held_back => false,
            Some(id) => self.state.latest().is_some_and(|newest| id <= newest.id()),
            None => self.is_settled(name),
        };
        if given_up && self.old(object.modified_ms) { Fate::Goes } else { Fate::Kept }
    }

    /// True for a shared segment of the current epoch that no pending or later checkpoint refers to unless the newest that
    /// others build on does.
    fn is_settled(&self, name: &ObjectName) -> bool {
        let base = self.state.checkpoints.iter().rev().find(|c| !c.self_contained());
        let ours = |part: &&CheckpointPart| {
            part.checkpoint.epoch == name.epoch
                && part.subtask == name.subtask
                && operator_folder(&part.operator) == name.folder
        };
        let part = base.and_then(|base| base.parts().iter().find(ours));
        part.is_some_and(|part| part.settled.contains(&name.counter))
    }
}

/// Decides what goes.
///
/// # Errors
/// The first error of `references` on a manifest that has to stay.
pub fn plan(facts: &Facts<'_>, references: &References<'_>) -> Result<Plan> {
    let mut plan = Plan { held_back: facts.held_back, ..Plan::default() };
    let abandoned = |ms: i64| facts.old(ms) && ms.saturating_add(LEFTOVER_MIN_AGE_MS) <= facts.now_ms;
    for leftover in facts.leftovers.iter().filter(|leftover| abandoned(leftover.modified_ms)) {
        plan.leftovers.push(Doomed::new(leftover));
        plan.bytes += leftover.length_bytes;
    }
    plan.forget = facts.state.condemned.iter().filter(|c| facts.is_due(c)).copied().collect();
    let named = facts.objects.iter().filter_map(|object| Some((ObjectName::parse(&object.name)?, object)));
    let judged: Vec<_> = named.map(|(name, object)| (facts.fate(&name, object), name, object)).collect();
    if judged.iter().all(|(fate, ..)| *fate != Fate::Goes) {
        return Ok(plan);
    }

    let mut live = BTreeSet::new();
    let mut keep = |manifest: &ObjectRef| {
        if live.insert(manifest.name.clone()) {
            live.extend(references(manifest)?);
        }
        Ok::<(), Error>(())
    };
    facts.state.checkpoints.iter().flat_map(CompletedCheckpoint::manifests).try_for_each(&mut keep)?;
    for (fate, name, object) in &judged {
        if *fate == Fate::Live && name.kind == ObjectKind::Manifest {
            keep(&ObjectRef { name: object.name.clone(), length_bytes: object.length_bytes, hash: name.hash })?;
        }
    }
    let mut checkpoints = BTreeSet::new();
    for (_, name, object) in judged.iter().filter(|(fate, _, o)| *fate == Fate::Goes && !live.contains(&o.name)) {
        if name.kind == ObjectKind::Manifest {
            checkpoints.insert((name.epoch, name.checkpoint));
            plan.manifests.push(Doomed::new(object));
        } else {
            plan.objects.push(Doomed::new(object));
        }
        plan.bytes += object.length_bytes;
    }
    plan.checkpoints = checkpoints.len();
    Ok(plan)
}
