//! What a picker decided.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::key::KeyRange;
use crate::version::{Addition, Edit, Place, RefId, Run, SegmentRef, Version};

/// Why a plan was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Everything in the segments has expired and nothing older lies below.
    Expired,
    /// Level 0 has grown against level 1, or has too many runs.
    Level0,
    /// Adjacent runs of level 0 of similar size.
    Tier,
    /// A level is over its target size.
    Overflow,
    /// Mostly deletes and expired values.
    Dead,
    /// Mostly cut away by clips.
    Clipped,
}

/// What happens to a plan's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They are merged, and what comes out goes to this place.
    Rewrite(Place),
    /// They move to this place as they are.
    Move(Place),
    /// They go.
    Drop,
}

/// A compaction to make. Good for the version it was picked from, and after flushes on top of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Why.
    pub reason: Reason,
    /// What.
    pub action: Action,
    /// Inputs by run, newest run first.
    pub inputs: Vec<Vec<Arc<SegmentRef>>>,
    /// What else lies below the newest input: a tombstone must be kept where one of these holds its key.
    pub older: Vec<Run>,
    /// Where the segments begin that stay in the level that a rewrite goes to, ascending: no output may reach
    /// across one of them.
    pub fences: Vec<Vec<u8>>,
    /// Keys of what stays beside the outputs: the target level's other references, in level 0 those of the inputs' runs.
    pub neighbours: Vec<KeyRange>,
}

impl Plan {
    /// A plan for `inputs`, references of `version`, by run from the newest.
    #[must_use]
    pub fn new(version: &Version, reason: Reason, action: Action, inputs: Vec<Vec<Arc<SegmentRef>>>) -> Self {
        let ids: HashSet<RefId> = inputs.iter().flatten().map(|r| r.id()).collect();
        let newest = version.runs().position(|(_, run)| run.refs().iter().any(|r| ids.contains(&r.id())));
        let below = version.runs().skip(newest.map_or(usize::MAX, |rank| rank + 1));
        let older = below.map(|(_, run)| run.without(&ids)).filter(|run| !run.is_empty()).collect();
        let level = match action {
            Action::Rewrite(Place::Level(level)) => version.level(level),
            _ => &[],
        };
        let staying = level.iter().flat_map(Run::refs).filter(|r| !ids.contains(&r.id()));
        let fences = staying.map(|r| r.range().start.clone()).collect();
        let beside = match action {
            Action::Rewrite(Place::Replaced) => version.level(0),
            _ => level,
        };
        let touched = beside.iter().filter(|run| level.len() == 1 || run.refs().iter().any(|r| ids.contains(&r.id())));
        let staying = touched.flat_map(Run::refs).filter(|r| !ids.contains(&r.id()));
        let neighbours = staying.map(|r| r.range().clone()).collect();
        let inputs = inputs.into_iter().filter(|run| !run.is_empty()).collect();
        Self { reason, action, inputs, older, fences, neighbours }
    }

    /// The input references.
    pub fn refs(&self) -> impl Iterator<Item = &Arc<SegmentRef>> {
        self.inputs.iter().flatten()
    }

    /// Bytes of the inputs within their clips, about: what a rewrite reads and at most writes.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.refs().map(|r| r.live_bytes()).sum()
    }

    /// True when something older than the inputs may hold a key of `range`.
    #[must_use]
    pub fn older_overlaps(&self, range: &KeyRange) -> bool {
        self.older.iter().any(|run| run.overlaps(range))
    }

    /// True when something older than the inputs may hold `key`.
    #[must_use]
    pub fn older_holds(&self, key: &[u8]) -> bool {
        self.older.iter().any(|run| run.find(key).is_some())
    }

    /// The edit that replaces the inputs by `outputs`.
    #[must_use]
    pub fn edit(&self, outputs: Vec<Arc<SegmentRef>>) -> Edit {
        let removed = self.refs().map(|r| r.id()).collect();
        let added = match self.action {
            Action::Rewrite(place) | Action::Move(place) if !outputs.is_empty() => {
                vec![Addition { place, refs: outputs }]
            }
            _ => Vec::new(),
        };
        Edit { added, removed }
    }

    /// The edit of a plan that reads and writes nothing; `None` when the plan is a rewrite.
    #[must_use]
    pub fn immediate_edit(&self) -> Option<Edit> {
        match self.action {
            Action::Rewrite(_) => None,
            Action::Move(_) => Some(self.edit(self.refs().cloned().collect())),
            Action::Drop => Some(self.edit(Vec::new())),
        }
    }
}
