//! W6: two streams joined where their times are close: each event is put on its own side, the other side is scanned from 180 s
//! before it to 120 s after it, and what nobody can ask for any more is removed. About ten matches an event.

use std::collections::VecDeque;

use super::{Generate, Workload, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::{StateKind, StateSpec};
use crate::values::Rng;

const BEFORE_US: u64 = 180_000_000;
const AFTER_US: u64 = 120_000_000;

/// Mean time between a key's events on one side.
const MEAN_US: f64 = 30_000_000.0;

const STATES: &[StateSpec] = &[state("left", StateKind::Map), state("right", StateKind::Map)];

/// See the module.
pub const WORKLOADS: [Workload; 2] = [
    Workload {
        name: "W6",
        variant: "10",
        states: STATES,
        points: false,
        io: false,
        generate: |scale| Box::new(Join { keys: scale.of(20_000), events: scale.of(1_500_000), value_bytes: 10 }),
    },
    Workload {
        name: "W6",
        variant: "200",
        states: STATES,
        points: false,
        io: false,
        generate: |scale| Box::new(Join { keys: scale.of(20_000), events: scale.of(1_500_000), value_bytes: 200 }),
    },
];

struct Join {
    keys: u64,
    events: u64,
    value_bytes: u16,
}

impl Generate for Join {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(6);
        let gap = MEAN_US / (2 * self.keys) as f64;
        let mut now = BEFORE_US as f64;
        let mut kept = VecDeque::new();
        let (mut previous, mut last) = (0, 0);
        for _ in 0..self.events {
            now += rng.exponential(gap);
            // No two events at one time.
            let time = (now as u64).max(previous + 1);
            previous = time;
            let (side, id) = (rng.below(2) as u8, rng.below(self.keys));
            out.push(Op::new(Kind::MapPut, side, id).at(time).value(self.value_bytes, rng.next()))?;
            let range = Op::new(Kind::MapRange, 1 - side, id).at(time - BEFORE_US);
            out.push(Op { extra: (BEFORE_US + AFTER_US) as u32, ..range })?;
            kept.push_back((time, side, id));
            while let Some((time, side, id)) = kept.front().copied().filter(|(t, ..)| t + BEFORE_US < previous) {
                kept.pop_front();
                out.push(Op::new(Kind::MapRemove, side, id).at(time))?;
            }
            last = previous;
        }
        kept.into_iter().try_for_each(|(time, side, id)| out.push(Op::new(Kind::MapRemove, side, id).at(time)))?;
        Ok(Lap { id: 0, arg: last + 2 * BEFORE_US, repeats: true })
    }
}
