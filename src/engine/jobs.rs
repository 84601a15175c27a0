//! The jobs that a backend hands to workers: flushing, merging, uploading, fetching.
//!
//! Each kind runs at most once at a time for a backend, except uploads. A job that fails leaves everything as it
//! was; flushing is tried again when the owner or a waiter looks in, merging when the tree has changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::background::{FlushRequest, Shared};
use super::checkpoints;
use super::segment_files::SegmentSource;
use crate::base::ids::SegmentId;
use crate::compaction::executor;
use crate::compaction::picker;
use crate::compaction::plan::{Action, Plan};
use crate::compaction::rewrite::Rules;
use crate::flush;
use crate::io::files::FileWriter;
use crate::read::Tree;
use crate::segment::run_writer::Outputs;
use crate::version::SegmentRef;
use crate::version::segment_meta::SegmentMeta;
use crate::version::{Edit, Place};
use crate::{Error, ErrorKind, Result};

/// Starts the flush job if there is something to flush and none runs.
pub(super) fn start_flush(shared: &Arc<Shared>) {
    {
        let mut current = shared.current.lock();
        if current.flushing || current.queue.is_empty() || shared.is_closed() {
            return;
        }
        current.flushing = true;
    }
    let job = shared.clone();
    shared.env.local.spawn(Box::new(move || run_flush(&job)));
}

fn run_flush(shared: &Arc<Shared>) {
    let reset = Reset { shared, clear: |current| current.flushing = false };
    loop {
        let request = {
            let mut current = shared.current.lock();
            let front = current.queue.front().cloned();
            match front {
                Some(request) if !shared.is_closed() && shared.poison.get().is_none() => request,
                _ => {
                    current.flushing = false;
                    break;
                }
            }
        };
        if let Err(error) = flush_one(shared, &request) {
            tracing::warn!(%error, backend = ?shared, "flush failed, to be tried again");
            shared.poison_if_internal(&error);
            let mut current = shared.current.lock();
            current.flush_error = Some(error);
            current.flushing = false;
            break;
        }
        shared.progress.notify_all();
    }
    drop(reset);
    start_compaction(shared);
}

fn flush_one(shared: &Arc<Shared>, request: &Arc<FlushRequest>) -> Result<()> {
    let states = shared.current.lock().states.clone();
    let options = shared.output_options(Place::Newest);
    let metas = flush::write_epoch(&request.epoch, states.shapes(), options, &mut NewSegments(shared))?;
    let refs = metas.iter().map(|meta| Arc::new(SegmentRef::local(meta.clone()))).collect();
    let sources = open_written(shared, &metas)?;
    let tree = shared.install(&Edit::flush(refs), sources, Some(request.epoch.last_sequence()))?;
    {
        let mut current = shared.current.lock();
        current.queue.pop_front();
        current.flush_error = None;
    }
    if let Some(checkpoint) = request.checkpoint.clone() {
        let job = shared.clone();
        shared.env.remote.spawn(Box::new(move || checkpoints::run(&job, &checkpoint, &tree)));
    }
    Ok(())
}

/// Opens files that were just written; when that fails they go again.
fn open_written(shared: &Shared, metas: &[Arc<SegmentMeta>]) -> Result<Vec<(SegmentId, Arc<SegmentSource>)>> {
    let opened: Result<Vec<_>> = metas.iter().map(|meta| Ok((meta.id, shared.files.local(meta)?))).collect();
    opened.inspect_err(|_| metas.iter().for_each(|meta| shared.files.discard(meta.id)))
}

/// Starts the compaction job unless one runs.
pub(super) fn start_compaction(shared: &Arc<Shared>) {
    {
        let mut current = shared.current.lock();
        if current.compacting || shared.is_closed() || shared.poison.get().is_some() {
            return;
        }
        if picker::pick(current.tree.version(), &shared.picker_options(), shared.now_ms()).is_none() {
            return;
        }
        current.compacting = true;
    }
    let job = shared.clone();
    shared.env.local.spawn(Box::new(move || run_compaction(&job)));
}

