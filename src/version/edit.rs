//! Edits: what flushes, compactions and drops do to a tree.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::run::Run;
use super::segment_ref::{RefId, SegmentRef};
use super::tree::Version;
use crate::{Error, Result};

/// Where the references of an [`Addition`] go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The newest run of level 0: a flush.
    Newest,
    /// Level 0, where the newest run with a removed reference stood: a merge within level 0.
    Replaced,
    /// The run of a level below 0.
    Level(usize),
}

/// References that an edit adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// Where they go.
    pub place: Place,
    /// Disjoint references.
    pub refs: Vec<Arc<SegmentRef>>,
}

/// A change of a tree. Made against one version, it applies to any later one that still has what it removes,
/// so flushes may come between the plan of a compaction and its edit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edit {
    /// What comes.
    pub added: Vec<Addition>,
    /// What goes.
    pub removed: Vec<RefId>,
}

impl Edit {
    /// The edit of a flush: `refs` become the newest run.
    #[must_use]
    pub fn flush(refs: Vec<Arc<SegmentRef>>) -> Self {
        Self { added: vec![Addition { place: Place::Newest, refs }], removed: Vec::new() }
    }
}

impl Version {
    /// The tree after `edit`.
    ///
    /// # Errors
    /// Internal, the tree unchanged, when the edit removes what isn't there, when runs would overlap, when a
    /// flush isn't newer than what it covers, or when a reference would change sides with an overlapping one
    /// that stays (replay 1: an old value would come back).
    pub fn apply(&self, edit: &Edit) -> Result<Self> {
        let removed: HashSet<RefId> = edit.removed.iter().cloned().collect();
        let present = self.refs().filter(|(_, _, r)| removed.contains(&r.id())).count();
        if present != removed.len() {
            return Err(Error::internal(format!("an edit removes {} references, {present} are here", removed.len())));
        }
        let mut levels: Vec<Vec<Run>> = Vec::with_capacity(self.levels().len() + 1);
        for runs in self.levels() {
            levels.push(runs.iter().map(|run| run.without(&removed)).collect());
        }
        let replaced_at = self.level(0).iter().position(|run| run.refs().iter().any(|r| removed.contains(&r.id())));
        for addition in edit.added.iter().filter(|a| !a.refs.is_empty()) {
            add(&mut levels, addition, replaced_at)?;
        }
        // Only now, so that positions in level 0 hold while additions are placed.
        for addition in edit.added.iter().filter(|a| a.place == Place::Newest && !a.refs.is_empty()) {
            self.check_newer(addition)?;
            if levels.is_empty() {
                levels.push(Vec::new());
            }
            if let Some(top) = levels.first_mut() {
                top.insert(0, Run::new(addition.refs.clone())?);
            }
        }
        let next = Self::new(levels)?;
        check_order(self, &next, &removed)?;
        Ok(next)
    }

    fn check_newer(&self, addition: &Addition) -> Result<()> {
        for added in &addition.refs {
            for below in self.overlapping(added.range()) {
                if below.meta().sequences.1 >= added.meta().sequences.0 {
                    return Err(Error::internal(format!(
                        "segment {} with sequences from {} was to go on top of {} with sequences to {}",
                        added.meta().id,
                        added.meta().sequences.0,
                        below.meta().id,
                        below.meta().sequences.1
                    )));
                }
            }
        }
        Ok(())
    }
}

fn add(levels: &mut Vec<Vec<Run>>, addition: &Addition, replaced_at: Option<usize>) -> Result<()> {
    match addition.place {
        Place::Newest => Ok(()),
        Place::Replaced => {
            let at = replaced_at.ok_or_else(|| Error::internal("an edit replaces nothing in level 0"))?;
            let runs = levels.first_mut().ok_or_else(|| Error::internal("no level 0"))?;
            let run = runs.get_mut(at).ok_or_else(|| Error::internal("no such run"))?;
            // What remains of that run shares it with the new references when they are disjoint.
            let added = Run::new(addition.refs.clone())?;
            if run.overlaps_run(&added) {
                runs.insert(at, added);
            } else {
                *run = Run::new(run.refs().iter().chain(&addition.refs).cloned().collect())?;
            }
            Ok(())
        }
        Place::Level(0) => Err(Error::internal("level 0 has no single run to add to")),
        Place::Level(level) => {
            if level >= super::tree::MAX_LEVELS {
                return Err(Error::internal(format!("level {level} is too deep")));
            }
            while levels.len() <= level {
                levels.push(Vec::new());
            }
            let runs = levels.get_mut(level).ok_or_else(|| Error::internal("no such level"))?;
            let old = runs.first().map(Run::refs).unwrap_or_default();
            *runs = vec![Run::new(old.iter().chain(&addition.refs).cloned().collect())?];
            Ok(())
        }
    }
}

/// Every reference that stays keeps its side of what was removed, as the additions that take its keys see it.
fn check_order(before: &Version, after: &Version, removed: &HashSet<RefId>) -> Result<()> {
    if removed.is_empty() {
        return Ok(());
    }
    let old_rank: HashMap<RefId, usize> = before.refs().map(|(_, rank, r)| (r.id(), rank)).collect();
    let new_rank: HashMap<RefId, usize> = after.refs().map(|(_, rank, r)| (r.id(), rank)).collect();
    let gone: Vec<_> = before.refs().filter(|(_, _, r)| removed.contains(&r.id())).collect();
    let fresh = after.refs().filter(|(_, _, r)| !old_rank.contains_key(&r.id()) || removed.contains(&r.id()));
    for (_, fresh_rank, fresh) in fresh {
        for (_, gone_rank, gone) in gone.iter().filter(|(_, _, gone)| gone.overlaps(fresh)) {
            for stays in after.overlapping(&fresh.range().intersect(gone.range())) {
                let id = stays.id();
                let (Some(old), Some(new)) = (old_rank.get(&id), new_rank.get(&id)) else { continue };
                if removed.contains(&id) {
                    continue;
                }
                if (gone_rank < old) != (fresh_rank < *new) {
                    return Err(Error::internal(format!(
                        "segment {} would change sides with {}, which overlaps it",
                        fresh.meta().id,
                        stays.meta().id
                    )));
                }
            }
        }
    }
    Ok(())
}
