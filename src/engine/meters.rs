//! What an environment and its backends show of themselves to whoever watches: handles of the meters in [`crate::base::meters`].

use std::time::Duration;

use super::background::{Identity, Shared};
use super::environment::Inner;
use crate::ErrorKind;
use crate::base::meters::{self, Counter, Gauge, Histogram, Meter};
use crate::cache::budget::Purpose;
use crate::checkpoint::part::CheckpointPart;
use crate::compaction::plan::Plan;

/// Handles of one backend, made when it opens: recording takes no look-up and no allocation of ours.
pub(super) struct BackendMeters {
    /// Values of the labels: operator and subtask.
    labels: [String; 2],
    pub sync: Histogram,
    pub alignment: Histogram,
    pub flush: Histogram,
    pub upload: Histogram,
    delta_bytes: Histogram,
    uploaded_bytes: Counter,
    full_bytes: Gauge,
    state_bytes: Gauge,
    state_segments: Gauge,
    pub flushed_bytes: Counter,
    pub compaction: Histogram,
    pub compacted_bytes: Counter,
    compaction_debt: Gauge,
    waiting_epochs: Gauge,
    pub delay: Histogram,
    pub refusals: Counter,
    pub restore: Histogram,
    pub restore_left_bytes: Gauge,
}

impl BackendMeters {
    pub fn new(identity: &Identity) -> Self {
        let owned = [identity.operator.clone(), identity.subtask.to_string()];
        let labels = [owned[0].as_str(), owned[1].as_str()];
        Self {
            sync: meters::CHECKPOINT_SYNC.histogram(&labels),
            alignment: meters::CHECKPOINT_ALIGNMENT.histogram(&labels),
            flush: meters::CHECKPOINT_FLUSH.histogram(&labels),
            upload: meters::CHECKPOINT_UPLOAD.histogram(&labels),
            delta_bytes: meters::CHECKPOINT_DELTA_BYTES.histogram(&labels),
            uploaded_bytes: meters::CHECKPOINT_UPLOADED_BYTES.counter(&labels),
            full_bytes: meters::CHECKPOINT_FULL_BYTES.gauge(&labels),
            state_bytes: meters::STATE_BYTES.gauge(&labels),
            state_segments: meters::STATE_SEGMENTS.gauge(&labels),
            flushed_bytes: meters::FLUSHED_BYTES.counter(&labels),
            compaction: meters::COMPACTION.histogram(&labels),
            compacted_bytes: meters::COMPACTED_BYTES.counter(&labels),
            compaction_debt: meters::COMPACTION_DEBT.gauge(&labels),
            waiting_epochs: meters::WAITING_EPOCHS.gauge(&labels),
            delay: meters::BACKPRESSURE_DELAY.histogram(&labels),
            refusals: meters::BACKPRESSURE_REFUSALS.counter(&labels),
            restore: meters::RESTORE.histogram(&labels),
            restore_left_bytes: meters::RESTORE_LEFT_BYTES.gauge(&labels),
            labels: owned,
        }
    }

    /// One more failure of a kind, on a meter whose labels are operator, subtask and kind.
    #[cold]
    pub fn failed(&self, meter: &Meter, kind: ErrorKind) {
        let [operator, subtask] = &self.labels;
        meter.counter(&[operator, subtask, &kind.to_string()]).increment(1);
    }

    /// A part came about.
    pub fn part(&self, part: &CheckpointPart) {
        self.delta_bytes.record(part.delta_bytes as f64);
        self.uploaded_bytes.increment(part.uploaded_bytes);
        self.full_bytes.set(part.full_bytes as f64);
    }

    /// What is to be merged now.
    pub fn due(&self, plan: Option<&Plan>) {
        self.compaction_debt.set(plan.map_or(0, Plan::input_bytes) as f64);
    }
}

impl Shared {
    /// Shows the state as it is after a flush, a merge or an upload, and with it what the process uses.
    pub fn show(&self) {
        let (tree, waiting) = {
            let current = self.current.lock();
            (current.tree.clone(), current.queue.len())
        };
        let version = tree.version();
        self.meters.state_bytes.set(version.total_bytes() as f64);
        self.meters.state_segments.set(version.refs().count() as f64);
        self.meters.waiting_epochs.set(waiting as f64);
        self.env.show();
    }

    /// Seconds since `began_ns` on the clock's monotonic time.
    pub fn since(&self, began_ns: u64) -> Duration {
        Duration::from_nanos(self.env.clock.monotonic_ns().saturating_sub(began_ns))
    }
}

/// Handles of an environment.
#[derive(Debug)]
pub(super) struct EnvironmentMeters {
    memory: [(Purpose, Gauge); 4],
    disk: Gauge,
    pinned: Gauge,
    hits: Counter,
    misses: Counter,
    pub recovery: Gauge,
}

impl EnvironmentMeters {
    pub fn new(memory_limit_bytes: u64, disk_limit_bytes: u64) -> Self {
        meters::MEMORY_LIMIT_BYTES.gauge(&[]).set(memory_limit_bytes as f64);
        meters::DISK_LIMIT_BYTES.gauge(&[]).set(disk_limit_bytes as f64);
        let memory = |purpose, name| (purpose, meters::MEMORY_BYTES.gauge(&[name]));
        Self {
            memory: [
                memory(Purpose::Memtable, "memtable"),
                memory(Purpose::Index, "index"),
                memory(Purpose::BlockCache, "cache"),
                memory(Purpose::Flush, "buffers"),
            ],
            disk: meters::DISK_BYTES.gauge(&["used"]),
            pinned: meters::DISK_BYTES.gauge(&["pinned"]),
            hits: meters::CACHE_HITS.counter(&[]),
            misses: meters::CACHE_MISSES.counter(&[]),
            recovery: meters::RECOVERY.gauge(&[]),
        }
    }
}

impl Inner {
    /// Shows what the process uses now.
    pub fn show(&self) {
        let cache = self.cache.counts();
        for (purpose, gauge) in &self.meters.memory {
            let bytes = match purpose {
                // Its share is reserved as a whole; what is in it says more.
                Purpose::BlockCache => cache.weight_bytes,
                purpose => self.budget.used(*purpose),
            };
            gauge.set(bytes as f64);
        }
        self.meters.disk.set(self.disk.used_bytes() as f64);
        self.meters.pinned.set(self.disk.pinned_bytes() as f64);
        self.meters.hits.absolute(cache.hits);
        self.meters.misses.absolute(cache.misses);
    }
}
