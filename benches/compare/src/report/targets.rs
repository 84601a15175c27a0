//! What the rows are held against: a target and a floor for each kind of work.

use crate::rows::{Row, Spread};

/// What of a row is looked at, and which way it has to go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measure {
    /// The ratio to the better RocksDB variant is at least so much.
    BesideRocksdb,
    /// The ratio to the plain map is at least so much.
    BesideMap,
    /// Our own figure is at least so much.
    AtLeast,
    /// Our own figure is at most so much.
    AtMost,
    /// The ratio of Highwater to itself is at least so much.
    BesideSelf,
}

/// One line of the table of targets.
#[derive(Debug)]
pub struct Target {
    /// Workload or check, or one variant of it.
    pub titles: &'static [&'static str],
    /// The metric.
    pub metric: &'static str,
    /// How it is judged.
    pub measure: Measure,
    /// What is wanted.
    pub target: f64,
    /// What has to be met.
    pub floor: f64,
}

const fn target(
    titles: &'static [&'static str],
    metric: &'static str,
    measure: Measure,
    target: f64,
    floor: f64,
) -> Target {
    Target { titles, metric, measure, target, floor }
}

use Measure::{AtLeast, AtMost, BesideMap, BesideRocksdb, BesideSelf};

/// All targets.
pub const TARGETS: &[Target] = &[
    target(&["W1"], "throughput", BesideRocksdb, 12.0, 8.0),
    target(&["W2", "W4", "W5"], "throughput", BesideRocksdb, 10.0, 6.0),
    target(&["W3/8", "W3/1000"], "throughput_points", BesideRocksdb, 10.0, 5.0),
    target(&["W3/8", "W3/1000"], "throughput_scans", BesideRocksdb, 20.0, 10.0),
    target(&["W6/10", "W6/200", "W7", "W9"], "throughput_points", BesideRocksdb, 10.0, 5.0),
    target(&["W6/10", "W6/200", "W7", "W9"], "throughput_scans", BesideRocksdb, 4.0, 2.0),
    target(&["W8/zipf"], "throughput", BesideRocksdb, 5.0, 3.0),
    target(&["W8/uniform"], "throughput", BesideRocksdb, 2.5, 1.5),
    target(&["W8/batched"], "throughput", BesideRocksdb, 4.0, 2.5),
    target(&["W8/io-zipf"], "throughput", BesideRocksdb, 2.0, 1.3),
    target(&["W8/io-uniform"], "throughput", BesideRocksdb, 1.2, 1.0),
    target(&["W8/io-batched"], "throughput", BesideRocksdb, 3.0, 2.0),
    target(&["W10", "W12"], "throughput", BesideRocksdb, 5.0, 3.0),
    target(&["W1"], "p9999_ns", BesideRocksdb, 50.0, 10.0),
    target(&["C2"], "throughput_kept_saturated", AtLeast, 0.88, 0.80),
    target(&["C2"], "throughput_kept_at_70", AtLeast, 1.0, 0.98),
    target(&["C1/state-1MB", "C1/state-1GB", "C1/state-8GB"], "sync_us_p99", AtMost, 50.0, f64::INFINITY),
    target(&["C1/state-1MB", "C1/state-1GB", "C1/state-8GB"], "sync_us_p99", BesideRocksdb, 1000.0, 200.0),
    target(&["C3/W1"], "upload_amplification", AtMost, 1.5, 2.0),
    target(&["C3/W1"], "space_amplification", AtMost, 1.6, 2.0),
    target(&["C3/W8-zipf", "C3/W8-uniform"], "upload_amplification", AtMost, 1.6, 2.0),
    target(&["C3/W8-zipf", "C3/W8-uniform"], "space_amplification", AtMost, 2.0, 2.5),
    target(&["C3/W2"], "upload_amplification", AtMost, 1.0, 1.2),
    target(&["C8/flat-8GB-1GB"], "checkpoint_ms_p99", BesideSelf, 1.0 / 1.1, 1.0 / 1.2),
    target(&["C8/flat-8GB-1GB"], "bytes_uploaded", BesideSelf, 1.0 / 1.1, 1.0 / 1.2),
    target(&["C4/1GB-lazy", "C4/8GB-lazy"], "dependent_requests", AtMost, 4.0, 6.0),
    target(&["C5/2-to-3", "C5/3-to-1", "C5/1-to-4"], "bytes_uploaded", BesideSelf, 1.0, 1.0 / 1.1),
    target(&["C7/W1-64MiB", "C7/W8-zipf-64MiB", "C7/W9-64MiB"], "memory_bytes", BesideSelf, 1.0, 1.0),
    target(&["W1"], "throughput", BesideMap, 0.9, 0.6),
];

