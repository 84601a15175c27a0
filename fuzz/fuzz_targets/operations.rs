//! A sequence of operations, checkpoints, background steps and crashes against plain ordered maps.
//!
//! Every input is a valid sequence: a byte says what to do, the next ones with what.
#![no_main]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use highwater::base::clock::{Clock, ManualClock};
use highwater::base::cursor::Direction;
use highwater::base::descriptor::{Layout, StateDescriptor};
use highwater::base::executor::StepExecutor;
use highwater::base::key::{KeyParts, KeyShape};
use highwater::base::random::SeededRandom;
use highwater::io::memory_store::MemoryStore;
use highwater::{
    Backend, CheckpointKind, Coordinator, CoordinatorSettings, Environment, KeyedState, ListState, Operator, Prefix,
    RawState, Subtask, Ticket, Tuning,
};
use libfuzzer_sys::fuzz_target;

const GROUPS: u16 = 4;
const TTL_MS: u64 = 10;

/// Reads an input; past its end there are zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A short byte string with the bytes that encodings trip over.
    fn part(&mut self) -> Vec<u8> {
        let choice = self.byte();
        let parts: [&[u8]; 8] = [b"", b"\0", b"\0\xFF", b"\0\x01", b"a", b"a\0", b"\xFF", b"\xFF\xFF"];
        parts[usize::from(choice % 8)].to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        let (len, fill) = (self.byte(), self.byte());
        // Now and then one that no page has room for.
        let len = if len == 0xFF { 5000 } else { usize::from(len % 40) };
        vec![fill; len]
    }
}

type Key = (u16, Vec<u8>);

/// What the backend should hold.
#[derive(Clone, Default)]
struct Model {
    single: BTreeMap<Key, Vec<u8>>,
    timed: BTreeMap<Key, (Vec<u8>, i64)>,
    grouped: BTreeMap<Key, BTreeMap<Vec<u8>, Vec<u8>>>,
    lists: BTreeMap<u8, Vec<Vec<u8>>>,
}

#[derive(Clone, Copy)]
struct States {
    single: RawState,
    timed: RawState,
    grouped: RawState,
    list: ListState<u8, Vec<u8>>,
}

struct World {
    clock: Arc<ManualClock>,
    executor: Arc<StepExecutor>,
    store: Arc<MemoryStore>,
    running: Option<Running>,
    model: Model,
    /// The model at each checkpoint that was completed in the root log.
    completed: BTreeMap<(u64, u64), Model>,
}

struct Running {
    backend: Backend,
    coordinator: Coordinator,
    states: States,
    tickets: Vec<(Ticket, Model)>,
    next_checkpoint: u64,
    env: Environment,
    _directory: tempfile::TempDir,
}

fn descriptor(name: &str, layout: Layout, ttl_ms: Option<u64>) -> StateDescriptor {
    StateDescriptor {
        name: name.into(),
        kind: "raw".into(),
        layout,
        shape: KeyShape { key_width: None, namespace_width: Some(0) },
        codecs: Default::default(),
        ttl_ms,
        merge_operator: None,
    }
}

