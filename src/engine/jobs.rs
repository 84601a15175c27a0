//! The jobs that a backend hands to workers: flushing, merging, uploading, fetching.
//!
//! Each kind runs at most once at a time for a backend, except uploads. A job that fails leaves everything as it
//! was; flushing is tried again when the owner or a waiter looks in, merging when the tree has changed.

use std::sync::Arc;

use super::background::{FlushRequest, Shared};
use super::checkpoints;
use super::segment_files::SegmentSource;
use crate::base::descriptor::Layout;
use crate::base::ids::SegmentId;
use crate::base::key;
use crate::compaction::{self, picker};
use crate::flush;
use crate::version::edit::Edit;
use crate::version::segment_meta::SegmentMeta;
use crate::version::segment_ref::SegmentRef;
use crate::{ErrorKind, Result};

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
    let mut metas = Vec::new();
    let written = write_epoch(shared, request, &mut metas).and_then(|()| open_written(shared, &metas));
    let (refs, sources) = written.inspect_err(|_| metas.iter().for_each(|meta| shared.files.discard(meta)))?;
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

fn write_epoch(shared: &Shared, request: &FlushRequest, finished: &mut Vec<Arc<SegmentMeta>>) -> Result<()> {
    let states = shared.current.lock().states.clone();
    let prefix_len = |encoded: &[u8]| prefix_len_of(&states, encoded);
    let tuning = &shared.env.tuning;
    let options = flush::Options { segment_bytes: tuning.segment_bytes, block_bytes: tuning.block_bytes };
    let mut new_file = || {
        let id = shared.next_segment_id();
        Ok((id, shared.files.create(id)?))
    };
    flush::write_epoch(&request.epoch, &prefix_len, &options, &mut new_file, finished)
}

/// Length of the group prefix of an encoded key of a grouped state; `None` for single values.
pub(super) fn prefix_len_of(states: &super::states::StateTable, encoded: &[u8]) -> Result<Option<usize>> {
    let (_, id, _) = key::split_header(encoded)?;
    match states.by_id(id) {
        Some(d) if d.layout == Layout::Grouped => key::prefix_len(encoded, d.shape).map(Some),
        Some(_) => Ok(None),
        None => Err(crate::Error::internal(format!("a record of state {:08x}, which isn't registered", id.0))),
    }
}

type Opened = (Vec<Arc<SegmentRef>>, Vec<(SegmentId, Arc<SegmentSource>)>);

fn open_written(shared: &Shared, metas: &[Arc<SegmentMeta>]) -> Result<Opened> {
    let mut sources = Vec::with_capacity(metas.len());
    for meta in metas {
        sources.push((meta.id, shared.files.local(meta)?));
    }
    Ok((metas.iter().map(|meta| Arc::new(SegmentRef::local(meta.clone()))).collect(), sources))
}

/// Starts the compaction job unless one runs.
pub(super) fn start_compaction(shared: &Arc<Shared>) {
    {
        let mut current = shared.current.lock();
        if current.compacting || shared.is_closed() || shared.poison.get().is_some() {
            return;
        }
        if picker::pick(current.tree.version(), &shared.picker_options()).is_none() {
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
    let done = match picker::pick(tree.version(), &shared.picker_options()) {
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

fn compact_one(shared: &Arc<Shared>, tree: &crate::read::tree::Tree, plan: &picker::Plan) -> Result<()> {
    let states = shared.current.lock().states.clone();
    let outcome = compaction::executor::run(/* see executor */ shared, tree, plan, &states)?;
    let _ = outcome;
    Ok(())
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
    let job = shared.clone();
    shared.env.remote.spawn(Box::new(move || {
        if hydrate_next(&job) {
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
            // Reads go on from the store; a segment that is corrupt there says so when it is read.
            tracing::warn!(%error, segment = %meta.id, "fetching a restored segment failed");
            false
        }
    }
}
