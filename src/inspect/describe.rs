//! What a completed checkpoint holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::opener::Opener;
use crate::Result;
use crate::base::ids::{CheckpointId, SegmentId, StateId};
use crate::base::key_group::KeyGroup;
use crate::checkpoint::completed::CompletedCheckpoint;
use crate::checkpoint::manifests::read_part;
use crate::io::other_roots::OtherRoots;
use crate::io::store::Store;
use crate::manifest::Manifest;
use crate::segment::stats::SegmentStats;
use crate::version::SegmentRef;

/// A state over all subtasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSummary {
    /// Operator that it belongs to.
    pub operator: String,
    /// Name.
    pub name: String,
    /// Kind as registered: `value`, `list`, `map`, ...
    pub kind: String,
    /// Records in segments: entries, and what hides or supersedes older ones until it is merged. Of a segment that
    /// a rescale has cut, the share of the key groups that are left.
    pub entries: u64,
    /// Key and value bytes of those records, before compression.
    pub bytes: u64,
}

/// A segment of a subtask's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Name of the object.
    pub name: String,
    /// Operator and subtask whose tree lists it.
    pub operator: String,
    /// Index of the subtask.
    pub subtask: u32,
    /// Length of the object.
    pub bytes: u64,
    /// Records in it, those that a clip hides included.
    pub entries: u64,
    /// Level in the tree.
    pub level: usize,
    /// True when the tree reads only some of its key groups.
    pub clipped: bool,
}

/// Bytes of one key group of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupBytes {
    /// Operator: each numbers its own groups.
    pub operator: String,
    /// Key group.
    pub group: KeyGroup,
    /// Key and value bytes of its records, before compression.
    pub bytes: u64,
}

/// The caller's metadata of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartMetadata {
    /// Operator.
    pub operator: String,
    /// Index of the subtask.
    pub subtask: u32,
    /// Subtasks of the operator.
    pub parallelism: u32,
    /// Key groups of the operator.
    pub max_parallelism: u32,
    /// What the subtask gave to `checkpoint()`.
    pub metadata: Vec<u8>,
}

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its id.
    pub id: CheckpointId,
    /// Parts, by operator and subtask.
    pub parts: Vec<PartMetadata>,
    /// States, by operator and name.
    pub states: Vec<StateSummary>,
    /// Segments, by operator, subtask and level.
    pub segments: Vec<SegmentSummary>,
    /// Key groups that hold anything, by operator and group.
    pub key_groups: Vec<GroupBytes>,
}

/// Reads the manifests of `checkpoint` and the statistics of its segments, those in `others` included.
///
/// # Errors
/// Store errors; `Corruption` and `Unsupported` naming the object.
pub fn describe(store: &Arc<dyn Store>, others: &OtherRoots, checkpoint: &CompletedCheckpoint) -> Result<Description> {
    let mut summary = Summary::new(Opener::new(store.clone(), others.clone(), 1)?);
    for part in checkpoint.parts() {
        summary.add(&read_part(&**store, part)?)?;
    }
    Ok(Description {
        id: checkpoint.id(),
        parts: summary.parts,
        states: summary.states.into_values().collect(),
        segments: summary.segments,
        key_groups: summary
            .groups
            .into_iter()
            .map(|((operator, group), bytes)| GroupBytes { operator, group, bytes })
            .collect(),
    })
}

struct Summary {
    opener: Opener,
    stats: HashMap<SegmentId, Arc<SegmentStats>>,
    parts: Vec<PartMetadata>,
    states: BTreeMap<(String, String), StateSummary>,
    segments: Vec<SegmentSummary>,
    groups: BTreeMap<(String, KeyGroup), u64>,
}

impl Summary {
    fn new(opener: Opener) -> Self {
        Self {
            opener,
            stats: HashMap::new(),
            parts: Vec::new(),
            states: BTreeMap::new(),
            segments: Vec::new(),
            groups: BTreeMap::new(),
        }
    }

    fn add(&mut self, manifest: &Manifest) -> Result<()> {
        self.parts.push(PartMetadata {
            operator: manifest.operator.clone(),
            subtask: manifest.subtask,
            parallelism: manifest.parallelism,
            max_parallelism: manifest.max_parallelism,
            metadata: manifest.metadata.to_vec(),
        });
        let mut names = HashMap::new();
        for state in &manifest.states {
            names.insert(state.id(), state.name.clone());
            self.states.entry((manifest.operator.clone(), state.name.clone())).or_insert_with(|| StateSummary {
                operator: manifest.operator.clone(),
                name: state.name.clone(),
                kind: state.kind.clone(),
                entries: 0,
                bytes: 0,
            });
        }
        for (level, _, r) in manifest.version.refs() {
            let stats = self.stats_of(manifest, r)?;
            self.add_segment(manifest, level, r);
            self.add_tallies(&manifest.operator, &names, r, &stats);
        }
        Ok(())
    }

    fn stats_of(&mut self, manifest: &Manifest, r: &SegmentRef) -> Result<Arc<SegmentStats>> {
        let meta = r.meta();
        if let Some(stats) = self.stats.get(&meta.id) {
            return Ok(stats.clone());
        }
        let stats = self.opener.segment(manifest, r)?.stats()?;
        Ok(self.stats.entry(meta.id).or_insert(Arc::new(stats)).clone())
    }

    fn add_segment(&mut self, manifest: &Manifest, level: usize, r: &SegmentRef) {
        self.segments.push(SegmentSummary {
            name: name_of(r),
            operator: manifest.operator.clone(),
            subtask: manifest.subtask,
            bytes: r.meta().length_bytes,
            entries: r.meta().entries,
            level,
            clipped: *r.range() != r.meta().range,
        });
    }

    /// Adds what the clip leaves. A segment counts by key group exactly, by state in proportion.
    fn add_tallies(&mut self, operator: &str, names: &HashMap<StateId, String>, r: &SegmentRef, stats: &SegmentStats) {
        let live =
            |group: KeyGroup| r.clip().overlaps(&group.to_be_bytes(), &[&group.to_be_bytes()[..], &[0xFF]].concat());
        let (mut all_bytes, mut live_bytes) = (0, 0);
        for (group, tally) in &stats.groups {
            all_bytes += tally.bytes;
            if live(*group) {
                live_bytes += tally.bytes;
                *self.groups.entry((operator.to_owned(), *group)).or_default() += tally.bytes;
            }
        }
        let share = |count: u64| match all_bytes {
            0 => count,
            _ => u64::try_from(u128::from(count) * u128::from(live_bytes) / u128::from(all_bytes)).unwrap_or(count),
        };
        for (state, tally) in &stats.states {
            let name = names.get(state).cloned().unwrap_or_else(|| format!("{:08x}", state.0));
            if let Some(summary) = self.states.get_mut(&(operator.to_owned(), name)) {
                summary.entries += share(tally.entries);
                summary.bytes += share(tally.bytes);
            }
        }
    }
}

fn name_of(r: &SegmentRef) -> String {
    r.name().map_or_else(|| format!("{}", r.meta().id), |name| name.to_string())
}
