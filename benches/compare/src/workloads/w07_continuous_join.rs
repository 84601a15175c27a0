//! W7: a continuous join: four in five events are appended to the list of their key, the fifth replaces a row (get, delete, put)
//! and reads the list. A key is asked for about 20 events and then cleared.

use super::{Generate, Workload, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::Rng;

/// Events of a key.
const EVENTS: u64 = 20;

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W7",
    variant: "",
    states: &[state("events", StateKind::List), state("rows", StateKind::Value)],
    points: false,
    io: false,
    generate: |scale| Box::new(Join { open: scale.of(50_000), keys: scale.of(250_000) }),
}];

struct Join {
    open: u64,
    keys: u64,
}

impl Generate for Join {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(7);
        let list = |kind, id| Op::new(kind, 0, id).value(64, 0);
        let clear = |out: &mut StreamWriter, id| {
            out.push(list(Kind::TakeList, id))?;
            out.push(Op::new(Kind::Delete, 1, id))
        };
        for event in 0..self.keys * EVENTS {
            let oldest = event / EVENTS;
            let id = oldest + rng.below(self.open);
            if rng.below(5) < 4 {
                out.push(Op { extra: rng.next() as u32, ..list(Kind::Append, id) })?;
            } else {
                out.push(Op::new(Kind::Get, 1, id))?;
                out.push(Op::new(Kind::Delete, 1, id))?;
                out.push(Op::new(Kind::Put, 1, id).value(64, rng.next()))?;
                out.push(list(Kind::ReadList, id))?;
            }
            if event % EVENTS == EVENTS - 1 {
                clear(out, oldest)?;
            }
        }
        (self.keys..self.keys + self.open).try_for_each(|id| clear(out, id))?;
        Ok(Lap { id: self.keys + self.open, arg: 0, repeats: true })
    }
}