/// One plan a job, so that compactions of many backends take turns.
fn run_compaction(shared: &Arc<Shared>) {
    let reset = Reset { shared, clear: |current| current.compacting = false };
    let tree = shared.current.lock().tree.clone();
    let done = match picker::pick(tree.version(), &shared.picker_options(), shared.now_ms()) {
        Some(plan) if !shared.is_closed() => compact_one(shared, &tree, &plan),
        _ => return,
    };
    drop(reset);
    shared.progress.notify_all();
    match done {
        Ok(()) => {
            shared.current.lock().compaction_error = None;
            start_compaction(shared);
        }
        Err(error) => {
            if error.kind() != ErrorKind::Aborted {
                tracing::warn!(%error, backend = ?shared, "compaction failed, its inputs are kept");
            }
            shared.poison_if_internal(&error);
            shared.current.lock().compaction_error = Some(error);
        }
    }
}

fn compact_one(shared: &Arc<Shared>, tree: &Tree, plan: &Plan) -> Result<()> {
    let states = shared.current.lock().states.clone();
    let rules = Rules {
        now_ms: shared.now_ms(),
        operators: states.operators(),
        shapes: states.shapes(),
        dropped: &HashSet::new(),
    };
    let mut cancelled = |_bytes: u64| {
        if shared.is_closed() { Err(Error::new(ErrorKind::Aborted, "the backend was closed")) } else { Ok(()) }
    };
    let place = match plan.action {
        Action::Rewrite(place) | Action::Move(place) => place,
        Action::Drop => Place::Newest,
    };
    let options = shared.output_options(place);
    let outcome = executor::run(plan, tree, rules, options, &mut NewSegments(shared), &mut cancelled)?;
    let sources = open_written(shared, &outcome.created)?;
    shared.install(&outcome.edit, sources, None).map(drop)
}

/// Files for new segments.
struct NewSegments<'a>(&'a Shared);

impl Outputs for NewSegments<'_> {
    fn create(&mut self) -> Result<(SegmentId, Box<dyn FileWriter>)> {
        let id = self.0.next_segment_id();
        Ok((id, self.0.files.create(id)?))
    }

    fn remove(&mut self, id: SegmentId) {
        self.0.files.discard(id);
    }
}

/// Clears a job's flag however the job ends.
struct Reset<'a> {
    shared: &'a Shared,
    clear: fn(&mut super::background::Current),
}

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        (self.clear)(&mut self.shared.current.lock());
    }
}

/// Starts fetching the files of restored segments, one job a segment, so that uploads get their turn.
pub(super) fn start_hydration(shared: &Arc<Shared>) {
    {
        let mut current = shared.current.lock();
        if current.hydrating || shared.is_closed() {
            return;
        }
        current.hydrating = true;
    }
    let job = shared.clone();
    shared.env.remote.spawn(Box::new(move || {
        let reset = Reset { shared: &job, clear: |current| current.hydrating = false };
        let goes_on = hydrate_next(&job);
        drop(reset);
        if goes_on {
            start_hydration(&job);
        }
    }));
}

/// Fetches all of them now.
pub(super) fn hydrate_all(shared: &Arc<Shared>) -> Result<()> {
    while let Some((meta, source)) = next_to_hydrate(shared) {
        shared.files.hydrate(&source, &meta, &|| false)?;
    }
    Ok(())
}

fn next_to_hydrate(shared: &Shared) -> Option<(Arc<SegmentMeta>, Arc<SegmentSource>)> {
    let current = shared.current.lock();
    let version = current.tree.version();
    version.refs().find_map(|(_, _, r)| {
        let source = current.sources.get(&r.meta().id)?;
        (!source.is_local()).then(|| (r.meta().clone(), source.clone()))
    })
}

/// Fetches the next segment that isn't here; false when there is none, or fetching has to stop.
fn hydrate_next(shared: &Shared) -> bool {
    let Some((meta, source)) = next_to_hydrate(shared) else { return false };
    match shared.files.hydrate(&source, &meta, &|| shared.is_closed()) {
        Ok(_) => true,
        Err(error) => {
            // Reads go on from the store; a segment that is corrupt there says so when it is read. What may
            // pass is tried again at the next checkpoint.
            tracing::warn!(%error, segment = %meta.id, "fetching a restored segment failed");
            shared.hydration_due.store(error.kind() != ErrorKind::Corruption, Ordering::Relaxed);
            false
        }
    }
}
