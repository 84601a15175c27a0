//! Highwater as its users have it: typed states, default tuning, a coordinator on a thread of its own.

#![allow(clippy::needless_borrows_for_generic_args, reason = "by value a payload would be copied once more")]

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use highwater::base::cursor::Direction;
use highwater::base::descriptor::{Layout, StateDescriptor};
use highwater::base::key::{KeyParts, KeyShape};
use highwater::{
    Backend, CheckpointKind, Coordinator, CoordinatorSettings, Environment, ErrorKind, KeyedState, ListState, MapState,
    Operator, RawState, Subtask, Ticket, TimeDomain, TimerService, ValueState,
};

use super::Setting;
use super::payload::Payload;
use crate::Result;
use crate::measure::checkpoints::CheckpointLog;
use crate::object_store::as_highwater::SimulatedStore;
use crate::object_store::client::Client;
use crate::store::{See, StateKind, StateSpec, Store};
use crate::values::Key;

/// Key groups of the operator.
pub const KEY_GROUPS: u32 = 128;

/// Between two runs of the garbage collector, and how long it leaves what nobody needs.
const COLLECT_EVERY: Duration = Duration::from_secs(20);

/// A state as a user holds it.
#[derive(Debug)]
enum Token {
    Counter(ValueState<Key, u64>),
    Value(ValueState<Key, Payload>),
    WindowedCounter(ValueState<Key, u64, u64>),
    Windowed(ValueState<Key, Payload, u64>),
    Raw(RawState),
    List(ListState<Key, Payload, u64>),
    CounterMap(MapState<Key, u64, u64>),
    Map(MapState<Key, u64, Payload>),
    Timers(TimerService<Key, ()>),
}

impl Token {
    fn register(backend: &mut Backend, state: &StateSpec) -> Result<Self> {
        let name = state.name;
        Ok(match (state.kind, state.counters) {
            (StateKind::Value, true) => Self::Counter(backend.value_state(name)?),
            (StateKind::Value, false) => Self::Value(backend.value_state(name)?),
            (StateKind::Windowed, true) => Self::WindowedCounter(backend.state(name).namespace().value()?),
            (StateKind::Windowed, false) => Self::Windowed(backend.state(name).namespace().value()?),
            (StateKind::Batched, _) => Self::Raw(backend.register(raw(name), None)?),
            (StateKind::List, _) => Self::List(backend.state(name).namespace().list()?),
            (StateKind::Map, true) => Self::CounterMap(backend.map_state(name)?),
            (StateKind::Map, false) => Self::Map(backend.map_state(name)?),
            (StateKind::Timers, _) => Self::Timers(backend.timers(name)?),
        })
    }
}

fn raw(name: &str) -> StateDescriptor {
    StateDescriptor {
        name: name.into(),
        kind: "raw".into(),
        layout: Layout::Single,
        shape: KeyShape { key_width: Some(16), namespace_width: Some(0) },
        codecs: Default::default(),
        ttl_ms: None,
        merge_operator: None,
    }
}

/// A checkpoint on its way to the coordinator.
struct Started {
    ticket: Ticket,
    began: Instant,
    sync: Duration,
}

/// What the owner and the coordinator's thread share.
#[derive(Debug, Default)]
struct Progress {
    in_flight: AtomicU64,
    completed: AtomicU64,
    referenced_bytes: AtomicU64,
    failed: Mutex<Option<String>>,
}

/// See the module.
#[derive(Debug)]
pub struct Highwater {
    /// The environment, for what a check asks of it.
    pub env: Environment,
    /// The backend.
    pub backend: Backend,
    states: Vec<Token>,
    send: Option<Sender<Started>>,
    progress: Arc<Progress>,
    next_id: u64,
    confirmed: u64,
    /// Writes that were refused for a moment because storage was behind.
    pub refused: u64,
}

/// The operator of every run.
pub fn operator() -> Operator {
    Operator::new("compare", KEY_GROUPS)
}

/// An environment on `setting`.
pub fn environment(setting: &Setting, client: Option<Arc<Client>>, eager: bool) -> Result<Environment> {
    let settings = CoordinatorSettings { retain: 1, grace: COLLECT_EVERY, ..CoordinatorSettings::default() };
    let builder = Environment::builder(setting.directory.join("highwater"))
        .memory_bytes(setting.memory_bytes)
        .checkpoints(settings)
        .eager_restore(eager);
    Ok(match client {
        Some(client) => builder.store_with(Arc::new(SimulatedStore(client))),
        None => builder.store("memory:///"),
    }
    .open()?)
}

