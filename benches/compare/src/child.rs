//! One store, one workload, one process: what it was told to do and what came of it, both as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::checks;
use crate::measure::apply::Applier;
use crate::measure::checkpoints::{Checkpoint, CheckpointLog, Schedule};
use crate::measure::process::{MemoryWatch, cpu_time, directory_bytes, limit_memory, resident_bytes, written_bytes};
use crate::measure::settle::{SETTLE_AT_MOST, settle};
use crate::measure::throughput::Sample;
use crate::measure::{answers::Sum, latency, throughput, verify};
use crate::object_store::client::{Client, Counts};
use crate::ops::{Lap, StreamReader};
use crate::store::Store;
use crate::stores::hashmap::Maps;
use crate::stores::{self, Setting, StoreKind, Task};
use crate::workloads::{self, Stream};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Mode {
    /// As fast as it goes.
    Throughput,
    /// At a fixed rate of operations of the stream.
    Latency {
        /// Operations a second.
        per_second: f64,
        /// For so long.
        seconds: f64,
        /// How long the object store answers nothing, from the start on.
        hang_s: f64,
    },
    /// Every answer against the model's.
    Verify,
}

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The store.
    pub store: StoreKind,
    /// Title of the workload.
    pub workload: String,
    /// Its operations.
    pub stream: Stream,
    /// A fresh directory.
    pub directory: PathBuf,
    /// Where checkpoints go.
    pub object_store: Option<SocketAddr>,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Memory that a cgroup allows, the page cache included.
    pub limit_bytes: Option<u64>,
    /// Seconds between checkpoints.
    pub interval_s: Option<f64>,
    /// What is measured.
    pub mode: Mode,
}

/// What a child reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations done.
    pub ops: u64,
    /// Records of the stream, some of which count for two operations.
    pub records: u64,
    /// Seconds of the run.
    pub run_s: f64,
    /// Seconds of background work after it.
    pub settle_s: f64,
    /// Operations that walk over many entries, and their seconds.
    pub scans: u64,
    /// See `scans`.
    pub scan_s: f64,
    /// Nanoseconds at 50 %, 99 %, 99.9 %, 99.99 % and 100 %.
    pub latency_ns: Option<[f64; 5]>,
    /// (share, nanoseconds) for a curve.
    pub curve: Vec<(f64, f64)>,
    /// Over time.
    pub samples: Vec<Sample>,
    /// How long each call of `checkpoint` held the owner up, microseconds.
    pub syncs_us: Vec<f64>,
    /// Complete ones.
    pub checkpoints: Vec<Checkpoint>,
    /// What was asked of the object store.
    pub counts: Counts,
    /// Bytes written to disk.
    pub written_bytes: u64,
    /// Local files at the end.
    pub local_bytes: u64,
    /// Most memory, less that of the idle process.
    pub memory_bytes: u64,
    /// Processor seconds.
    pub cpu_s: f64,
    /// What the store tells of itself.
    pub described: String,
    /// Figures that only one check has.
    pub figures: BTreeMap<String, f64>,
    /// Points that only one check has.
    pub points: Vec<[f64; 3]>,
}

/// What a child may be told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// To measure a workload.
    Measure(Job),
    /// To do a step of a check.
    Check(checks::Job),
}

/// Does the job.
pub fn run(job: &Job) -> Result<Outcome> {
    let workload = workloads::all()
        .into_iter()
        .find(|workload| workload.title() == job.workload)
        .ok_or_else(|| format!("no workload `{}`", job.workload))?;
    if let Some(limit) = job.limit_bytes {
        limit_memory(limit)?;
    }
    let setting = Setting {
        directory: job.directory.clone(),
        memory_bytes: job.memory_bytes,
        states: workload.states,
        object_store: job.object_store,
    };
    let client = job.object_store.map(|address| Arc::new(Client::new(address)));
    let log = CheckpointLog::new();
    let run = Child { job, log: log.clone(), client: client.clone(), idle_bytes: resident_bytes()?, setting: &setting };
    stores::open(job.store, &setting, client, &log, run)
}

struct Child<'a> {
    job: &'a Job,
    log: CheckpointLog,
    client: Option<Arc<Client>>,
    idle_bytes: u64,
    setting: &'a Setting,
}

