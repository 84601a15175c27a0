//! What a backend and its workers share, and the rule by which trees follow one another.
//!
//! The owner queues frozen epochs; one flush job a backend takes them in order, so the tree right after an
//! epoch's flush holds exactly what was written up to its freeze. Compaction edits come between. The owner sees
//! a new tree when it polls, and only then does its memtable treat the flushed epochs as clean.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::checkpoints::PendingCheckpoint;
use super::environment::Inner;
use super::meters::BackendMeters;
use super::segment_files::{SegmentFiles, SegmentSource};
use super::states::StateTable;
use crate::base::checksum;
use crate::base::compression::Compression;
use crate::base::ids::{CheckpointId, SegmentId, Sequence, WriterEpoch};
use crate::base::key_group::KeyGroupRange;
use crate::checkpoint::upload::{Uploader, Uploads};
use crate::compaction::picker;
use crate::io::retry::Cancel;
use crate::memtable::SealedEpoch;
use crate::read::Tree;
use crate::segment::builder::SegmentOptions;
use crate::segment::reader::Segment;
use crate::segment::run_writer::OutputOptions;
use crate::version::{Edit, Place, SegmentRef, Version};
use crate::{Error, ErrorKind, Result};

/// Part of the block cache that the filters of one edit's segments may take: one in so many.
const WARM_PART: u64 = 8;

/// Who a backend is.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub operator: String,
    pub subtask: u32,
    pub parallelism: u32,
    pub max_parallelism: u32,
    pub groups: KeyGroupRange,
    pub epoch: WriterEpoch,
    pub parents: Vec<CheckpointId>,
}

/// A frozen epoch on its way into the tree, and the checkpoint that was made by freezing it.
pub(super) struct FlushRequest {
    pub epoch: Arc<SealedEpoch>,
    /// When it was frozen, on the clock's monotonic time.
    pub frozen_ns: u64,
    /// Behind its own `Arc`, so that an upload that hangs doesn't hold the epoch in memory.
    pub checkpoint: Option<Arc<PendingCheckpoint>>,
}

/// What changes hands under the lock; never held across I/O.
pub(super) struct Current {
    pub tree: Arc<Tree>,
    /// Greatest sequence that the tree holds all of.
    pub flushed_through: Sequence,
    pub queue: VecDeque<Arc<FlushRequest>>,
    pub flushing: bool,
    pub compacting: bool,
    pub hydrating: bool,
    pub states: Arc<StateTable>,
    /// Of the tree's segments, and of those that may stand in for some of them and aren't stored yet.
    pub sources: HashMap<SegmentId, Arc<SegmentSource>>,
    /// Why the last flush failed; it is tried again.
    pub flush_error: Option<Error>,
    /// When the first of the flushes failed that have failed since one succeeded, on the clock's monotonic time.
    pub failing_since_ns: Option<u64>,
    /// Room is being made: segments go to the store ahead of their checkpoint.
    pub making_room: bool,
    /// Why the last attempt at that failed.
    pub room_error: Option<Error>,
    /// Why the last compaction failed; it is tried again once the tree has changed.
    pub compaction_error: Option<Error>,
    /// Checkpoints that are being made.
    pub checkpoints: BTreeMap<u64, Arc<PendingCheckpoint>>,
}

impl Current {
    /// Before a tree is attached: nothing is on its way, and records from `next_sequence` on are to come.
    pub fn before(
        next_sequence: Sequence,
        states: Arc<StateTable>,
        sources: HashMap<SegmentId, Arc<SegmentSource>>,
    ) -> Self {
        Self {
            tree: Arc::new(Tree::default()),
            flushed_through: next_sequence - 1,
            queue: VecDeque::new(),
            flushing: false,
            compacting: false,
            hydrating: false,
            states,
            sources,
            flush_error: None,
            failing_since_ns: None,
            making_room: false,
            room_error: None,
            compaction_error: None,
            checkpoints: BTreeMap::new(),
        }
    }
}

