//! W9: maps of 10 entries under 500K keys: 30 % put, 30 % get, 10 % contains, 20 % iterate, 10 % remove and put again.

use super::{Generate, Workload, counters};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::Rng;

const ENTRIES: u64 = 10;

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W9",
    variant: "",
    states: &[counters("maps", StateKind::Map)],
    points: false,
    io: false,
    generate: |scale| Box::new(Maps { keys: scale.of(500_000), ops: scale.of(5_000_000) }),
}];

struct Maps {
    keys: u64,
    ops: u64,
}

impl Generate for Maps {
    fn load(&mut self, out: &mut StreamWriter) -> Result<()> {
        for entry in 0..ENTRIES {
            for id in 0..self.keys {
                out.push(Op::new(Kind::MapPut, 0, id).at(entry * 1000).value(8, id + entry))?;
            }
        }
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(9);
        for _ in 0..self.ops {
            let (id, entry) = (rng.below(self.keys), rng.below(ENTRIES) * 1000);
            let op = |kind| Op::new(kind, 0, id).at(entry).value(8, entry ^ id);
            match rng.below(10) {
                0..3 => out.push(op(Kind::MapPut))?,
                3..6 => out.push(op(Kind::MapGet))?,
                // Half of them aren't there.
                6 => out.push(Op { arg: entry + rng.below(2), ..op(Kind::MapContains) })?,
                7..9 => out.push(op(Kind::MapScan))?,
                _ => {
                    out.push(op(Kind::MapRemove))?;
                    out.push(op(Kind::MapPut))?;
                }
            }
        }
        Ok(Lap { repeats: true, ..Lap::default() })
    }
}
