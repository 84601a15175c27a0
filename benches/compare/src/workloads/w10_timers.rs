//! W10: 10M timers outstanding; time goes on: pop what is due, register new ones, delete a tenth before they are due.

use super::{Generate, Workload, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::{Rng, mix};

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W10",
    variant: "",
    states: &[state("timers", StateKind::Timers)],
    points: false,
    io: false,
    generate: |scale| Box::new(Timers { outstanding: scale.of(10_000_000), steps: scale.of(2_000_000) }),
}];

struct Timers {
    outstanding: u64,
    steps: u64,
}

impl Timers {
    /// When the timer of this number is due: no two at one time, on average `outstanding` steps after it is registered.
    fn time(&self, id: u64) -> u64 {
        (id + mix(id) % (2 * self.outstanding)) << 20 | (id & 0xF_FFFF)
    }

    fn op(&self, kind: Kind, id: u64) -> Op {
        Op::new(kind, 0, id).at(self.time(id))
    }
}

impl Generate for Timers {
    fn load(&mut self, out: &mut StreamWriter) -> Result<()> {
        // Those registered in the 2 * outstanding steps before and still to come: half of them.
        let now = 2 * self.outstanding;
        (0..now).filter(|id| self.time(*id) >> 20 >= now).try_for_each(|id| out.push(self.op(Kind::TimerAdd, id)))
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(10);
        let first = 2 * self.outstanding;
        for now in first..first + self.steps {
            out.push(self.op(Kind::TimerAdd, now))?;
            out.push(Op::new(Kind::TimerPop, 0, 0).at(now << 20 | 0xF_FFFF))?;
            if rng.below(10) == 0 {
                let id = now - rng.below(self.outstanding);
                if self.time(id) >> 20 > now {
                    out.push(self.op(Kind::TimerDelete, id))?;
                }
            }
        }
        Ok(Lap::default())
    }
}
