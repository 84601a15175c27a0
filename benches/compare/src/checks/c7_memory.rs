//! C7: memory against the budget (plus a tenth and 32 MiB), at 64 MiB, 256 MiB and 1 GiB, in W1, W8 and W9; each once more under a cgroup
//! that allows the budget, a tenth and 64 MiB, page cache included. During restore see C4.

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
    for title in ["W1", "W8/zipf", "W9"] {
        let workload = workloads::all().into_iter().find(|w| w.title() == title).ok_or("no such workload")?;
        let path = context.scratch.join("stream");
        let stream = make_stream(&workload, Scale(context.args.scale()), &path)?;
        let budgets: &[u64] = if context.args.quick { &[64] } else { &[64, 256, 1024] };
        for budget in budgets {
            for store in context.stores() {
                for limited in [false, true] {
                    if limited && store != StoreKind::Highwater {
                        continue;
                    }
                    let bench = Bench {
                        args: context.args,
                        workload: &workload,
                        stream: &stream,
                        scratch: context.scratch,
                        interval_s: Some(1.0),
                        memory_bytes: budget * MIB,
                        limited,
                    };
                    let title =
                        format!("C7/{}-{budget}MiB{}", title.replace('/', "-"), if limited { "-cgroup" } else { "" });
                    match bench.start(store, Mode::Throughput) {
                        Ok(outcome) => {
                            let used = outcome.memory_bytes;
                            context.report.progress(format!("{title} {}: {} MiB", store.name(), used / MIB));
                            let allowed = (budget * MIB / 10 * 11 + 32 * MIB) as f64;
                            // Over 1 when it holds; the store stands where the opponent would.
                            let place = Place {
                                title: &title,
                                interval_s: 1.0,
                                opponent: match store {
                                    StoreKind::Highwater => "self",
                                    other => other.name(),
                                },
                            };
                            let found = row(place, "memory_of_allowed", false, &[used as f64], &[allowed]);
                            context.report.add(found.into_iter().collect());
                        }
                        Err(error) => context.report.note(format!("{title} {}: {error}", store.name())),
                    }
                }
            }
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
