//! C3: bytes uploaded over bytes changed, against bytes referred to over bytes alive, checkpoint by checkpoint.
//!
//! Changed is what a perfect delta would hold: of each key written since the last checkpoint and alive, key and value once;
//! of each key that the last checkpoint had and that is gone, the key.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::{Context, Job, Step};
use crate::Result;
use crate::child::Outcome;
use crate::measure::answers::Sum;
use crate::measure::apply::Applier;
use crate::measure::checkpoints::CheckpointLog;
use crate::measure::settle::{SETTLE_AT_MOST, settle};
use crate::ops::{Kind, Lap, Op, StreamReader};
use crate::rows::{Place, row};
use crate::store::Store;
use crate::stores::{self, Task};
use crate::workloads::{self, Scale, Stream, make_stream};

/// Single values as they are, seen from outside.
#[derive(Debug, Default)]
struct Changes {
    alive: HashMap<(u8, u64, u64), u32>,
    alive_bytes: u64,
    written: HashSet<(u8, u64, u64)>,
    /// Keys that the last checkpoint had and that were deleted since.
    gone: HashSet<(u8, u64, u64)>,
    /// Keys written since the last checkpoint that it didn't have.
    new: HashSet<(u8, u64, u64)>,
}

const KEY_BYTES: u64 = 16;

impl Changes {
    fn note(&mut self, op: &Op) {
        let key = (op.state, op.id, op.arg);
        match op.kind {
            Kind::Add | Kind::AddBatched | Kind::Put => {
                let bytes = KEY_BYTES as u32 + u32::from(op.len);
                match self.alive.insert(key, bytes) {
                    Some(old) => self.alive_bytes -= u64::from(old),
                    None if !self.gone.remove(&key) => drop(self.new.insert(key)),
                    None => {}
                }
                self.alive_bytes += u64::from(bytes);
                self.written.insert(key);
            }
            Kind::Delete => {
                if let Some(old) = self.alive.remove(&key) {
                    self.alive_bytes -= u64::from(old);
                    self.written.remove(&key);
                    if !self.new.remove(&key) {
                        self.gone.insert(key);
                    }
                }
            }
            _ => {}
        }
    }

    /// Bytes changed since the last call.
    fn take(&mut self) -> u64 {
        let bytes = self.written.iter().filter_map(|key| self.alive.get(key)).map(|bytes| u64::from(*bytes));
        let changed = bytes.sum::<u64>() + self.gone.len() as u64 * KEY_BYTES;
        self.written.clear();
        self.gone.clear();
        self.new.clear();
        changed
    }
}

struct Follow<'a> {
    log: CheckpointLog,
    stream: &'a Stream,
    every: u64,
    rounds: u64,
}

/// Goes through the stream with a checkpoint after every `every` operations of it.
pub fn follow(
    job: &Job,
    log: &CheckpointLog,
    workload: &str,
    stream: &Stream,
    every: u64,
    rounds: u64,
) -> Result<Outcome> {
    let workload = workloads::all().into_iter().find(|w| w.title() == workload).ok_or("no such workload")?;
    let task = Follow { log: log.clone(), stream, every, rounds };
    stores::open(job.store, &job.setting(workload.states), Some(job.client()), log, task)
}

