//! C1: how long the owner is held up by a checkpoint, whatever the state and whatever changed, by the wall and by its processor time (on a
//! busy machine the difference is waiting for a core). C8: how long the whole checkpoint
//! takes and what it uploads, for the same change over small and large state.

use std::time::Instant;

use super::state::{ENTRY_BYTES, STATES, VALUE_BYTES, keys, load};
use super::{Context, Job, Step};
use crate::Result;
use crate::child::Outcome;
use crate::measure::checkpoints::CheckpointLog;
use crate::measure::process::thread_cpu_time;
use crate::measure::settle::{SETTLE_AT_MOST, settle};
use crate::rows::{self, Metric, Place, quantile, row};
use crate::store::Store;
use crate::stores::{self, StoreKind, Task};
use crate::values::{Rng, Values, key_of};

/// Changes `changed` keys before each of `rounds` checkpoints, and waits until each is complete.
pub fn deltas(job: &Job, log: &CheckpointLog, state_bytes: u64, changed: u64, rounds: u64) -> Result<Outcome> {
    let task = Deltas { log: log.clone(), state_bytes, changed, rounds };
    stores::open(job.store, &job.setting(STATES), Some(job.client()), log, task)
}

struct Deltas {
    log: CheckpointLog,
    state_bytes: u64,
    changed: u64,
    rounds: u64,
}

impl Task for Deltas {
    fn with<S: Store>(self, mut store: S) -> Result<Outcome> {
        load(&mut store, self.state_bytes, |_| true)?;
        store.checkpoint()?;
        store.wait_for_checkpoints()?;
        settle(&mut store, SETTLE_AT_MOST)?;
        let (values, mut rng, start) = (Values::new(), Rng::new(1), Instant::now());
        let keys = keys(self.state_bytes).max(self.changed);
        let (mut outcome, mut cpu_us) = (Outcome::default(), Vec::new());
        for _ in 0..self.rounds {
            // Consecutive numbers are scattered keys.
            let first = rng.below(keys - self.changed + 1);
            for id in first..first + self.changed {
                store.put(0, &key_of(id), 0, values.of(VALUE_BYTES, rng.next() as u32))?;
            }
            let cpu = thread_cpu_time();
            let sync = store.checkpoint()?.ok_or("no checkpoint was made")?;
            cpu_us.push((thread_cpu_time() - cpu).as_secs_f64() * 1e6);
            outcome.syncs_us.push(sync.as_secs_f64() * 1e6);
            store.wait_for_checkpoints()?;
        }
        outcome.checkpoints = self.log.since(start);
        let of = |share| quantile(outcome.syncs_us.iter().copied(), share).unwrap_or(0.0);
        let cpu = quantile(cpu_us, 0.99).unwrap_or(0.0);
        outcome.figures.insert("sync_cpu_us_p99".into(), cpu);
        let (p50, p99, max) = (of(0.5), of(0.99), of(1.0));
        outcome.described = format!("sync p50 {p50:.1} p99 {p99:.1} max {max:.1} us; processor time p99 {cpu:.1} us");
        Ok(outcome)
    }
}

fn sync_at(outcome: &Outcome, share: f64) -> Option<f64> {
    quantile(outcome.syncs_us.iter().copied(), share)
}

fn duration_at(outcome: &Outcome, share: f64) -> Option<f64> {
    quantile(outcome.checkpoints.iter().map(|c| c.duration_ms), share)
}

/// Median upload of a checkpoint.
fn uploaded(outcome: &Outcome) -> Option<f64> {
    quantile(outcome.checkpoints.iter().map(|c| c.uploaded_bytes as f64), 0.5)
}

const SYNC: &[Metric] = &[
    Metric { name: "sync_us_p50", more_is_better: false, of: |o| sync_at(o, 0.5) },
    Metric { name: "sync_us_p99", more_is_better: false, of: |o| sync_at(o, 0.99) },
    Metric { name: "sync_us_max", more_is_better: false, of: |o| sync_at(o, 1.0) },
    Metric { name: "sync_cpu_us_p99", more_is_better: false, of: |o| o.figures.get("sync_cpu_us_p99").copied() },
];

const WHOLE: &[Metric] = &[
    Metric { name: "checkpoint_ms_p50", more_is_better: false, of: |o| duration_at(o, 0.5) },
    Metric { name: "checkpoint_ms_p99", more_is_better: false, of: |o| duration_at(o, 0.99) },
    Metric { name: "bytes_uploaded", more_is_better: false, of: uploaded },
];

/// Both checks: they need the same states.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    let scale = context.args.scale();
    let rounds = |full: u64| if context.args.short_checks() { full.div_ceil(10) } else { full };
    let (deltas, dirty) = (rounds(30), [rounds(50), rounds(10), rounds(4)]);
    let bytes = |full: u64| (full as f64 * scale) as u64;
    if context.args.wants("C1") {
        for (name, entries, rounds) in
            [("dirty-1K", 1_000, dirty[0]), ("dirty-1M", 1_000_000, dirty[1]), ("dirty-10M", 10_000_000, dirty[2])]
        {
            let changed = if entries > 1_000 { bytes(entries) } else { entries };
            let step = Step::Deltas { state_bytes: changed * ENTRY_BYTES, changed, rounds };
            let outcomes = each(context, &step);
            add(context, &format!("C1/{name}"), SYNC, &outcomes);
        }
    }
    let sizes = [("1MB", 1_000_000), ("1GB", bytes(1_000_000_000)), ("8GB", bytes(8_000_000_000))];
    let mut by_size = Vec::new();
    for (name, state_bytes) in sizes {
        let changed = 10_000.min(keys(state_bytes));
        let outcomes = each(context, &Step::Deltas { state_bytes, changed, rounds: deltas });
        add(context, &format!("C1/state-{name}"), SYNC, &outcomes);
        if name != "1MB" {
            add(context, &format!("C8/{name}"), WHOLE, &outcomes);
        }
        by_size.push(outcomes);
    }
    for (title, metrics, small) in [("C1/flat-8GB-1MB", SYNC, 0), ("C8/flat-8GB-1GB", WHOLE, 1)] {
        // What the large state costs beside the small one: 1 is flat.
        let place = Place { title, interval_s: 0.0, opponent: "self" };
        let (large, small) = (&by_size[2][0].1, &by_size[small][0].1);
        let rows = rows::rows(place, metrics, std::slice::from_ref(large), std::slice::from_ref(small));
        context.report.add(rows);
    }
    Ok(())
}

type Outcomes = Vec<(StoreKind, Option<Outcome>)>;

fn each(context: &mut Context<'_>, step: &Step) -> Outcomes {
    context.stores().into_iter().map(|store| (store, context.step(store, step.clone()))).collect()
}

fn add(context: &mut Context<'_>, title: &str, metrics: &[Metric], outcomes: &Outcomes) {
    let Some((_, Some(ours))) = outcomes.first() else { return };
    for (store, theirs) in outcomes.iter().skip(1) {
        let Some(theirs) = theirs else { continue };
        let place = Place { title, interval_s: 0.0, opponent: store.name() };
        let of = |metric: &Metric| {
            let pair = (metric.of)(ours).zip((metric.of)(theirs))?;
            row(place, metric.name, metric.more_is_better, &[pair.0], &[pair.1])
        };
        let rows = metrics.iter().filter_map(of).collect();
        context.report.add(rows);
    }
}