/// What a backend and its workers share.
pub(super) struct Shared {
    pub env: Arc<Inner>,
    pub identity: Identity,
    pub meters: BackendMeters,
    pub files: SegmentFiles,
    pub uploads: Uploads,
    pub uploader: Arc<dyn Uploader>,
    pub current: Mutex<Current>,
    /// Held by a worker from reading the tree to replacing it.
    edits: Mutex<()>,
    /// Grows with each new tree, so that the owner can tell without the lock.
    pub changes: AtomicU64,
    /// Signalled whenever background work got somewhere.
    pub progress: Condvar,
    /// The greatest time that anything was judged expired by.
    pub time_high_water_ms: AtomicI64,
    pub poison: OnceLock<Error>,
    pub closed: AtomicBool,
    /// Cancelled when the backend is closed.
    pub closing: Cancel,
    /// The greatest sequence of the tree that the newest checkpoint found the store nearly full of, 0 when it isn't.
    pub nearly_full_of: AtomicU64,
    /// Fetching restored segments stopped at an error, to be gone on with.
    pub hydration_due: AtomicBool,
    /// Segments get ids from it. Random, and of this writer alone: ids are unique over a lineage.
    attempt: u64,
    segments_made: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "backend `{}` subtask {}", self.identity.operator, self.identity.subtask)
    }
}

impl Shared {
    pub fn new(
        env: Arc<Inner>,
        identity: Identity,
        files: SegmentFiles,
        uploader: Arc<dyn Uploader>,
        current: Current,
        time_high_water_ms: i64,
    ) -> Self {
        let writer = format!("{} {} {}", identity.epoch, identity.subtask, identity.operator);
        let attempt = checksum::hash64_seeded(writer.as_bytes(), env.random.next_u64());
        Self {
            env,
            meters: BackendMeters::new(&identity),
            identity,
            files,
            uploads: Uploads::default(),
            uploader,
            current: Mutex::new(current),
            edits: Mutex::new(()),
            changes: AtomicU64::new(1),
            progress: Condvar::new(),
            time_high_water_ms: AtomicI64::new(time_high_water_ms),
            poison: OnceLock::new(),
            closed: AtomicBool::new(false),
            closing: Cancel::new(),
            nearly_full_of: AtomicU64::new(0),
            hydration_due: AtomicBool::new(false),
            attempt,
            segments_made: AtomicU64::new(0),
        }
    }

