//! Roots that several environments use one after the other: for forks, copies and savepoints.

use std::sync::Arc;
use std::time::Duration;

use highwater::base::clock::SystemClock;
use highwater::base::random::SeededRandom;
use highwater::checkpoint::log::{LineageState, RootLog};
use highwater::io::faulty::{Faults, FaultyStore};
use highwater::io::memory_store::MemoryStore;
use highwater::io::retry::{Cancel, RetryPolicy};
use highwater::io::store::{PutMode, Store};
use highwater::{
    Backend, CheckpointKind, CompletedCheckpoint, CoordinatorSettings, Environment, KeyedState, Operator, Result,
    Subtask,
};

pub const KEYS: u64 = 400;

pub fn operator() -> Operator {
    Operator::new("op", 128)
}

/// A root in memory.
pub struct Root {
    /// Without faults.
    pub inner: Arc<dyn Store>,
    pub store: Arc<dyn Store>,
    pub faults: Arc<Faults>,
}

impl Root {
    pub fn new(name: &str) -> Self {
        Self::over(Arc::new(MemoryStore::named(name, Arc::new(SystemClock))))
    }

    pub fn over(inner: Arc<dyn Store>) -> Self {
        let faults = Faults::none();
        Self { store: Arc::new(FaultyStore::new(inner.clone(), faults.clone())), inner, faults }
    }

    /// The same objects in a root of the same name.
    pub fn twin(&self) -> Self {
        let twin = Self::new(self.inner.url().trim_start_matches("memory:///"));
        for object in self.inner.list("").unwrap() {
            twin.inner.put(&object.name, self.inner.get(&object.name).unwrap(), PutMode::Create).unwrap();
        }
        twin
    }

    /// Its log, under faults, each request tried once.
    pub fn log(&self) -> RootLog {
        let once = RetryPolicy { deadline: Duration::ZERO, ..RetryPolicy::default() };
        let random = Arc::new(SeededRandom::from_system());
        RootLog::with_retries(self.store.clone(), Arc::new(SystemClock), random, once, Cancel::new())
    }

    /// As the log has it, whatever faults there are.
    fn state(&self) -> LineageState {
        RootLog::new(self.inner.clone(), Arc::new(SystemClock), Arc::new(SeededRandom::from_system())).state().unwrap()
    }

    pub fn names(&self, ending: &str) -> Vec<String> {
        self.inner.list("").unwrap().into_iter().map(|o| o.name).filter(|name| name.ends_with(ending)).collect()
    }

    pub fn checkpoints(&self) -> Vec<CompletedCheckpoint> {
        self.state().checkpoints
    }

    pub fn newest(&self) -> CompletedCheckpoint {
        self.state().latest().unwrap().clone()
    }

    pub fn pins(&self) -> Vec<String> {
        self.state().pins.into_iter().map(|pin| pin.name).collect()
    }
}

/// A job on a root, with one state.
pub struct Run {
    pub env: Environment,
    pub coordinator: highwater::Coordinator,
    pub backends: Vec<Backend>,
    next: u64,
    _directory: tempfile::TempDir,
}

impl Run {
    /// Starts on the newest checkpoint, if there is one, with `others` for roots that it may reach into.
    pub fn start(root: &Root, others: &[&Root], parallelism: u32) -> Result<Self> {
        let directory = tempfile::tempdir().unwrap();
        let settings = CoordinatorSettings { retain: 2, grace: Duration::ZERO, ..CoordinatorSettings::default() };
        let mut builder = Environment::builder(directory.path()).memory_bytes(16 << 20).disk_bytes(64 << 20);
        for other in others {
            builder = builder.other_root(other.store.clone());
        }
        let env = builder.store_with(root.store.clone()).checkpoints(settings).open()?;
        let last = env.latest_checkpoint()?;
        let coordinator = env.coordinator(&[(&operator(), parallelism)])?;
        let open = |index| env.backend(&operator(), Subtask { index, parallelism }, last.as_ref());
        let backends = (0..parallelism).map(open).collect::<Result<_>>()?;
        let next = last.map_or(1, |last| last.id().id + 1);
        Ok(Self { env, coordinator, backends, next, _directory: directory })
    }

    fn of(&mut self, key: u64) -> &mut Backend {
        use highwater::base::key_group::{key_group_of, subtask_of};
        let index = subtask_of(key_group_of(&key.to_string().into_bytes(), 128), self.backends.len() as u32, 128);
        &mut self.backends[index as usize]
    }

    pub fn put_all(&mut self, value: impl Fn(u64) -> u64) {
        for key in 0..KEYS {
            let b = self.of(key);
            let state = b.value_state::<String, u64>("values").unwrap();
            state.put(b, &key.to_string(), value(key)).unwrap();
        }
    }

    /// Checks what every key holds.
    #[track_caller]
    pub fn assert_all(&mut self, value: impl Fn(u64) -> u64) {
        for key in 0..KEYS {
            let b = self.of(key);
            let state = b.value_state::<String, u64>("values").unwrap();
            assert_eq!(state.get(b, &key.to_string()).unwrap(), Some(value(key)), "{key}");
        }
    }

    pub fn checkpoint(&mut self) -> CompletedCheckpoint {
        self.checkpoint_as(CheckpointKind::Incremental)
    }

    pub fn checkpoint_as(&mut self, kind: CheckpointKind) -> CompletedCheckpoint {
        let id = self.next;
        self.next += 1;
        self.coordinator.begin(id).unwrap();
        let tickets: Vec<_> = self.backends.iter_mut().map(|b| b.checkpoint(id, kind, b"offsets").unwrap()).collect();
        let mut done = None;
        for ticket in tickets {
            done = self.coordinator.add(ticket.wait(Duration::from_secs(60)).unwrap()).unwrap();
        }
        self.backends.iter_mut().for_each(|b| b.confirm(id).unwrap());
        done.unwrap()
    }

    pub fn collect(&self) -> highwater::checkpoint::collector::Collected {
        self.env.collect_garbage(&self.coordinator.collector()).unwrap()
    }
}

/// A root with a job at rest that has completed three checkpoints and retains two.
pub fn with_job(name: &str) -> Root {
    let root = Root::new(name);
    let mut run = Run::start(&root, &[], 2).unwrap();
    for round in 1..=3 {
        run.put_all(|key| key * round);
        run.checkpoint();
    }
    root
}
