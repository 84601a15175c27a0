//! The job under test: subtasks over one environment, a coordinator, checkpoints in flight.

use std::collections::BTreeMap;
use std::time::Duration;

use highwater::base::ids::CheckpointId;
use highwater::base::key_group::{KeyGroupRange, subtask_of};
use highwater::{
    Backend, Begin, CheckpointKind, CompletedCheckpoint, Coordinator, ErrorKind, Operator, Result, Subtask, Ticket,
    Tuning,
};

use crate::common::{World, Zombie};
use crate::model::{MAX_PARALLELISM, Model, group};
use crate::states::States;

/// A subtask's backend and its tokens.
pub struct Task {
    pub backend: Backend,
    pub states: States,
}

/// What a checkpoint must bring back.
#[derive(Clone)]
pub struct Frozen {
    pub model: Model,
    /// Time of each subtask at the freeze.
    pub now_ms: Vec<i64>,
    pub parallelism: u32,
}

struct InFlight {
    id: u64,
    tickets: Vec<Option<Ticket>>,
    frozen: Frozen,
}

/// How often a history came where it gets interesting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub completed: usize,
    pub aborted: usize,
    /// Restores from a checkpoint that held something.
    pub restored: usize,
    /// Parts that a replaced job handed in and that were fenced.
    pub fenced: usize,
    /// Objects that garbage collection deleted.
    pub collected: usize,
    /// Writes that were refused for want of memory.
    pub refused: usize,
}

/// The job.
pub struct Job {
    pub tasks: Vec<Task>,
    /// `None` only while the job is down.
    coordinator: Option<Coordinator>,
    in_flight: Vec<InFlight>,
    /// Completed checkpoints that haven't been confirmed.
    unconfirmed: Vec<u64>,
    /// Everything that ever completed.
    completed: BTreeMap<CheckpointId, Frozen>,
    next_id: u64,
    pub counts: Counts,
    /// Last, so that it is dropped last.
    pub world: World,
}

fn operator() -> Operator {
    Operator::new("model", MAX_PARALLELISM)
}

fn open(world: &World, parallelism: u32, from: Option<&CompletedCheckpoint>) -> (Coordinator, Vec<Task>) {
    let coordinator = world.env().coordinator(&[(&operator(), parallelism)]).unwrap();
    let task = |index| {
        let mut backend = world.env().backend(&operator(), Subtask { index, parallelism }, from).unwrap();
        let states = States::register(&mut backend).unwrap();
        Task { backend, states }
    };
    (coordinator, (0..parallelism).map(task).collect())
}

impl Job {
    pub fn start(tuning: Tuning, parallelism: u32) -> Self {
        let world = World::new(tuning);
        let (coordinator, tasks) = open(&world, parallelism, None);
        let (in_flight, unconfirmed, completed, counts) = Default::default();
        Self { world, tasks, coordinator: Some(coordinator), in_flight, unconfirmed, completed, next_id: 1, counts }
    }

    pub fn parallelism(&self) -> u32 {
        self.tasks.len() as u32
    }

    fn coordinator(&mut self) -> &mut Coordinator {
        self.coordinator.as_mut().unwrap()
    }

    /// The subtask of an encoded key.
    pub fn index_of(&self, key: &[u8]) -> usize {
        subtask_of(group(key), self.parallelism(), MAX_PARALLELISM) as usize
    }

    /// Writes, making room when storage is behind.
    pub fn write(&mut self, index: usize, mut write: impl FnMut(&mut Task) -> Result<()>) {
        for _ in 0..4 {
            match write(&mut self.tasks[index]) {
                Err(e) if e.kind() == ErrorKind::Backpressure => {
                    self.counts.refused += 1;
                    self.world.executor.run_until_idle();
                    self.poll();
                }
                other => return other.unwrap(),
            }
        }
        panic!("still backpressure after all background work was done");
    }

    pub fn checkpoint(&mut self, kind: CheckpointKind, model: &Model) {
        let id = self.next_id;
        self.next_id += 1;
        if self.coordinator().begin(id).unwrap() == Begin::Skipped {
            return;
        }
        let mut tickets = Vec::new();
        for (index, task) in self.tasks.iter_mut().enumerate() {
            let metadata = format!("{id}:{index}");
            tickets.push(Some(task.backend.checkpoint(id, kind, metadata.as_bytes()).unwrap()));
            let again = task.backend.checkpoint(id, kind, b"").map(|_| ()).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        }
        let now_ms = self.tasks.iter().map(|task| task.backend.now_ms()).collect();
        let frozen = Frozen { model: model.clone(), now_ms, parallelism: self.parallelism() };
        self.in_flight.push(InFlight { id, tickets, frozen });
    }

    /// Runs some waiting jobs, then takes in what they finished.
    pub fn work(&mut self, picks: &[u8]) {
        for pick in picks {
            self.world.executor.step(usize::from(*pick));
        }
        self.poll();
    }