impl Highwater {
    /// An empty one.
    pub fn open(setting: &Setting, client: Option<Arc<Client>>, log: &CheckpointLog) -> Result<Self> {
        let env = environment(setting, client, false)?;
        let backend = env.backend(&operator(), Subtask { index: 0, parallelism: 1 }, None)?;
        Self::with(env, backend, setting, log)
    }

    /// One over a backend that is open.
    pub fn with(env: Environment, mut backend: Backend, setting: &Setting, log: &CheckpointLog) -> Result<Self> {
        let register = |state| Token::register(&mut backend, state);
        let states = setting.states.iter().map(register).collect::<Result<_>>()?;
        let progress = Arc::<Progress>::default();
        let send = match setting.object_store {
            Some(_) => Some(coordinate(&env, progress.clone(), log.clone())?),
            None => None,
        };
        Ok(Self { env, backend, states, send, progress, next_id: 1, confirmed: 0, refused: 0 })
    }

    /// Does a write, again after a pause while storage is behind.
    #[inline]
    fn write(&mut self, mut write: impl FnMut(&mut Backend) -> highwater::Result<()>) -> Result<()> {
        loop {
            match write(&mut self.backend) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Backpressure => {
                    self.refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn busy(&self) -> Result<bool> {
        if let Some(error) = &*self.progress.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(format!("a checkpoint failed: {error}").into());
        }
        Ok(self.progress.in_flight.load(Ordering::Acquire) > 0)
    }
}

fn coordinate(env: &Environment, progress: Arc<Progress>, log: CheckpointLog) -> Result<Sender<Started>> {
    let mut coordinator = env.coordinator(&[(&operator(), 1)])?;
    let (collector, collecting) = (coordinator.collector(), env.clone());
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(COLLECT_EVERY);
            if collecting.collect_garbage(&collector).is_err() {
                return;
            }
        }
    });
    let (send, receive): (Sender<Started>, Receiver<Started>) = channel();
    std::thread::spawn(move || {
        for started in receive {
            if let Err(error) = complete(&mut coordinator, &started, &progress, &log) {
                *progress.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            }
            progress.in_flight.fetch_sub(1, Ordering::Release);
        }
    });
    Ok(send)
}

fn complete(coordinator: &mut Coordinator, started: &Started, progress: &Progress, log: &CheckpointLog) -> Result<()> {
    let part = started.ticket.wait(Duration::from_secs(600))?;
    let (delta, full) = (part.delta_bytes, part.full_bytes);
    let id = started.ticket.id().id;
    if coordinator.add(part)?.is_some() {
        progress.referenced_bytes.store(full, Ordering::Relaxed);
        progress.completed.store(id, Ordering::Release);
        log.complete(started.began, started.sync, delta, full);
    }
    Ok(())
}

/// The token is of another kind than the operation needs.
#[cold]
fn mismatch(token: &Token) -> crate::Error {
    format!("the operation doesn't go with {token:?}").into()
}

#[inline]
fn as_counter(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
}

