//! The jobs that a backend hands to workers: flushing, merging, uploading, fetching.
//!
//! Each kind runs at most once at a time for a backend, except uploads. A job that fails leaves everything as it
//! was; flushing is tried again when the owner or a waiter looks in, merging when the tree has changed.

use std::collections::HashSet;
use std::sync::Arc;

use super::background::{Current, FlushRequest, Shared};
use super::checkpoints;
use super::disk::Purpose;
use super::room;
use super::segment_files::SegmentSource;
use super::stored;
use crate::base::ids::{SegmentId, Sequence};
use crate::base::meters;
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
    let must_start = must_start_flush(shared, &mut shared.current.lock());
    if must_start {
        spawn_flush(shared);
    }
}

/// True when the flush job is to be started, by the caller: it counts as running from now on.
pub(super) fn must_start_flush(shared: &Shared, current: &mut Current) -> bool {
    let must = !current.flushing && !current.queue.is_empty() && !shared.is_closed();
    current.flushing |= must;
    must
}

/// Starts the flush job.
pub(super) fn spawn_flush(shared: &Arc<Shared>) {
    let job = shared.clone();
    shared.env.local.spawn(Box::new(move || run_flush(&job)));
}

fn run_flush(shared: &Arc<Shared>) {
    let mut running = Running::new(shared, |current| current.flushing = false);
    let mut flushed = false;
    let failed = loop {
        let request = {
            let mut current = shared.current.lock();
            let front = current.queue.front().cloned();
            match front {
                Some(request) if !shared.is_closed() && shared.poison.get().is_none() => request,
                _ => {
                    // Under the same lock as the look at the queue, or what is queued now would wait for nobody.
                    running.end(&mut current);
                    break None;
                }
            }
        };
        if let Err(error) = flush_one(shared, &request) {
            shared.meters.failed(&meters::FLUSH_FAILURES, error.kind());
            break Some((request, error));
        }
        flushed = true;
        shared.progress.notify_all();
    };
    drop(running);
    if flushed {
        start_compaction(shared);
    }
    if let Some((request, error)) = failed {
        room::flush_failed(shared, &request, error);
    }
}

fn flush_one(shared: &Arc<Shared>, request: &Arc<FlushRequest>) -> Result<()> {
    let _span =
        tracing::debug_span!("flush", operator = shared.identity.operator, subtask = shared.identity.subtask).entered();
    let states = shared.current.lock().states.clone();
    let options = shared.output_options(Place::Newest);
    let metas =
        flush::write_epoch(&request.epoch, states.shapes(), options, &mut NewSegments(shared, Purpose::Flushed))?;
    shared.meters.flushed_bytes.increment(metas.iter().map(|meta| meta.length_bytes).sum());
    let refs = metas.iter().map(|meta| Arc::new(SegmentRef::local(meta.clone()))).collect();
    let sources = open_written(shared, &metas)?;
    let mut tree = shared.install(&Edit::flush(refs), sources, Some(request.epoch.last_sequence()))?;
    {
        let mut current = shared.current.lock();
        current.queue.pop_front();
        current.flush_error = None;
        current.failing_since_ns = None;
        current.room_error = None;
    }
    shared.show();
    if let Some(checkpoint) = request.checkpoint.clone() {
        let flushed_bytes = metas.iter().map(|meta| meta.length_bytes).sum();
        tree = merge_ahead(shared, tree, flushed_bytes);
        shared.meters.flush.record(shared.since(request.frozen_ns));
        let job = shared.clone();
        shared.env.remote.spawn(Box::new(move || checkpoints::run(&job, &checkpoint, &tree)));
    }
    Ok(())
}

/// What merging ahead of a checkpoint may take, in bytes for each byte that was flushed for it, and in bytes.
const MERGED_AHEAD: u64 = 8;
const MERGED_AHEAD_BYTES: u64 = 64 << 20;

/// Makes merges that are due and small before a checkpoint is uploaded: what they drop is never uploaded then. `tree` is
/// the newest, and what comes back holds the same. Segments that were restored are in the store already and can't stand in
/// for what they are merged into, so merging them would cost this checkpoint an upload.
fn merge_ahead(shared: &Arc<Shared>, mut tree: Arc<Tree>, flushed_bytes: u64) -> Arc<Tree> {
    {
        let mut current = shared.current.lock();
        if current.compacting || shared.is_closed() {
            return tree;
        }
        current.compacting = true;
    }
    let _running = Running::new(shared, |current| current.compacting = false);
    let most_bytes = flushed_bytes.saturating_mul(MERGED_AHEAD).min(MERGED_AHEAD_BYTES);
    let mut options = shared.picker_options();
    if options.down_through > 0 {
        // With what is new: this checkpoint is likely to upload the result.
        options.down_through = Sequence::MAX;
    }
    while !shared.is_closed()
        && let Some(plan) = picker::pick(tree.version(), &options, shared.now_ms())
        && plan.input_bytes() <= most_bytes
        && !plan.refs().any(|r| r.name().is_some())
    {
        match compact_one(shared, &tree, &plan) {
            Ok(merged) => tree = merged,
            Err(error) => {
                compaction_failed(shared, &plan, error);
                break;
            }
        }
    }
    tree
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
        let plan = picker::pick(current.tree.version(), &shared.picker_options(), shared.now_ms());
        shared.meters.due(plan.as_ref());
        if plan.is_none() {
            return;
        }
        current.compacting = true;
    }
    let job = shared.clone();
    shared.env.local.spawn(Box::new(move || run_compaction(&job)));
}

