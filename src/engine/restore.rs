//! Opening a backend: empty, or on its share of a completed checkpoint.
//!
//! Restoring reads the manifests of the old subtasks whose key groups overlap ours, clips and joins their trees, and
//! is done: segments are read from the store until their files are here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::backend::{Backend, RestoredPart};
use super::background::{Current, Identity, Shared};
use super::environment::{Environment, Inner, OpenSubtask, Operator, Subtask};
use super::hydration;
use super::segment_files::{SegmentFiles, SegmentSource};
use super::states::StateTable;
use crate::base::ids::{CheckpointId, SegmentId, Sequence};
use crate::base::key::KeyRange;
use crate::base::key_group::KeyGroupRange;
use crate::checkpoint::completed::CompletedCheckpoint;
use crate::checkpoint::manifests::read_parts;
use crate::checkpoint::part::CheckpointPart;
use crate::checkpoint::upload::StoreUploader;
use crate::manifest::Manifest;
use crate::memtable::{Memtable, MemtableConfig};
use crate::read::Tree;
use crate::version::{Version, merge_parents};
use crate::{Error, Result};

/// What the old subtasks leave to a new one.
struct Inheritance {
    version: Version,
    states: StateTable,
    parts: Vec<RestoredPart>,
    parents: Vec<CheckpointId>,
    next_sequence: Sequence,
    time_high_water_ms: i64,
}

pub(super) fn open_backend(
    env: &Environment,
    operator: &Operator,
    subtask: Subtask,
    groups: KeyGroupRange,
    from: Option<&CompletedCheckpoint>,
) -> Result<Backend> {
    let inner = &env.inner;
    let began_ns = inner.clock.monotonic_ns();
    let _span = tracing::debug_span!("open", operator = operator.name(), subtask = subtask.index).entered();
    let open = OpenSubtask::new(inner, operator.name(), subtask.index)?;
    let claim = env.claim()?;
    if let Some(checkpoint) = from {
        // Until this job has a checkpoint of its own, it lives on that one.
        env.log().pin_for_restore(&claim, checkpoint.id())?;
    }
    let inheritance = inherit(inner, operator, groups, from)?;
    let identity = Identity {
        operator: operator.name().to_owned(),
        subtask: subtask.index,
        parallelism: subtask.parallelism,
        max_parallelism: operator.max_parallelism(),
        groups,
        epoch: claim.epoch,
        parents: inheritance.parents,
    };
    let files = open_files(inner, &identity)?;
    let sources = restored_sources(&files, &inheritance.version)?;
    files.clean(&sources.keys().copied().collect())?;
    let uploader = StoreUploader::new(
        inner.store.clone(),
        inner.clock.clone(),
        inner.random.clone(),
        &identity.operator,
        identity.subtask,
        identity.epoch,
    );
    let states = Arc::new(inheritance.states);
    let current = Current::before(inheritance.next_sequence, states.clone(), sources);
    let shared =
        Shared::new(inner.clone(), identity, files, Arc::new(uploader), current, inheritance.time_high_water_ms);
    let shared = Arc::new(shared);
    attach_tree(&shared, inheritance.version)?;
    if inner.eager_restore {
        hydration::fetch_all(&shared)?;
    } else {
        hydration::start(&shared);
    }
    if from.is_some() {
        shared.meters.restore.record(shared.since(began_ns));
    }
    shared.show();
    let mut config = MemtableConfig::new(inner.budget.clone());
    config.slabs = inner.slabs.clone();
    config.page_bytes = inner.tuning.page_bytes;
    config.first_sequence = inheritance.next_sequence;
    Ok(Backend::new(shared, open, Memtable::new(config), states, inheritance.parts))
}

fn open_files(inner: &Inner, identity: &Identity) -> Result<SegmentFiles> {
    let directory = inner.folder_of(&identity.operator, identity.subtask, identity.parallelism);
    let (files, disk, store) = (inner.files.clone(), inner.disk.clone(), inner.store.clone());
    SegmentFiles::open(directory, files, disk, store, inner.lock.clone())
}

/// Puts the restored tree in place and notes that its segments are durable, so that the first checkpoint uploads
/// only what changed.
fn attach_tree(shared: &Shared, version: Version) -> Result<()> {
    for (_, _, r) in version.refs() {
        if let Some(name) = r.name() {
            shared.uploads.set_durable(r.meta().id, name.clone());
        }
    }
    let mut current = shared.current.lock();
    let tree = shared.build_tree(version, &Tree::default(), &current.sources)?;
    let prefetched = shared.env.prefetched.lock();
    let ids: HashSet<SegmentId> = tree.version().refs().map(|(_, _, r)| r.meta().id).collect();
    for segment in ids.into_iter().filter_map(|id| tree.segment(id)) {
        if let Some((offset, bytes)) = prefetched.tail(segment.meta().id) {
            segment.admit_tail(offset, &bytes);
        }
    }
    current.tree = Arc::new(tree);
    Ok(())
}

