//! The process that compares: makes streams, starts stores in turns, each in a process of its own, and collects what they report.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Result;
use crate::args::Args;
use crate::checks;
use crate::child::{Job, Mode, Order, Outcome};
use crate::measure::process::remove_cgroups;
use crate::report::Report;
use crate::rows::{self, LATENCY, Place, THROUGHPUT};
use crate::stores::StoreKind;
use crate::workloads::{self, Scale, Stream, Workload, make_stream};

/// Size of the streams whose answers are checked.
const VERIFY_SCALE: f64 = 0.01;

/// Memory budget while answers are checked, so small that most is read from disk.
const VERIFY_MEMORY: u64 = 16 << 20;

/// Seconds between checkpoints of a quick run.
const QUICK_INTERVAL_S: f64 = 0.25;

/// Compares what `args` ask for.
pub fn run(args: &Args) -> Result<()> {
    if let Some(directory) = &args.directory {
        std::fs::create_dir_all(directory)?;
    }
    let scratch = match &args.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let mut report = Report::new();
    let skipped = |workload: &Workload| args.quick && workload.io && workload.variant != "io-zipf";
    for workload in workloads::all().iter().filter(|workload| args.wants(&workload.title()) && !skipped(workload)) {
        if let Err(error) = compare(args, workload, scratch.path(), &mut report) {
            report.note(format!("{}: {error}", workload.title()));
        }
    }
    checks::compare(args, scratch.path(), &mut report);
    report.finish(args)
}

/// Those that can do a workload, ours first.
fn contestants(args: &Args, workload: &Workload) -> Vec<StoreKind> {
    let takes_part = |store: &&StoreKind| match store {
        store if args.leaves_out(**store) => workload.name == "W1",
        StoreKind::Fjall | StoreKind::Redb if args.quick => workload.name == "W1",
        StoreKind::Fjall | StoreKind::Redb => workload.points && !workload.io,
        StoreKind::Hashmap => !workload.io,
        _ => true,
    };
    std::iter::once(&StoreKind::Highwater)
        .chain(args.against.iter().filter(|store| **store != StoreKind::Highwater))
        .filter(takes_part)
        .copied()
        .collect()
}

/// Intervals between checkpoints of a workload.
fn intervals(args: &Args, workload: &Workload) -> Vec<Option<f64>> {
    let mut seconds = match (args.intervals.is_empty(), args.quick) {
        (false, _) => args.intervals.clone(),
        (true, true) if workload.name == "W1" => vec![0.0, QUICK_INTERVAL_S],
        (true, true) => vec![QUICK_INTERVAL_S],
        (true, false) if matches!(workload.name, "W1" | "W2" | "W8") => vec![0.0, 60.0, 10.0, 1.0],
        (true, false) => vec![0.0, 10.0, 1.0],
    };
    // The map, which has no checkpoints, is to be met somewhere.
    if workload.name == "W1" && args.against.contains(&StoreKind::Hashmap) && !seconds.contains(&0.0) {
        seconds.push(0.0);
    }
    seconds.into_iter().map(|seconds| (seconds > 0.0).then_some(seconds)).collect()
}

