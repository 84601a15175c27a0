//! A checkpoint from its freeze to its part: what the owner notes down, and what a worker does with it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::background::Shared;
use super::jobs;
use super::prefetch::Prefetched;
use super::room;
use super::states::StateTable;
use super::stored;
use crate::base::ids::{CheckpointId, SegmentId, Sequence};
use crate::base::meters;
use crate::checkpoint::part::CheckpointPart;
use crate::checkpoint::ticket::TicketSender;
use crate::checkpoint::upload::SegmentUpload;
use crate::io::retry::Cancel;
use crate::manifest::{self, CheckpointKind, Manifest};
use crate::read::Tree;
use crate::version::Version;
use crate::{Error, ErrorKind, Result};

/// What the owner noted down at the freeze.
pub(super) struct PendingCheckpoint {
    pub id: CheckpointId,
    pub kind: CheckpointKind,
    pub metadata: Bytes,
    pub states: Arc<StateTable>,
    pub next_sequence: Sequence,
    pub created_ms: i64,
    pub cancel: Cancel,
    pub sender: TicketSender,
}

impl PendingCheckpoint {
    /// Stops its upload and ends its ticket, whatever the store is doing.
    pub fn give_up(&self, kind: ErrorKind, why: &str) {
        self.cancel.cancel();
        self.sender.complete(Err(Error::new(kind, format!("checkpoint {} {why}", self.id))));
    }
}

/// Uploads what `tree` has that the store doesn't, then the manifest, and completes the ticket.
pub(super) fn run(shared: &Arc<Shared>, checkpoint: &PendingCheckpoint, tree: &Tree) {
    let identity = &shared.identity;
    let span =
        tracing::debug_span!("upload", id = %checkpoint.id, operator = identity.operator, subtask = identity.subtask);
    let _span = span.entered();
    let began_ns = shared.env.clock.monotonic_ns();
    let outcome = make_part(shared, checkpoint, tree);
    match &outcome {
        Ok(part) => {
            shared.meters.upload.record(shared.since(began_ns));
            shared.meters.part(part);
        }
        Err(error) => shared.meters.failed(&meters::CHECKPOINT_FAILURES, error.kind()),
    }
    shared.show();
    if let Err(error) = &outcome {
        match error.kind() {
            ErrorKind::Aborted => tracing::debug!(id = %checkpoint.id, "checkpoint aborted"),
            _ => tracing::warn!(id = %checkpoint.id, %error, "checkpoint failed"),
        }
    }
    checkpoint.sender.complete(outcome);
    shared.current.lock().checkpoints.remove(&checkpoint.id.id);
    shared.progress.notify_all();
}

fn make_part(shared: &Arc<Shared>, checkpoint: &PendingCheckpoint, tree: &Tree) -> Result<CheckpointPart> {
    if checkpoint.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Aborted, format!("checkpoint {} was aborted", checkpoint.id)));
    }
    // Whoever makes checkpoints was opened a while ago.
    *shared.env.prefetched.lock() = Prefetched::default();
    shared.check()?;
    let (version, sent_bytes, settled) = match checkpoint.kind {
        CheckpointKind::Incremental => {
            let stored = stored::store(shared, checkpoint.id.id, tree, &checkpoint.cancel)?;
            let full_of = if stored.nearly_full { tree.version().max_sequence() } else { 0 };
            shared.nearly_full_of.store(full_of, Ordering::Relaxed);
            if stored.nearly_full {
                jobs::start_compaction(shared);
            }
            let settled = settle(shared, checkpoint.id.id, &stored.segments);
            (stored.version, stored.sent_bytes, settled)
        }
        _ => {
            let (version, sent_bytes) = store_copies(shared, checkpoint, tree)?;
            (version, sent_bytes, 0..0)
        }
    };
    shared.check()?;
    let full_bytes = version.total_bytes();
    let manifest = describe(shared, checkpoint, version);
    let bytes = Bytes::from(manifest::encode(&manifest)?);
    let object = shared.uploader.upload_manifest(checkpoint.id, bytes, &checkpoint.cancel)?;
    let identity = &shared.identity;
    Ok(CheckpointPart {
        checkpoint: checkpoint.id,
        operator: identity.operator.clone(),
        subtask: identity.subtask,
        parallelism: identity.parallelism,
        max_parallelism: identity.max_parallelism,
        key_groups: identity.groups,
        settled,
        self_contained: checkpoint.kind != CheckpointKind::Incremental,
        delta_bytes: sent_bytes,
        uploaded_bytes: sent_bytes + object.length_bytes,
        full_bytes: full_bytes + object.length_bytes,
        manifest: object,
    })
}

