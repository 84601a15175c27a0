//! C7: memory against the budget (plus a tenth and 32 MiB), at 64 MiB, 256 MiB and 1 GiB, in W1, W8 and W9; each once more under a cgroup
//! that allows the budget, a tenth and 64 MiB, page cache included. Against `self` the other figure is what is allowed. During restore see
//! C4.

use super::Context;
use crate::Result;
use crate::child::Mode;
use crate::parent::Bench;
use crate::rows::{Place, row};
use crate::stores::StoreKind;
use crate::workloads::{self, Scale, make_stream};

const MIB: u64 = 1 << 20;

/// See the module.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    let stores = context.stores();
    for title in ["W1", "W8/zipf", "W9"] {
        let workload = workloads::all().into_iter().find(|w| w.title() == title).ok_or("no such workload")?;
        let path = context.scratch.join("stream");
        let stream = make_stream(&workload, Scale(context.args.scale()), &path)?;
        let budgets: &[u64] = if context.args.short_checks() { &[64] } else { &[64, 256, 1024] };
        for budget in budgets {
            let name = format!("C7/{}-{budget}MiB", title.replace('/', "-"));
            let bench = |limited| Bench {
                args: context.args,
                workload: &workload,
                stream: &stream,
                scratch: context.scratch,
                interval_s: Some(1.0),
                memory_bytes: budget * MIB,
                limited,
            };
            let mut used = |store: StoreKind, limited| {
                let outcome = bench(limited).start(store, Mode::Throughput);
                let said = match &outcome {
                    Ok(outcome) => format!("{} MiB", outcome.memory_bytes / MIB),
                    Err(error) => error.to_string(),
                };
                let way = if limited { " under a cgroup" } else { "" };
                let line = format!("{name} {}{way}: {said}", store.name());
                if outcome.is_ok() {
                    context.report.progress(line)
                } else {
                    context.report.note(line)
                }
                outcome.ok().map(|outcome| outcome.memory_bytes as f64)
            };
            let Some(ours) = used(StoreKind::Highwater, false) else { continue };
            let allowed = (budget * MIB / 10 * 11 + 32 * MIB) as f64;
            let mut pairs = vec![("self", Some(allowed))];
            pairs.extend(stores.iter().skip(1).map(|store| (store.name(), used(*store, false))));
            // That it survives is what counts.
            used(StoreKind::Highwater, true);
            for (opponent, theirs) in pairs {
                let place = Place { title: &name, interval_s: 1.0, opponent };
                let found = theirs.and_then(|theirs| row(place, "memory_bytes", false, &[ours], &[theirs]));
                context.report.add(found.into_iter().collect());
            }
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
