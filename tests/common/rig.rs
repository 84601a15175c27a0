//! A small job over seams that fail where a test says so, and the model of what it must hold.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use highwater::base::clock::Clock;
use highwater::base::descriptor::{Layout, StateDescriptor};
use highwater::base::executor::StepExecutor;
use highwater::base::ids::CheckpointId;
use highwater::base::key::{KeyParts, KeyShape};
use highwater::base::key_group::{key_group_of, subtask_of};
use highwater::base::merge_operator::MergeOperator;
use highwater::base::random::SeededRandom;
use highwater::checkpoint::collector::Collected;
use highwater::checkpoint::manifests::segment_names;
use highwater::checkpoint::object_name::ObjectName;
use highwater::io::faulty::{Faults, FaultyFiles, FaultyStore};
use highwater::io::local_files::LocalFiles;
use highwater::io::store::Store;
use highwater::*;

use super::{MemoryStore, WallClock};

/// Few, since scans go through every one of them.
pub const MAX_PARALLELISM: u32 = 16;

/// What the job's states hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    pub values: BTreeMap<u32, Vec<u8>>,
    pub entries: BTreeMap<(u32, u32), u64>,
    pub sums: BTreeMap<u32, i64>,
}

/// Adds little-endian numbers.
pub struct Sum;

impl MergeOperator for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let number =
            |bytes: &[u8]| bytes.try_into().map(i64::from_le_bytes).map_err(|_| "8 bytes expected".to_string());
        let mut total = base.map_or(Ok(0), number)?;
        for operand in operands {
            total += number(operand)?;
        }
        Ok(total.to_le_bytes().to_vec())
    }
}

/// A raw state of single values with the operator `name`.
pub fn merged_state(name: &str, operator: Option<&str>) -> StateDescriptor {
    StateDescriptor {
        name: name.into(),
        kind: "raw".into(),
        layout: Layout::Single,
        shape: KeyShape { key_width: None, namespace_width: Some(0) },
        codecs: Default::default(),
        ttl_ms: None,
        merge_operator: operator.map(Into::into),
    }
}

/// The raw parts of a key.
pub fn parts(key: &[u8]) -> KeyParts<'_> {
    KeyParts { group: key_group_of(key, MAX_PARALLELISM), key, namespace: &[], user_key: &[] }
}

/// A subtask with the tokens of its states.
pub struct Task {
    pub backend: Backend,
    pub values: ValueState<u32, Vec<u8>>,
    pub entries: MapState<u32, u32, u64>,
    pub sums: RawState,
}

impl Task {
    pub fn new(mut backend: Backend) -> Result<Self> {
        let values = backend.value_state("values")?;
        let entries = backend.map_state("entries")?;
        let sums = backend.register(merged_state("sums", Some("sum")), Some(Arc::new(Sum)))?;
        Ok(Self { backend, values, entries, sums })
    }

    pub fn sum(&mut self, key: u32) -> Result<Option<i64>> {
        let found = self.backend.get(self.sums, parts(&key.to_be_bytes()))?;
        Ok(found.map(|bytes| i64::from_le_bytes((&*bytes).try_into().unwrap())))
    }

    pub fn add(&mut self, key: u32, operand: i64) -> Result<()> {
        self.backend.merge(self.sums, parts(&key.to_be_bytes()), &operand.to_le_bytes())
    }

    /// Everything a view of the subtask shows, each key once.
    pub fn read_all(&mut self) -> Result<Model> {
        let view = self.backend.read_view()?;
        self.read(&view)
    }

    pub fn read(&self, view: &ReadView) -> Result<Model> {
        let mut model = Model::default();
        let groups = self.backend.key_groups();
        self.values.for_each(view, groups, |k, (), v| {
            assert!(groups.contains(key_group_of(&k.to_be_bytes(), MAX_PARALLELISM)), "a row of another subtask");
            assert_eq!(model.values.insert(k, v), None, "twice");
            Ok(())
        })?;
        self.entries.for_each(view, groups, |k, (), u, v| {
            assert_eq!(model.entries.insert((k, u), v), None, "twice");
            Ok(())
        })?;
        for group in groups.first()..=groups.last() {
            view.scan_state(self.sums, group, |e| {
                let key = u32::from_be_bytes(e.key[..].try_into().unwrap());
                let sum = i64::from_le_bytes(e.value.try_into().unwrap());
                assert_eq!(model.sums.insert(key, sum), None, "twice");
                Ok(())
            })?;
        }
        Ok(model)
    }
}

