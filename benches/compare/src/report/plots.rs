//! The plots: throughput and p99.99 over time with checkpoints marked, latency distributions, the sync phase against the size of state,
//! uploads of each checkpoint, upload amplification over checkpoints.

use std::path::Path;

use super::Remembered;
use super::svg::{Chart, Scale, Series};
use crate::Result;
use crate::child::Outcome;
use crate::rows::Row;
use crate::stores::StoreKind;

/// Writes all plots that there are figures for.
pub fn write(directory: &Path, rows: &[Row], remembered: &[Remembered]) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut charts = Vec::new();
    for run in remembered {
        charts.extend(if run.title.starts_with('C') { amplification(run) } else { workload(run) });
    }
    charts.extend(sync_by_state(rows));
    for (name, chart) in charts {
        if chart.series.iter().any(|series| series.points.len() > 1) {
            std::fs::write(directory.join(format!("{name}.svg")), chart.to_svg())?;
        }
    }
    Ok(())
}

fn series(run: &Remembered, marks: bool, points: impl Fn(&Outcome) -> Vec<(f64, f64)>) -> Vec<Series> {
    let one = |(store, outcome): &(StoreKind, Outcome)| Series {
        name: store.name().to_owned(),
        points: points(outcome),
        marks: if marks { outcome.checkpoints.iter().map(|c| c.at_s).collect() } else { Vec::new() },
    };
    run.runs.iter().map(one).collect()
}

fn workload(run: &Remembered) -> Vec<(String, Chart)> {
    let interval = run.interval_s.map_or("without checkpoints".to_owned(), |s| format!("a checkpoint every {s} s"));
    let name = |what: &str| {
        let interval = run.interval_s.map_or("off".to_owned(), |s| format!("{s}s"));
        format!("{}-{interval}-{what}", run.title.replace('/', "-").to_lowercase())
    };
    let chart = |what: &str, x: (&str, Scale), y: (&str, Scale), series| Chart {
        title: format!("{}, {interval}: {what}", run.title),
        x_label: x.0.to_owned(),
        y_label: y.0.to_owned(),
        x_scale: x.1,
        y_scale: y.1,
        series,
    };
    let time = ("seconds, checkpoints dotted", Scale::Linear);
    let over_time = |of: fn(&crate::measure::throughput::Sample) -> f64| {
        series(run, true, |o| o.samples.iter().map(|s| (s.at_s, of(s))).collect())
    };
    let nines = |o: &Outcome| o.curve.iter().map(|(share, ns)| (-(1.0 - share).log10(), ns / 1e3)).collect();
    let uploads = |o: &Outcome| o.checkpoints.iter().map(|c| (c.at_s, c.uploaded_bytes as f64)).collect();
    vec![
        (
            name("throughput"),
            chart(
                "throughput at a fixed rate",
                time,
                ("operations a second", Scale::Linear),
                over_time(|s| s.ops_per_s),
            ),
        ),
        (
            name("p9999"),
            chart("p99.99 of each quarter of a second", time, ("nanoseconds", Scale::Log), over_time(|s| s.p9999_ns)),
        ),
        (
            name("latency"),
            chart(
                "latency",
                ("share of operations", Scale::Nines),
                ("microseconds", Scale::Log),
                series(run, false, nines),
            ),
        ),
        (
            name("uploads"),
            chart(
                "uploads",
                ("seconds", Scale::Linear),
                ("bytes of a checkpoint", Scale::Linear),
                series(run, false, uploads),
            ),
        ),
    ]
}

fn amplification(run: &Remembered) -> Vec<(String, Chart)> {
    let chart = |what: &str, at: usize| Chart {
        title: format!("{}: {what}", run.title),
        x_label: "checkpoint".into(),
        y_label: what.to_owned(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        series: series(run, false, |o| o.points.iter().map(|p| (p[0], p[at])).collect()),
    };
    let name = run.title.replace('/', "-").to_lowercase();
    vec![
        (format!("{name}-upload"), chart("bytes uploaded / bytes changed", 1)),
        (format!("{name}-space"), chart("bytes referred to / bytes alive", 2)),
    ]
}

/// From the rows of C1.
fn sync_by_state(rows: &[Row]) -> Option<(String, Chart)> {
    let size = |variant: &str| match variant.strip_prefix("state-")? {
        "1MB" => Some(1e6),
        "1GB" => Some(1e9),
        "8GB" => Some(8e9),
        _ => None,
    };
    let mut found: Vec<Series> = Vec::new();
    let mut push = |name: &str, point: (f64, f64)| match found.iter_mut().find(|series| series.name == name) {
        Some(series) if series.points.contains(&point) => {}
        Some(series) => series.points.push(point),
        None => found.push(Series { name: name.to_owned(), points: vec![point], marks: Vec::new() }),
    };
    for row in rows.iter().filter(|row| row.workload == "C1" && row.metric == "sync_us_p99") {
        let Some(bytes) = size(&row.variant) else { continue };
        push("highwater", (bytes, row.highwater));
        push(&row.opponent, (bytes, row.other));
    }
    let chart = Chart {
        title: "C1: sync phase, p99".into(),
        x_label: "bytes of state at full scale".into(),
        y_label: "microseconds".into(),
        x_scale: Scale::Log,
        y_scale: Scale::Log,
        series: found,
    };
    (!chart.series.is_empty()).then(|| ("c1-sync".to_owned(), chart))
}
