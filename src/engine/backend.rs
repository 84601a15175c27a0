//! The backend: one per operator subtask, owned by the thread that processes its records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::background::{FlushRequest, Shared};
use super::checkpoints::PendingCheckpoint;
use super::current_key::CurrentKey;
use super::environment::{Inner, OpenSubtask};
use super::hydration;
use super::jobs;
use super::pressure::{Pressure, pressure};
use super::room;
use super::states::{RawState, StateTable};
use crate::base::descriptor::StateDescriptor;
use crate::base::ids::{CheckpointId, WriterEpoch};
use crate::base::key_group::{KeyGroup, KeyGroupRange, key_group_of};
use crate::base::limits::{MAX_METADATA_BYTES, max_value_bytes};
use crate::base::merge_operator::MergeOperator;
use crate::checkpoint::ticket::{Ticket, TicketSender};
use crate::io::retry::Cancel;
use crate::manifest::CheckpointKind;
use crate::memtable::Memtable;
use crate::read::Resolver;
use crate::read::Tree;
use crate::{Error, ErrorKind, Result};

/// Bytes of clean records gone through in one step: three times what is written between steps, since not all of them
/// go.
const EVICT_STEP_BYTES: u64 = 48 << 10;

/// Bytes of clean records gone through when a checkpoint is confirmed or aborted.
const GIVE_BACK_BYTES: u64 = 1 << 20;

/// A part of the checkpoint that a backend was restored from: one old subtask whose key groups overlap ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredPart {
    pub(super) subtask: u32,
    pub(super) parallelism: u32,
    pub(super) groups: KeyGroupRange,
    pub(super) metadata: Bytes,
}

impl RestoredPart {
    /// Index of the old subtask.
    #[must_use]
    pub fn subtask(&self) -> u32 {
        self.subtask
    }

    /// Subtasks there were.
    #[must_use]
    pub fn parallelism(&self) -> u32 {
        self.parallelism
    }

    /// Key groups the old subtask had, ours or not.
    #[must_use]
    pub fn groups(&self) -> KeyGroupRange {
        self.groups
    }

    /// What the caller gave to [`Backend::checkpoint`] there.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }
}

/// Keyed state of one operator subtask.
///
/// `Send`, not `Sync`: it belongs to the thread that processes records, and no call waits for storage, except reads of
/// what isn't in memory. Reads of memory and writes take no lock, but for a write that fills a page: it looks in on the
/// workers, under a lock that is held to swap pointers. So do `checkpoint` and its kin. Dropping it in any state is fine: background work ends by itself, and what no
/// completed checkpoint holds is lost, as it would be in a crash.
pub struct Backend {
    pub(super) shared: Arc<Shared>,
    pub(super) memtable: Memtable,
    pub(super) tree: Arc<Tree>,
    pub(super) states: Arc<StateTable>,
    pub(super) resolver: Resolver,
    /// Key groups of the backend, at hand for every call.
    pub(super) groups: KeyGroupRange,
    pub(super) key: CurrentKey,
    /// Value folded or read by the call that runs.
    pub(super) value: Vec<u8>,
    pub(super) pressure: Pressure,
    /// The writes that come were admitted together: see [`Backend::admitted`].
    pub(super) promised: bool,
    /// Memory over the share as of the last look, less what was evicted since.
    over_share_bytes: u64,
    /// Pages that had been taken at the last look.
    maintained_pages: u64,
    seen_changes: u64,
    last_checkpoint: u64,
    restored: Vec<RestoredPart>,
    max_value_bytes: usize,
    _open: OpenSubtask,
    max_parallelism: u32,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.shared, f)
    }
}

impl Backend {
    pub(super) fn new(
        shared: Arc<Shared>,
        open: OpenSubtask,
        memtable: Memtable,
        states: Arc<StateTable>,
        restored: Vec<RestoredPart>,
    ) -> Self {
        let tree = shared.current.lock().tree.clone();
        let resolver = Resolver { now_ms: i64::MIN, operators: Arc::new(states.operators().clone()) };
        let max_value_bytes = max_value_bytes(shared.env.memory.total_bytes);
        let (groups, max_parallelism) = (shared.identity.groups, shared.identity.max_parallelism);
        Self {
            shared,
            memtable,
            tree,
            states,
            resolver,
            groups,
            max_parallelism,
            key: CurrentKey::new(),
            value: Vec::new(),
            pressure: Pressure::None,
            promised: false,
            over_share_bytes: 0,
            maintained_pages: 0,
            seen_changes: 1,
            last_checkpoint: 0,
            restored,
            max_value_bytes,
            _open: open,
        }
    }