/// A job whose local files and store are under plans of faults, and whose background work the test steps.
pub struct Rig {
    pub clock: Arc<WallClock>,
    pub executor: Arc<StepExecutor>,
    /// For what talks to the store, where that isn't `executor` too.
    pub remote: Option<Arc<StepExecutor>>,
    pub objects: Arc<dyn Store>,
    pub file_faults: Arc<Faults>,
    pub store_faults: Arc<Faults>,
    pub directory: tempfile::TempDir,
    pub tuning: Tuning,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub settings: CoordinatorSettings,
    pub eager: bool,
    pub env: Option<Environment>,
    pub tasks: Vec<Task>,
    pub coordinator: Option<Coordinator>,
    /// What each checkpoint that was begun must bring back.
    pub frozen: BTreeMap<CheckpointId, Model>,
    pub model: Model,
    pub next_id: u64,
    starts: u64,
}

static RIGS: AtomicU64 = AtomicU64::new(0);

/// No faults at all.
pub fn no_faults() -> Arc<Faults> {
    Faults::when(|_| None)
}

impl Rig {
    pub fn new(tuning: Tuning) -> Self {
        Self::over(Arc::new(MemoryStore::default()), tuning)
    }

    /// A job in the root that `objects` is.
    pub fn over(objects: Arc<dyn Store>, tuning: Tuning) -> Self {
        Self {
            clock: Arc::default(),
            executor: Arc::default(),
            remote: None,
            objects,
            file_faults: no_faults(),
            store_faults: no_faults(),
            directory: tempfile::tempdir().unwrap(),
            tuning,
            memory_bytes: 16 << 20,
            disk_bytes: 1 << 40,
            settings: CoordinatorSettings {
                retain: 2,
                grace: Duration::from_millis(1),
                tolerated_failures: None,
                ..CoordinatorSettings::default()
            },
            eager: false,
            env: None,
            tasks: Vec::new(),
            coordinator: None,
            frozen: BTreeMap::new(),
            model: Model::default(),
            next_id: 1,
            // Of its own: random numbers must differ between two that share a store.
            starts: RIGS.fetch_add(1, SeqCst) << 32,
        }
    }

    pub fn operator() -> Operator {
        Operator::new("job", MAX_PARALLELISM)
    }

    /// An environment over this rig's seams.
    pub fn open_environment(&mut self) -> Result<Environment> {
        self.starts += 1;
        Environment::builder(self.directory.path())
            .memory_bytes(self.memory_bytes)
            .disk_bytes(self.disk_bytes)
            .files(Arc::new(FaultyFiles::new(Arc::new(LocalFiles::new()), self.file_faults.clone())))
            .store_with(Arc::new(FaultyStore::new(self.objects.clone(), self.store_faults.clone())))
            .clock(self.clock.clone())
            .random(Arc::new(SeededRandom::new(self.starts)))
            .executors(self.executor.clone(), self.remote.clone().unwrap_or_else(|| self.executor.clone()))
            .tuning(self.tuning.clone())
            .checkpoints(self.settings.clone())
            .eager_restore(self.eager)
            .open()
    }

    pub fn env(&self) -> &Environment {
        self.env.as_ref().unwrap()
    }

    /// Starts from the newest checkpoint; the model goes back to it.
    pub fn start(&mut self, parallelism: u32) -> Result<()> {
        if self.env.is_none() {
            self.env = Some(self.open_environment()?);
        }
        let last = self.env().latest_checkpoint()?;
        self.start_from(parallelism, last.as_ref())
    }

    pub fn start_from(&mut self, parallelism: u32, from: Option<&CompletedCheckpoint>) -> Result<()> {
        let operator = Self::operator();
        let coordinator = self.env().coordinator(&[(&operator, parallelism)])?;
        let mut tasks = Vec::new();
        for index in 0..parallelism {
            tasks.push(Task::new(self.env().backend(&operator, Subtask { index, parallelism }, from)?)?);
        }
        self.coordinator = Some(coordinator);
        self.tasks = tasks;
        self.model = from.map_or_else(Model::default, |from| self.frozen[&from.id()].clone());
        Ok(())
    }