impl Task for Follow<'_> {
    fn with<S: Store>(self, mut store: S) -> Result<Outcome> {
        let stream = self.stream;
        let (mut applier, mut changes, mut sum) = (Applier::new(), Changes::default(), Sum::default());
        let mut chunk = Vec::new();
        let mut load = StreamReader::open(&stream.path, 0, stream.loaded, Lap::default())?;
        loop {
            load.fill(&mut chunk, 4096)?;
            if chunk.is_empty() {
                break;
            }
            for op in &chunk {
                changes.note(op);
                applier.apply(&mut store, op, &mut sum)?;
            }
        }
        // What loading leaves to do isn't the deltas' fault.
        settle(&mut store, SETTLE_AT_MOST)?;
        store.checkpoint()?;
        store.wait_for_checkpoints()?;
        changes.take();
        let start = Instant::now();
        let mut measured = StreamReader::open(&stream.path, stream.loaded, stream.total, stream.lap)?;
        let mut outcome = Outcome::default();
        let (mut uploaded, mut changed) = (0, 0);
        for round in 0..self.rounds {
            let mut left = self.every;
            while left > 0 {
                measured.fill(&mut chunk, left.min(4096))?;
                if chunk.is_empty() {
                    return Err("the stream is too short".into());
                }
                left -= chunk.len() as u64;
                for op in &chunk {
                    changes.note(op);
                    applier.apply(&mut store, op, &mut sum)?;
                }
            }
            changed += changes.take();
            store.checkpoint()?.ok_or("no checkpoint was made")?;
            store.wait_for_checkpoints()?;
            uploaded += self.log.since(start).last().map_or(0, |c| c.uploaded_bytes);
            let amplification = uploaded as f64 / changed.max(1) as f64;
            let space = store.referenced_bytes() as f64 / changes.alive_bytes.max(1) as f64;
            outcome.points.push([round as f64, amplification, space]);
        }
        outcome.checkpoints = self.log.since(start);
        let last = outcome.points.last().copied().unwrap_or_default();
        let late = &outcome.points[outcome.points.len() / 2..];
        let space = late.iter().map(|point| point[2]).fold(0.0, f64::max);
        outcome.figures.insert("upload_amplification".into(), last[1]);
        outcome.figures.insert("space_amplification".into(), space);
        outcome.described = format!("upload amplification {:.2}, space at most {space:.2}", last[1]);
        std::hint::black_box(sum.0);
        Ok(outcome)
    }
}

/// See the module. Space is the greatest of the second half.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    let rounds = if context.args.quick { 10 } else { 200 };
    for (title, every) in [("W1", 100_000), ("W2", 50_000), ("W8/zipf", 20_000), ("W8/uniform", 20_000)] {
        let workload = workloads::all().into_iter().find(|w| w.title() == title).ok_or("no such workload")?;
        let (scale, path) = (Scale(context.args.scale()), context.scratch.join("stream"));
        let stream = make_stream(&workload, scale, &path)?;
        let step = Step::Amplification { workload: title.to_owned(), stream, every: scale.of(every), rounds };
        let mut outcomes = Vec::new();
        for store in context.stores() {
            outcomes.push((store, context.step(store, step.clone())));
        }
        std::fs::remove_file(&path)?;
        let title = format!("C3/{}", title.replace('/', "-"));
        let Some((_, Some(ours))) = outcomes.first() else { continue };
        for (store, theirs) in outcomes.iter().skip(1) {
            let Some(theirs) = theirs else { continue };
            let place = Place { title: &title, interval_s: 0.0, opponent: store.name() };
            let of = |name: &str| {
                let pair = ours.figures.get(name).copied().zip(theirs.figures.get(name).copied())?;
                row(place, name, false, &[pair.0], &[pair.1])
            };
            let rows = ["upload_amplification", "space_amplification"].into_iter().filter_map(of).collect();
            context.report.add(rows);
        }
        context.report.remember_curves(&title, &outcomes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_and_dies_between_two_checkpoints_is_no_change() {
        let mut changes = Changes::default();
        let op = |kind, id| Op::new(kind, 0, id).value(8, 0);
        changes.note(&op(Kind::Add, 1));
        changes.note(&op(Kind::Add, 1));
        changes.note(&op(Kind::Add, 2));
        changes.note(&op(Kind::Delete, 2));
        assert_eq!((changes.take(), changes.alive_bytes), (24, 24));
        changes.note(&op(Kind::Delete, 1));
        assert_eq!((changes.take(), changes.alive_bytes), (16, 0));
        changes.note(&op(Kind::Delete, 1));
        assert_eq!(changes.take(), 0);
    }
}
