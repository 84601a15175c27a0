//! Merging the trees of several parents, as a restore at another parallelism does.
//!
//! Parents' clips are disjoint, so no order between their records is needed: runs of different parents may
//! share a run. What matters is that trees don't grow without bound as a job is rescaled over and over
//! (2 -> 3 -> 1): the pieces of a segment that two parents list with adjacent clips become one reference again.

use std::sync::Arc;

use super::run::Run;
use super::segment_ref::{SegmentRef, ranges_overlap};
use super::tree::Version;
use crate::base::key::{HEADER_BYTES, KeyRange};
use crate::{Error, Result};

type Refs = Vec<Arc<SegmentRef>>;

/// One tree of several parents' trees, each cut to its clip. Root indexes must already speak of one table
/// ([`Version::map_roots`]).
///
/// # Errors
/// Internal when two clips overlap, or when one has a bound inside a (key, namespace): a prefix delete counts
/// for all keys of its prefix, so clips end between key groups or states.
pub fn merge_parents(parents: &[(Version, KeyRange)]) -> Result<Version> {
    check_clips(parents)?;
    let clipped: Vec<Vec<Vec<Refs>>> = parents.iter().map(|(version, clip)| clip_version(version, clip)).collect();
    let depth = clipped.iter().map(Vec::len).max().unwrap_or(0);
    let mut levels = Vec::with_capacity(depth);
    for level in 0..depth {
        let mut merged: Vec<Refs> = Vec::new();
        for parent in &clipped {
            let runs = parent.get(level).cloned().unwrap_or_default();
            merged = if level == 0 { align(merged, runs) } else { zip_from_bottom(merged, runs) };
        }
        levels.push(merged.into_iter().map(|refs| Run::new(join(refs))).collect::<Result<Vec<_>>>()?);
    }
    Version::new(levels)
}

fn check_clips(parents: &[(Version, KeyRange)]) -> Result<()> {
    for (at, (_, clip)) in parents.iter().enumerate() {
        let bounds = [Some(&clip.start), clip.end.as_ref()];
        if bounds.into_iter().flatten().any(|bound| bound.len() > HEADER_BYTES) {
            return Err(Error::internal("a clip has a bound that isn't one of key groups or states"));
        }
        if parents.iter().skip(at + 1).any(|(_, other)| ranges_overlap(clip, other)) {
            return Err(Error::internal("the clips of two parents overlap"));
        }
    }
    Ok(())
}

fn clip_version(version: &Version, clip: &KeyRange) -> Vec<Vec<Refs>> {
    let clip_run = |run: &Run| -> Refs { run.refs().iter().filter_map(|r| r.clipped(clip)).map(Arc::new).collect() };
    let clip_level = |runs: &Vec<Run>| runs.iter().map(clip_run).filter(|refs| !refs.is_empty()).collect();
    version.levels().iter().map(clip_level).collect()
}

/// Merges two newest-first lists of runs of different parents: runs that hold pieces of one segment meet, the
/// runs between such meetings are paired from the oldest on.
fn align(ours: Vec<Refs>, theirs: Vec<Refs>) -> Vec<Refs> {
    let mut matches = Vec::new();
    let mut below = ours.len();
    for (j, run) in theirs.iter().enumerate().rev() {
        let found = (0..below).rev().find(|i| ours.get(*i).is_some_and(|other| share_a_segment(other, run)));
        if let Some(i) = found {
            matches.push((i, j));
            below = i;
        }
    }
    // From oldest to newest: cut both lists at each meeting.
    let (mut ours, mut theirs) = (ours, theirs);
    let mut parts = Vec::new();
    for (i, j) in matches {
        let (ours_below, theirs_below) = (ours.split_off(i + 1), theirs.split_off(j + 1));
        parts.push(zip_from_bottom(ours_below, theirs_below));
        parts.push(zip_from_bottom(ours.split_off(i), theirs.split_off(j)));
    }
    parts.push(zip_from_bottom(ours, theirs));
    parts.into_iter().rev().flatten().collect()
}

fn share_a_segment(a: &Refs, b: &Refs) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.meta().id == y.meta().id))
}

fn zip_from_bottom(mut ours: Vec<Refs>, mut theirs: Vec<Refs>) -> Vec<Refs> {
    let mut out = Vec::with_capacity(ours.len().max(theirs.len()));
    loop {
        match (ours.pop(), theirs.pop()) {
            (None, None) => break,
            (a, b) => out.push([a.unwrap_or_default(), b.unwrap_or_default()].concat()),
        }
    }
    out.reverse();
    out
}

/// Sorts `refs` and makes one reference of neighbours that are one segment with adjacent clips.
fn join(mut refs: Refs) -> Refs {
    refs.sort_by(|a, b| a.range().start.cmp(&b.range().start));
    let mut out: Refs = Vec::with_capacity(refs.len());
    for r in refs {
        let both = out.last().and_then(|last| last.joined(&r));
        if let (Some(both), Some(last)) = (both, out.last_mut()) {
            *last = Arc::new(both);
        } else {
            out.push(r);
        }
    }
    out
}
