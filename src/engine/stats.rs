//! What a process and its backends use and hold, for metrics.

use super::backend::Backend;
use super::environment::Environment;
use crate::Error;
use crate::cache::budget::Purpose;
use crate::compaction::picker;
use crate::compaction::plan::Plan;
use crate::io::metered::StoreRequests;
use crate::memtable::MemtableStats;

/// What an environment uses of its budgets now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EnvironmentStats {
    /// Memory reserved, all purposes together: the cache and the buffers of background work at their full share.
    pub memory_used_bytes: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// Pages of memtables.
    pub memtable_bytes: u64,
    /// Their indexes.
    pub index_bytes: u64,
    /// Blocks in the cache, of its share.
    pub cached_bytes: u64,
    /// Blocks that reads found in the cache since the environment was opened.
    pub cache_hits: u64,
    /// Blocks that they didn't.
    pub cache_misses: u64,
    /// What was asked of the store since the environment was opened.
    pub store: StoreRequests,
    /// Local files.
    pub disk_used_bytes: u64,
    /// The disk budget.
    pub disk_limit_bytes: u64,
    /// Local files that the state no longer needs, but that a cursor, a view or an upload still holds.
    pub disk_pinned_bytes: u64,
}

/// What a backend holds now, and how far its background work is behind.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackendStats {
    /// Memory by kind.
    pub memory: MemtableStats,
    /// Frozen epochs that wait for flushing.
    pub waiting_epochs: usize,
    /// Bytes of the inputs of the merge that is due or being made; 0 when there is nothing to merge.
    pub compaction_debt_bytes: u64,
    /// Checkpoints that are being made.
    pub checkpoints: usize,
    /// Segments of the newest tree.
    pub segments: usize,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Why the last flush failed, until one succeeds.
    pub flush_error: Option<Error>,
    /// Why the last compaction failed, until one succeeds.
    pub compaction_error: Option<Error>,
}

impl Environment {
    /// What it uses now. Cheap: counters alone.
    #[must_use]
    pub fn stats(&self) -> EnvironmentStats {
        let inner = &self.inner;
        let cache = inner.cache.counts();
        EnvironmentStats {
            memory_used_bytes: inner.budget.total(),
            memory_limit_bytes: inner.budget.limit(),
            memtable_bytes: inner.budget.used(Purpose::Memtable),
            index_bytes: inner.budget.used(Purpose::Index),
            cached_bytes: cache.weight_bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            store: inner.metered.requests(),
            disk_used_bytes: inner.disk.used_bytes(),
            disk_limit_bytes: inner.disk.limit_bytes(),
            disk_pinned_bytes: inner.disk.pinned_bytes(),
        }
    }
}

impl Backend {
    /// What it holds now. Takes the lock that it shares with its workers, for a moment.
    #[must_use]
    pub fn stats(&self) -> BackendStats {
        let tree = self.shared.current.lock().tree.clone();
        let due = picker::pick(tree.version(), &self.shared.picker_options(), self.shared.now_ms());
        let current = self.shared.current.lock();
        BackendStats {
            memory: self.memtable.stats(),
            waiting_epochs: current.queue.len(),
            compaction_debt_bytes: due.as_ref().map_or(0, Plan::input_bytes),
            checkpoints: current.checkpoints.len(),
            segments: current.tree.segment_count(),
            segment_bytes: current.tree.version().total_bytes(),
            flush_error: current.flush_error.clone(),
            compaction_error: current.compaction_error.clone(),
        }
    }
}
