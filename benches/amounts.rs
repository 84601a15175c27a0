//! What state costs in bytes and requests: fixed scripts, every background job stepped, so that the figures repeat to the digit.
//!
//! `cargo bench --bench amounts` prints them, `-- --check` compares them with `benches/amounts.tsv` and fails where one has grown by more than a twentieth,
//! `-- --write` writes that file anew. Each script checkpoints every so many changes and collects garbage every few checkpoints; what is counted are the
//! bytes of local files and of objects for each change, and the requests to the store for each checkpoint, that of the garbage collector included.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use highwater::base::clock::ManualClock;
use highwater::base::executor::StepExecutor;
use highwater::base::random::SeededRandom;
use highwater::io::faulty::{Call, Faults, FaultyFiles, FaultyStore};
use highwater::io::local_files::LocalFiles;
use highwater::io::memory_store::MemoryStore;
use highwater::io::store::Store;
use highwater::{
    Backend, CheckpointKind, Coordinator, CoordinatorSettings, Environment, KeyedState, Operator, Subtask,
};

use self::common::mix;

mod common;

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/amounts.tsv");

/// The least memory there is, so that little data reaches every part of the engine.
const MEMORY_BYTES: u64 = 16 << 20;

/// Changes between two rounds of background work.
const STEP: u64 = 500;

/// Checkpoints between two collections of garbage.
const COLLECT: u64 = 8;

/// What went through the seams.
#[derive(Default)]
struct Seen {
    disk_bytes: AtomicU64,
    uploaded_bytes: AtomicU64,
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
}

/// A backend whose seams are counted: files and objects by their lengths as they go, or at the end.
struct Counted {
    backend: Backend,
    coordinator: Coordinator,
    env: Environment,
    executor: Arc<StepExecutor>,
    clock: Arc<ManualClock>,
    objects: Arc<MemoryStore>,
    seen: Arc<Seen>,
    directory: tempfile::TempDir,
    checkpoints: u64,
}

fn count_request(call: &Call<'_>, seen: &Seen, objects: &MemoryStore) {
    let counter = match call.operation {
        "put" | "put_stream" => &seen.puts,
        "get" | "get_range" | "length" => &seen.gets,
        "list" => &seen.lists,
        "delete" => {
            seen.uploaded_bytes.fetch_add(objects.length(call.name).unwrap_or(0), Relaxed);
            return;
        }
        _ => return,
    };
    counter.fetch_add(1, Relaxed);
}

impl Counted {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (executor, clock) = (Arc::new(StepExecutor::new()), Arc::new(ManualClock::at_ms(1_000_000)));
        let objects = Arc::new(MemoryStore::new(clock.clone()));
        let seen = Arc::<Seen>::default();
        let (of_files, of_store, stored) = (seen.clone(), seen.clone(), objects.clone());
        let files = Faults::when(move |call| {
            if call.operation == "remove" {
                of_files.disk_bytes.fetch_add(std::fs::metadata(call.name).map_or(0, |meta| meta.len()), Relaxed);
            }
            None
        });
        let requests = Faults::when(move |call| {
            count_request(call, &of_store, &stored);
            None
        });
        let operator = Operator::new("amounts", 128);
        let env = Environment::builder(directory.path())
            .memory_bytes(MEMORY_BYTES)
            .disk_bytes(1 << 40)
            .store_with(Arc::new(FaultyStore::new(objects.clone(), requests)))
            .files(Arc::new(FaultyFiles::new(Arc::new(LocalFiles::new()), files)))
            .clock(clock.clone())
            .random(Arc::new(SeededRandom::new(7)))
            .executors(executor.clone(), executor.clone())
            .checkpoints(CoordinatorSettings {
                retain: 1,
                grace: Duration::from_secs(2),
                ..CoordinatorSettings::default()
            })
            .open()
            .unwrap();
        let coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
        let backend = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
        Self { backend, coordinator, env, executor, clock, objects, seen, directory, checkpoints: 0 }
    }

    fn checkpoint(&mut self) {
        self.clock.advance(Duration::from_secs(1));
        self.checkpoints += 1;
        let id = self.checkpoints;
        self.coordinator.begin(id).unwrap();
        let ticket = self.backend.checkpoint(id, CheckpointKind::Incremental, b"offsets").unwrap();
        self.executor.run_until_idle();
        let completed = self.coordinator.add(ticket.wait(Duration::ZERO).unwrap()).unwrap();
        assert_eq!(completed.unwrap().id().id, id);
        self.backend.confirm(id).unwrap();
        if id.is_multiple_of(COLLECT) {
            self.env.collect_garbage(&self.coordinator.collector()).unwrap();
        }
    }

    /// Makes so many changes, with a checkpoint after every `interval` of them.
    fn run(
        mut self,
        name: &'static str,
        changes: u64,
        interval: u64,
        mut change: impl FnMut(&mut Backend, u64),
    ) -> Amounts {
        for n in 0..changes {
            change(&mut self.backend, n);
            if (n + 1) % STEP == 0 {
                self.executor.run_until_idle();
            }
            if (n + 1) % interval == 0 {
                self.checkpoint();
            }
        }
        self.executor.run_until_idle();
        let seen = &self.seen;
        let left: u64 = self.objects.list("").unwrap().iter().map(|object| object.length_bytes).sum();
        let uploaded = seen.uploaded_bytes.load(Relaxed) + left;
        let disk = seen.disk_bytes.load(Relaxed) + bytes_below(self.directory.path());
        let each = |count: &AtomicU64| count.load(Relaxed) as f64 / self.checkpoints as f64;
        Amounts {
            name: name.into(),
            figures: [
                disk as f64 / changes as f64,
                uploaded as f64 / changes as f64,
                each(&seen.puts),
                each(&seen.gets),
                each(&seen.lists),
            ],
        }
    }
}

