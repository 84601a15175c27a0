//! How many requests it takes: a restore to its first correct read, counted as those of which each waits for the one
//! before, and a checkpoint.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{MemoryStore, operator, tiny};
use highwater::base::cursor::Direction;
use highwater::base::executor::StepExecutor;
use highwater::io::store::{ObjectEntry, PutMode, Request, Store};
use highwater::*;
use parking_lot::Mutex;

/// Operation, object, and bytes of a range.
type Asked = (&'static str, String, u64);

/// A store whose clock ticks once for each request, or for all those that are made together.
#[derive(Debug, Default)]
struct Rounds {
    inner: Arc<MemoryStore>,
    seen: Mutex<Vec<Vec<Asked>>>,
}

impl Rounds {
    fn tick(&self, requests: Vec<Asked>) {
        self.seen.lock().push(requests);
    }

    fn one(&self, operation: &'static str, name: &str) {
        self.tick(vec![(operation, name.to_owned(), 0)]);
    }

    /// What was asked for since the last call.
    fn take(&self) -> Vec<Vec<Asked>> {
        std::mem::take(&mut self.seen.lock())
    }
}

impl Store for Rounds {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.one("put", name);
        self.inner.put(name, bytes, mode)
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        self.one("put", name);
        self.inner.put_stream(name, chunks, mode)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.one("get", name);
        self.inner.get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.tick(vec![("get", name.to_owned(), range.end - range.start)]);
        self.inner.get_range(name, range)
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        let seen = requests.iter().map(|request| match request {
            Request::Put(name, ..) => ("put", name.clone(), 0),
            Request::Get(name) => ("get", name.clone(), 0),
            Request::GetRange(name, range) => ("get", name.clone(), range.end - range.start),
            Request::Delete(name) => ("delete", name.clone(), 0),
        });
        assert!(!requests.is_empty(), "a round of nothing");
        self.tick(seen.collect());
        self.inner.together(requests)
    }

    fn length(&self, name: &str) -> Result<u64> {
        self.one("get", name);
        self.inner.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        self.one("list", prefix);
        self.inner.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.one("delete", name);
        self.inner.delete(name)
    }
}

/// A process over the store, whose background work is done when the test says so.
struct Process {
    env: Environment,
    executor: Arc<StepExecutor>,
    _directory: tempfile::TempDir,
}

impl Process {
    fn start(store: &Arc<Rounds>, eager: bool) -> Self {
        Self::start_with(store, eager, tiny())
    }

    fn start_with(store: &Arc<Rounds>, eager: bool, tuning: Tuning) -> Self {
        let (directory, executor) = (tempfile::tempdir().unwrap(), Arc::new(StepExecutor::new()));
        let env = Environment::builder(directory.path())
            .memory_bytes(16 << 20)
            .store_with(store.clone())
            .executors(executor.clone(), executor.clone())
            .eager_restore(eager)
            .tuning(tuning)
            .open()
            .unwrap();
        Self { env, executor, _directory: directory }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.executor.clear();
    }
}

fn value(key: u32) -> String {
    format!("value {key} {}", key.wrapping_mul(0x9e37_79b9))
}

/// Entries of a map and elements of a list.
const IN_EACH: u32 = 20;

struct Task {
    backend: Backend,
    values: ValueState<u32, String>,
    entries: MapState<u32, u32, u32>,
    lists: ListState<u32, u32>,
}

impl Task {
    fn open(env: &Environment, index: u32, parallelism: u32, from: Option<&CompletedCheckpoint>) -> Self {
        let mut backend = env.backend(&operator(), Subtask { index, parallelism }, from).unwrap();
        let values = backend.value_state("values").unwrap();
        let entries = backend.map_state("entries").unwrap();
        let lists = backend.list_state("lists").unwrap();
        Self { backend, values, entries, lists }
    }

    fn owns(&self, key: u32) -> bool {
        self.backend.key_groups().contains(self.backend.key_group_of(&key.to_be_bytes()))
    }

    fn write(&mut self, key: u32) {
        self.values.put(&mut self.backend, &key, value(key)).unwrap();
        if key.is_multiple_of(10) {
            for n in 0..IN_EACH {
                self.entries.put(&mut self.backend, &key, &n, key + n).unwrap();
                self.lists.add(&mut self.backend, &key, key + n).unwrap();
            }
        }
    }