    /// The time to judge expiry by: the clock, but never earlier than any time used before, so that what once
    /// was expired stays so.
    pub fn now_ms(&self) -> i64 {
        let now = self.env.clock.now_ms();
        let highest = self.time_high_water_ms.load(Ordering::Relaxed);
        if now <= highest {
            return highest;
        }
        self.time_high_water_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    pub fn next_segment_id(&self) -> SegmentId {
        let number = self.segments_made.fetch_add(1, Ordering::Relaxed);
        SegmentId(checksum::hash64_seeded(&number.to_le_bytes(), self.attempt))
    }

    /// The error that stopped the backend, once there is one.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(error) => Err(self.stopped(error)),
        }
    }

    #[cold]
    fn stopped(&self, error: &Error) -> Error {
        Error::with_source(ErrorKind::Poisoned, format!("{self:?} stopped after: {error}"), error.clone())
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The store holds a segment as `name`: its file can be done without.
    pub fn note_durable(&self, segment: SegmentId, name: &str) {
        let source = self.current.lock().sources.get(&segment).cloned();
        if let Some(source) = source {
            self.files.note_durable(&source, name);
        }
    }

    /// Stops the backend when `error` means that its own state can no longer be trusted.
    pub fn poison_if_internal(&self, error: &Error) {
        if error.kind() == ErrorKind::Internal {
            self.poison(error);
        }
    }

    /// Stops the backend for good, because of `error`, and fails the checkpoints that wait for it.
    pub fn poison(&self, error: &Error) {
        if self.poison.set(error.clone()).is_err() {
            return;
        }
        tracing::error!(%error, backend = ?self, "backend poisoned");
        let waiting = std::mem::take(&mut self.current.lock().queue);
        for checkpoint in waiting.iter().filter_map(|request| request.checkpoint.as_ref()) {
            if let Err(poisoned) = self.check() {
                checkpoint.sender.complete(Err(poisoned));
            }
        }
    }

    /// Applies `edit`, whose new segments are in `sources`. The tree that results is handed back, and to the
    /// owner at its next poll; `flushed_through` moves on when the edit is a flush's.
    pub fn install(
        &self,
        edit: &Edit,
        sources: Vec<(SegmentId, Arc<SegmentSource>)>,
        flushed_through: Option<Sequence>,
    ) -> Result<Arc<Tree>> {
        // Edits take turns here, so that the lock which the owner takes too is only held to swap pointers.
        let _turn = self.edits.lock();
        let previous = self.current.lock().tree.clone();
        let version = previous.version().apply(edit)?;
        self.replace(&previous, version, sources.into_iter().collect(), flushed_through)
    }

    /// Gives up stand-ins that aren't stored: their files make room, and what they stood in for has to be uploaded itself.
    /// True when there were any.
    pub fn drop_stand_ins(&self) -> Result<bool> {
        let _turn = self.edits.lock();
        let previous = self.current.lock().tree.clone();
        let names = self.uploads.names_for(0);
        let stored = |r: &SegmentRef| matches!(names.get(&r.meta().id), Some(Some(_)));
        let version = previous.version().without_stand_ins(&|r| !stored(r))?;
        if version == *previous.version() {
            return Ok(false);
        }
        self.replace(&previous, version, HashMap::new(), None).map(|_| true)
    }

    /// Puts `version` in the place of `previous`. Called by who holds the turn. Of what the tree refers to no more, stand-ins
    /// that aren't stored yet are kept.
    fn replace(
        &self,
        previous: &Tree,
        version: Version,
        new: HashMap<SegmentId, Arc<SegmentSource>>,
        flushed_through: Option<Sequence>,
    ) -> Result<Arc<Tree>> {
        let tree = Arc::new(self.build_tree(version, previous, &new)?);
        self.warm(&tree, new.keys());
        let names = self.uploads.names_for(0);
        let mut live = HashSet::new();
        tree.version().visit(&mut |r| {
            let id = r.meta().id;
            let stored = matches!(names.get(&id), Some(Some(_)));
            if tree.segment(id).is_some() || !stored {
                live.insert(id);
            }
            !stored
        });
        let mut dead = HashSet::new();
        previous.version().visit(&mut |r| {
            dead.extend(Some(r.meta().id).filter(|id| !live.contains(id)));
            true
        });
        let gone: Vec<_> = {
            let mut current = self.current.lock();
            current.sources.extend(new);
            current.tree = tree.clone();
            if let Some(sequence) = flushed_through {
                current.flushed_through = sequence;
            }
            dead.iter().filter_map(|id| current.sources.remove(id)).collect()
        };
        self.changes.fetch_add(1, Ordering::Release);
        gone.iter().for_each(|source| source.mark_obsolete());
        Ok(tree)
    }

    /// Brings the filters of new segments into memory before anybody reads from them: puts ask them what can't be below,
    /// and never wait for I/O to learn it. What can't be read will be missed when it is needed.
    fn warm<'a>(&self, tree: &Tree, new: impl Iterator<Item = &'a SegmentId>) {
        let mut left = self.env.cache.capacity_bytes() / WARM_PART;
        for segment in new.filter_map(|id| tree.segment(*id)) {
            left = left.saturating_sub(segment.warm(left).unwrap_or(0));
        }
    }

    /// The tree of `version`, its segments taken from `previous` or opened.
    pub fn build_tree(
        &self,
        version: Version,
        previous: &Tree,
        sources: &HashMap<SegmentId, Arc<SegmentSource>>,
    ) -> Result<Tree> {
        Tree::new(version, previous, |r| {
            let meta = r.meta();
            let source = sources
                .get(&meta.id)
                .ok_or_else(|| Error::internal(format!("segment {} of the tree has no source", meta.id)))?;
            Ok(Segment::open((**meta).clone(), source.clone(), self.env.cache.clone()))
        })
    }

    pub fn picker_options(&self) -> picker::Options {
        let tuning = &self.env.tuning;
        picker::Options {
            base_bytes: tuning.level_base_bytes,
            level0_runs: tuning.level_zero_runs,
            down_through: self.nearly_full_of.load(Ordering::Relaxed),
            ..picker::Options::default()
        }
    }

    /// How new segments of a place are written: raw in level 0, where they are merged again soon.
    pub fn output_options(&self, place: Place) -> OutputOptions {
        let tuning = &self.env.tuning;
        let compression = match place {
            Place::Level(_) => tuning.compression,
            Place::Newest | Place::Replaced => Compression::None,
        };
        let segment = SegmentOptions { block_bytes: tuning.block_bytes, compression, sync: false };
        OutputOptions { target_bytes: tuning.segment_bytes, segment }
    }

    /// Waits until `done`, looking whenever background work got somewhere. False at the deadline.
    pub fn wait_until(&self, deadline: Duration, done: impl Fn(&Current) -> bool) -> bool {
        let mut current = self.current.lock();
        !self.progress.wait_while_for(&mut current, |current| !done(current), deadline).timed_out()
    }
}