/// One plan a job, so that compactions of many backends take turns.
fn run_compaction(shared: &Arc<Shared>) {
    let running = Running::new(shared, |current| current.compacting = false);
    let tree = shared.current.lock().tree.clone();
    let plan = picker::pick(tree.version(), &shared.picker_options(), shared.now_ms());
    let Some(plan) = plan.filter(|_| !shared.is_closed()) else { return };
    let done = compact_one(shared, &tree, &plan);
    drop(running);
    shared.progress.notify_all();
    match done {
        Ok(_) => {
            shared.current.lock().compaction_error = None;
            start_compaction(shared);
            // There may be room now for a flush that had none.
            start_flush(shared);
        }
        Err(error) => compaction_failed(shared, &plan, error),
    }
}

fn compaction_failed(shared: &Arc<Shared>, plan: &Plan, error: Error) {
    if error.kind() != ErrorKind::Aborted {
        tracing::warn!(%error, backend = ?shared, "compaction failed, its inputs are kept");
        shared.meters.failed(&meters::COMPACTION_FAILURES, error.kind());
    }
    shared.poison_if_internal(&error);
    let full = error.kind() == ErrorKind::ResourceExhausted;
    shared.current.lock().compaction_error = Some(error);
    if full {
        room::make_room(shared, plan.input_bytes());
    }
}

fn compact_one(shared: &Arc<Shared>, tree: &Tree, plan: &Plan) -> Result<Arc<Tree>> {
    let bytes = plan.input_bytes();
    let identity = &shared.identity;
    let (operator, subtask, reason) = (&identity.operator, identity.subtask, plan.reason);
    let _span = tracing::debug_span!("compaction", operator, subtask, ?reason, bytes).entered();
    let began_ns = shared.env.clock.monotonic_ns();
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
    let mut outcome =
        executor::run(plan, tree, rules, options, &mut NewSegments(shared, Purpose::Merged), &mut cancelled)?;
    let sources = open_written(shared, &outcome.created)?;
    for addition in &mut outcome.edit.added {
        addition.refs = stored::simplify(shared, &addition.refs);
    }
    let merged = shared.install(&outcome.edit, sources, None)?;
    shared.meters.compaction.record(shared.since(began_ns));
    shared.meters.compacted_bytes.increment(outcome.created.iter().map(|meta| meta.length_bytes).sum());
    shared.show();
    Ok(merged)
}

/// Files for new segments.
struct NewSegments<'a>(&'a Shared, Purpose);

impl Outputs for NewSegments<'_> {
    fn create(&mut self) -> Result<(SegmentId, Box<dyn FileWriter>)> {
        let id = self.0.next_segment_id();
        Ok((id, self.0.files.create(id, self.1)?))
    }

    fn remove(&mut self, id: SegmentId) {
        self.0.files.discard(id);
    }
}

/// Clears a job's flag however the job ends. A job that panicked has left who knows what: the backend is poisoned.
pub(super) struct Running<'a> {
    shared: &'a Shared,
    clear: fn(&mut Current),
    /// False once the flag was cleared by [`Running::end`]: by now it may be another job's.
    armed: bool,
}

impl<'a> Running<'a> {
    pub fn new(shared: &'a Shared, clear: fn(&mut Current)) -> Self {
        Self { shared, clear, armed: true }
    }

    /// Clears the flag here and now, under the lock that the caller holds.
    fn end(&mut self, current: &mut Current) {
        (self.clear)(current);
        self.armed = false;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.poison_if_internal(&Error::internal("a background job panicked"));
        }
        if self.armed {
            (self.clear)(&mut self.shared.current.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::executor::StepExecutor;
    use crate::{Backend, Environment, Operator, Subtask};

    fn backend(directory: &std::path::Path, executor: &Arc<StepExecutor>) -> Backend {
        let env = Environment::builder(directory)
            .memory_bytes(16 << 20)
            .store("memory:///")
            .executors(executor.clone(), executor.clone())
            .open()
            .unwrap();
        env.backend(&Operator::new("op", 16), Subtask { index: 0, parallelism: 1 }, None).unwrap()
    }

    /// A flush job that finds nothing left to do says so under the lock. What is queued between that and the job's end
    /// starts a job of its own, whose flag the ending one must leave alone: a third job would run beside it.
    #[test]
    fn a_flush_job_that_ends_late_does_not_clear_the_flag_of_its_successor() {
        let (directory, executor) = (tempfile::tempdir().unwrap(), Arc::new(StepExecutor::new()));
        let backend = backend(directory.path(), &executor);
        let shared = &backend.shared;
        shared.current.lock().flushing = true;
        let mut ending = Running::new(shared, |current| current.flushing = false);
        ending.end(&mut shared.current.lock());
        assert!(!shared.current.lock().flushing);
        shared.current.lock().flushing = true;
        drop(ending);
        assert!(shared.current.lock().flushing, "the successor's flag");
        drop(Running::new(shared, |current| current.flushing = false));
        assert!(!shared.current.lock().flushing, "a job that ends without a word clears its own");
        executor.clear();
    }

    #[test]
    fn a_job_that_panics_clears_its_flag_and_poisons_the_backend() {
        let (directory, executor) = (tempfile::tempdir().unwrap(), Arc::new(StepExecutor::new()));
        let backend = backend(directory.path(), &executor);
        let shared = &backend.shared;
        shared.current.lock().flushing = true;
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _running = Running::new(shared, |current| current.flushing = false);
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && !shared.current.lock().flushing);
        assert_eq!(shared.check().unwrap_err().kind(), ErrorKind::Poisoned);
        executor.clear();
    }
}