    pub(super) fn env(&self) -> &Inner {
        &self.shared.env
    }

    /// Registers a raw state, or finds it again; the typed layer does this for its users.
    ///
    /// # Errors
    /// `InvalidArgument` naming both when the state exists with another kind, layout, codec or operator, or when
    /// two names have one id.
    pub fn register(
        &mut self,
        descriptor: StateDescriptor,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Result<RawState> {
        let mut states = (*self.states).clone();
        let state = states.register(descriptor, operator)?;
        self.resolver.operators = Arc::new(states.operators().clone());
        self.states = Arc::new(states);
        self.shared.current.lock().states = self.states.clone();
        Ok(state)
    }

    /// Key groups that this backend has.
    #[inline]
    #[must_use]
    pub fn key_groups(&self) -> KeyGroupRange {
        self.groups
    }

    /// Number of key groups of the operator.
    #[inline]
    #[must_use]
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// Epoch of the claim it writes under.
    #[must_use]
    pub fn writer_epoch(&self) -> WriterEpoch {
        self.shared.identity.epoch
    }

    /// Key group of an encoded key.
    #[inline]
    #[must_use]
    pub fn key_group_of(&self, encoded_key: &[u8]) -> KeyGroup {
        key_group_of(encoded_key, self.max_parallelism())
    }

    /// Largest value that may be stored, in bytes.
    #[inline]
    #[must_use]
    pub fn max_value_bytes(&self) -> usize {
        self.max_value_bytes
    }

    /// Sequence of records written now. It grows at every checkpoint and whenever a cursor or view is opened.
    #[must_use]
    pub fn current_sequence(&self) -> u64 {
        self.memtable.current_sequence()
    }

    /// The time that expiry is judged by, wall milliseconds: the clock, but never earlier than before.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.shared.now_ms()
    }

    /// The parts that this backend was restored from, by old subtask; empty for a new one.
    #[must_use]
    pub fn restored_parts(&self) -> &[RestoredPart] {
        &self.restored
    }

