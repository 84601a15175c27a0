//! Latency at a fixed rate of arrival, from the moment an operation should have begun. A closed loop hides stalls: what
//! stalls it stops asking.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::answers::Sum;
use super::apply::Applier;
use super::checkpoints::Schedule;
use super::throughput::Sample;
use crate::Result;
use crate::ops::{Op, StreamReader};
use crate::store::Store;

/// Operations read from the stream at once; the schedule waits meanwhile.
const CHUNK: u64 = 16 << 10;

/// Length of a sample.
const SAMPLE: Duration = Duration::from_millis(250);

/// What was seen.
#[derive(Debug)]
pub struct Latencies {
    /// Nanoseconds of each operation of the stream (an `Add` is one, a get and a put).
    pub histogram: Histogram<u64>,
    /// p99.99 over time.
    pub samples: Vec<Sample>,
    /// So that no answer is in vain.
    pub sum: u64,
}

/// Does operations of the stream for `lasting`, `per_second` of them.
pub fn run<S: Store>(
    store: &mut S,
    applier: &mut Applier,
    stream: &mut StreamReader,
    per_second: f64,
    lasting: Duration,
    schedule: &mut Schedule,
) -> Result<Latencies> {
    let mut all = histogram()?;
    let mut part = histogram()?;
    let (mut samples, mut sum) = (Vec::new(), Sum::default());
    let gap = Duration::from_secs_f64(1.0 / per_second);
    let mut chunk: Vec<Op> = Vec::new();
    let start = Instant::now();
    let mut due = start;
    let mut sampled = start;
    'run: loop {
        let reading = Instant::now();
        stream.fill(&mut chunk, CHUNK)?;
        if chunk.is_empty() {
            break;
        }
        // The generator isn't the store's fault.
        due += reading.elapsed();
        for op in &chunk {
            let mut now = Instant::now();
            while now < due {
                std::hint::spin_loop();
                now = Instant::now();
            }
            schedule.look(store, now)?;
            applier.apply(store, op, &mut sum)?;
            let done = Instant::now();
            let nanos = u64::try_from((done - due).as_nanos()).unwrap_or(u64::MAX);
            all.saturating_record(nanos);
            part.saturating_record(nanos);
            due += gap;
            if done - sampled >= SAMPLE {
                samples.push(Sample {
                    at_s: (done - start).as_secs_f64(),
                    ops_per_s: part.len() as f64 / (done - sampled).as_secs_f64(),
                    p9999_ns: part.value_at_quantile(0.9999) as f64,
                });
                part.reset();
                sampled = done;
                if done - start >= lasting {
                    break 'run;
                }
            }
        }
    }
    Ok(Latencies { histogram: all, samples, sum: sum.0 })
}

/// Up to ten minutes, three digits.
pub fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 600_000_000_000, 3)?)
}
