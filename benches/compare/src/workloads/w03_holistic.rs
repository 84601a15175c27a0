//! W3: all elements of a tumbling window kept in a list and read when it fires; about 8 and about 1,000 of 64 bytes.

use super::{Generate, Workload, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::Rng;

const ELEMENT_BYTES: u16 = 64;

/// See the module.
pub const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "W3",
        variant: "8",
        states: &[state("elements", StateKind::List)],
        points: false,
        io: false,
        generate: |scale| Box::new(Holistic { open: scale.of(100_000), windows: scale.of(1_000_000), elements: 8 }),
    },
    Workload {
        name: "W3",
        variant: "1000",
        states: &[state("elements", StateKind::List)],
        points: false,
        io: false,
        generate: |scale| Box::new(Holistic { open: scale.of(1_000), windows: scale.of(8_000), elements: 1_000 }),
    },
];

struct Holistic {
    open: u64,
    windows: u64,
    elements: u64,
}

impl Generate for Holistic {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(3);
        let op = |kind, id: u64| Op::new(kind, 0, id).at(id / self.open).value(ELEMENT_BYTES, 0);
        for event in 0..self.windows * self.elements {
            let oldest = event / self.elements;
            let id = oldest + rng.below(self.open);
            out.push(Op { extra: rng.next() as u32, ..op(Kind::Append, id) })?;
            if event % self.elements == self.elements - 1 {
                out.push(op(Kind::TakeList, oldest))?;
            }
        }
        let rest = self.windows..self.windows + self.open;
        rest.into_iter().try_for_each(|id| out.push(op(Kind::TakeList, id)))?;
        let ids = (self.windows + 2 * self.open) / self.open * self.open;
        Ok(Lap { id: ids, arg: ids / self.open, repeats: true })
    }
}
