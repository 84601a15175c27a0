//! When local disk is short: making room, and knowing when there won't be any.
//!
//! Files whose segments the store holds are spare and go by themselves ([`super::disk`]). What is left then is state that
//! no checkpoint has made durable yet, and the next checkpoint can't: its own epoch waits for the flush that has no
//! room. So segments go to the store ahead of it. They keep their names, and the checkpoint finds them there.
//!
//! A flush that goes on failing is put up with for as long as a checkpoint may take, and beyond that while the store is
//! merely away. After that nobody is kept waiting any more: whoever waits gets the reason.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::background::{Current, FlushRequest, Shared};
use super::checkpoints::{self, segments_of};
use super::jobs::{self, Running};
use crate::checkpoint::upload::SegmentUpload;
use crate::io::retry::may_pass;
use crate::{Error, ErrorKind, Result};

/// What a flush that failed leaves to be done.
pub(super) fn flush_failed(shared: &Arc<Shared>, request: &FlushRequest, error: Error) {
    if shared.is_closed() {
        // Its folder may be gone by now, or a successor's.
        tracing::debug!(%error, backend = ?shared, "a flush failed after its backend was closed");
        return;
    }
    shared.poison_if_internal(&error);
    if let Err(gone) = shared.files.check_directory() {
        shared.poison(&gone);
    }
    let full = error.kind() == ErrorKind::ResourceExhausted;
    let hopeless = {
        let mut current = shared.current.lock();
        // Once for all that fail in a row: they are tried again at every turn.
        if current.failing_since_ns.is_none() {
            tracing::warn!(%error, backend = ?shared, "flush failed, to be tried again");
        }
        current.flush_error = Some(error);
        current.failing_since_ns.get_or_insert(shared.env.clock.monotonic_ns());
        hopeless(shared, &current)
    };
    if let Some(error) = hopeless {
        fail_waiting(shared, &error);
    }
    if full {
        // Room for the epoch, and for what merging it takes.
        make_room(shared, request.epoch.size_bytes().saturating_mul(2));
    }
}

/// Why there is no use in waiting for a flush any more; `None` while there is.
pub(super) fn hopeless(shared: &Shared, current: &Current) -> Option<Error> {
    let (error, since_ns) = (current.flush_error.as_ref()?, current.failing_since_ns?);
    let waited = Duration::from_nanos(shared.env.clock.monotonic_ns().saturating_sub(since_ns));
    // By then every checkpoint that holds on to a file has been given up.
    let patience = shared.env.checkpoints.timeout;
    let away = current.room_error.as_ref().is_some_and(may_pass);
    if waited < patience || current.making_room || current.compacting || away {
        return None;
    }
    let disk = &shared.env.disk;
    let mut message = match error.kind() {
        ErrorKind::ResourceExhausted => format!(
            "out of local disk: used {} of {} bytes, raise the disk budget (--disk) or free the disk",
            disk.used_bytes(),
            disk.limit_bytes()
        ),
        _ => "local disk can't be written".to_owned(),
    };
    message += &format!("; {shared:?} couldn't flush for {} s: {error}", waited.as_secs());
    if let Some(refused) = &current.room_error {
        message += &format!("; the store takes nothing either: {refused}");
    }
    let kind = if error.kind() == ErrorKind::ResourceExhausted { error.kind() } else { ErrorKind::Io };
    Some(Error::with_source(kind, message, error.clone()))
}

/// Fails the checkpoints whose epochs can't be flushed. The epochs stay.
fn fail_waiting(shared: &Shared, error: &Error) {
    let waiting: Vec<_> = {
        let mut current = shared.current.lock();
        let waiting: Vec<_> = current.queue.iter().filter_map(|request| request.checkpoint.clone()).collect();
        waiting.iter().for_each(|checkpoint| drop(current.checkpoints.remove(&checkpoint.id.id)));
        waiting
    };
    for checkpoint in waiting {
        checkpoint.cancel.cancel();
        checkpoint.sender.complete(Err(error.clone().context(format!("checkpoint {}", checkpoint.id))));
    }
    shared.progress.notify_all();
}

/// Starts making room for `wanted` bytes unless that is being done.
pub(super) fn make_room(shared: &Arc<Shared>, wanted: u64) {
    {
        let mut current = shared.current.lock();
        if current.making_room || shared.is_closed() || shared.poison.get().is_some() {
            return;
        }
        current.making_room = true;
    }
    let job = shared.clone();
    shared.env.remote.spawn(Box::new(move || {
        let running = Running::new(&job, |current| current.making_room = false);
        let dropped = job.drop_stand_ins().unwrap_or_else(|error| {
            job.poison_if_internal(&error);
            false
        });
        let stored = store_segments(&job, wanted);
        let released = job.env.disk.release_spares(wanted) || dropped;
        let any = released || stored.as_ref().is_ok_and(|any| *any);
        let failed = stored.err();
        let before = std::mem::replace(&mut job.current.lock().room_error, failed.clone());
        if let (Some(error), None) = (failed, before) {
            tracing::warn!(%error, backend = ?job, "no room can be made by storing segments ahead of their checkpoint");
        }
        drop(running);
        if any {
            jobs::start_flush(&job);
            jobs::start_compaction(&job);
        }
        job.progress.notify_all();
    }));
}

/// Stores segments of the tree that the store doesn't have, until their bytes come to `wanted`. False when there are none.
fn store_segments(shared: &Shared, wanted: u64) -> Result<bool> {
    let tree = shared.current.lock().tree.clone();
    let mut stored = 0;
    let sources: HashMap<_, _> = shared.current.lock().sources.clone();
    for segment in segments_of(&tree)? {
        if stored >= wanted || shared.is_closed() {
            break;
        }
        if sources.get(&segment.meta.id).is_some_and(|source| !source.is_durable()) {
            checkpoints::ensure_durable(shared, 0, &segment, &shared.closing)?;
            stored += segment.meta.length_bytes;
        }
    }
    Ok(stored > 0)
}

/// Stops the backend when a segment that only this machine has can't be read any more: no checkpoint could ever be
/// complete again. One that a merge has replaced meanwhile is no loss.
pub(super) fn poison_if_lost(shared: &Shared, segment: &SegmentUpload, error: &Error) {
    if !matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound) {
        return;
    }
    let only_here = {
        let current = shared.current.lock();
        // Those that merely stand in for others are no loss either.
        let needed = current.tree.segment(segment.meta.id).is_some();
        needed && current.sources.get(&segment.meta.id).is_some_and(|source| !source.is_durable())
    };
    if only_here && let Err(bad) = super::segment_files::verify(&*segment.source, &segment.meta) {
        shared.poison(&shared.files.check_directory().err().unwrap_or(bad));
    }
}