    /// Everything in memory goes, waiting work too; directory and store stay.
    pub fn kill(&mut self) {
        self.tasks.clear();
        self.coordinator = None;
        self.env = None;
        self.next_id = 1;
        self.executor.clear();
        self.remote.iter().for_each(|remote| remote.clear());
    }

    /// As [`Rig::kill`], and the directory goes.
    pub fn kill_and_lose_directory(&mut self) {
        self.kill();
        self.directory = tempfile::tempdir().unwrap();
    }

    pub fn work(&mut self) {
        self.executor.run_until_idle();
        self.tasks.iter_mut().for_each(|task| task.backend.poll().unwrap());
    }

    pub fn task_of(&mut self, key: u32) -> &mut Task {
        let group = key_group_of(&key.to_be_bytes(), MAX_PARALLELISM);
        let index = subtask_of(group, self.tasks.len() as u32, MAX_PARALLELISM);
        &mut self.tasks[index as usize]
    }

    /// A write, made again after background work when storage is behind.
    fn retried(&mut self, key: u32, write: impl Fn(&mut Task) -> Result<()>) -> Result<()> {
        let mut last = Ok(());
        for _ in 0..4 {
            last = write(self.task_of(key));
            match &last {
                Err(e) if e.kind() == ErrorKind::Backpressure => self.executor.run_until_idle(),
                _ => break,
            }
        }
        last
    }

    pub fn put(&mut self, key: u32, value: Vec<u8>) -> Result<()> {
        self.retried(key, |t| t.values.put(&mut t.backend, &key, &value))?;
        self.model.values.insert(key, value);
        Ok(())
    }

    pub fn delete(&mut self, key: u32) -> Result<()> {
        self.retried(key, |t| t.values.clear(&mut t.backend, &key))?;
        self.model.values.remove(&key);
        Ok(())
    }

    pub fn put_entry(&mut self, key: u32, user_key: u32, value: u64) -> Result<()> {
        self.retried(key, |t| t.entries.put(&mut t.backend, &key, &user_key, value))?;
        self.model.entries.insert((key, user_key), value);
        Ok(())
    }

    pub fn add(&mut self, key: u32, operand: i64) -> Result<()> {
        self.retried(key, |t| t.add(key, operand))?;
        *self.model.sums.entry(key).or_default() += operand;
        Ok(())
    }

    /// The `n`th write of a fixed history that mixes everything.
    pub fn write(&mut self, n: u64) -> Result<()> {
        let r = mix(n);
        let key = (r >> 8) as u32 % 100;
        match r % 12 {
            0..=4 => self.put(key, vec![n as u8; (r >> 40) as usize % 60]),
            5 => self.delete(key),
            6 | 7 => self.put_entry(key % 8, (r >> 32) as u32 % 40, n),
            8 => {
                let (key, user_key) = (key % 8, (r >> 32) as u32 % 40);
                self.retried(key, |t| t.entries.remove(&mut t.backend, &key, &user_key))?;
                self.model.entries.remove(&(key, user_key));
                Ok(())
            }
            9 if r >> 60 == 0 => {
                let key = key % 8;
                self.retried(key, |t| t.entries.clear(&mut t.backend, &key))?;
                self.model.entries.retain(|(k, _), _| *k != key);
                Ok(())
            }
            _ => self.add(key % 30, n as i64),
        }
    }

    pub fn write_all(&mut self, numbers: std::ops::Range<u64>) -> Result<()> {
        numbers.into_iter().try_for_each(|n| self.write(n))
    }

    /// Begins a checkpoint; the tickets of all subtasks.
    pub fn begin(&mut self, kind: CheckpointKind) -> Result<(u64, Vec<Ticket>)> {
        let id = self.next_id;
        self.next_id += 1;
        let coordinator = self.coordinator.as_mut().unwrap();
        assert_ne!(coordinator.begin(id)?, Begin::Skipped);
        let full = CheckpointId { epoch: coordinator.claimed().epoch, id };
        self.frozen.insert(full, self.model.clone());
        let mut tickets = Vec::new();
        for task in &mut self.tasks {
            tickets.push(task.backend.checkpoint(id, kind, format!("offset {id}"))?);
        }
        Ok((id, tickets))
    }

    pub fn abort(&mut self, id: u64) -> Result<()> {
        self.coordinator.as_mut().unwrap().abort(id)?;
        self.tasks.iter_mut().try_for_each(|task| task.backend.abort(id))
    }