/// How a target was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The target.
    Met,
    /// The floor alone.
    Floor,
    /// Not even that.
    Short,
}

impl Target {
    /// Of the rows that the target is about, that which is worst for us: least, median and greatest of what is judged, and the interval.
    pub fn of<'a>(&self, title: &str, rows: &'a [Row]) -> Option<(Spread, &'a Row)> {
        let opponent = |row: &Row| match self.measure {
            Measure::BesideRocksdb => row.opponent.starts_with("rocksdb"),
            Measure::BesideMap => row.opponent == "hashmap",
            Measure::BesideSelf => row.opponent == "self",
            Measure::AtLeast | Measure::AtMost => true,
        };
        let named = |row: &Row| match row.variant.as_str() {
            "" => row.workload == title,
            variant => title.split_once('/') == Some((row.workload.as_str(), variant)),
        };
        // Tails are judged where checkpoints come as often as they do: without any there is nothing to stall for.
        let often = |row: &Row| self.metric != "p9999_ns" || (row.interval_s > 0.0 && row.interval_s <= 1.0);
        let about = rows.iter().filter(|row| named(row) && row.metric == self.metric && opponent(row) && often(row));
        let judged = about.map(|row| match self.measure {
            Measure::AtLeast | Measure::AtMost => {
                (Spread { min: row.highwater, median: row.highwater, max: row.highwater }, row)
            }
            _ => (row.ratio, row),
        });
        match self.measure {
            Measure::AtMost => judged.max_by(|a, b| a.0.median.total_cmp(&b.0.median)),
            _ => judged.min_by(|a, b| a.0.median.total_cmp(&b.0.median)),
        }
    }

    /// Whether a median is what was wanted.
    pub fn verdict(&self, median: f64) -> Verdict {
        let meets = |wanted: f64| match self.measure {
            Measure::AtMost => median <= wanted,
            // As it is printed.
            _ => median >= wanted * 0.995,
        };
        match (meets(self.target), meets(self.floor)) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::Floor,
            (false, false) => Verdict::Short,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Place, row};

    #[test]
    fn the_better_rocksdb_counts_and_the_worst_interval() {
        let line = |interval_s, opponent, theirs: f64| {
            let place = Place { title: "W1", interval_s, opponent };
            row(place, "throughput", true, &[100.0], &[theirs]).unwrap()
        };
        let rows = [
            line(0.0, "rocksdb-flink", 5.0),
            line(0.0, "rocksdb-strong", 10.0),
            line(1.0, "rocksdb-strong", 20.0),
            line(0.0, "hashmap", 125.0),
        ];
        let judged = |measure| {
            let target =
                TARGETS.iter().find(|t| t.titles == ["W1"] && t.metric == "throughput" && t.measure == measure);
            let target = target.unwrap();
            let (spread, row) = target.of("W1", &rows).unwrap();
            (spread.median, row.interval_s, target.verdict(spread.median))
        };
        assert_eq!(judged(BesideRocksdb), (5.0, 1.0, Verdict::Short));
        assert_eq!(judged(BesideMap), (0.8, 0.0, Verdict::Floor));
    }
}
