//! What the store has of a tree: which segments stand in for which, and what a checkpoint uploads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::background::Shared;
use super::checkpoints;
use super::segment_files::{SegmentSource, verify};
use crate::base::ids::SegmentId;
use crate::checkpoint::upload::SegmentUpload;
use crate::compaction::upload_choice::{Choice, Limits, Place, choose};
use crate::io::retry::Cancel;
use crate::read::Tree;
use crate::version::{SegmentRef, Version};
use crate::{Error, ErrorKind, Result};

/// New references of a compaction, with no more stand-ins than are of use. Those that aren't stored yet are kept here to be
/// uploaded, but only while that takes less than uploading the new segments themselves.
///
/// A segment of an earlier writer never stands in: the store keeps it only while a checkpoint within reach refers to it, and
/// one that is being made may choose not to where a later one would.
pub(super) fn simplify(shared: &Shared, refs: &[Arc<SegmentRef>]) -> Vec<Arc<SegmentRef>> {
    let names = shared.uploads.names_for(0);
    let settled = |r: &SegmentRef| names.contains_key(&r.meta().id);
    let stored = |r: &SegmentRef| matches!(names.get(&r.meta().id), Some(Some(_)));
    let inherited = |r: &SegmentRef| r.stand_ins().is_some_and(|s| s.refs().iter().any(|r| r.name().is_some()));
    let simplified = refs.iter().map(|r| r.simplified(&settled, &stored));
    let alone = |r: SegmentRef| if inherited(&r) { without(&r) } else { r };
    let refs: Vec<_> = simplified.map(|r| Arc::new(alone(r))).collect();
    let own: HashSet<SegmentId> = refs.iter().map(|r| r.meta().id).collect();
    let mut kept: HashMap<SegmentId, u64> = HashMap::new();
    let mut lost = false;
    {
        let current = shared.current.lock();
        for stand_in in refs.iter().filter_map(|r| r.stand_ins()).flat_map(|s| s.refs()) {
            let id = stand_in.meta().id;
            if !settled(stand_in) && !own.contains(&id) {
                lost |= !current.sources.contains_key(&id);
                kept.insert(id, stand_in.meta().length_bytes);
            }
        }
    }
    let new_bytes: u64 = refs.iter().filter(|r| r.stand_ins().is_some()).map(|r| r.meta().length_bytes).sum();
    if lost || (!kept.is_empty() && kept.values().sum::<u64>() >= new_bytes) {
        return refs.iter().map(|r| Arc::new(without(r))).collect();
    }
    refs
}

/// The same reference, which has to be stored itself.
fn without(r: &SegmentRef) -> SegmentRef {
    r.with_stand_ins(r.range().clone(), None)
}

/// A tree as it is in the store, all of it durable.
pub(super) struct Stored {
    pub version: Version,
    pub sent_bytes: u64,
    pub segments: HashSet<SegmentId>,
    /// After as much again, what the store keeps for it will be too much.
    pub nearly_full: bool,
}

/// Makes all durable that checkpoint `id` of `tree` needs.
pub(super) fn store(shared: &Shared, id: u64, tree: &Tree, cancel: &Cancel) -> Result<Stored> {
    let mut sent_bytes = 0;
    loop {
        let (view, mut names) = view(shared, id, tree)?;
        let mut lost = false;
        for segment in view.uploads {
            let stands_in = tree.segment(segment.meta.id).is_none();
            match checkpoints::ensure_durable(shared, id, &segment, cancel) {
                Ok((name, bytes)) => {
                    sent_bytes += bytes;
                    names.insert(segment.meta.id, (0, name));
                }
                Err(error) if stands_in && is_lost(&segment, &error) => {
                    tracing::warn!(%error, segment = %segment.meta.id, "a stand-in is lost, what it stood in for is uploaded");
                    let source = shared.current.lock().sources.remove(&segment.meta.id);
                    source.into_iter().for_each(|source| source.mark_obsolete());
                    lost = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !lost {
            let version = view.version.with_names(&names)?;
            let segments = version.refs().map(|(_, _, r)| r.meta().id).collect();
            return Ok(Stored { version, sent_bytes, segments, nearly_full: view.nearly_full });
        }
    }
}

/// True when a stand-in's file is at fault for `error`, not the store.
fn is_lost(segment: &SegmentUpload, error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound)
        && verify(&*segment.source, &segment.meta).is_err()
}

/// A tree as it will be in the store, and what has to be uploaded for that.
struct View {
    version: Version,
    uploads: Vec<SegmentUpload>,
    nearly_full: bool,
}

type Names = HashMap<SegmentId, (u16, Arc<str>)>;

fn view(shared: &Shared, id: u64, tree: &Tree) -> Result<(View, Names)> {
    let version = tree.version();
    let known = shared.uploads.names_for(id);
    let mut elsewhere = HashSet::new();
    version.visit(&mut |r| {
        let stored = matches!(known.get(&r.meta().id), Some(Some(_)));
        if !stored && tree.segment(r.meta().id).is_none() {
            elsewhere.insert(r.meta().id);
        }
        !stored
    });
    let sources: HashMap<SegmentId, Arc<SegmentSource>> = {
        let current = shared.current.lock();
        elsewhere.into_iter().filter_map(|id| Some((id, current.sources.get(&id)?.clone()))).collect()
    };
    let place = |id: SegmentId| match known.get(&id) {
        Some(Some(_)) => Place::Stored,
        // Should its upload fail, somebody has to be able to do it.
        _ if tree.segment(id).is_none() && !sources.contains_key(&id) => Place::Gone,
        Some(None) => Place::Stored,
        None => Place::Here,
    };
    let limits = Limits::with_segments_of(shared.env.tuning.segment_bytes);
    let Choice { segments: chosen, nearly_full } = choose(version, &place, &limits);
    let itself = |r: &SegmentRef| place(r.meta().id) == Place::Stored || chosen.contains(&r.meta().id);
    let version = version.stored(&itself)?;
    let (mut names, mut uploads) = (Names::new(), HashMap::new());
    for (_, _, r) in version.refs() {
        let meta = r.meta();
        if let Some(Some(name)) = known.get(&meta.id) {
            names.insert(meta.id, (0, name.clone()));
            continue;
        }
        let source = match tree.segment(meta.id) {
            Some(segment) => segment.source().clone(),
            None => sources.get(&meta.id).cloned().ok_or_else(|| {
                Error::internal(format!("segment {} of the store's tree is neither there nor here", meta.id))
            })?,
        };
        uploads.entry(meta.id).or_insert_with(|| SegmentUpload { meta: meta.clone(), source });
    }
    Ok((View { version, uploads: uploads.into_values().collect(), nearly_full }, names))
}