impl Store for Highwater {
    #[inline]
    fn get(&mut self, state: u8, key: &Key, namespace: u64, see: &mut impl See) -> Result<()> {
        let b = &mut self.backend;
        match &self.states[usize::from(state)] {
            Token::Counter(token) => {
                if let Some(count) = token.get(b, key)? {
                    see.value(&count.to_le_bytes());
                }
            }
            Token::Value(token) => {
                if let Some(value) = token.get(b, key)? {
                    see.value(value.bytes());
                }
            }
            Token::WindowedCounter(token) => {
                if let Some(count) = token.get(b, (key, &namespace))? {
                    see.value(&count.to_le_bytes());
                }
            }
            Token::Windowed(token) => {
                if let Some(value) = token.get(b, (key, &namespace))? {
                    see.value(value.bytes());
                }
            }
            Token::Raw(token) => {
                let parts = KeyParts { group: b.key_group_of(key), key, namespace: &[], user_key: &[] };
                if let Some(value) = b.get(*token, parts)? {
                    see.value(&value);
                }
            }
            other => return Err(mismatch(other)),
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, state: u8, key: &Key, namespace: u64, value: &[u8]) -> Result<()> {
        match self.states[usize::from(state)] {
            Token::Counter(token) => self.write(|b| token.put(b, key, as_counter(value))),
            Token::Value(token) => {
                let value = Payload::of(value);
                self.write(|b| token.put(b, key, &value))
            }
            Token::WindowedCounter(token) => self.write(|b| token.put(b, (key, &namespace), as_counter(value))),
            Token::Windowed(token) => {
                let value = Payload::of(value);
                self.write(|b| token.put(b, (key, &namespace), &value))
            }
            Token::Raw(token) => self.write(|b| {
                let parts = KeyParts { group: b.key_group_of(key), key, namespace: &[], user_key: &[] };
                b.put(token, parts, value)
            }),
            ref other => Err(mismatch(other)),
        }
    }

    fn delete(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()> {
        match self.states[usize::from(state)] {
            Token::Counter(token) => self.write(|b| token.clear(b, key)),
            Token::Value(token) => self.write(|b| token.clear(b, key)),
            Token::WindowedCounter(token) => self.write(|b| token.clear(b, (key, &namespace))),
            Token::Windowed(token) => self.write(|b| token.clear(b, (key, &namespace))),
            ref other => Err(mismatch(other)),
        }
    }

    fn get_many(&mut self, state: u8, keys: &[Key], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let Token::Raw(token) = self.states[usize::from(state)] else {
            return Err(mismatch(&self.states[usize::from(state)]));
        };
        let b = &mut self.backend;
        let parts: Vec<_> = keys
            .iter()
            .map(|key| KeyParts { group: b.key_group_of(key), key, namespace: &[], user_key: &[] })
            .collect();
        b.get_many(token, &parts, |index, value| {
            each(index, value);
            Ok(())
        })?;
        Ok(())
    }

    fn append(&mut self, state: u8, key: &Key, namespace: u64, element: &[u8]) -> Result<()> {
        let Token::List(token) = self.states[usize::from(state)] else {
            return Err(mismatch(&self.states[usize::from(state)]));
        };
        let element = Payload::of(element);
        self.write(|b| token.add(b, (key, &namespace), &element))
    }

    fn read_list(
        &mut self,
        state: u8,
        key: &Key,
        namespace: u64,
        _element_bytes: usize,
        see: &mut impl See,
    ) -> Result<()> {
        let Token::List(token) = &self.states[usize::from(state)] else {
            return Err(mismatch(&self.states[usize::from(state)]));
        };
        for element in token.iter(&mut self.backend, (key, &namespace))? {
            see.value(element?.bytes());
        }
        Ok(())
    }

    fn clear_list(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()> {
        let Token::List(token) = self.states[usize::from(state)] else {
            return Err(mismatch(&self.states[usize::from(state)]));
        };
        self.write(|b| token.clear(b, (key, &namespace)))
    }

    fn map_put(&mut self, state: u8, key: &Key, user_key: u64, value: &[u8]) -> Result<()> {
        match self.states[usize::from(state)] {
            Token::CounterMap(token) => self.write(|b| token.put(b, key, &user_key, as_counter(value))),
            Token::Map(token) => {
                let value = Payload::of(value);
                self.write(|b| token.put(b, key, &user_key, &value))
            }
            ref other => Err(mismatch(other)),
        }
    }

    fn map_get(&mut self, state: u8, key: &Key, user_key: u64, see: &mut impl See) -> Result<()> {
        let b = &mut self.backend;
        match &self.states[usize::from(state)] {
            Token::CounterMap(token) => {
                if let Some(count) = token.get(b, key, &user_key)? {
                    see.value(&count.to_le_bytes());
                }
            }
            Token::Map(token) => {
                if let Some(value) = token.get(b, key, &user_key)? {
                    see.value(value.bytes());
                }
            }
            other => return Err(mismatch(other)),
        }
        Ok(())
    }

    fn map_contains(&mut self, state: u8, key: &Key, user_key: u64) -> Result<bool> {
        let b = &mut self.backend;
        Ok(match &self.states[usize::from(state)] {
            Token::CounterMap(token) => token.contains(b, key, &user_key)?,
            Token::Map(token) => token.contains(b, key, &user_key)?,
            other => return Err(mismatch(other)),
        })
    }

    fn map_remove(&mut self, state: u8, key: &Key, user_key: u64) -> Result<()> {
        match self.states[usize::from(state)] {
            Token::CounterMap(token) => self.write(|b| token.remove(b, key, &user_key)),
            Token::Map(token) => self.write(|b| token.remove(b, key, &user_key)),
            ref other => Err(mismatch(other)),
        }
    }

    fn map_range(&mut self, state: u8, key: &Key, from: u64, to: u64, see: &mut impl See) -> Result<()> {
        let b = &mut self.backend;
        let whole = from == 0 && to == u64::MAX;
        let range = (Bound::Included(from), Bound::Included(to));
        match &self.states[usize::from(state)] {
            Token::CounterMap(token) => {
                let entries = match whole {
                    true => token.iter(b, key, Direction::Forward)?,
                    false => token.range(b, key, range, Direction::Forward)?,
                };
                for entry in entries {
                    let (user_key, count) = entry?;
                    see.number(user_key);
                    see.value(&count.to_le_bytes());
                }
            }
            Token::Map(token) => {
                let entries = match whole {
                    true => token.iter(b, key, Direction::Forward)?,
                    false => token.range(b, key, range, Direction::Forward)?,
                };
                for entry in entries {
                    let (user_key, value) = entry?;
                    see.number(user_key);
                    see.value(value.bytes());
                }
            }
            other => return Err(mismatch(other)),
        }
        Ok(())
    }

    fn timer_add(&mut self, state: u8, key: &Key, time: u64) -> Result<()> {
        let Some(Token::Timers(timers)) = self.states.get_mut(usize::from(state)) else {
            return Err("no timers".into());
        };
        loop {
            match timers.register(&mut self.backend, TimeDomain::Event, key, time as i64) {
                Err(error) if error.kind() == ErrorKind::Backpressure => self.refused += 1,
                other => return Ok(other?),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn timer_delete(&mut self, state: u8, key: &Key, time: u64) -> Result<()> {
        let Some(Token::Timers(timers)) = self.states.get_mut(usize::from(state)) else {
            return Err("no timers".into());
        };
        loop {
            match timers.delete(&mut self.backend, TimeDomain::Event, key, time as i64) {
                Err(error) if error.kind() == ErrorKind::Backpressure => self.refused += 1,
                other => return Ok(other?),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn timer_pop(&mut self, state: u8, until: u64, see: &mut impl See) -> Result<()> {
        let Some(Token::Timers(timers)) = self.states.get_mut(usize::from(state)) else {
            return Err("no timers".into());
        };
        let popped = loop {
            match timers.pop_until(&mut self.backend, TimeDomain::Event, until as i64) {
                Err(error) if error.kind() == ErrorKind::Backpressure => self.refused += 1,
                other => break other?,
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if let Some(timer) = popped {
            see.number(timer.timestamp_ms as u64);
            see.value(&timer.key);
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Duration>> {
        if self.send.is_none() || self.busy()? {
            return Ok(None);
        }
        let completed = self.progress.completed.load(Ordering::Acquire);
        if completed > self.confirmed {
            self.confirmed = completed;
            self.backend.confirm(completed)?;
        }
        let began = Instant::now();
        let ticket = self.backend.checkpoint(self.next_id, CheckpointKind::Incremental, b"offsets")?;
        let sync = began.elapsed();
        self.next_id += 1;
        self.progress.in_flight.fetch_add(1, Ordering::Release);
        if let Some(send) = &self.send {
            send.send(Started { ticket, began, sync })?;
        }
        Ok(Some(sync))
    }

    fn wait_for_checkpoints(&mut self) -> Result<()> {
        while self.busy()? {
            self.backend.poll()?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<bool> {
        self.backend.poll()?;
        let stats = self.backend.stats();
        Ok(stats.waiting_epochs > 0 || stats.checkpoints > 0 || stats.compaction_debt_bytes > 0)
    }

    fn referenced_bytes(&self) -> u64 {
        self.progress.referenced_bytes.load(Ordering::Relaxed)
    }

    fn describe(&self) -> String {
        format!("{:?} {:?}, {} writes refused", self.env.stats(), self.backend.stats(), self.refused)
    }
}