    fn read_value(&mut self, key: u32) {
        assert_eq!(self.values.get(&mut self.backend, &key).unwrap(), Some(value(key)), "{key}");
    }

    fn read_map(&mut self, key: u32) {
        let found = self.entries.iter(&mut self.backend, &key, Direction::Forward).unwrap();
        let found: Vec<_> = found.map(|entry| entry.unwrap()).collect();
        assert_eq!(found, (0..IN_EACH).map(|n| (n, key + n)).collect::<Vec<_>>(), "{key}");
    }

    fn read_list(&mut self, key: u32) {
        let found = self.lists.get(&mut self.backend, &key).unwrap();
        assert_eq!(found, (0..IN_EACH).map(|n| key + n).collect::<Vec<_>>(), "{key}");
    }
}

/// Writes `keys` at `parallelism` subtasks, from the newest checkpoint if there is one, and completes four checkpoints:
/// the state comes to lie on several levels.
fn fill(store: &Arc<Rounds>, parallelism: u32, keys: Range<u32>) {
    fill_with(store, parallelism, keys, tiny());
}

fn fill_with(store: &Arc<Rounds>, parallelism: u32, keys: Range<u32>, tuning: Tuning) {
    let process = Process::start_with(store, false, tuning);
    let last = process.env.latest_checkpoint().unwrap();
    let mut coordinator = process.env.coordinator(&[(&operator(), parallelism)]).unwrap();
    let open = |index| Task::open(&process.env, index, parallelism, last.as_ref());
    let mut tasks: Vec<_> = (0..parallelism).map(open).collect();
    for id in 1..=4 {
        for key in keys.clone().filter(|key| key % 4 == id % 4) {
            tasks.iter_mut().find(|task| task.owns(key)).unwrap().write(key);
            if key % 64 < 4 {
                process.executor.run_until_idle();
            }
        }
        coordinator.begin(id.into()).unwrap();
        let mut completed = None;
        for task in &mut tasks {
            let ticket = task.backend.checkpoint(id.into(), CheckpointKind::Incremental, b"").unwrap();
            process.executor.run_until_idle();
            completed = coordinator.add(ticket.wait(Duration::ZERO).unwrap()).unwrap();
        }
        assert!(completed.is_some());
    }
}

/// The longest chain of requests from nothing to the first `read` of `keys`: those that open the root, then those of the
/// subtask that makes the most of them; in a job each has a thread of its own.
fn chain(store: &Arc<Rounds>, parallelism: u32, keys: Range<u32>, read: fn(&mut Task, u32)) -> usize {
    let process = Process::start(store, false);
    store.take();
    let last = process.env.latest_checkpoint().unwrap();
    let opened = store.take().len();
    let of_subtask = |index| {
        let mut task = Task::open(&process.env, index, parallelism, last.as_ref());
        let key = keys.clone().step_by(10).find(|key| task.owns(*key)).unwrap();
        read(&mut task, key);
        let asked = store.take();
        assert!(!asked.is_empty(), "nothing was read from the store");
        asked.len()
    };
    opened + (0..parallelism).map(of_subtask).max().unwrap()
}

fn segments(store: &Rounds) -> usize {
    store.inner.list("").unwrap().iter().filter(|object| object.name.ends_with(".seg")).count()
}

const READS: [fn(&mut Task, u32); 3] = [Task::read_value, Task::read_map, Task::read_list];

/// List, newest entry, claim beside manifests, the look whether it counts beside the ends of segments, block.
#[test]
fn the_first_read_after_a_restore_or_a_rescale_waits_for_five_rounds_of_requests() {
    let store = Arc::new(Rounds::default());
    fill(&store, 2, 0..800);
    let mut written = 800;
    for parallelism in [2, 3, 1, 4] {
        assert!(segments(&store) > 30, "{}", segments(&store));
        for (which, read) in READS.into_iter().enumerate() {
            for first in [0, 400, written - 400] {
                let rounds = chain(&store, parallelism, first..written, read);
                assert!(rounds <= 5, "{rounds} at parallelism {parallelism}, keys from {first}, read {which}");
            }
        }
        fill(&store, parallelism, written..written + 200);
        written += 200;
    }
}

