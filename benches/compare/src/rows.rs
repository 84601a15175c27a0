//! What a comparison says: one figure of ours beside one of theirs, and the ratio that is over 1 when ours is better.

use serde::Serialize;

use crate::child::Outcome;

/// Least, median and greatest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Greatest.
    pub max: f64,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `W8`.
    pub workload: String,
    /// `zipf`.
    pub variant: String,
    /// Seconds between checkpoints; 0 for none.
    pub interval_s: f64,
    /// The other store; `self` where Highwater is compared with itself.
    pub opponent: String,
    /// What is compared.
    pub metric: String,
    /// Our median.
    pub highwater: f64,
    /// Their median.
    pub other: f64,
    /// Of the pairs.
    pub ratio: Spread,
}

/// A metric of a run.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// True when more is better.
    pub more_is_better: bool,
    /// Its value, where there is one.
    pub of: fn(&Outcome) -> Option<f64>,
}

fn over(amount: f64, by: f64) -> Option<f64> {
    (by > 0.0 && amount > 0.0).then(|| amount / by)
}

fn some(amount: u64) -> Option<f64> {
    (amount > 0).then_some(amount as f64)
}

/// The value below which `share` of `values` are.
pub fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).ceil() as usize).copied()
}

/// Metrics of a run as fast as it goes.
pub const THROUGHPUT: &[Metric] = &[
    Metric { name: "throughput", more_is_better: true, of: |o| over(o.ops as f64, o.run_s + o.settle_s) },
    Metric {
        name: "throughput_points",
        more_is_better: true,
        of: |o| {
            if o.scans == 0 { None } else { over((o.ops - o.scans) as f64, o.run_s - o.scan_s) }
        },
    },
    Metric { name: "throughput_scans", more_is_better: true, of: |o| over(o.scans as f64, o.scan_s) },
    Metric { name: "cpu_ns_per_op", more_is_better: false, of: |o| over(o.cpu_s * 1e9, o.ops as f64) },
    Metric { name: "bytes_written", more_is_better: false, of: |o| some(o.written_bytes) },
    Metric { name: "memory_bytes", more_is_better: false, of: |o| some(o.memory_bytes) },
    Metric { name: "sync_us_p99", more_is_better: false, of: |o| quantile(o.syncs_us.iter().copied(), 0.99) },
    Metric {
        name: "checkpoint_ms_p99",
        more_is_better: false,
        of: |o| quantile(o.checkpoints.iter().map(|c| c.duration_ms), 0.99),
    },
    Metric { name: "bytes_uploaded", more_is_better: false, of: |o| some(o.counts.state_bytes) },
    Metric { name: "puts", more_is_better: false, of: |o| some(o.counts.puts) },
    Metric { name: "gets", more_is_better: false, of: |o| some(o.counts.gets) },
];

/// Metrics of a run at a fixed rate.
pub const LATENCY: &[Metric] = &[
    Metric { name: "p50_ns", more_is_better: false, of: |o| o.latency_ns.map(|l| l[0]) },
    Metric { name: "p99_ns", more_is_better: false, of: |o| o.latency_ns.map(|l| l[1]) },
    Metric { name: "p999_ns", more_is_better: false, of: |o| o.latency_ns.map(|l| l[2]) },
    Metric { name: "p9999_ns", more_is_better: false, of: |o| o.latency_ns.map(|l| l[3]) },
    Metric { name: "max_ns", more_is_better: false, of: |o| o.latency_ns.map(|l| l[4]) },
];

/// Where a row belongs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// `W8/zipf`.
    pub title: &'a str,
    /// Seconds between checkpoints; 0 for none.
    pub interval_s: f64,
    /// The other store.
    pub opponent: &'a str,
}

/// A row from figures in pairs; none when there are none, or when one is 0 and has no ratio.
pub fn row(place: Place<'_>, metric: &str, more_is_better: bool, ours: &[f64], theirs: &[f64]) -> Option<Row> {
    let ratios: Vec<f64> = ours
        .iter()
        .zip(theirs)
        .filter(|(a, b)| **a > 0.0 && **b > 0.0)
        .map(|(a, b)| if more_is_better { a / b } else { b / a })
        .collect();
    let (workload, variant) = place.title.split_once('/').unwrap_or((place.title, ""));
    Some(Row {
        workload: workload.to_owned(),
        variant: variant.to_owned(),
        interval_s: place.interval_s,
        opponent: place.opponent.to_owned(),
        metric: metric.to_owned(),
        highwater: quantile(ours.iter().copied(), 0.5)?,
        other: quantile(theirs.iter().copied(), 0.5)?,
        ratio: Spread {
            min: quantile(ratios.iter().copied(), 0.0)?,
            median: quantile(ratios.iter().copied(), 0.5)?,
            max: quantile(ratios.iter().copied(), 1.0)?,
        },
    })
}

/// Rows of all `metrics` from runs in pairs; a pair counts when neither run failed.
pub fn rows(place: Place<'_>, metrics: &[Metric], ours: &[Option<Outcome>], theirs: &[Option<Outcome>]) -> Vec<Row> {
    let of = |metric: &Metric| {
        let pairs =
            ours.iter().zip(theirs).filter_map(|(a, b)| Some(((metric.of)(a.as_ref()?)?, (metric.of)(b.as_ref()?)?)));
        let (ours, theirs): (Vec<f64>, Vec<f64>) = pairs.unzip();
        row(place, metric.name, metric.more_is_better, &ours, &theirs)
    };
    metrics.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_over_one_always_means_that_ours_is_better() {
        let place = Place { title: "W8/zipf", interval_s: 1.0, opponent: "x" };
        let fast = row(place, "throughput", true, &[10.0, 30.0, 20.0], &[5.0, 10.0, 20.0]);
        assert_eq!(fast.map(|r| (r.ratio.min, r.ratio.median, r.ratio.max)), Some((1.0, 2.0, 3.0)));
        let small = row(place, "bytes", false, &[10.0], &[40.0]);
        assert_eq!(small.map(|r| (r.variant, r.ratio.median)), Some(("zipf".into(), 4.0)));
        assert_eq!(row(place, "bytes", false, &[0.0], &[40.0]), None);
    }
}
