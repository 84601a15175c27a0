//! State in memory for tests of the runtime, and the recount that results are compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater::base::clock::Clock;

use crate::exit::{Failure, Outcome};
use crate::job::{Engine, Newest, Started, StartedOn};
use crate::runtime::{Completed, Control, Coordinator, Key, Row, Snapshots, StagedRows, StreamId, Ticket, subtask_of};
use crate::window::{Timer, WindowStore};

#[path = "../tests/support/naive.rs"]
pub mod naive;

/// Windows, timers and staged rows of one subtask.
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    windows: BTreeMap<(StreamId, Key, i64), Vec<u8>>,
    timers: BTreeSet<(StreamId, i64, Key)>,
    held: BTreeMap<(i64, StreamId, Key), Vec<u8>>,
    staged: BTreeMap<u64, Vec<u8>>,
}

/// A clock on which every look takes a while, so that deadlines come in tests without anybody waiting for them.
#[derive(Debug, Default)]
pub struct PassingClock(AtomicU64);

impl Clock for PassingClock {
    fn now_ms(&self) -> i64 {
        0
    }

    fn monotonic_ns(&self) -> u64 {
        // So little that a minute of it is a second or more of the run's own pauses: threads that were put aside get their turn.
        self.0.fetch_add(100_000_000, Ordering::Relaxed)
    }

    fn sleep(&self, _duration: Duration) {}
}

/// A part that is stored the moment it is looked at for the second time.
#[derive(Debug)]
pub struct MemoryTicket(Option<MemoryPart>, bool);

/// What a subtask's checkpoint holds.
#[derive(Clone, Debug)]
pub struct MemoryPart {
    pub state: MemoryState,
    pub metadata: Vec<u8>,
}

/// All completed checkpoints of a job.
#[derive(Clone, Debug, Default)]
pub struct MemoryRoot(pub Arc<Mutex<BTreeMap<u64, Vec<MemoryPart>>>>);

/// Completes every checkpoint whose parts are there, except those it is told to fail.
pub struct MemoryCoordinator {
    pub root: MemoryRoot,
    pub parts: usize,
    pub fail: fn(u64) -> Option<Failure>,
    /// Never says whether it has stored a part.
    pub hangs: bool,
    pub collected: BTreeMap<u64, Vec<MemoryPart>>,
}

impl MemoryCoordinator {
    pub fn new(root: &MemoryRoot, parts: usize) -> Self {
        Self { root: root.clone(), parts, fail: |_| None, hangs: false, collected: BTreeMap::new() }
    }
}

impl MemoryState {
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.timers.is_empty() && self.held.is_empty() && self.staged.is_empty()
    }

    pub fn pieces(&self) -> usize {
        self.staged.len()
    }

    /// The part of a subtask at another parallelism.
    pub fn share(parts: &[MemoryPart], index: u32, parallelism: u32, max_parallelism: u32) -> Self {
        let mine = |key: &Key| subtask_of(key, parallelism, max_parallelism) == index;
        let mut share = Self::default();
        for part in parts {
            let state = part.state.clone();
            share.windows.extend(state.windows.into_iter().filter(|((_, key, _), _)| mine(key)));
            share.timers.extend(state.timers.into_iter().filter(|(_, _, key)| mine(key)));
        }
        share
    }
}

impl WindowStore for MemoryState {
    fn get(&mut self, stream: StreamId, key: &[u8], start: i64) -> Outcome<Option<Vec<u8>>> {
        Ok(self.windows.get(&(stream, key.into(), start)).cloned())
    }

    fn put(&mut self, stream: StreamId, key: &[u8], start: i64, window: &[u8]) -> Outcome<()> {
        self.windows.insert((stream, key.into(), start), window.to_vec());
        Ok(())
    }

    fn remove(&mut self, stream: StreamId, key: &[u8], start: i64) -> Outcome<()> {
        self.windows.remove(&(stream, key.into(), start)).map(drop).ok_or_else(|| Failure::internal("no such window"))
    }

    fn windows(&mut self, stream: StreamId, key: &[u8]) -> Outcome<Vec<(i64, Vec<u8>)>> {
        let range = (stream, key.into(), i64::MIN)..=(stream, key.into(), i64::MAX);
        Ok(self.windows.range(range).map(|((_, _, start), bytes)| (*start, bytes.clone())).collect())
    }

    fn register_timer(&mut self, stream: StreamId, key: &[u8], time: i64) -> Outcome<()> {
        self.timers.insert((stream, time, key.into()));
        Ok(())
    }

    fn delete_timer(&mut self, stream: StreamId, key: &[u8], time: i64) -> Outcome<()> {
        match self.timers.remove(&(stream, time, key.into())) {
            true => Ok(()),
            false => Err(Failure::internal("no such timer")),
        }
    }

    fn next_timer(&mut self, stream: StreamId) -> Outcome<Option<i64>> {
        let mut timers = self.timers.range((stream, i64::MIN, Key::new())..);
        Ok(timers.next().filter(|(of, ..)| *of == stream).map(|(_, time, _)| *time))
    }

    fn pop_timer(&mut self, stream: StreamId, upto: i64) -> Outcome<Option<Timer>> {
        let first = self.timers.range((stream, i64::MIN, Key::new())..).next().cloned();
        let Some(timer) = first.filter(|(of, time, _)| *of == stream && *time <= upto) else {
            return Ok(None);
        };
        self.timers.remove(&timer);
        Ok(Some(Timer { time: timer.1, key: timer.2 }))
    }
}