impl Task for Child<'_> {
    fn with<S: Store>(self, mut store: S) -> Result<Outcome> {
        let stream = &self.job.stream;
        let part = |first, end, lap| StreamReader::open(&stream.path, first, end, lap);
        let mut load = part(0, stream.loaded, Lap::default())?;
        if self.job.mode == Mode::Verify {
            let measured = part(stream.loaded, stream.total, Lap::default())?;
            let ops = verify::run(&mut store, &mut Maps::open(self.setting), &mut [load, measured])?;
            return Ok(Outcome { ops, described: store.describe(), ..Outcome::default() });
        }
        let watch = MemoryWatch::start();
        let mut applier = Applier::new();
        throughput::run(&mut store, &mut applier, &mut load, None, Duration::ZERO, &mut Schedule::new(None))?;
        if stream.loaded > 0 {
            // Checkpoints find their first upload done, and nobody pays for loading.
            if self.job.interval_s.is_some() {
                store.checkpoint()?;
                store.wait_for_checkpoints()?;
            }
            settle(&mut store, SETTLE_AT_MOST)?;
        }
        let mut measured = part(stream.loaded, stream.total, stream.lap)?;
        let mut outcome = self.measure(&mut store, &mut applier, &mut measured)?;
        outcome.memory_bytes = watch.most().saturating_sub(self.idle_bytes);
        outcome.local_bytes = directory_bytes(&self.job.directory);
        outcome.described = store.describe();
        Ok(outcome)
    }
}

impl Child<'_> {
    fn measure<S: Store>(&self, store: &mut S, applier: &mut Applier, stream: &mut StreamReader) -> Result<Outcome> {
        let before = (cpu_time(), written_bytes(), self.counts());
        let every = self.job.interval_s.map(Duration::from_secs_f64);
        let mut schedule = Schedule::new(every);
        // Two checkpoints at least: a run without any says nothing of what they cost.
        let least = every.map_or(Duration::ZERO, |every| every * 9 / 4);
        let mut outcome = Outcome::default();
        let start = Instant::now();
        match self.job.mode {
            Mode::Latency { per_second, seconds, hang_s } => {
                if let Some(client) = self.client.as_ref().filter(|_| hang_s > 0.0) {
                    client.hang((hang_s * 1000.0) as u64)?;
                }
                let lasting = Duration::from_secs_f64(seconds).max(least);
                let seen = latency::run(store, applier, stream, per_second, lasting, &mut schedule)?;
                let at = |share| seen.histogram.value_at_quantile(share) as f64;
                outcome.latency_ns = Some([at(0.5), at(0.99), at(0.999), at(0.9999), seen.histogram.max() as f64]);
                outcome.curve = curve(&seen.histogram);
                outcome.samples = seen.samples;
                outcome.ops = seen.histogram.len();
                std::hint::black_box(seen.sum);
            }
            _ => {
                let total = self.job.stream.total - self.job.stream.loaded;
                let run = throughput::run(store, applier, stream, Some(total), least, &mut schedule)?;
                (outcome.ops, outcome.records) = (run.ops, run.records);
                outcome.run_s = run.time.as_secs_f64();
                (outcome.scans, outcome.scan_s) = (run.scans, run.scan_time.as_secs_f64());
                outcome.samples = run.samples;
                std::hint::black_box(run.sum);
                outcome.settle_s = settle(store, SETTLE_AT_MOST)?.as_secs_f64();
            }
        }
        store.wait_for_checkpoints()?;
        let mut sum = Sum::default();
        applier.flush(store, &mut sum)?;
        outcome.syncs_us = schedule.syncs.iter().map(|sync| sync.as_secs_f64() * 1e6).collect();
        outcome.checkpoints = self.log.since(start);
        outcome.cpu_s = (cpu_time() - before.0).as_secs_f64();
        outcome.written_bytes = written_bytes() - before.1;
        outcome.counts = self.counts().since(&before.2);
        Ok(outcome)
    }

    fn counts(&self) -> Counts {
        self.client.as_ref().map(|client| client.counts()).unwrap_or_default()
    }
}

/// The histogram from 0 % to its end, ever finer, for a plot.
fn curve(histogram: &hdrhistogram::Histogram<u64>) -> Vec<(f64, f64)> {
    let steps = (0..=60).map(|step| 1.0 - 10.0_f64.powf(-f64::from(step) / 10.0));
    let enough = |share: &f64| (1.0 - share) * histogram.len() as f64 >= 1.0;
    steps.filter(enough).map(|share| (share, histogram.value_at_quantile(share) as f64)).collect()
}