/// Waiting jobs hold the environment that holds their executor.
impl Drop for Counted {
    fn drop(&mut self) {
        self.executor.clear();
    }
}

fn bytes_below(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| if entry.path().is_dir() { bytes_below(&entry.path()) } else { entry.metadata().unwrap().len() })
        .sum()
}

fn scattered(n: u64, below: u64) -> u64 {
    mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % below
}

/// Counters of 10,000 keys, a few of them much hotter than the others.
fn hot_updates() -> Amounts {
    let mut counted = Counted::new();
    let state = counted.backend.value_state::<u64, u64>("counters").unwrap();
    counted.run("hot_updates", 400_000, 10_000, move |b, n| {
        let id = scattered(n, 1 + scattered(n ^ 0x5851, 10_000));
        let old = state.get(b, &id).unwrap().unwrap_or(0);
        state.put(b, &id, old + 1).unwrap();
    })
}

/// Windows that take four records and go: the greater part of what is written is dead by the next checkpoint.
fn short_lived_windows() -> Amounts {
    let mut counted = Counted::new();
    let state = counted.backend.value_state::<u64, [u8; 32]>("windows").unwrap();
    counted.run("short_lived_windows", 400_000, 10_000, move |b, n| {
        let window = n / 4 + scattered(n, 500);
        state.put(b, &window, [n as u8; 32]).unwrap();
        if n.is_multiple_of(4)
            && let Some(old) = (n / 4).checked_sub(1)
        {
            state.clear(b, &old).unwrap();
        }
    })
}

/// Uniform updates of more state than there is memory, so that every level of the tree is merged.
fn beyond_memory() -> Amounts {
    let mut counted = Counted::new();
    let state = counted.backend.value_state::<u64, [u8; 64]>("rows").unwrap();
    counted.run("beyond_memory", 1_000_000, 50_000, move |b, n| {
        let id = scattered(n, 400_000);
        let mut row = [0; 64];
        row[..8].copy_from_slice(&mix(n).to_le_bytes());
        row[8..16].copy_from_slice(&mix(!n).to_le_bytes());
        state.put(b, &id, row).unwrap();
    })
}

const SCRIPTS: [fn() -> Amounts; 3] = [hot_updates, short_lived_windows, beyond_memory];

const FIGURES: [&str; 5] =
    ["disk bytes a change", "uploaded bytes a change", "puts a checkpoint", "gets a checkpoint", "lists a checkpoint"];

/// What one script costs.
#[derive(Debug, Clone, PartialEq)]
struct Amounts {
    name: String,
    figures: [f64; 5],
}

impl Amounts {
    fn line(&self) -> String {
        let figures: Vec<String> = self.figures.iter().map(|figure| format!("{figure:.3}")).collect();
        format!("{}\t{}\n", self.name, figures.join("\t"))
    }

    fn parse(line: &str) -> Self {
        let mut fields = line.split('\t');
        let name = fields.next().unwrap().into();
        let figures: Vec<f64> = fields.map(|field| field.parse().unwrap()).collect();
        Self { name, figures: figures.try_into().unwrap() }
    }
}

/// False when a figure has grown by more than a twentieth.
fn check(amounts: &[Amounts]) -> bool {
    let text = std::fs::read_to_string(BASELINE).unwrap();
    let baseline: Vec<Amounts> = text.lines().filter(|line| !line.starts_with('#')).map(Amounts::parse).collect();
    assert_eq!(amounts.len(), baseline.len(), "benches/amounts.tsv is of other scripts: write it anew");
    let mut good = true;
    for (now, was) in amounts.iter().zip(&baseline) {
        assert_eq!(now.name, was.name);
        for ((now_is, it_was), figure) in now.figures.iter().zip(was.figures).zip(FIGURES) {
            if *now_is > it_was * 1.05 + 0.001 {
                println!("{}: {now_is:.3} {figure}, {it_was:.3} in benches/amounts.tsv", now.name);
                good = false;
            }
        }
    }
    good
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let amounts: Vec<Amounts> = SCRIPTS.iter().map(|script| script()).collect();
    let text = format!("# script\t{}\n{}", FIGURES.join("\t"), amounts.iter().map(Amounts::line).collect::<String>());
    print!("{text}");
    if has("--write") {
        std::fs::write(BASELINE, text).unwrap();
    }
    if has("--check") && !check(&amounts) {
        std::process::exit(1);
    }
}
