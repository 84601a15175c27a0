//! C6: requests for each checkpoint, and what they cost in a month for 100 subtasks.

use super::Context;
use crate::Result;
use crate::child::{Mode, Outcome};
use crate::parent::Bench;
use crate::rows::{Metric, Place, row, rows};
use crate::workloads::{self, Scale, make_stream};

/// Dollars a put or list and a get, S3 standard in us-east-1.
const PUT_USD: f64 = 5e-6;
const GET_USD: f64 = 4e-7;

const SUBTASKS: f64 = 100.0;
const MONTH_S: f64 = 30.0 * 24.0 * 3600.0;

fn each(outcome: &Outcome, count: u64) -> Option<f64> {
    (!outcome.checkpoints.is_empty()).then(|| count as f64 / outcome.checkpoints.len() as f64)
}

fn price(outcome: &Outcome, every_s: f64) -> Option<f64> {
    let counts = &outcome.counts;
    let usd = (counts.puts + counts.lists) as f64 * PUT_USD + counts.gets as f64 * GET_USD;
    (!outcome.checkpoints.is_empty()).then(|| usd / outcome.checkpoints.len() as f64 * MONTH_S / every_s * SUBTASKS)
}

const METRICS: &[Metric] = &[
    Metric { name: "puts", more_is_better: false, of: |o| each(o, o.counts.puts) },
    Metric { name: "gets", more_is_better: false, of: |o| each(o, o.counts.gets) },
    Metric { name: "lists", more_is_better: false, of: |o| each(o, o.counts.lists) },
    Metric { name: "manifest_bytes", more_is_better: false, of: |o| each(o, o.counts.manifest_bytes) },
    Metric { name: "usd_a_month_1s", more_is_better: false, of: |o| price(o, 1.0) },
    Metric { name: "usd_a_month_60s", more_is_better: false, of: |o| price(o, 60.0) },
];

/// See the module: W1 at half of a modest rate, a checkpoint a second.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    let all = workloads::all();
    let workload = all.first().ok_or("no workload")?;
    let path = context.scratch.join("stream");
    let stream = make_stream(workload, Scale(context.args.scale()), &path)?;
    let seconds = if context.args.short_checks() { 4.0 } else { 60.0 };
    let mut outcomes = Vec::new();
    for store in context.stores() {
        let bench = Bench {
            args: context.args,
            workload,
            stream: &stream,
            scratch: context.scratch,
            interval_s: Some(1.0),
            memory_bytes: context.args.memory_bytes(),
            limited: false,
        };
        let mode = Mode::Latency { per_second: 50_000.0, seconds, hang_s: 0.0 };
        match bench.start(store, mode) {
            Ok(outcome) => {
                context.report.progress(format!("C6 {}: {:?}", store.name(), outcome.counts));
                outcomes.push((store, Some(outcome)));
            }
            Err(error) => {
                context.report.note(format!("C6 {}: {error}", store.name()));
                outcomes.push((store, None));
            }
        }
    }
    std::fs::remove_file(path)?;
    let Some(((_, ours), others)) = outcomes.split_first() else { return Ok(()) };
    if let Some(ours) = ours {
        // Ours alone: RocksDB asks for nothing back, so there is no ratio of gets and lists.
        let place = Place { title: "C6", interval_s: 1.0, opponent: "self" };
        let alone = |metric: &Metric| (metric.of)(ours).and_then(|of| row(place, metric.name, false, &[of], &[of]));
        context.report.add(METRICS.iter().filter_map(alone).collect());
    }
    for (store, theirs) in others {
        let place = Place { title: "C6", interval_s: 1.0, opponent: store.name() };
        let found = rows(place, METRICS, std::slice::from_ref(ours), std::slice::from_ref(theirs));
        context.report.add(found);
    }
    Ok(())
}