fn parts<'a>(key: &'a Key, user_key: &'a [u8]) -> KeyParts<'a> {
    KeyParts { group: key.0, key: &key.1, namespace: &[], user_key }
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at_ms(1000));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let executor = Arc::new(StepExecutor::new());
        let (model, completed) = (Model::default(), BTreeMap::new());
        let mut world = Self { clock, executor, store, running: None, model, completed };
        world.start();
        world
    }

    fn start(&mut self) {
        let directory = tempfile::tempdir().expect("a directory");
        let tuning = Tuning {
            page_bytes: 4096,
            epoch_bytes: 8 << 10,
            block_bytes: 64,
            segment_bytes: 1024,
            level_base_bytes: 2048,
            level_zero_runs: 2,
            ..Tuning::for_memory(16 << 20)
        };
        let env = Environment::builder(directory.path())
            .memory_bytes(16 << 20)
            .disk_bytes(1 << 30)
            .store_with(self.store.clone())
            .clock(self.clock.clone())
            .random(Arc::new(SeededRandom::new(self.completed.len() as u64)))
            .executors(self.executor.clone(), self.executor.clone())
            .tuning(tuning)
            .checkpoints(CoordinatorSettings { retain: 2, max_in_flight: 100, ..CoordinatorSettings::default() })
            .open()
            .expect("an environment");
        let operator = Operator::new("op", u32::from(GROUPS));
        let last = env.latest_checkpoint().expect("the root log");
        let coordinator = env.coordinator(&[(&operator, 1)]).expect("a coordinator");
        let mut backend =
            env.backend(&operator, Subtask { index: 0, parallelism: 1 }, last.as_ref()).expect("a backend");
        self.model = match &last {
            Some(last) => self.completed[&(last.id().epoch.0, last.id().id)].clone(),
            None => Model::default(),
        };
        let mut raw = |name: &str, layout, ttl| backend.register(descriptor(name, layout, ttl), None).expect("a state");
        let single = raw("single", Layout::Single, None);
        let timed = raw("timed", Layout::Single, Some(TTL_MS));
        let grouped = raw("grouped", Layout::Grouped, None);
        let list = backend.list_state("list").expect("a state");
        let states = States { single, timed, grouped, list };
        self.running = Some(Running {
            backend,
            coordinator,
            states,
            tickets: Vec::new(),
            next_checkpoint: 1,
            env,
            _directory: directory,
        });
    }

    fn crash(&mut self) {
        if let Some(Running { backend, env, .. }) = self.running.take() {
            drop(backend);
            self.executor.clear();
            drop(env);
        }
        self.start();
    }

    /// One piece of background work, and what it completed.
    fn step(&mut self, index: u8) {
        let waiting = self.executor.waiting();
        if waiting > 0 {
            self.executor.step(usize::from(index) % waiting);
        }
        let Some(running) = &mut self.running else { return };
        let mut open = Vec::new();
        for (ticket, model) in running.tickets.drain(..) {
            let Some(part) = ticket.try_part() else {
                open.push((ticket, model));
                continue;
            };
            let part = part.expect("nothing makes a checkpoint fail");
            let Some(done) = running.coordinator.add(part).expect("nobody else") else { continue };
            running.backend.confirm(done.id().id).expect("a healthy backend");
            self.completed.insert((done.id().epoch.0, done.id().id), model);
        }
        running.tickets = open;
    }

    fn checkpoint(&mut self, full: bool) {
        let Some(running) = &mut self.running else { return };
        let kind = if full { CheckpointKind::Full } else { CheckpointKind::Incremental };
        let id = running.next_checkpoint;
        running.next_checkpoint += 1;
        running.coordinator.begin(id).expect("ids grow");
        let ticket = running.backend.checkpoint(id, kind, b"offsets").expect("always admitted");
        running.tickets.push((ticket, self.model.clone()));
    }

    fn single(&mut self, choice: u8, input: &mut Input<'_>) {
        let (key, now_ms) = ((u16::from(input.byte()) % GROUPS, input.part()), self.clock.now_ms());
        let Some(Running { backend, states, .. }) = &mut self.running else { return };
        match choice {
            0 => {
                let value = input.value();
                backend.put(states.single, parts(&key, &[]), &value).expect("room");
                self.model.single.insert(key, value);
            }
            1 => {
                backend.delete(states.single, parts(&key, &[])).expect("room");
                self.model.single.remove(&key);
            }
            2 => {
                let value = input.value();
                backend.put(states.timed, parts(&key, &[]), &value).expect("room");
                self.model.timed.insert(key, (value, now_ms + TTL_MS as i64));
            }
            _ => {
                let found = backend.get(states.single, parts(&key, &[])).expect("readable").map(|v| v.to_vec());
                assert_eq!(found.as_ref(), self.model.single.get(&key), "single {key:?}");
                let found = backend.get(states.timed, parts(&key, &[])).expect("readable").map(|v| v.to_vec());
                let expected = self.model.timed.get(&key).filter(|(_, expiry)| *expiry > now_ms).map(|(v, _)| v);
                assert_eq!(found.as_ref(), expected, "timed {key:?}");
            }
        }
    }

    fn grouped(&mut self, choice: u8, input: &mut Input<'_>) {
        let key = (u16::from(input.byte()) % GROUPS, input.part());
        let Some(Running { backend, states, .. }) = &mut self.running else { return };
        let state = states.grouped;
        let entries = self.model.grouped.entry(key.clone()).or_default();
        match choice {
            0 => {
                let (user_key, value) = (input.part(), input.value());
                backend.put(state, parts(&key, &user_key), &value).expect("room");
                entries.insert(user_key, value);
            }
            1 => {
                let user_key = input.part();
                backend.delete(state, parts(&key, &user_key)).expect("room");
                entries.remove(&user_key);
            }
            2 => {
                backend.delete_prefix(state, prefix(&key)).expect("room");
                entries.clear();
            }
            3 => {
                let user_key = input.part();
                let found = backend.get(state, parts(&key, &user_key)).expect("readable").map(|v| v.to_vec());
                assert_eq!(found.as_ref(), entries.get(&user_key), "grouped {key:?} {user_key:?}");
            }
            _ => scan(backend, state, &key, entries, input),
        }
    }

    fn list(&mut self, choice: u8, input: &mut Input<'_>) {
        let key = input.byte() % 8;
        let Some(Running { backend, states, .. }) = &mut self.running else { return };
        let elements = self.model.lists.entry(key).or_default();
        match choice {
            0 => {
                let element = input.value();
                states.list.add(backend, &key, element.clone()).expect("room");
                elements.push(element);
            }
            1 => {
                states.list.clear(backend, &key).expect("room");
                elements.clear();
            }
            _ => assert_eq!(&states.list.get(backend, &key).expect("readable"), elements, "list {key}"),
        }
    }

    /// Everything, read from the backend and compared.
    fn check(&mut self) {
        for group in 0..GROUPS {
            for part in 0..8 {
                let bytes = [group as u8, part, 0, 0];
                self.single(3, &mut Input(&bytes));
                self.grouped(4, &mut Input(&bytes));
                self.list(2, &mut Input(&[part]));
            }
        }
    }
}

