//! What can be watched: the catalogue of meters, and the door to the `metrics` facade.
//!
//! Whoever installs a recorder (a Prometheus exporter, say) before it opens an environment sees all of these; without one
//! they cost next to nothing. `docs/operating.md` has the same catalogue with what to do when a figure moves; a test
//! holds the two together.

pub use metrics::{Counter, Gauge, Histogram, Unit};
use metrics::{Key, Label, Level, Metadata, Recorder, with_recorder};

/// What a meter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Many values, of which the distribution counts.
    Histogram,
}

/// One figure to watch.
#[derive(Debug)]
pub struct Meter {
    /// Its name, in the form that Prometheus prefers.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit; `None` for plain numbers.
    pub unit: Option<Unit>,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub meaning: &'static str,
}

static METADATA: Metadata<'static> = Metadata::new("highwater", Level::INFO, Some("highwater"));

impl Meter {
    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(values.len(), self.labels.len(), "labels of {}", self.name);
        let labels: Vec<_> =
            self.labels.iter().zip(values).map(|(name, v)| Label::new(*name, (*v).to_owned())).collect();
        Key::from_parts(self.name, labels)
    }

    fn described(&self, describe: impl FnOnce(&dyn Recorder)) {
        with_recorder(|recorder| describe(recorder));
    }

    /// The counter with these values of its labels, in the order of [`Meter::labels`].
    pub fn counter(&self, values: &[&str]) -> Counter {
        self.described(|r| r.describe_counter(self.name.into(), self.unit, self.meaning.into()));
        with_recorder(|recorder| recorder.register_counter(&self.key(values), &METADATA))
    }

    /// The gauge with these values of its labels.
    pub fn gauge(&self, values: &[&str]) -> Gauge {
        self.described(|r| r.describe_gauge(self.name.into(), self.unit, self.meaning.into()));
        with_recorder(|recorder| recorder.register_gauge(&self.key(values), &METADATA))
    }

    /// The histogram with these values of its labels.
    pub fn histogram(&self, values: &[&str]) -> Histogram {
        self.described(|r| r.describe_histogram(self.name.into(), self.unit, self.meaning.into()));
        with_recorder(|recorder| recorder.register_histogram(&self.key(values), &METADATA))
    }
}

/// Declares the meters, and the list of all.
macro_rules! meters {
    ($($id:ident = $kind:ident $name:literal $unit:expr, $labels:expr, $meaning:literal;)+) => {
        $(
            #[doc = $meaning]
            pub static $id: Meter = Meter {
                name: $name,
                kind: Kind::$kind,
                unit: $unit,
                labels: &$labels,
                meaning: $meaning,
            };
        )+
        /// All of them.
        pub static ALL: &[&Meter] = &[$(&$id),+];
    };
}

const SECONDS: Option<Unit> = Some(Unit::Seconds);
const BYTES: Option<Unit> = Some(Unit::Bytes);
const COUNT: Option<Unit> = Some(Unit::Count);