fn compare(args: &Args, workload: &Workload, scratch: &Path, report: &mut Report) -> Result<()> {
    let stores = contestants(args, workload);
    if !args.no_verify && !workload.io {
        verify(args, workload, &stores, scratch, report)?;
    }
    let path = scratch.join("stream");
    let stream = make_stream(workload, Scale(args.scale()), &path)?;
    for interval_s in intervals(args, workload) {
        let stores: Vec<_> = stores.iter().filter(|s| interval_s.is_none() || s.has_checkpoints()).copied().collect();
        let mut runs = Runs::new(&stores);
        for _ in 0..args.pairs() {
            // So small a state has to be kept beyond memory all the same.
            let small = args.quick && workload.name == "W8";
            let memory_bytes = if small { VERIFY_MEMORY } else { args.memory_bytes() };
            let limited = workload.io;
            let bench = Bench { args, workload, stream: &stream, scratch, interval_s, memory_bytes, limited };
            runs.round(&bench, report)?;
        }
        runs.report(workload, interval_s, report);
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

fn verify(args: &Args, workload: &Workload, stores: &[StoreKind], scratch: &Path, report: &mut Report) -> Result<()> {
    let path = scratch.join("verify");
    let scale = Scale(VERIFY_SCALE.min(args.scale()));
    let stream = make_stream(workload, scale, &path)?;
    for store in stores.iter().filter(|store| **store != StoreKind::Hashmap) {
        let (interval_s, memory_bytes) = (Some(1.0), VERIFY_MEMORY);
        let bench = Bench { args, workload, stream: &stream, scratch, interval_s, memory_bytes, limited: false };
        match bench.start(*store, Mode::Verify) {
            Ok(outcome) => report.progress(format!(
                "{} {}: {} operations answered as the model does",
                workload.title(),
                store.name(),
                outcome.ops
            )),
            Err(error) => report.note(format!("{} {}: WRONG OR FAILED: {error}", workload.title(), store.name())),
        }
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// What all runs of an interval have in common.
pub struct Bench<'a> {
    /// The command line.
    pub args: &'a Args,
    /// What is done.
    pub workload: &'a Workload,
    /// Its operations.
    pub stream: &'a Stream,
    /// Where directories are made.
    pub scratch: &'a Path,
    /// Seconds between checkpoints.
    pub interval_s: Option<f64>,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Whether a cgroup limits the process to the budget, a tenth and 64 MiB.
    pub limited: bool,
}

impl Bench<'_> {
    /// Runs a store in a process and a directory of its own.
    pub fn start(&self, store: StoreKind, mode: Mode) -> Result<Outcome> {
        let directory = tempfile::tempdir_in(self.scratch)?;
        let objects = match self.interval_s {
            Some(_) => Some(ObjectStore::start(&directory.path().join("objects"))?),
            None => None,
        };
        let local = directory.path().join("local");
        std::fs::create_dir(&local)?;
        let job = Job {
            store,
            workload: self.workload.title(),
            stream: self.stream.clone(),
            directory: local,
            object_store: objects.as_ref().map(|objects| objects.address),
            memory_bytes: self.memory_bytes,
            limit_bytes: self.limited.then(|| self.memory_bytes / 10 * 11 + (64 << 20)),
            interval_s: self.interval_s,
            mode,
        };
        let outcome = start_child(&Order::Measure(job));
        remove_cgroups();
        outcome
    }
}

/// Runs this program as a child and returns what it reports.
pub fn start_child(order: &Order) -> Result<Outcome> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().ok_or("no standard input")?.write_all(&serde_json::to_vec(order)?)?;
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(" | ");
    Err(format!("{}: {last}", output.status).into())
}

/// The object store's process, which ends with this value.
#[derive(Debug)]
pub struct ObjectStore {
    process: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl ObjectStore {
    /// Starts one whose objects lie in `root`.
    pub fn start(root: &Path) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("object-store")
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
        Ok(Self { process, address: (Ipv4Addr::LOCALHOST, line.trim().parse()?).into() })
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs of all stores, one of each a round.
struct Runs {
    stores: Vec<StoreKind>,
    fast: Vec<Vec<Option<Outcome>>>,
    steady: Vec<Vec<Option<Outcome>>>,
    per_second: Option<f64>,
}

impl Runs {
    fn new(stores: &[StoreKind]) -> Self {
        let none = || stores.iter().map(|_| Vec::new()).collect();
        Self { stores: stores.to_vec(), fast: none(), steady: none(), per_second: None }
    }

    fn round(&mut self, bench: &Bench<'_>, report: &mut Report) -> Result<()> {
        for index in 0..self.stores.len() {
            let outcome = self.one(bench, index, Mode::Throughput, report);
            self.fast[index].push(outcome);
        }
        let rate = self.per_second.or_else(|| self.slowest());
        let Some(per_second) = rate else { return Ok(()) };
        self.per_second = rate;
        for index in 0..self.stores.len() {
            let mode = Mode::Latency { per_second, seconds: bench.args.latency_seconds(), hang_s: 0.0 };
            let outcome = self.one(bench, index, mode, report);
            self.steady[index].push(outcome);
        }
        Ok(())
    }

    fn one(&self, bench: &Bench<'_>, index: usize, mode: Mode, report: &mut Report) -> Option<Outcome> {
        let store = self.stores[index];
        match bench.start(store, mode) {
            Ok(outcome) => {
                report.ran(&bench.workload.title(), bench.interval_s, store, mode, &outcome);
                Some(outcome)
            }
            Err(error) => {
                report.note(format!("{} {} {mode:?}: {error}", bench.workload.title(), store.name()));
                None
            }
        }
    }

    /// Half of what the slowest of ours and RocksDB does, in records of the stream.
    fn slowest(&self) -> Option<f64> {
        let per_second = |outcome: &Outcome| outcome.records as f64 / (outcome.run_s + outcome.settle_s);
        let pairs = self.stores.iter().zip(&self.fast).filter(|(store, _)| store.has_checkpoints());
        let rates = pairs.filter_map(|(_, runs)| runs.last()?.as_ref().map(per_second));
        rates.reduce(f64::min).map(|slowest| slowest / 2.0)
    }

    fn report(&self, workload: &Workload, interval_s: Option<f64>, report: &mut Report) {
        let title = workload.title();
        for (index, store) in self.stores.iter().enumerate().skip(1) {
            let place = Place { title: &title, interval_s: interval_s.unwrap_or(0.0), opponent: store.name() };
            report.add(rows::rows(place, THROUGHPUT, &self.fast[0], &self.fast[index]));
            report.add(rows::rows(place, LATENCY, &self.steady[0], &self.steady[index]));
        }
        report.remember(&title, interval_s, &self.stores, &self.steady);
    }
}