    /// Lets backends adopt results and the coordinator collect parts.
    pub fn poll(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.backend.poll().unwrap());
        let mut done = Vec::new();
        for checkpoint in &mut self.in_flight {
            for ticket in &mut checkpoint.tickets {
                let part = match ticket.as_ref().map(|ticket| ticket.wait(Duration::ZERO)) {
                    None => continue,
                    Some(Err(e)) if e.kind() == ErrorKind::Timeout => continue,
                    Some(part) => part.unwrap(),
                };
                *ticket = None;
                if let Some(completed) = self.coordinator.as_mut().unwrap().add(part).unwrap() {
                    assert_eq!(completed.id().id, checkpoint.id);
                    done.push(completed.id());
                }
            }
        }
        for id in done {
            let at = self.in_flight.iter().position(|checkpoint| checkpoint.id == id.id).unwrap();
            let checkpoint = self.in_flight.remove(at);
            assert!(checkpoint.tickets.iter().all(Option::is_none), "completed before its last part was in");
            self.counts.completed += 1;
            self.completed.insert(id, checkpoint.frozen);
            self.unconfirmed.push(id.id);
        }
    }

    pub fn confirm(&mut self, pick: u8) {
        if self.unconfirmed.is_empty() {
            return;
        }
        let id = self.unconfirmed.remove(usize::from(pick) % self.unconfirmed.len());
        self.tasks.iter_mut().for_each(|task| task.backend.confirm(id).unwrap());
    }

    pub fn abort(&mut self, pick: u8) {
        if self.in_flight.is_empty() {
            return;
        }
        let checkpoint = self.in_flight.remove(usize::from(pick) % self.in_flight.len());
        self.counts.aborted += 1;
        self.coordinator().abort(checkpoint.id).unwrap();
        self.tasks.iter_mut().for_each(|task| task.backend.abort(checkpoint.id).unwrap());
    }

    /// Collects garbage, which must harm nothing that a checkpoint in reach needs.
    pub fn collect(&mut self) {
        let collector = self.coordinator().collector();
        self.counts.collected += self.world.env().collect_garbage(&collector).unwrap().objects;
    }

    /// Throws everything away but the store, and comes back from the newest checkpoint.
    pub fn crash(&mut self, parallelism: u32) -> Frozen {
        self.in_flight.clear();
        self.tasks.clear();
        self.coordinator = None;
        self.world.crash();
        self.come_back(parallelism)
    }

    /// Starts a successor while the job lives on, and then lets the old one do all it still can: nothing that
    /// counts.
    pub fn usurp(&mut self, parallelism: u32) -> Frozen {
        let in_flight = std::mem::take(&mut self.in_flight);
        let tasks = std::mem::take(&mut self.tasks);
        let coordinator = self.coordinator.take().unwrap();
        let zombie = self.world.replace();
        let frozen = self.come_back(parallelism);
        self.counts.fenced += haunt(&zombie, coordinator, tasks, in_flight);
        frozen
    }

    fn come_back(&mut self, parallelism: u32) -> Frozen {
        self.unconfirmed.clear();
        let last = self.world.env().latest_checkpoint().unwrap();
        let newest = self.completed.last_key_value();
        assert_eq!(last.as_ref().map(|last| last.id()), newest.map(|(id, _)| *id), "another newest checkpoint");
        let nothing = Frozen { model: Model::default(), now_ms: vec![i64::MIN], parallelism: 1 };
        let frozen = newest.map_or(nothing, |(_, frozen)| frozen.clone());
        let (coordinator, tasks) = open(&self.world, parallelism, last.as_ref());
        self.coordinator = Some(coordinator);
        self.tasks = tasks;
        self.check_restored(last.map(|last| last.id()), &frozen);
        self.counts.restored += usize::from(!frozen.model.rows.is_empty());
        frozen
    }

    /// Every subtask has the metadata of exactly the old subtasks whose groups it shares, and its time
    /// isn't before theirs.
    fn check_restored(&self, id: Option<CheckpointId>, frozen: &Frozen) {
        for (index, task) in self.tasks.iter().enumerate() {
            let mine = KeyGroupRange::of_subtask(index as u32, self.parallelism(), MAX_PARALLELISM).unwrap();
            assert_eq!(task.backend.key_groups(), mine);
            let mut expected = Vec::new();
            for old in 0..frozen.parallelism {
                let theirs = KeyGroupRange::of_subtask(old, frozen.parallelism, MAX_PARALLELISM).unwrap();
                if let (Some(id), Some(_)) = (id, mine.intersect(theirs)) {
                    expected.push(format!("{}:{old}", id.id).into_bytes());
                    assert!(task.backend.now_ms() >= frozen.now_ms[old as usize], "time ran backwards over a restore");
                }
            }
            let mut found: Vec<_> = task.backend.restored_parts().iter().map(|part| part.metadata().to_vec()).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "metadata of the old parts of subtask {index}");
        }
    }
}

/// A replaced job does its waiting work, hands in its parts and collects garbage. Returns how often it was fenced.
fn haunt(zombie: &Zombie, mut coordinator: Coordinator, mut tasks: Vec<Task>, in_flight: Vec<InFlight>) -> usize {
    let mut fenced = 0;
    zombie.executor.run_until_idle();
    for task in &mut tasks {
        let _ = task.backend.poll();
    }
    for ticket in in_flight.iter().flat_map(|checkpoint| &checkpoint.tickets).flatten() {
        if let Ok(part) = ticket.wait(Duration::ZERO) {
            match coordinator.add(part) {
                Ok(completed) => assert!(completed.is_none(), "a replaced job completed a checkpoint"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
                    fenced += 1;
                }
            }
        }
    }
    let error = zombie.env.collect_garbage(&coordinator.collector()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    fenced
}
