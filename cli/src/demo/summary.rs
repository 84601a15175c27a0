//! The table at the end of the demo.

use std::fmt::Write;

use crate::report::{DemoReport, RestoreReport};
use crate::units::format_size;

/// The summary for people.
pub fn summary(report: &DemoReport) -> String {
    let run = &report.run;
    let checkpoints = &run.checkpoints;
    let quantiles = |q: &crate::runtime::Quantiles, unit: &str| {
        format!("p50 {:.1} {unit}, p99 {:.1} {unit}, max {:.1} {unit}", q.p50, q.p99, q.max)
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = report.events as f64 / run.seconds.max(0.001);
    let rows = [
        ("events", format!("{} ({rate:.0} a second)", report.events)),
        ("bids", run.records.to_string()),
        ("crashes and restores", format!("{}; {}", report.crashes, restores(&run.restores))),
        (
            "checkpoints",
            format!(
                "{} completed, {} aborted, {} skipped",
                checkpoints.completed, checkpoints.aborted, checkpoints.skipped
            ),
        ),
        ("owner's wait", quantiles(&checkpoints.sync_us, "us")),
        ("alignment", quantiles(&checkpoints.alignment_ms, "ms")),
        ("duration", quantiles(&checkpoints.duration_ms, "ms")),
        (
            "bytes",
            format!(
                "{} new in all, {} uploaded, {} reached by the newest",
                format_size(checkpoints.delta_bytes),
                format_size(checkpoints.uploaded_bytes),
                format_size(checkpoints.full_bytes)
            ),
        ),
        ("rows compared", report.compared.to_string()),
        (
            "differences",
            match report.differences {
                0 => "none: every result is that of the recomputation".to_owned(),
                count => count.to_string(),
            },
        ),
    ];
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter().fold(String::new(), |mut table, (name, value)| {
        // Writing to a string can't fail.
        let _ = writeln!(table, "  {name:width$}  {value}");
        table
    })
}

fn restores(restores: &[RestoreReport]) -> String {
    let each = restores.iter().map(|restore| {
        let first =
            restore.first_record_ms.map_or_else(|| "no record".to_owned(), |ms| format!("first record after {ms} ms"));
        format!(
            "from checkpoint {} at {} -> {} subtasks ({first})",
            restore.from_checkpoint, restore.parallelism_from, restore.parallelism_to
        )
    });
    each.collect::<Vec<_>>().join(", ")
}