meters! {
    CHECKPOINT_DURATION = Histogram "highwater_checkpoint_duration_seconds" SECONDS, [],
        "From the beginning of a checkpoint until its entry stands in the root log.";
    CHECKPOINTS_COMPLETED = Counter "highwater_checkpoints_completed_total" COUNT, [],
        "Checkpoints that became complete.";
    CHECKPOINTS_ABORTED = Counter "highwater_checkpoints_aborted_total" COUNT, [],
        "Checkpoints that were given up.";
    CHECKPOINTS_SKIPPED = Counter "highwater_checkpoints_skipped_total" COUNT, [],
        "Due checkpoints that weren't begun because as many as allowed were in flight.";
    CHECKPOINT_LAST_COMPLETED = Gauge "highwater_checkpoint_last_completed_timestamp_seconds" SECONDS, [],
        "When the newest checkpoint became complete, seconds since 1970: what came since would be replayed after a failure.";
    CHECKPOINT_REQUESTS = Histogram "highwater_checkpoint_requests" COUNT, [],
        "Requests to the store, of this process, from one completed checkpoint to the next.";
    CHECKPOINT_COST = Histogram "highwater_checkpoint_cost_usd" None, [],
        "What those requests cost at list prices of S3 (standard class, us-east-1), dollars.";
    CHECKPOINT_SYNC = Histogram "highwater_checkpoint_sync_seconds" SECONDS, ["operator", "subtask"],
        "How long a checkpoint held the thread that processes records.";
    CHECKPOINT_ALIGNMENT = Histogram "highwater_checkpoint_alignment_seconds" SECONDS, ["operator", "subtask"],
        "How long the host waited for the barrier on all inputs, as it reported.";
    CHECKPOINT_FLUSH = Histogram "highwater_checkpoint_flush_seconds" SECONDS, ["operator", "subtask"],
        "From the freeze of a subtask's state until it was in local files.";
    CHECKPOINT_UPLOAD = Histogram "highwater_checkpoint_upload_seconds" SECONDS, ["operator", "subtask"],
        "From then until the subtask's part was durable in the store.";
    CHECKPOINT_FAILURES = Counter "highwater_checkpoint_failures_total" COUNT, ["operator", "subtask", "kind"],
        "Parts of checkpoints that didn't come about, by kind of error.";
    CHECKPOINT_DELTA_BYTES = Histogram "highwater_checkpoint_delta_bytes" BYTES, ["operator", "subtask"],
        "State that a subtask sent for a checkpoint.";
    CHECKPOINT_UPLOADED_BYTES = Counter "highwater_checkpoint_uploaded_bytes_total" BYTES, ["operator", "subtask"],
        "What parts sent in all, manifests included.";
    CHECKPOINT_FULL_BYTES = Gauge "highwater_checkpoint_full_bytes" BYTES, ["operator", "subtask"],
        "What the newest part refers to.";
    STATE_BYTES = Gauge "highwater_state_bytes" BYTES, ["operator", "subtask"],
        "Segments of the state as of the newest flush or merge.";
    STATE_SEGMENTS = Gauge "highwater_state_segments" COUNT, ["operator", "subtask"],
        "Their number.";
    FLUSHED_BYTES = Counter "highwater_flushed_bytes_total" BYTES, ["operator", "subtask"],
        "Segments written by flushes.";
    FLUSH_FAILURES = Counter "highwater_flush_failures_total" COUNT, ["operator", "subtask", "kind"],
        "Flushes that failed and are tried again, by kind of error.";
    COMPACTION = Histogram "highwater_compaction_seconds" SECONDS, ["operator", "subtask"],
        "How long merges took.";
    COMPACTED_BYTES = Counter "highwater_compacted_bytes_total" BYTES, ["operator", "subtask"],
        "Segments written by merges.";
    COMPACTION_FAILURES = Counter "highwater_compaction_failures_total" COUNT, ["operator", "subtask", "kind"],
        "Merges that failed, by kind of error.";
    COMPACTION_DEBT = Gauge "highwater_compaction_debt_bytes" BYTES, ["operator", "subtask"],
        "Inputs of the merge that is due or being made; 0 when there is nothing to merge.";
    WAITING_EPOCHS = Gauge "highwater_waiting_epochs" COUNT, ["operator", "subtask"],
        "Frozen parts of the memtable that wait for flushing.";
    BACKPRESSURE_DELAY = Histogram "highwater_backpressure_delay_seconds" SECONDS, ["operator", "subtask"],
        "Pauses that writes were made to take because storage is behind; its sum is the time lost.";
    BACKPRESSURE_REFUSALS = Counter "highwater_backpressure_refusals_total" COUNT, ["operator", "subtask"],
        "Writes that were refused because memory is full of what storage hasn't taken.";
    RESTORE = Histogram "highwater_restore_seconds" SECONDS, ["operator", "subtask"],
        "How long opening a backend on a checkpoint took; records can be processed from then on.";
    RESTORE_LEFT_BYTES = Gauge "highwater_restore_left_bytes" BYTES, ["operator", "subtask"],
        "Restored segments whose files aren't here yet: reads of them go to the store.";
    RECOVERY = Gauge "highwater_recovery_seconds" SECONDS, [],
        "From opening the environment until the host said that it had caught up.";
    MEMORY_BYTES = Gauge "highwater_memory_bytes" BYTES, ["purpose"],
        "Memory in use: memtable pages, their indexes, cached blocks, and the share kept for background buffers.";
    MEMORY_LIMIT_BYTES = Gauge "highwater_memory_limit_bytes" BYTES, [],
        "The memory budget.";
    DISK_BYTES = Gauge "highwater_disk_bytes" BYTES, ["kind"],
        "Local files: all that count, and those that only a cursor, a view or an upload still holds.";
    DISK_LIMIT_BYTES = Gauge "highwater_disk_limit_bytes" BYTES, [],
        "The budget of local disk.";
    CACHE_HITS = Counter "highwater_cache_hits_total" COUNT, [],
        "Blocks that reads found in the cache.";
    CACHE_MISSES = Counter "highwater_cache_misses_total" COUNT, [],
        "Blocks that they didn't.";
    STORE_REQUESTS = Counter "highwater_store_requests_total" COUNT, ["request"],
        "Requests to the store: put, get, head, list, delete. A large object that goes in parts counts as one put.";
    STORE_SECONDS = Histogram "highwater_store_request_seconds" SECONDS, ["request"],
        "How long they took, their retries inside included.";
    STORE_BYTES = Counter "highwater_store_bytes_total" BYTES, ["direction"],
        "Bytes sent to the store and received from it.";
    STORE_FAILURES = Counter "highwater_store_failures_total" COUNT, ["request", "kind"],
        "Requests that failed, by kind of error. `not found` and `already exists` are answers like others.";
    STORE_RETRIES = Counter "highwater_store_retries_total" COUNT, [],
        "Requests that were repeated because the store was away or slow.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_say_kind_and_unit_and_no_two_are_alike() {
        let names: BTreeSet<_> = ALL.iter().map(|meter| meter.name).collect();
        assert_eq!(names.len(), ALL.len());
        for meter in ALL {
            assert!(meter.name.starts_with("highwater_"), "{}", meter.name);
            assert_eq!(meter.name.ends_with("_total"), meter.kind == Kind::Counter, "{}", meter.name);
            let stem = meter.name.trim_end_matches("_total");
            assert_eq!(stem.ends_with("_bytes"), meter.unit == BYTES, "{}", meter.name);
            assert_eq!(stem.ends_with("_seconds"), meter.unit == SECONDS, "{}", meter.name);
        }
    }

    #[test]
    fn the_operators_guide_has_exactly_these_meters() {
        let guide = include_str!("../../docs/operating.md");
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| `highwater_"));
        let listed: Vec<(String, String)> = rows
            .filter_map(|row| {
                let mut cells = row.split('|').map(str::trim);
                Some((format!("highwater_{}", cells.next()?.trim_end_matches('`')), cells.next()?.to_owned()))
            })
            .collect();
        let ours: Vec<_> = ALL.iter().map(|m| (m.name.to_owned(), format!("{:?}", m.kind).to_lowercase())).collect();
        assert_eq!(listed, ours);
    }
}
