//! As fast as it goes: operations over the time of the run and of the work it leaves behind.

use std::time::{Duration, Instant};

use super::answers::Sum;
use super::apply::Applier;
use super::checkpoints::Schedule;
use crate::Result;
use crate::ops::StreamReader;
use crate::store::Store;

/// Operations read from the stream at once.
const CHUNK: u64 = 32 << 10;

/// Operations between looks at the clock, when checkpoints are due now and then.
const LOOK_EVERY: usize = 128;

/// Operations in a part of a second.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// End of the part, seconds from the start.
    pub at_s: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Latency, where it was measured.
    pub p9999_ns: f64,
}

/// What was done, and how long it took without reading the stream.
#[derive(Debug, Default)]
pub struct Run {
    /// Operations.
    pub ops: u64,
    /// Records of the stream, some of which count for two.
    pub records: u64,
    /// Time of the run.
    pub time: Duration,
    /// Of these, operations that walk over many entries.
    pub scans: u64,
    /// Their time.
    pub scan_time: Duration,
    /// Throughput over time.
    pub samples: Vec<Sample>,
    /// So that no answer is in vain.
    pub sum: u64,
}

/// Length of a sample.
const SAMPLE: Duration = Duration::from_millis(100);

/// Goes through the stream once, or in laps until `least` has passed.
pub fn run<S: Store>(
    store: &mut S,
    applier: &mut Applier,
    stream: &mut StreamReader,
    ops: Option<u64>,
    least: Duration,
    schedule: &mut Schedule,
) -> Result<Run> {
    let mut run = Run::default();
    let mut sum = Sum::default();
    let mut chunk = Vec::new();
    let (mut sampled, mut sampled_ops) = (Duration::ZERO, 0);
    let mut read = 0;
    loop {
        let left = ops.map_or(u64::MAX, |ops| ops.saturating_sub(read));
        if left == 0 && run.time >= least {
            break;
        }
        stream.fill(&mut chunk, if left == 0 { CHUNK } else { CHUNK.min(left) })?;
        if chunk.is_empty() {
            break;
        }
        read += chunk.len() as u64;
        let start = Instant::now();
        for part in chunk.chunks(LOOK_EVERY) {
            if schedule.is_on() {
                schedule.look(store, Instant::now())?;
            }
            for op in part {
                run.ops += op.weight();
                if op.is_scan() {
                    let begun = Instant::now();
                    applier.apply(store, op, &mut sum)?;
                    run.scan_time += begun.elapsed();
                    run.scans += op.weight();
                } else {
                    applier.apply(store, op, &mut sum)?;
                }
            }
        }
        run.time += start.elapsed();
        if run.time - sampled >= SAMPLE {
            let ops_per_s = (run.ops - sampled_ops) as f64 / (run.time - sampled).as_secs_f64();
            run.samples.push(Sample { at_s: run.time.as_secs_f64(), ops_per_s, p9999_ns: 0.0 });
            (sampled, sampled_ops) = (run.time, run.ops);
        }
    }
    let start = Instant::now();
    applier.flush(store, &mut sum)?;
    run.time += start.elapsed();
    run.sum = sum.0;
    run.records = read;
    Ok(run)
}
