//! W4: counts in sliding windows five slides long: each event is counted in five. Gaps between events are exponential, and one
//! in a hundred comes late, by up to two slides.

use std::collections::{BTreeMap, HashSet};

use super::{Generate, Workload, counters};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::Rng;

/// Slides of a window.
const SLIDES: u64 = 5;

/// Events of a key in a window.
const EVENTS: f64 = 8.0;

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W4",
    variant: "",
    states: &[counters("counts", StateKind::Windowed)],
    points: true,
    io: false,
    generate: |scale| Box::new(Sliding { keys: scale.of(20_000), events: scale.of(1_500_000) }),
}];

struct Sliding {
    keys: u64,
    events: u64,
}

fn fire(out: &mut StreamWriter, window: u64, keys: HashSet<u64>) -> Result<()> {
    let mut keys: Vec<u64> = keys.into_iter().collect();
    keys.sort_unstable();
    for id in keys {
        out.push(Op::new(Kind::Get, 0, id).at(window))?;
        out.push(Op::new(Kind::Delete, 0, id).at(window))?;
    }
    Ok(())
}

impl Generate for Sliding {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(4);
        // In slides.
        let gap = SLIDES as f64 / (EVENTS * self.keys as f64);
        let mut now = 2.0;
        let mut open = BTreeMap::<u64, HashSet<u64>>::new();
        let mut last = 0;
        for _ in 0..self.events {
            now += rng.exponential(gap);
            let late = if rng.below(100) == 0 { rng.unit() * 2.0 } else { 0.0 };
            let id = rng.below(self.keys);
            let slide = (now - late) as u64;
            for window in slide..slide + SLIDES {
                out.push(Op::new(Kind::Add, 0, id).at(window).value(8, 0))?;
                open.entry(window).or_default().insert(id);
            }
            last = last.max(slide + SLIDES);
            // Two slides later nothing comes any more for the windows that ended.
            while let Some(entry) = open.first_entry().filter(|entry| *entry.key() + 2 < now as u64) {
                let (window, keys) = entry.remove_entry();
                fire(out, window, keys)?;
            }
        }
        open.into_iter().try_for_each(|(window, keys)| fire(out, window, keys))?;
        Ok(Lap { id: 0, arg: last + 1, repeats: true })
    }
}