    /// Starts checkpoint `id`. The owner's part is O(1): the memtable is sealed and queued. Flush, upload and commit
    /// happen on workers; `metadata` comes back at a restore. Always admitted, however far storage is behind.
    ///
    /// # Errors
    /// `AlreadyExists` for an id that isn't greater than the last one of this writer epoch; `InvalidArgument` for
    /// metadata over the limit; `Unsupported` for savepoints.
    pub fn checkpoint(&mut self, id: u64, kind: CheckpointKind, metadata: impl AsRef<[u8]>) -> Result<Ticket> {
        self.shared.check()?;
        let began_ns = self.env().clock.monotonic_ns();
        let metadata = metadata.as_ref();
        if kind == CheckpointKind::Savepoint {
            return Err(Error::new(ErrorKind::Unsupported, "savepoints are not built yet"));
        }
        if metadata.len() > MAX_METADATA_BYTES {
            return Err(Error::invalid(format!(
                "metadata of {} bytes is over the limit of {MAX_METADATA_BYTES}",
                metadata.len()
            )));
        }
        if id <= self.last_checkpoint {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("checkpoint {id} isn't greater than {}, the last one of this writer", self.last_checkpoint),
            ));
        }
        self.last_checkpoint = id;
        let id = CheckpointId { epoch: self.writer_epoch(), id };
        let (sender, ticket) = TicketSender::new(id);
        let pending = Arc::new(PendingCheckpoint {
            id,
            kind,
            metadata: Bytes::copy_from_slice(metadata),
            states: self.states.clone(),
            next_sequence: self.memtable.current_sequence() + 1,
            created_ms: self.shared.now_ms(),
            cancel: Cancel::new(),
            sender,
        });
        self.freeze(Some(pending));
        if self.shared.hydration_due.swap(false, Ordering::Relaxed) {
            hydration::start(&self.shared);
        }
        self.shared.meters.sync.record(self.shared.since(began_ns));
        Ok(ticket)
    }

    /// Takes down how long the host waited for a barrier on all inputs of this subtask, for metrics: only the host knows.
    pub fn report_alignment(&self, waited: Duration) {
        self.shared.meters.alignment.record(waited);
    }

    /// Takes note that checkpoint `id` is complete. Late, repeated or unknown ones are no error, and one that never
    /// comes does no harm: what a checkpoint made durable may be built on at once, since the log keeps the objects
    /// of pending checkpoints.
    ///
    /// # Errors
    /// Why the backend was stopped, if it was.
    pub fn confirm(&mut self, id: u64) -> Result<()> {
        tracing::debug!(id, backend = ?self.shared, "checkpoint confirmed");
        self.give_back()
    }

    /// Gives up checkpoint `id`: its ticket ends at once, its upload as soon as the store lets go of it. Its state
    /// stays, and what it made durable serves the next one. Late, repeated or unknown ones are no error.
    ///
    /// # Errors
    /// Why the backend was stopped, if it was.
    pub fn abort(&mut self, id: u64) -> Result<()> {
        self.shared.check()?;
        let given_up = self.shared.current.lock().checkpoints.remove(&id);
        if let Some(checkpoint) = given_up {
            checkpoint.give_up(ErrorKind::Aborted, "was aborted");
        }
        self.give_back()
    }

    /// Looks after memory as writes do, for owners that write little: what is over the backend's share, since others were
    /// opened after it was taken, goes back a part at each checkpoint.
    fn give_back(&mut self) -> Result<()> {
        self.maintain()?;
        let over = self.over_share_bytes.saturating_add(self.memtable.stats().pooled_bytes);
        if self.over_share_bytes > 0 || over > self.env().memtable_share_bytes() {
            self.over_share_bytes -= self.memtable.evict_step(over.min(GIVE_BACK_BYTES)).min(self.over_share_bytes);
            self.memtable.release_pool();
            self.drop_trash();
        }
        Ok(())
    }

    /// Seals the memtable and queues it for flushing.
    pub(super) fn freeze(&mut self, checkpoint: Option<Arc<PendingCheckpoint>>) {
        let begun = checkpoint.clone().map(|checkpoint| (checkpoint.id.id, checkpoint));
        let frozen_ns = self.env().clock.monotonic_ns();
        let request = Arc::new(FlushRequest { epoch: self.memtable.freeze(), frozen_ns, checkpoint });
        let must_start = {
            let mut current = self.shared.current.lock();
            current.checkpoints.extend(begun);
            current.queue.push_back(request);
            jobs::must_start_flush(&self.shared, &mut current)
        };
        if must_start {
            jobs::spawn_flush(&self.shared);
        }
    }

    /// Takes in what background work has finished, a newer tree and with it clean memory, and has a flush that failed
    /// tried again. Writes do this by themselves; a host that only reads may call it now and then.
    ///
    /// # Errors
    /// Why the backend was stopped, if it was.
    pub fn poll(&mut self) -> Result<()> {
        self.shared.check()?;
        let changes = self.shared.changes.load(Ordering::Acquire);
        if changes != self.seen_changes {
            self.seen_changes = changes;
            let flushed_through = {
                let current = self.shared.current.lock();
                let superseded = std::mem::replace(&mut self.tree, current.tree.clone());
                let flushed_through = current.flushed_through;
                drop(current);
                // Its last holder closes and deletes files, which isn't the owner's work.
                self.env().local.spawn(Box::new(move || drop(superseded)));
                flushed_through
            };
            self.memtable.adopt(flushed_through);
        }
        // Who holds the lock is at it, and the next look comes soon.
        let must_start = self
            .shared
            .current
            .try_lock()
            .is_some_and(|mut current| jobs::must_start_flush(&self.shared, &mut current));
        if must_start {
            jobs::spawn_flush(&self.shared);
        }
        self.drop_trash();
        Ok(())
    }

    /// What is done every 16 KiB of writes: evicting, a little at a time so that no write waits for much of it, and
    /// with every page what [`Backend::maintain`] does.
    #[cold]
    pub(super) fn tick(&mut self) -> Result<()> {
        let pages = self.memtable.pages_taken();
        if pages != self.maintained_pages {
            self.maintained_pages = pages;
            self.maintain()?;
            if self.env().slabs.wants_slab() {
                let slabs = self.env().slabs.clone();
                self.env().local.spawn(Box::new(move || slabs.make_ready()));
            }
        }
        if self.over_share_bytes > 0 {
            let evicted = self.memtable.evict_step(self.over_share_bytes.min(EVICT_STEP_BYTES));
            self.over_share_bytes = if evicted > 0 { self.over_share_bytes.saturating_sub(evicted) } else { 0 };
            self.drop_trash();
        }
        Ok(())
    }

    /// What is looked at when a page fills: finished work, a large epoch, memory over its share, pressure.
    pub(super) fn maintain(&mut self) -> Result<()> {
        self.poll()?;
        if self.memtable.dirty_bytes() >= self.env().tuning.epoch_bytes.min(self.env().memtable_share_bytes() / 4) {
            self.freeze(None);
        }
        let share = self.env().memtable_share_bytes();
        let stats = self.memtable.stats();
        let used = stats.dirty_bytes + stats.sealed_unflushed_bytes + stats.clean_bytes + stats.index_bytes;
        self.over_share_bytes = used.saturating_sub(share);
        self.pressure = pressure(stats.sealed_unflushed_bytes, share);
        Ok(())
    }

    /// Hands what has to be dropped to a worker: freeing hundreds of megabytes takes milliseconds.
    pub(super) fn drop_trash(&mut self) {
        let trash = self.memtable.take_trash();
        if !trash.is_empty() {
            self.env().local.spawn(Box::new(move || drop(trash)));
        }
    }

    /// Makes a write bear the pressure there is: nothing, a pause of at most a millisecond, or a refusal.
    #[cold]
    pub(super) fn bear_pressure(&mut self) -> Result<()> {
        if self.promised {
            return Ok(());
        }
        self.maintain()?;
        match self.pressure {
            Pressure::None => Ok(()),
            Pressure::Delay(delay) => {
                self.env().clock.sleep(delay);
                self.shared.meters.delay.record(delay);
                Ok(())
            }
            Pressure::Full => Err(self.refusal()),
        }
    }

    /// Why memory, being full, can't take a write: backpressure, or what has kept it from being flushed for too long.
    #[cold]
    pub(super) fn refusal(&self) -> Error {
        self.shared.meters.refusals.increment(1);
        let current = self.shared.current.lock();
        if let Some(error) = room::hopeless(&self.shared, &current) {
            return error;
        }
        let waiting = current.queue.len();
        let why = match &current.flush_error {
            None => format!("memory is full of {waiting} epochs that wait for flushing"),
            Some(error) => format!("memory is full of {waiting} epochs; the last flush failed: {error}"),
        };
        Error::new(ErrorKind::Backpressure, format!("{:?}: {why}", self.shared))
    }

    /// Ends orderly: lets queued flushes and uploads end, at most until `deadline`, then stops. State that no
    /// completed checkpoint holds is not kept.
    ///
    /// # Errors
    /// `Timeout` when background work was still running; the backend is closed all the same.
    pub fn close(self, deadline: Duration) -> Result<()> {
        jobs::start_flush(&self.shared);
        let idle = self
            .shared
            .wait_until(deadline, |c| c.queue.is_empty() && c.checkpoints.is_empty() && !c.flushing && !c.compacting);
        if idle {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Timeout, format!("{:?}: background work goes on at its close", self.shared)))
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.closing.cancel();
        let (checkpoints, waiting) = {
            let mut current = self.shared.current.lock();
            (std::mem::take(&mut current.checkpoints), std::mem::take(&mut current.queue))
        };
        for checkpoint in checkpoints.into_values() {
            checkpoint.give_up(ErrorKind::Closed, "was not done when its backend was closed");
        }
        drop(waiting);
    }
}
