//! W12: 10M keys that were never seen: get, which misses, and put.

use super::{Generate, Workload, counters};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W12",
    variant: "",
    states: &[counters("counts", StateKind::Value)],
    points: true,
    io: false,
    generate: |scale| Box::new(NewKeys { keys: scale.of(10_000_000) }),
}];

struct NewKeys {
    keys: u64,
}

impl Generate for NewKeys {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        (0..self.keys).try_for_each(|id| out.push(Op::new(Kind::Add, 0, id).value(8, 0)))?;
        Ok(Lap::default())
    }
}