/// As much state as has indexes that aren't all fetched ahead: once more, for the ends of the segments that the key may be in.
#[test]
fn the_first_read_of_a_state_with_many_segments_waits_for_six() {
    let store = Arc::new(Rounds::default());
    // Merged but once.
    fill_with(&store, 1, 0..6000, Tuning { level_base_bytes: 1 << 20, level_zero_runs: 8, ..tiny() });
    assert!(segments(&store) > 400, "{}", segments(&store));
    for parallelism in [1, 4] {
        for (which, read) in READS.into_iter().enumerate() {
            for first in [0, 5000] {
                let rounds = chain(&store, parallelism, first..6000, read);
                assert!(rounds <= 6, "{rounds} at parallelism {parallelism}, keys from {first}, read {which}");
            }
        }
    }
}

/// One put of a segment, one of the manifest, one of the log entry; a look at the entry before; and the oldest entry goes.
#[test]
fn an_incremental_checkpoint_is_three_puts_and_one_small_get() {
    let store = Arc::new(Rounds::default());
    let process = Process::start(&store, false);
    assert!(process.env.latest_checkpoint().unwrap().is_none());
    let mut coordinator = process.env.coordinator(&[(&operator(), 1)]).unwrap();
    let mut task = Task::open(&process.env, 0, 1, None);
    for id in 1..100_u32 {
        store.take();
        task.write(1);
        complete_one(&process, &mut coordinator, &mut task, id.into());
        let asked: Vec<_> = store.take().into_iter().flatten().collect();
        let count = |operation| asked.iter().filter(|(o, ..)| *o == operation).count();
        let puts: Vec<_> = asked.iter().filter(|(o, ..)| *o == "put").map(|(_, name, _)| name.as_str()).collect();
        assert_eq!(puts.iter().filter(|name| name.ends_with(".man")).count(), 1, "{puts:?}");
        assert_eq!(puts.iter().filter(|name| name.starts_with("log/")).count(), 1, "{puts:?}");
        // Merges are made durable by the next checkpoint.
        assert!(puts.iter().filter(|name| name.ends_with(".seg")).count() <= 2, "{puts:?}");
        assert_eq!((count("get"), count("list")), (1, 0), "{asked:?}");
        assert!(count("delete") <= 1, "{asked:?}");
        assert!(asked.iter().all(|(_, _, bytes)| *bytes <= 64), "{asked:?}");
    }
    assert!(store.inner.list("log/").unwrap().len() <= 34);
}

fn complete_one(process: &Process, coordinator: &mut Coordinator, task: &mut Task, id: u64) {
    coordinator.begin(id).unwrap();
    let ticket = task.backend.checkpoint(id, CheckpointKind::Incremental, b"").unwrap();
    process.executor.run_until_idle();
    assert!(coordinator.add(ticket.wait(Duration::ZERO).unwrap()).unwrap().is_some());
    task.backend.confirm(id).unwrap();
}

/// Files of restored segments come several at a time, never more than a share of the memory budget allows, and the top
/// levels before the bottom.
#[test]
fn restored_segments_are_fetched_together() {
    let store = Arc::new(Rounds::default());
    fill(&store, 1, 0..800);
    for eager in [false, true] {
        let process = Process::start(&store, eager);
        let last = process.env.latest_checkpoint().unwrap();
        store.take();
        let mut task = Task::open(&process.env, 0, 1, last.as_ref());
        let manifest = &last.unwrap().parts()[0].manifest.clone();
        let version = highwater::checkpoint::manifests::read(&*store.inner, manifest).unwrap().version;
        let levels: std::collections::HashMap<_, _> =
            version.refs().map(|(level, _, r)| (r.name().unwrap().to_string(), level)).collect();
        assert!(levels.values().any(|level| *level == 0) && levels.values().any(|level| *level > 0), "{levels:?}");
        process.executor.run_until_idle();
        let asked = store.take();
        let fetched: Vec<_> = asked.iter().flatten().filter(|(_, name, _)| name.ends_with(".seg")).collect();
        assert_eq!(fetched.len(), levels.len(), "each once");
        assert!(asked.len() <= levels.len().div_ceil(8) + 1, "{} requests in {} rounds", fetched.len(), asked.len());
        for round in &asked {
            assert!(round.iter().map(|(_, _, bytes)| bytes).sum::<u64>() <= 512 << 10, "{round:?}");
        }
        let order: Vec<_> = fetched.iter().map(|(_, name, _)| levels[name]).collect();
        assert!(order.is_sorted(), "{order:?}");
        for key in 0..800 {
            task.read_value(key);
        }
        assert!(store.take().is_empty(), "everything is here");
    }
}
