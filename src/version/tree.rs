//! The tree of runs that a backend reads below its memtable.

use std::collections::HashMap;
use std::sync::Arc;

use super::run::Run;
use super::segment_ref::SegmentRef;
use crate::base::ids::{SegmentId, Sequence};
use crate::base::key::KeyRange;
use crate::{Error, Result};

/// Most levels of a tree.
pub const MAX_LEVELS: usize = 8;

/// An immutable tree. Level 0 holds any number of runs, newest first; each further level holds at most one.
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    levels: Arc<Vec<Vec<Run>>>,
}

impl Version {
    /// A tree of `levels`, each a list of runs, newest first. Empty runs and trailing empty levels are dropped.
    ///
    /// # Errors
    /// Internal when a level below 0 has several runs, there are too many levels, or one reference stands twice.
    pub fn new(mut levels: Vec<Vec<Run>>) -> Result<Self> {
        for runs in &mut levels {
            runs.retain(|run| !run.is_empty());
        }
        while levels.last().is_some_and(Vec::is_empty) {
            levels.pop();
        }
        if levels.len() > MAX_LEVELS {
            return Err(Error::internal(format!("{} levels, at most {MAX_LEVELS} can be", levels.len())));
        }
        if let Some(level) = levels.iter().skip(1).position(|runs| runs.len() > 1) {
            return Err(Error::internal(format!("level {} has more than one run", level + 1)));
        }
        let version = Self { levels: Arc::new(levels) };
        let mut seen = std::collections::HashSet::new();
        for (_, _, r) in version.refs() {
            if !seen.insert(r.id()) {
                return Err(Error::internal(format!("segment {} is listed twice with one clip", r.meta().id)));
            }
        }
        Ok(version)
    }

    /// The levels from the top: each a list of runs, newest first. The last one isn't empty.
    #[must_use]
    pub fn levels(&self) -> &[Vec<Run>] {
        &self.levels
    }

    /// The runs of `level`, none when the tree isn't so deep.
    #[must_use]
    pub fn level(&self, level: usize) -> &[Run] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// All runs from newest to oldest with their levels.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &Run)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| runs.iter().map(move |run| (level, run)))
    }

    /// All references: level, rank of the run from the top of the tree, reference.
    pub fn refs(&self) -> impl Iterator<Item = (usize, usize, &Arc<SegmentRef>)> {
        self.runs().enumerate().flat_map(|(rank, (level, run))| run.refs().iter().map(move |r| (level, rank, r)))
    }

    /// True when it has no segment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Bytes of all segments, each counted once.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let bytes: HashMap<SegmentId, u64> =
            self.refs().map(|(_, _, r)| (r.meta().id, r.meta().length_bytes)).collect();
        bytes.values().sum()
    }

    /// Number of references.
    #[must_use]
    pub fn ref_count(&self) -> usize {
        self.runs().map(|(_, run)| run.refs().len()).sum()
    }

    /// Greatest sequence of any record, 0 for an empty tree.
    #[must_use]
    pub fn max_sequence(&self) -> Sequence {
        self.refs().map(|(_, _, r)| r.meta().sequences.1).max().unwrap_or(0)
    }

    /// Root index and name of every durable object it references, sorted, each once.
    #[must_use]
    pub fn names(&self) -> Vec<(u16, Arc<str>)> {
        let mut names: Vec<_> = self.refs().filter_map(|(_, _, r)| Some((r.root(), Arc::clone(r.name()?)))).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The segments that aren't durable yet, newest first, each once.
    #[must_use]
    pub fn unnamed(&self) -> Vec<Arc<SegmentRef>> {
        let mut seen = std::collections::HashSet::new();
        let unnamed = self.refs().filter(|(_, _, r)| r.name().is_none());
        unnamed.filter(|(_, _, r)| seen.insert(r.meta().id)).map(|(_, _, r)| Arc::clone(r)).collect()
    }

    /// References that overlap `range`, newest run first.
    pub fn overlapping<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<SegmentRef>> {
        self.runs().flat_map(|(_, run)| run.refs().get(run.overlapping(range)).unwrap_or_default())
    }

    /// The same tree with the segments in `names` durable under that root and name; others stay as they are.
    ///
    /// # Errors
    /// None in a tree that upholds its invariants.
    pub fn with_names(&self, names: &HashMap<SegmentId, (u16, Arc<str>)>) -> Result<Self> {
        self.map(|r| match names.get(&r.meta().id) {
            Some((root, name)) => Arc::new(r.named(*root, Arc::clone(name))),
            None => Arc::clone(r),
        })
    }

    /// The same tree with every root index replaced, as when a parent's root table is folded into ours.
    ///
    /// # Errors
    /// None in a tree that upholds its invariants.
    pub fn map_roots(&self, root: impl Fn(u16) -> u16) -> Result<Self> {
        self.map(|r| {
            let mapped = SegmentRef::new(Arc::clone(r.meta()), root(r.root()), r.name().cloned(), r.clip().clone());
            Arc::new(mapped)
        })
    }

    pub(super) fn map(&self, change: impl Fn(&Arc<SegmentRef>) -> Arc<SegmentRef>) -> Result<Self> {
        let mut levels = Vec::new();
        for runs in self.levels() {
            let runs = runs.iter().map(|run| Run::new(run.refs().iter().map(&change).collect()));
            levels.push(runs.collect::<Result<Vec<_>>>()?);
        }
        Self::new(levels)
    }
}
