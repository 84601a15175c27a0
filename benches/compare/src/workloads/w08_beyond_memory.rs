//! W8: read-modify-write of 10M values of 100 bytes, five times the memory budget. Zipf, uniform, and uniform with batched reads;
//! each with the page cache to help (`cached`) and without (`io`).

use super::{Generate, Scale, Workload, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::{StateKind, StateSpec};
use crate::values::{Rng, Zipf};

const VALUE_BYTES: u16 = 100;

const STATES: &[StateSpec] = &[StateSpec { keys_exist: true, ..state("rows", StateKind::Value) }];
const BATCHED: &[StateSpec] = &[StateSpec { keys_exist: true, ..state("rows", StateKind::Batched) }];

const fn workload(variant: &'static str, io: bool, points: bool, generate: fn(Scale) -> Box<dyn Generate>) -> Workload {
    let states = if points { STATES } else { BATCHED };
    Workload { name: "W8", variant, states, points, io, generate }
}

/// See the module.
pub const WORKLOADS: [Workload; 6] = [
    workload("zipf", false, true, |scale| Rows::boxed(scale, true, Kind::Add)),
    workload("uniform", false, true, |scale| Rows::boxed(scale, false, Kind::Add)),
    workload("batched", false, false, |scale| Rows::boxed(scale, false, Kind::AddBatched)),
    workload("io-zipf", true, true, |scale| Rows::boxed(scale, true, Kind::Add)),
    workload("io-uniform", true, true, |scale| Rows::boxed(scale, false, Kind::Add)),
    workload("io-batched", true, false, |scale| Rows::boxed(scale, false, Kind::AddBatched)),
];

struct Rows {
    keys: u64,
    events: u64,
    zipf: bool,
    kind: Kind,
}

impl Rows {
    fn boxed(scale: Scale, zipf: bool, kind: Kind) -> Box<dyn Generate> {
        Box::new(Self { keys: scale.of(10_000_000), events: scale.of(2_000_000), zipf, kind })
    }
}

impl Generate for Rows {
    fn load(&mut self, out: &mut StreamWriter) -> Result<()> {
        (0..self.keys).try_for_each(|id| out.push(Op::new(Kind::Put, 0, id).value(VALUE_BYTES, id)))
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(8);
        let zipf = self.zipf.then(|| Zipf::new(self.keys));
        for _ in 0..self.events {
            let id = match &zipf {
                Some(zipf) => zipf.next(&mut rng),
                None => rng.below(self.keys),
            };
            out.push(Op::new(self.kind, 0, id).value(VALUE_BYTES, id))?;
        }
        Ok(Lap { repeats: true, ..Lap::default() })
    }
}
