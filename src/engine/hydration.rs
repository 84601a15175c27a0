//! Bringing the files of restored segments here: in the background while the backend is at work, or before it opens.
//!
//! The newest levels come first: they are small, and what was written last is read first. Several segments come at a time,
//! in ranges that are asked for together, as many as a share of the memory budget holds. One job fetches one such group,
//! so that uploads get their turn.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::background::Shared;
use super::fetch::{AtATime, MOST_RANGES};
use super::jobs::Running;
use super::segment_files::SegmentSource;
use crate::version::segment_meta::SegmentMeta;
use crate::{ErrorKind, Result};

/// Segments that are fetched together.
type Group = Vec<(Arc<SegmentSource>, Arc<SegmentMeta>)>;

/// Starts fetching the files of restored segments, unless that is being done.
pub(super) fn start(shared: &Arc<Shared>) {
    {
        let mut current = shared.current.lock();
        if current.hydrating || shared.is_closed() {
            return;
        }
        current.hydrating = true;
    }
    let job = shared.clone();
    shared.env.remote.spawn(Box::new(move || {
        let running = Running::new(&job, |current| current.hydrating = false);
        let goes_on = fetch_next(&job);
        drop(running);
        if goes_on {
            start(&job);
        }
    }));
}

/// Fetches all of them now.
///
/// # Errors
/// What the first that failed failed with.
pub(super) fn fetch_all(shared: &Shared) -> Result<()> {
    loop {
        let group = next_group(shared);
        if group.is_empty() {
            return Ok(());
        }
        fetch(shared, &group, &|| false).into_iter().collect::<Result<Vec<_>>>()?;
    }
}

fn fetch(shared: &Shared, group: &Group, cancelled: &dyn Fn() -> bool) -> Vec<Result<bool>> {
    shared.files.hydrate(group, at_a_time(shared), cancelled)
}

fn at_a_time(shared: &Shared) -> AtATime {
    AtATime::within(shared.env.memory.total_bytes, shared.env.open_backends())
}

/// The next segments that aren't here: at least one, and more as long as all of them can be asked for at once.
fn next_group(shared: &Shared) -> Group {
    let most_bytes = at_a_time(shared).bytes;
    let current = shared.current.lock();
    let (mut group, mut seen, mut bytes) = (Group::new(), HashSet::new(), 0_u64);
    for (_, _, r) in current.tree.version().refs() {
        let meta = r.meta();
        let Some(source) = current.sources.get(&meta.id).filter(|source| source.wants_file()) else { continue };
        bytes = bytes.saturating_add(meta.length_bytes);
        if group.len() == MOST_RANGES || (bytes > most_bytes && !group.is_empty()) {
            break;
        }
        if seen.insert(meta.id) {
            group.push((source.clone(), meta.clone()));
        }
    }
    group
}

/// Bytes of segments that aren't here and could be.
pub(super) fn left_bytes(shared: &Shared) -> u64 {
    let current = shared.current.lock();
    let mut seen = HashSet::new();
    let refs = current.tree.version().refs().map(|(_, _, r)| r.meta()).filter(|meta| seen.insert(meta.id));
    refs.filter(|meta| current.sources.get(&meta.id).is_some_and(|s| s.wants_file()))
        .map(|meta| meta.length_bytes)
        .sum()
}

/// Fetches the next segments that aren't here; false when there are none, or fetching has to stop.
fn fetch_next(shared: &Shared) -> bool {
    let group = next_group(shared);
    shared.meters.restore_left_bytes.set(left_bytes(shared) as f64);
    if group.is_empty() {
        return false;
    }
    let fetched = fetch(shared, &group, &|| shared.is_closed());
    let mut goes_on = true;
    for ((_, meta), outcome) in group.iter().zip(fetched) {
        if let Err(error) = outcome {
            // Reads go on from the store; a segment that is corrupt there says so when it is read. What may
            // pass is tried again at the next checkpoint.
            // Given up because the backend closes, it is no news.
            if error.kind() != ErrorKind::Aborted {
                tracing::warn!(%error, segment = %meta.id, "fetching a restored segment failed");
            }
            shared.hydration_due.store(error.kind() != ErrorKind::Corruption, Ordering::Relaxed);
            goes_on = false;
        }
    }
    goes_on
}
