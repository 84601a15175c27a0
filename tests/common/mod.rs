//! What several tests stand on: a store that outlives its environment, a clock whose wall time only the
//! test moves, and an environment whose background work the test steps.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod rig;
pub mod roots;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use highwater::base::clock::Clock;
use highwater::base::executor::StepExecutor;
use highwater::base::random::SeededRandom;
use highwater::io::store::{ObjectEntry, PutMode, Store};
use highwater::{
    Backend, Begin, CheckpointKind, Coordinator, CoordinatorSettings, Environment, Error, ErrorKind, Operator, Result,
    Subtask, Tuning,
};
use parking_lot::Mutex;

/// Objects in memory, shared by every environment that is given a clone.
#[derive(Debug, Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl MemoryStore {
    fn find(&self, name: &str) -> Result<Bytes> {
        let found = self.objects.lock().get(name).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("object `{name}`")))
    }
}

impl Store for MemoryStore {
    fn url(&self) -> &str {
        "memory:///test"
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        let mut objects = self.objects.lock();
        if mode == PutMode::Create && objects.contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("object `{name}`")));
        }
        objects.insert(name.into(), bytes);
        Ok(())
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        let whole: Result<Vec<Bytes>> = chunks.collect();
        self.put(name, whole?.concat().into(), mode)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.find(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let object = self.find(name)?;
        let (start, end) = (range.start as usize, range.end as usize);
        if end > object.len() || start > end {
            return Err(Error::corruption(format!("object `{name}` ends before byte {end}")));
        }
        Ok(object.slice(start..end))
    }

    fn length(&self, name: &str) -> Result<u64> {
        Ok(self.find(name)?.len() as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        let objects = self.objects.lock();
        let matching = objects.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(matching
            .map(|(name, bytes)| ObjectEntry { name: name.clone(), length_bytes: bytes.len() as u64, modified_ms: 0 })
            .collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.objects.lock().remove(name);
        Ok(())
    }
}

/// A clock whose wall time only [`WallClock::set`] moves; sleeping on it moves monotonic time alone.
#[derive(Debug, Default)]
pub struct WallClock {
    wall_ms: AtomicI64,
    monotonic_ns: AtomicU64,
}

impl WallClock {
    pub fn set(&self, wall_ms: i64) {
        self.wall_ms.store(wall_ms, SeqCst);
    }
}

impl Clock for WallClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        // Time passes by looking at it, so that waiting for a deadline ends.
        self.monotonic_ns.fetch_add(1000, SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.monotonic_ns.fetch_add(duration.as_nanos() as u64, SeqCst);
    }
}

/// An environment in a directory of its own, with what the test steers it by.
pub struct World {
    pub clock: Arc<WallClock>,
    pub store: Arc<MemoryStore>,
    /// The running environment's workers.
    pub executor: Arc<StepExecutor>,
    tuning: Tuning,
    /// Environments started so far; every other one restores eagerly.
    started: u32,
    /// `None` only while it is down.
    running: Option<(Environment, tempfile::TempDir)>,
}

/// An environment that was replaced but doesn't know it yet.
pub struct Zombie {
    pub env: Environment,
    pub executor: Arc<StepExecutor>,
    _directory: tempfile::TempDir,
}

impl World {
    /// A new world at time 0 with an empty store.
    pub fn new(tuning: Tuning) -> Self {
        let (clock, executor, store) = Default::default();
        let mut world = Self { clock, store, executor, tuning, started: 0, running: None };
        world.start();
        world
    }

    pub fn env(&self) -> &Environment {
        &self.running.as_ref().unwrap().0
    }

    /// Memory, waiting work and the directory go, the store is left. The caller has dropped its backends.
    pub fn crash(&mut self) {
        drop(self.replace());
    }

    /// Starts another environment over the same store while the old one lives on.
    pub fn replace(&mut self) -> Zombie {
        let (env, directory) = self.running.take().unwrap();
        let executor = std::mem::take(&mut self.executor);
        self.start();
        Zombie { env, executor, _directory: directory }
    }

    fn start(&mut self) {
        let directory = tempfile::tempdir().unwrap();
        let env = Environment::builder(directory.path())
            .memory_bytes(16 << 20)
            .store_with(self.store.clone())
            .clock(self.clock.clone())
            .random(Arc::new(SeededRandom::new(self.clock.monotonic_ns())))
            .executors(self.executor.clone(), self.executor.clone())
            .tuning(self.tuning.clone())
            .eager_restore(self.started % 2 == 1)
            .checkpoints(CoordinatorSettings {
                retain: 2,
                grace: Duration::from_millis(1),
                tolerated_failures: None,
                ..CoordinatorSettings::default()
            })
            .open()
            .unwrap();
        self.started += 1;
        self.running = Some((env, directory));
    }
}

/// Waiting jobs hold the environment that holds their executor: both go only when the jobs do.
impl Drop for World {
    fn drop(&mut self) {
        drop(self.running.take());
        self.executor.clear();
    }
}

impl Drop for Zombie {
    fn drop(&mut self) {
        self.executor.clear();
    }
}

/// Sizes so small that a few writes reach every part of the engine.
pub fn tiny() -> Tuning {
    Tuning {
        page_bytes: 4096,
        epoch_bytes: 16 << 10,
        block_bytes: 128,
        segment_bytes: 1024,
        level_base_bytes: 4096,
        level_zero_runs: 2,
        ..Tuning::for_memory(16 << 20)
    }
}

/// The operator that single-operator tests use.
pub fn operator() -> Operator {
    Operator::new("op", 128)
}

/// The backend of the only subtask, with nothing in it.
pub fn single(world: &World) -> Backend {
    world.env().backend(&operator(), Subtask { index: 0, parallelism: 1 }, None).unwrap()
}

/// Completes checkpoint `id` of all subtasks, the background work done on the way.
pub fn complete(world: &World, coordinator: &mut Coordinator, backends: &mut [Backend], id: u64) {
    assert_ne!(coordinator.begin(id).unwrap(), Begin::Skipped);
    let tickets: Vec<_> =
        backends.iter_mut().map(|b| b.checkpoint(id, CheckpointKind::Incremental, b"offsets").unwrap()).collect();
    let mut completed = None;
    for ticket in tickets {
        world.executor.run_until_idle();
        completed = coordinator.add(ticket.wait(Duration::ZERO).unwrap()).unwrap();
    }
    assert_eq!(completed.map(|completed| completed.id().id), Some(id));
    backends.iter_mut().for_each(|b| b.confirm(id).unwrap());
}

/// The backends of `parallelism` subtasks, restored from the newest checkpoint if there is one, and their
/// coordinator.
pub fn subtasks(world: &World, operator: &Operator, parallelism: u32) -> (Coordinator, Vec<Backend>) {
    let last = world.env().latest_checkpoint().unwrap();
    let coordinator = world.env().coordinator(&[(operator, parallelism)]).unwrap();
    let open = |index| world.env().backend(operator, Subtask { index, parallelism }, last.as_ref()).unwrap();
    (coordinator, (0..parallelism).map(open).collect())
}

/// As [`tiny`], with so little memory that records are evicted and writes refused unless background work is done.
pub fn cramped() -> Tuning {
    Tuning { memtable_bytes: 64 << 10, ..tiny() }
}