fn restored_sources(files: &SegmentFiles, version: &Version) -> Result<HashMap<SegmentId, Arc<SegmentSource>>> {
    let mut sources = HashMap::new();
    for (_, _, r) in version.refs() {
        let name = r.name().ok_or_else(|| {
            Error::corruption(format!("a manifest refers to segment {} without naming its object", r.meta().id))
        })?;
        if r.root() != 0 {
            return Err(Error::new(
                crate::ErrorKind::Unsupported,
                format!("`{name}` lies in another root; forks are not built yet"),
            ));
        }
        sources.entry(r.meta().id).or_insert_with(|| files.remote(r.meta(), name));
    }
    Ok(sources)
}

/// The parts whose key groups overlap `groups`, with their manifests and what they have in common.
fn parents_of(
    inner: &Inner,
    operator: &Operator,
    groups: KeyGroupRange,
    checkpoint: &CompletedCheckpoint,
) -> Result<Vec<(Manifest, KeyRange)>> {
    let mut parts = Vec::new();
    for part in checkpoint.parts_of(operator.name()) {
        check_max_parallelism(operator, part)?;
        if let Some(common) = part.key_groups.intersect(groups) {
            parts.push((part, KeyRange::groups(common)));
        }
    }
    let mut manifests: Vec<_> = {
        let prefetched = inner.prefetched.lock();
        parts.iter().map(|(part, _)| prefetched.manifest(part)).collect()
    };
    let missing: Vec<_> =
        parts.iter().zip(&manifests).filter(|(_, found)| found.is_none()).map(|((p, _), _)| *p).collect();
    let mut read = read_parts(&*inner.store, &missing).into_iter();
    for slot in manifests.iter_mut().filter(|found| found.is_none()) {
        *slot = read.next().transpose().map_err(|e| e.context(format!("restoring checkpoint {}", checkpoint.id())))?;
    }
    let found = parts.into_iter().zip(manifests).map(|((part, clip), manifest)| {
        let manifest =
            manifest.ok_or_else(|| Error::internal(format!("manifest `{}` wasn't read", part.manifest.name)))?;
        check_sequences(&manifest, &part.manifest.name)
            .map_err(|e| e.context(format!("restoring checkpoint {}", checkpoint.id())))?;
        Ok((manifest, clip))
    });
    found.collect()
}

fn inherit(
    inner: &Inner,
    operator: &Operator,
    groups: KeyGroupRange,
    from: Option<&CompletedCheckpoint>,
) -> Result<Inheritance> {
    let parents = match from {
        Some(checkpoint) => parents_of(inner, operator, groups, checkpoint)?,
        None => Vec::new(),
    };
    let clips: Vec<_> = parents.iter().map(|(m, clip)| (m.version.clone(), clip.clone())).collect();
    let mut seen = HashSet::new();
    Ok(Inheritance {
        version: merge_parents(&clips)?,
        states: StateTable::restored(parents.iter().flat_map(|(m, _)| m.states.iter().cloned()))?,
        parents: parents.iter().map(|(m, _)| m.checkpoint).filter(|id| seen.insert(*id)).collect(),
        next_sequence: parents.iter().map(|(m, _)| m.next_sequence).max().unwrap_or(1),
        time_high_water_ms: parents.iter().map(|(m, _)| m.time_high_water_ms).max().unwrap_or(i64::MIN),
        parts: parents
            .into_iter()
            .map(|(m, _)| RestoredPart {
                subtask: m.subtask,
                parallelism: m.parallelism,
                groups: m.groups,
                metadata: m.metadata,
            })
            .collect(),
    })
}

/// Checks that a writer that goes on from `manifest` writes above all that it restores: newer beats older by sequence.
fn check_sequences(manifest: &Manifest, name: &str) -> Result<()> {
    for (_, _, r) in manifest.version.refs() {
        let greatest = r.meta().sequences.1;
        if greatest >= manifest.next_sequence {
            return Err(Error::corruption(format!(
                "manifest `{name}`: segment {} holds sequence {greatest}, and {} is said to come next",
                r.meta().id,
                manifest.next_sequence
            )));
        }
    }
    Ok(())
}

fn check_max_parallelism(operator: &Operator, part: &CheckpointPart) -> Result<()> {
    if part.max_parallelism == operator.max_parallelism() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "operator `{}` has a max parallelism of {}, checkpoint {} was made with {}; it is fixed for the life of the state",
        operator.name(),
        operator.max_parallelism(),
        part.checkpoint,
        part.max_parallelism
    )))
}
