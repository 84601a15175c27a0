//! What checkpoints took.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::runtime::Completed;

/// Up to an hour, in nanoseconds.
const GREATEST_NANOS: u64 = 3_600_000_000_000;

/// Median, 99th percentile and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

/// Collects the figures of one process's checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointStats {
    /// Completed ones.
    pub completed: u64,
    /// Those given up.
    pub aborted: u64,
    /// Those that were due while too many were under way.
    pub skipped: u64,
    /// The sum of what was uploaded anew for each.
    pub delta_bytes: u64,
    /// Everything uploaded.
    pub uploaded_bytes: u64,
    /// What the newest completed one reaches.
    pub full_bytes: u64,
    sync: Timings,
    alignment: Timings,
    duration: Timings,
}

#[derive(Clone, Debug)]
struct Timings(Histogram<u64>);

impl Timings {
    fn new() -> Self {
        // Three significant digits from a nanosecond to an hour: these bounds are valid, and automatic resizing has none to violate.
        let histogram = Histogram::new_with_bounds(1, GREATEST_NANOS, 3);
        Self(histogram.unwrap_or_else(|_| unreachable!("the bounds are constants")))
    }

    fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    /// In units of `nanos`, rounded to thousandths.
    fn quantiles(&self, nanos: u32) -> Quantiles {
        if self.0.is_empty() {
            return Quantiles::default();
        }
        #[expect(clippy::cast_precision_loss, reason = "an hour of nanoseconds fits in 52 bits")]
        let scaled = |value: u64| (value as f64 / f64::from(nanos) * 1e3).round() / 1e3;
        Quantiles {
            p50: scaled(self.0.value_at_quantile(0.5)),
            p99: scaled(self.0.value_at_quantile(0.99)),
            max: scaled(self.0.max()),
        }
    }
}

impl Default for CheckpointStats {
    fn default() -> Self {
        Self {
            completed: 0,
            aborted: 0,
            skipped: 0,
            delta_bytes: 0,
            uploaded_bytes: 0,
            full_bytes: 0,
            sync: Timings::new(),
            alignment: Timings::new(),
            duration: Timings::new(),
        }
    }
}

impl CheckpointStats {
    /// Notes how long the owner of a part waited for `checkpoint()`.
    pub fn record_sync(&mut self, duration: Duration) {
        self.sync.record(duration);
    }

    /// Notes how long the sink waited from the first barrier to the last.
    pub fn record_alignment(&mut self, duration: Duration) {
        self.alignment.record(duration);
    }

    /// Notes a completed checkpoint, `duration` after its trigger.
    pub fn record_completed(&mut self, completed: Completed, duration: Duration) {
        self.completed += 1;
        self.delta_bytes += completed.delta_bytes;
        self.full_bytes = completed.full_bytes;
        self.duration.record(duration);
    }

    /// Takes in the figures of a later run of the same process.
    pub fn merge(&mut self, later: &Self) {
        self.completed += later.completed;
        self.aborted += later.aborted;
        self.skipped += later.skipped;
        self.delta_bytes += later.delta_bytes;
        self.uploaded_bytes += later.uploaded_bytes;
        self.full_bytes = later.full_bytes;
        for (mine, other) in [
            (&mut self.sync, &later.sync),
            (&mut self.alignment, &later.alignment),
            (&mut self.duration, &later.duration),
        ] {
            // Equal bounds always add up.
            let _ = mine.0.add(&other.0);
        }
    }

    /// How long the owners waited, in microseconds.
    pub fn sync_us(&self) -> Quantiles {
        self.sync.quantiles(1_000)
    }

    /// How long alignment took, in milliseconds.
    pub fn alignment_ms(&self) -> Quantiles {
        self.alignment.quantiles(1_000_000)
    }

    /// How long checkpoints took, in milliseconds.
    pub fn duration_ms(&self) -> Quantiles {
        self.duration.quantiles(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_their_units_and_zero_without_any() {
        let mut stats = CheckpointStats::default();
        assert_eq!(stats.sync_us(), Quantiles::default());
        for millis in 1..=100 {
            stats.record_completed(Completed { delta_bytes: 1, full_bytes: millis }, Duration::from_millis(millis));
        }
        stats.record_sync(Duration::from_micros(3));
        let duration = stats.duration_ms();
        assert!((duration.p50 - 50.0).abs() < 0.1 && (duration.p99 - 99.0).abs() < 0.1, "{duration:?}");
        assert!((duration.max - 100.0).abs() < 0.2);
        assert!((stats.sync_us().max - 3.0).abs() < 0.01);
        assert_eq!((stats.completed, stats.delta_bytes, stats.full_bytes), (100, 100, 100));
    }

    #[test]
    fn merging_adds_up_and_keeps_the_newest_size() {
        let mut stats = CheckpointStats::default();
        stats.record_completed(Completed { delta_bytes: 5, full_bytes: 50 }, Duration::from_millis(1));
        let mut later = CheckpointStats::default();
        later.record_completed(Completed { delta_bytes: 7, full_bytes: 20 }, Duration::from_millis(3));
        stats.merge(&later);
        assert_eq!((stats.completed, stats.delta_bytes, stats.full_bytes), (2, 12, 20));
        assert!(stats.duration_ms().max > 2.9);
    }
}
