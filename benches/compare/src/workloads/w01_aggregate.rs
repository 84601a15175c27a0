//! W1: read-modify-write of counters under 1M keys, Zipf.

use super::{Generate, Workload, counters};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::{StateKind, StateSpec};
use crate::values::{Rng, Zipf};

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W1",
    variant: "",
    states: &[StateSpec { keys_exist: true, ..counters("counts", StateKind::Value) }],
    points: true,
    io: false,
    generate: |scale| Box::new(Aggregate { keys: scale.of(1_000_000), events: scale.of(10_000_000) }),
}];

struct Aggregate {
    keys: u64,
    events: u64,
}

impl Generate for Aggregate {
    fn load(&mut self, out: &mut StreamWriter) -> Result<()> {
        (0..self.keys).try_for_each(|id| out.push(Op::new(Kind::Put, 0, id).value(8, id)))
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let (zipf, mut rng) = (Zipf::new(self.keys), Rng::new(1));
        for _ in 0..self.events {
            out.push(Op::new(Kind::Add, 0, zipf.next(&mut rng)).value(8, 0))?;
        }
        Ok(Lap { repeats: true, ..Lap::default() })
    }
}