    /// Does the background work and hands in the parts; aborts the checkpoint when that fails.
    pub fn finish(&mut self, id: u64, tickets: &[Ticket]) -> Result<CompletedCheckpoint> {
        self.executor.run_until_idle();
        let finished = self.hand_in(tickets);
        match &finished {
            Ok(_) => self.tasks.iter_mut().try_for_each(|task| task.backend.confirm(id))?,
            Err(_) => self.abort(id)?,
        }
        finished
    }

    fn hand_in(&mut self, tickets: &[Ticket]) -> Result<CompletedCheckpoint> {
        let coordinator = self.coordinator.as_mut().unwrap();
        let mut completed = None;
        for ticket in tickets {
            completed = coordinator.add(ticket.wait(Duration::ZERO)?)?;
        }
        completed.ok_or_else(|| Error::internal("all parts are in and the checkpoint isn't complete"))
    }

    pub fn checkpoint(&mut self, kind: CheckpointKind) -> Result<CompletedCheckpoint> {
        let (id, tickets) = self.begin(kind)?;
        self.finish(id, &tickets)
    }

    pub fn incremental(&mut self) -> Result<CompletedCheckpoint> {
        self.checkpoint(CheckpointKind::Incremental)
    }

    /// Runs the collector once everything is older than the grace period.
    pub fn collect(&mut self) -> Result<Collected> {
        self.clock.set(self.clock.now_ms() + 1000);
        let collector = self.coordinator.as_ref().unwrap().collector();
        self.env().collect_garbage(&collector)
    }

    /// Names of all segments and manifests in the store.
    pub fn object_names(&self) -> BTreeSet<String> {
        let names = self.objects.list("").unwrap().into_iter().map(|object| object.name);
        names.filter(|name| ObjectName::parse(name).is_some()).collect()
    }

    /// What the retained checkpoints reach.
    pub fn reachable(&self) -> BTreeSet<String> {
        let retained = self.env().completed_checkpoints().unwrap();
        retained.iter().flat_map(|checkpoint| self.reached_by(checkpoint)).collect()
    }

    /// What one checkpoint reaches.
    pub fn reached_by(&self, checkpoint: &CompletedCheckpoint) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for part in checkpoint.parts() {
            names.insert(part.manifest.name.clone());
            names.extend(segment_names(&*self.objects, &part.manifest).unwrap());
        }
        names
    }

    /// Everything all subtasks hold.
    pub fn read_all(&mut self) -> Result<Model> {
        let mut all = Model::default();
        for task in &mut self.tasks {
            let mut one = task.read_all()?;
            let before = (all.values.len(), all.entries.len(), all.sums.len());
            let more = (one.values.len(), one.entries.len(), one.sums.len());
            all.values.append(&mut one.values);
            all.entries.append(&mut one.entries);
            all.sums.append(&mut one.sums);
            let after = (all.values.len(), all.entries.len(), all.sums.len());
            assert_eq!((before.0 + more.0, before.1 + more.1, before.2 + more.2), after, "a key in two subtasks");
        }
        Ok(all)
    }

    /// Compares whole-state scans, and point reads of everything and of what isn't there, with the model.
    pub fn check(&mut self) -> Result<()> {
        assert_eq!(self.read_all()?, self.model);
        for key in 0..110 {
            let expected = self.model.values.get(&key).cloned();
            let task = self.task_of(key);
            assert_eq!(task.values.get(&mut task.backend, &key)?, expected, "value {key}");
        }
        for key in 0..8 {
            let range = (key, 0)..=(key, u32::MAX);
            let expected: Vec<_> = self.model.entries.range(range).map(|((_, user_key), v)| (*user_key, *v)).collect();
            let task = self.task_of(key);
            let direction = highwater::base::cursor::Direction::Forward;
            let found: Result<Vec<_>> = task.entries.iter(&mut task.backend, &key, direction)?.collect();
            assert_eq!(found?, expected, "entries of {key}");
        }
        for key in 0..32 {
            let expected = self.model.sums.get(&key).copied();
            assert_eq!(self.task_of(key).sum(key)?, expected, "sum {key}");
        }
        Ok(())
    }
}

/// Waiting jobs hold the environment that holds their executor: both go only when the jobs do.
impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

/// SplitMix64's finish: a number that looks random and follows from `n`.
pub fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
