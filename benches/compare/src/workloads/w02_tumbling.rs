//! W2: counts in tumbling windows, about 8 events each; 50 % get, 44 % put, 6 % delete. Ids are sequential in time, so state is
//! short-lived and lies close together.

use super::{Generate, Workload, counters};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::Rng;

/// Events of a window.
const EVENTS: u64 = 8;

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W2",
    variant: "",
    states: &[counters("counts", StateKind::Windowed)],
    points: true,
    io: false,
    generate: |scale| Box::new(Tumbling { open: scale.of(100_000), windows: scale.of(1_250_000) }),
}];

struct Tumbling {
    /// Keys that have a window open at one time.
    open: u64,
    windows: u64,
}

impl Generate for Tumbling {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(2);
        let window = |id: u64| id / self.open;
        let fire = |out: &mut StreamWriter, id: u64| {
            out.push(Op::new(Kind::Get, 0, id).at(window(id)))?;
            out.push(Op::new(Kind::Delete, 0, id).at(window(id)))
        };
        for event in 0..self.windows * EVENTS {
            let oldest = event / EVENTS;
            let id = oldest + rng.below(self.open);
            out.push(Op::new(Kind::Add, 0, id).at(window(id)).value(8, 0))?;
            if event % EVENTS == EVENTS - 1 {
                fire(out, oldest)?;
            }
        }
        (self.windows..self.windows + self.open).try_for_each(|id| fire(out, id))?;
        let ids = (self.windows + 2 * self.open) / self.open * self.open;
        Ok(Lap { id: ids, arg: ids / self.open, repeats: true })
    }
}
