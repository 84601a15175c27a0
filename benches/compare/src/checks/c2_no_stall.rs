//! C2: what checkpoints every second cost the hot path: throughput when saturated, throughput and p99.99 at 70 % of that, and the same
//! while the object store answers nothing.

use super::Context;
use crate::Result;
use crate::child::{Mode, Outcome};
use crate::parent::Bench;
use crate::rows::{Place, row};
use crate::stores::StoreKind;
use crate::workloads::{self, Scale, make_stream};

/// Of each store: with checkpoints over without.
#[derive(Debug, Default)]
struct Kept {
    saturated: Vec<f64>,
    at_70: Vec<f64>,
    p9999: Vec<f64>,
    p9999_hanging: Vec<f64>,
}

/// See the module.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    let all = workloads::all();
    let workload = all.first().ok_or("no workload")?;
    let path = context.scratch.join("stream");
    let stream = make_stream(workload, Scale(context.args.scale()), &path)?;
    let stores = context.stores();
    let mut kept: Vec<(StoreKind, Kept)> = stores.iter().map(|store| (*store, Kept::default())).collect();
    for _ in 0..context.args.pairs() {
        for (store, kept) in &mut kept {
            let memory_bytes = context.args.memory_bytes();
            let bench = |interval_s| Bench {
                args: context.args,
                workload,
                stream: &stream,
                scratch: context.scratch,
                interval_s,
                memory_bytes,
                limited: false,
            };
            one(*store, kept, &bench(None), &bench(Some(1.0)))?;
            context.report.progress(format!("C2 {}: {kept:?}", store.name()));
        }
    }
    std::fs::remove_file(path)?;
    let Some(((_, ours), others)) = kept.split_first() else { return Ok(()) };
    let ones: Vec<f64> = ours.saturated.iter().map(|_| 1.0).collect();
    let mut found = Vec::new();
    let mut compare = |metric: &str, more: bool, of: fn(&Kept) -> &Vec<f64>| {
        let place = |opponent| Place { title: "C2", interval_s: 1.0, opponent };
        found.extend(row(place("self"), metric, more, of(ours), &ones));
        found.extend(
            others.iter().filter_map(|(store, theirs)| row(place(store.name()), metric, more, of(ours), of(theirs))),
        );
    };
    compare("throughput_kept_saturated", true, |kept| &kept.saturated);
    compare("throughput_kept_at_70", true, |kept| &kept.at_70);
    compare("p9999_times", false, |kept| &kept.p9999);
    compare("p9999_times_hanging", false, |kept| &kept.p9999_hanging);
    context.report.add(found);
    Ok(())
}

fn one(store: StoreKind, kept: &mut Kept, without: &Bench<'_>, with: &Bench<'_>) -> Result<()> {
    let quick = without.args.short_checks();
    let per_op = |outcome: &Outcome| outcome.run_s / outcome.ops as f64;
    let free = without.start(store, Mode::Throughput)?;
    let loaded = with.start(store, Mode::Throughput)?;
    kept.saturated.push(per_op(&free) / per_op(&loaded));
    // An operation of the stream is a get and a put.
    let per_second = 0.7 / per_op(&free) / 2.0;
    let at = |hang_s: f64| Mode::Latency { per_second, seconds: without.args.latency_seconds() + hang_s, hang_s };
    let free = without.start(store, at(0.0))?;
    let loaded = with.start(store, at(0.0))?;
    let hanging = with.start(store, at(if quick { 1.0 } else { 60.0 }))?;
    let rate = |outcome: &Outcome| {
        let rates = outcome.samples.iter().map(|sample| sample.ops_per_s);
        rates.sum::<f64>() / outcome.samples.len().max(1) as f64
    };
    let tail = |outcome: &Outcome| outcome.latency_ns.map_or(0.0, |ns| ns[3]);
    kept.at_70.push(rate(&loaded) / rate(&free));
    kept.p9999.push(tail(&loaded) / tail(&free));
    kept.p9999_hanging.push(tail(&hanging) / tail(&free));
    Ok(())
}