/// Uploads all of the tree. What a full checkpoint uploads is its own: nothing later builds on it.
fn store_copies(shared: &Shared, checkpoint: &PendingCheckpoint, tree: &Tree) -> Result<(Version, u64)> {
    let (mut names, mut sent_bytes) = (HashMap::new(), 0);
    for segment in segments_of(tree)? {
        let name = upload_copy(shared, checkpoint, &segment)?;
        sent_bytes += segment.meta.length_bytes;
        names.insert(segment.meta.id, (0, name));
    }
    Ok((tree.version().with_names(&names)?, sent_bytes))
}

/// The counters that checkpoint `id`, of these segments, settles.
fn settle(shared: &Shared, id: u64, segments: &HashSet<SegmentId>) -> Range<u64> {
    let tree = {
        let current = shared.current.lock();
        let is_oldest = current.checkpoints.keys().next().is_none_or(|oldest| *oldest >= id);
        is_oldest.then(|| current.tree.clone())
    };
    let live = tree.map(|tree| {
        let (mut live, names) = (HashSet::new(), shared.uploads.names_for(0));
        // Nobody needs the stand-ins of what is stored itself.
        tree.version().visit(&mut |r| {
            live.insert(r.meta().id);
            !matches!(names.get(&r.meta().id), Some(Some(_)))
        });
        live
    });
    shared.uploads.settled(&*shared.uploader, id, segments, live.as_ref())
}

/// Makes a segment durable for checkpoint `id` (0 for none yet) unless it is; its name, and the bytes sent.
pub(super) fn ensure_durable(
    shared: &Shared,
    id: u64,
    segment: &SegmentUpload,
    cancel: &Cancel,
) -> Result<(Arc<str>, u64)> {
    let ensured = shared.uploads.ensure(&*shared.uploader, id, segment, cancel);
    match &ensured {
        Ok((name, _)) => shared.note_durable(segment.meta.id, name),
        Err(error) => room::poison_if_lost(shared, segment, error),
    }
    ensured
}

/// Uploads a segment once more. Bytes that are bad here are taken from the store, if it has them.
fn upload_copy(shared: &Shared, checkpoint: &PendingCheckpoint, segment: &SegmentUpload) -> Result<Arc<str>> {
    let upload = || shared.uploader.upload_segment(segment, Some(checkpoint.id.id), &checkpoint.cancel);
    match upload() {
        Err(error) if error.kind() == ErrorKind::Corruption && segment.source.second_copy().is_some() => {
            segment.source.distrust(&error);
            upload()
        }
        Err(error) => {
            room::poison_if_lost(shared, segment, &error);
            Err(error)
        }
        uploaded => uploaded,
    }
}

/// Every segment of the tree once, with its bytes.
pub(super) fn segments_of(tree: &Tree) -> Result<Vec<SegmentUpload>> {
    let mut seen = HashMap::<SegmentId, SegmentUpload>::new();
    for (_, _, r) in tree.version().refs() {
        let meta = r.meta().clone();
        let segment =
            tree.segment(meta.id).ok_or_else(|| Error::internal(format!("segment {} isn't open", meta.id)))?;
        seen.entry(meta.id).or_insert_with(|| SegmentUpload { meta, source: segment.source().clone() });
    }
    Ok(seen.into_values().collect())
}

fn describe(shared: &Shared, checkpoint: &PendingCheckpoint, version: Version) -> Manifest {
    let identity = &shared.identity;
    Manifest {
        operator: identity.operator.clone(),
        subtask: identity.subtask,
        parallelism: identity.parallelism,
        max_parallelism: identity.max_parallelism,
        groups: identity.groups,
        writer_epoch: identity.epoch,
        checkpoint: checkpoint.id,
        kind: checkpoint.kind,
        created_ms: checkpoint.created_ms,
        next_sequence: checkpoint.next_sequence,
        time_high_water_ms: shared.time_high_water_ms.load(Ordering::Relaxed),
        roots: vec![String::new()],
        states: checkpoint.states.descriptors().cloned().collect(),
        dropped: Vec::new(),
        metadata: checkpoint.metadata.clone(),
        version,
        parents: identity.parents.clone(),
    }
}