fn prefix(key: &Key) -> Prefix<'_> {
    Prefix { group: key.0, key: &key.1, namespace: &[] }
}

fn scan(
    backend: &mut Backend,
    state: RawState,
    key: &Key,
    entries: &BTreeMap<Vec<u8>, Vec<u8>>,
    input: &mut Input<'_>,
) {
    let kinds = input.byte();
    let mut bound = |kind: u8| match kind % 3 {
        0 => Bound::Unbounded,
        1 => Bound::Included(input.part()),
        _ => Bound::Excluded(input.part()),
    };
    let (from, to) = (bound(kinds & 3), bound(kinds >> 2 & 3));
    let direction = if kinds & 16 == 0 { Direction::Forward } else { Direction::Backward };
    let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
    let within = |user_key: &[u8]| {
        let after = match bounds.0 {
            Bound::Unbounded => true,
            Bound::Included(from) => user_key >= from,
            Bound::Excluded(from) => user_key > from,
        };
        after
            && match bounds.1 {
                Bound::Unbounded => true,
                Bound::Included(to) => user_key <= to,
                Bound::Excluded(to) => user_key < to,
            }
    };
    let mut expected: Vec<_> = entries.iter().filter(|(user_key, _)| within(user_key)).collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let mut expected = expected.into_iter();
    let mut scan = backend.scan(state, prefix(key), bounds, direction).expect("readable");
    while let Some((user_key, value)) = scan.next().expect("readable") {
        let (expected_key, expected_value) = expected.next().expect("an entry that isn't there");
        assert_eq!((user_key, value), (&expected_key[..], &expected_value[..]), "scan of {key:?}");
    }
    assert_eq!(expected.next(), None, "an entry is missing in {key:?}");
}

fuzz_target!(|bytes: &[u8]| {
    let (mut input, mut world) = (Input(bytes), World::new());
    while !input.is_empty() {
        match input.byte() % 32 {
            choice @ 0..=3 => world.single(choice, &mut input),
            choice @ 4..=8 => world.grouped(choice - 4, &mut input),
            choice @ 9..=12 => world.grouped((choice - 9) % 2 * 4, &mut input),
            choice @ 13..=15 => world.list(choice - 13, &mut input),
            16..=17 => world.list(0, &mut input),
            18..=25 => world.step(input.byte()),
            26 => (0..32).for_each(|_| world.step(0)),
            27 => world.checkpoint(false),
            28 => world.checkpoint(input.byte() % 4 == 0),
            29 => world.clock.advance(Duration::from_millis(u64::from(input.byte() % 16))),
            30 => world.crash(),
            _ => world.check(),
        }
    }
    world.check();
    world.crash();
    world.check();
});