impl StagedRows for MemoryState {
    fn hold(&mut self, row: &Row) -> Outcome<()> {
        match self.held.insert((row.end, row.stream, row.key.clone()), row.line.clone()) {
            None => Ok(()),
            Some(_) => Err(Failure::internal("a row that was held already")),
        }
    }

    fn first_held(&mut self) -> Outcome<Option<i64>> {
        Ok(self.held.first_key_value().map(|((end, ..), _)| *end))
    }

    fn release(&mut self, upto: i64, bytes: usize, out: &mut Vec<u8>) -> Outcome<u64> {
        let (mut rows, full) = (0, out.len() + bytes);
        while out.len() < full
            && let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= upto)
        {
            out.extend(first.remove());
            rows += 1;
        }
        Ok(rows)
    }

    fn stage(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()> {
        self.staged.insert(offset, bytes.to_vec());
        Ok(())
    }

    fn staged(&mut self, offset: u64) -> Outcome<Option<Vec<u8>>> {
        Ok(self.staged.get(&offset).cloned())
    }

    fn unstage(&mut self, offset: u64) -> Outcome<()> {
        self.staged.remove(&offset);
        Ok(())
    }
}

impl Snapshots for MemoryState {
    type Ticket = MemoryTicket;

    fn checkpoint(&mut self, _id: u64, metadata: &[u8]) -> Outcome<MemoryTicket> {
        let part = MemoryPart { state: self.clone(), metadata: metadata.to_vec() };
        Ok(MemoryTicket(Some(part), false))
    }

    fn control(&mut self, _control: Control) -> Outcome<()> {
        Ok(())
    }
}

impl MemoryTicket {
    pub fn poll_part(mut self) -> MemoryPart {
        self.0.take().unwrap()
    }
}

impl Ticket for MemoryTicket {
    type Part = MemoryPart;

    fn poll(&mut self) -> Option<Outcome<MemoryPart>> {
        match std::mem::replace(&mut self.1, true) {
            true => self.0.take().map(Ok),
            false => None,
        }
    }
}

impl Coordinator for MemoryCoordinator {
    type Part = MemoryPart;

    fn begin(&mut self, _id: u64) -> Outcome<()> {
        Ok(())
    }

    fn describe(&mut self, _id: u64, _metadata: Vec<u8>) -> Outcome<()> {
        Ok(())
    }

    fn retry(&mut self) -> Outcome<Vec<(u64, Completed)>> {
        Ok(Vec::new())
    }

    fn add(&mut self, id: u64, part: MemoryPart) -> Outcome<Option<Completed>> {
        if let Some(failure) = (self.fail)(id) {
            return Err(failure);
        }
        if self.hangs {
            return Ok(None);
        }
        let parts = self.collected.entry(id).or_default();
        parts.push(part);
        if parts.len() < self.parts {
            return Ok(None);
        }
        let parts = self.collected.remove(&id).unwrap();
        self.root.0.lock().unwrap().insert(id, parts);
        Ok(Some(Completed::default()))
    }

    fn abort(&mut self, id: u64) {
        self.collected.remove(&id);
    }

    fn uploaded_bytes(&self) -> u64 {
        0
    }
}

/// A store in memory that a job can be run on, time and again.
#[derive(Clone, Debug, Default)]
pub struct MemoryEngine {
    pub root: MemoryRoot,
    pub claims: u32,
    /// What a predecessor still does before it is fenced.
    pub on_claim: Option<fn(&MemoryRoot)>,
}

impl Engine for MemoryEngine {
    type Keyed = MemoryState;
    type Rows = MemoryState;
    type Coordinator = MemoryCoordinator;

    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn holds_job(&mut self) -> Outcome<bool> {
        Ok(!self.root.0.lock().unwrap().is_empty())
    }

    fn newest(&mut self) -> Outcome<Option<Newest>> {
        let root = self.root.0.lock().unwrap();
        Ok(root.last_key_value().map(|(id, parts)| {
            let sink = parts.iter().find(|part| !part.metadata.is_empty()).unwrap();
            Newest {
                id: *id,
                parallelism: parts.len() as u32 - 1,
                metadata: sink.metadata.clone(),
                of_another_job: false,
            }
        }))
    }

    fn newest_bytes(&mut self) -> Outcome<Option<u64>> {
        let root = self.root.0.lock().unwrap();
        Ok(root.last_key_value().map(|(_, parts)| parts.iter().map(|part| part.metadata.len() as u64).sum()))
    }

    fn claim(&mut self) -> Outcome<()> {
        self.claims += 1;
        if let Some(behind_our_back) = self.on_claim.take() {
            behind_our_back(&self.root);
        }
        Ok(())
    }

    fn start(&mut self, from: Option<&Newest>, parallelism: u32) -> Outcome<StartedOn<Self>> {
        let parts = from.map(|newest| self.root.0.lock().unwrap()[&newest.id].clone()).unwrap_or_default();
        let sink = parts.iter().find(|part| !part.metadata.is_empty());
        Ok(Started {
            keyed: (0..parallelism).map(|index| MemoryState::share(&parts, index, parallelism, 128)).collect(),
            rows: sink.map(|part| part.state.clone()).unwrap_or_default(),
            coordinator: MemoryCoordinator::new(&self.root, parallelism as usize + 1),
            first_checkpoint: from.map_or(1, |newest| newest.id + 1),
        })
    }
}
