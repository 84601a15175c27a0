//! What may be deleted: a pure decision over a log's state and a listing.
//!
//! Live is what a checkpoint reaches that is retained, or condemned for less than the grace period, or held back.
//! (Pinned ones are retained.) Everything else goes if we know that nobody can come to reach it:
//!
//! - what condemned checkpoints reach whose grace period is over;
//! - objects of an older writer epoch that no checkpoint reaches and that are older than the grace period: orphans of
//!   aborted uploads. Such objects of the current epoch are left alone: they may be uploads in flight, or of
//!   an aborted checkpoint that a later one will build on;
//! - leftovers of interrupted writes, older than the grace period.
//!
//! A pending checkpoint newer than the newest completed one needs nothing held: what it shares with a condemned one,
//! the newest one that others build on shares too, since a subtask's tree never takes back a segment that it
//! has dropped. An older one, still in flight while its successor has completed, may reach what only condemned ones
//! still reach: while there is one, all condemned checkpoints are held back.
//!
//! This rests on a rule for those who upload: an incremental checkpoint refers to a segment by the name under which the
//! last incremental one (or the restore) knew it, never by that of a self-contained checkpoint's copy.

use std::collections::BTreeSet;

use super::log::LineageState;
use super::object_name::ObjectName;
use super::part::ObjectRef;
use crate::base::ids::CheckpointId;
use crate::io::store::ObjectEntry;
use crate::{ErrorKind, Result};

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
    /// Segments, and manifests that no condemned checkpoint owns.
    pub objects: Vec<String>,
    /// Manifests of condemned checkpoints; last, since they say which segments to delete.
    pub manifests: Vec<String>,
    /// Leftovers.
    pub leftovers: Vec<String>,
    /// Condemned checkpoints to forget once all that is gone.
    pub forget: Vec<CheckpointId>,
    /// Bytes of all that goes.
    pub bytes: u64,
}

/// Decides what goes.
///
/// # Errors
/// The first error of `references`, except for a due manifest that is gone or corrupt: its segments stay until a later
/// epoch finds them orphaned.
pub fn plan(facts: &Facts<'_>, references: &References<'_>) -> Result<Plan> {
    let old = |ms: i64| ms.saturating_add(facts.grace_ms) <= facts.now_ms;
    let epoch = facts.state.claim.map_or(0, |claim| claim.epoch);
    let (due, fresh): (Vec<_>, Vec<_>) =
        facts.state.condemned.iter().partition(|c| !facts.held_back && old(c.condemned_ms));
    let parsed = |object: &ObjectEntry| ObjectName::parse(&object.name);
    let orphaned = |object: &ObjectEntry| parsed(object).is_some_and(|n| n.epoch < epoch) && old(object.modified_ms);

    let mut plan = Plan::default();
    let abandoned = |ms: i64| old(ms) && ms.saturating_add(LEFTOVER_MIN_AGE_MS) <= facts.now_ms;
    for leftover in facts.leftovers.iter().filter(|leftover| abandoned(leftover.modified_ms)) {
        plan.leftovers.push(leftover.name.clone());
        plan.bytes += leftover.length_bytes;
    }
    if due.is_empty() && !facts.objects.iter().any(orphaned) {
        return Ok(plan);
    }

    let retained = facts.state.checkpoints.iter().flat_map(|c| c.manifests());
    let live_manifests: BTreeSet<_> = retained.chain(fresh.iter().flat_map(|c| &c.manifests)).collect();
    let mut live = BTreeSet::new();
    for manifest in live_manifests {
        live.insert(manifest.name.clone());
        live.extend(references(manifest)?);
    }
    let mut doomed = BTreeSet::new();
    let mut doomed_manifests = BTreeSet::new();
    for manifest in due.iter().flat_map(|c| &c.manifests) {
        doomed_manifests.insert(manifest.name.as_str());
        match references(manifest) {
            Ok(segments) => doomed.extend(segments),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption) => {}
            Err(error) => return Err(error),
        }
    }
    for object in facts.objects.iter().filter(|object| parsed(object).is_some() && !live.contains(&object.name)) {
        if doomed_manifests.contains(object.name.as_str()) {
            plan.manifests.push(object.name.clone());
        } else if doomed.contains(&object.name) || orphaned(object) {
            plan.objects.push(object.name.clone());
        } else {
            continue;
        }
        plan.bytes += object.length_bytes;
    }
    plan.forget = due.iter().map(|c| c.id).collect();
    Ok(plan)
}
