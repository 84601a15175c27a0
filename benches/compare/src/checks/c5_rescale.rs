//! C5: 2 subtasks, then 3, 1 and 4: time to the first record of all, bytes read until then, and bytes uploaded by the next checkpoint
//! beside the bytes changed. Highwater alone: RocksDB has no such thing of its own, and Flink's way (copy whole databases, cut,
//! ingest) would have to be written anew to be measured.

use std::time::{Duration, Instant};

use highwater::{Backend, CheckpointKind, Environment, KeyedState, Subtask, ValueState};

use super::state::{ENTRY_BYTES, STATES, VALUE_BYTES, keys, load, seed};
use super::{Context, Job, Step};
use crate::Result;
use crate::child::Outcome;
use crate::measure::checkpoints::CheckpointLog;
use crate::measure::settle::settle;
use crate::parent::ObjectStore;
use crate::rows::{Place, row};
use crate::store::Store;
use crate::stores::highwater::{environment, operator};
use crate::stores::payload::Payload;
use crate::stores::{self, StoreKind, Task};
use crate::values::{Key, Values, key_of};

/// Keys changed after each restore.
const CHANGED: u64 = 10_000;

/// Longest that a checkpoint or background work may take.
const AT_MOST: Duration = Duration::from_secs(900);

type Rows = ValueState<Key, Payload>;

/// Loads state and makes one checkpoint of it.
pub fn fill(job: &Job, log: &CheckpointLog, state_bytes: u64, parallelism: u32) -> Result<Outcome> {
    if parallelism == 1 {
        return stores::open(job.store, &job.setting(STATES), Some(job.client()), log, Fill { state_bytes });
    }
    let mut subtasks = Subtasks::open(job, parallelism)?;
    let values = Values::new();
    for id in 0..keys(state_bytes) {
        subtasks.put(id, values.of(VALUE_BYTES, seed(id)))?;
    }
    let uploaded = subtasks.checkpoint()?;
    subtasks.close()?;
    Ok(Outcome { described: format!("{uploaded} bytes uploaded"), ..Outcome::default() })
}

struct Fill {
    state_bytes: u64,
}

impl Task for Fill {
    fn with<S: Store>(self, mut store: S) -> Result<Outcome> {
        load(&mut store, self.state_bytes, |_| true)?;
        settle(&mut store, AT_MOST)?;
        store.checkpoint()?.ok_or("no checkpoint was made")?;
        store.wait_for_checkpoints()?;
        Ok(Outcome { described: format!("{} bytes referred to", store.referenced_bytes()), ..Outcome::default() })
    }
}

/// All subtasks of an operator in one process.
struct Subtasks {
    env: Environment,
    backends: Vec<(Backend, Rows)>,
}

impl Subtasks {
    /// From the newest checkpoint, if there is one.
    fn open(job: &Job, parallelism: u32) -> Result<Self> {
        let env = environment(&job.setting(STATES), Some(job.client()), false)?;
        Self::on(env, parallelism)
    }

    fn on(env: Environment, parallelism: u32) -> Result<Self> {
        let newest = env.latest_checkpoint()?;
        let open = |index| {
            let mut backend = env.backend(&operator(), Subtask { index, parallelism }, newest.as_ref())?;
            let rows = backend.value_state("rows")?;
            Ok::<_, crate::Error>((backend, rows))
        };
        let backends = (0..parallelism).map(open).collect::<Result<_>>()?;
        Ok(Self { env, backends })
    }

    fn owner(&mut self, key: &Key) -> Result<&mut (Backend, Rows)> {
        let owns = |(b, _): &&mut (Backend, Rows)| b.key_groups().contains(b.key_group_of(key));
        self.backends.iter_mut().find(owns).ok_or_else(|| "no subtask owns a key".into())
    }

    fn put(&mut self, id: u64, value: &[u8]) -> Result<()> {
        let key = key_of(id);
        let (backend, rows) = self.owner(&key)?;
        loop {
            match rows.put(backend, &key, Payload::of(value)) {
                Err(error) if error.kind() == highwater::ErrorKind::Backpressure => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => return Ok(other?),
            }
        }
    }

    fn get(&mut self, id: u64) -> Result<Option<Payload>> {
        let key = key_of(id);
        let (backend, rows) = self.owner(&key)?;
        Ok(rows.get(backend, &key)?)
    }

    /// Makes a checkpoint of all and returns the bytes of state uploaded.
    fn checkpoint(&mut self) -> Result<u64> {
        let mut coordinator = self.env.coordinator(&[(&operator(), self.backends.len() as u32)])?;
        let tickets = self.backends.iter_mut().map(|(b, _)| b.checkpoint(1, CheckpointKind::Incremental, b"offsets"));
        let tickets = tickets.collect::<std::result::Result<Vec<_>, _>>()?;
        let mut uploaded = 0;
        let mut completed = None;
        for ticket in tickets {
            let part = ticket.wait(AT_MOST)?;
            uploaded += part.delta_bytes;
            completed = coordinator.add(part)?;
        }
        completed.map(|_| uploaded).ok_or_else(|| "all parts came, and the checkpoint isn't complete".into())
    }

    fn close(self) -> Result<()> {
        self.backends.into_iter().try_for_each(|(backend, _)| Ok(backend.close(AT_MOST)?))
    }
}

/// Restores on `parallelism` subtasks, reads one key of each, changes some, makes a checkpoint.
pub fn rescale(job: &Job, state_bytes: u64, parallelism: u32) -> Result<Outcome> {
    let client = job.client();
    let start = Instant::now();
    let env = environment(&job.setting(STATES), Some(client.clone()), false)?;
    let mut subtasks = Subtasks::on(env, parallelism)?;
    let opened = client.chains().0;
    let values = Values::new();
    let mut outcome = Outcome::default();
    // In a job each subtask reads on a thread of its own: the one that asks most often is waited for.
    let mut longest = 0;
    for index in 0..subtasks.backends.len() {
        let owned = |id: &u64| {
            let (backend, _) = &subtasks.backends[index];
            backend.key_groups().contains(backend.key_group_of(&key_of(*id)))
        };
        let id = (0..keys(state_bytes)).find(owned).ok_or("a subtask without keys")?;
        let before = client.chains().0;
        let found = subtasks.get(id)?;
        longest = longest.max(client.chains().0 - before);
        // What an earlier step changed has that step's value.
        if found.is_none_or(|value| value.bytes().len() != usize::from(VALUE_BYTES)) {
            return Err(format!("key {id} is lost after rescaling to {parallelism}").into());
        }
    }
    outcome.figures.insert("first_record_ms".into(), start.elapsed().as_secs_f64() * 1e3);
    outcome.figures.insert("dependent_requests".into(), (opened + longest) as f64);
    outcome.figures.insert("bytes_read".into(), client.counts().read_bytes as f64);
    let changed = CHANGED.min(keys(state_bytes));
    for id in 0..changed {
        subtasks.put(id, values.of(VALUE_BYTES, (id + u64::from(parallelism)) as u32))?;
    }
    let uploaded = subtasks.checkpoint()?;
    outcome.figures.insert("bytes_uploaded".into(), uploaded as f64);
    outcome.figures.insert("delta_bytes".into(), (changed * ENTRY_BYTES) as f64);
    for id in 0..changed {
        let expected = values.of(VALUE_BYTES, (id + u64::from(parallelism)) as u32);
        if subtasks.get(id)?.is_none_or(|value| value.bytes() != expected) {
            return Err(format!("key {id} has another value than was written").into());
        }
    }
    outcome.described = format!("{:?}", outcome.figures);
    Ok(outcome)
}

/// See the module.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    let state_bytes = (8e9 * context.args.scale()) as u64;
    let objects = tempfile::tempdir_in(context.scratch)?;
    let server = ObjectStore::start(objects.path())?;
    let fill = Step::Fill { state_bytes, parallelism: 2 };
    if context.step_on(StoreKind::Highwater, fill, &server).is_none() {
        return Ok(());
    }
    let mut before = 2;
    for parallelism in [3, 1, 4] {
        let step = Step::Rescale { state_bytes, parallelism };
        let Some(outcome) = context.step_on(StoreKind::Highwater, step, &server) else { return Ok(()) };
        let title = format!("C5/{before}-to-{parallelism}");
        before = parallelism;
        let place = Place { title: &title, interval_s: 0.0, opponent: "self" };
        let figure = |name: &str| outcome.figures.get(name).copied().unwrap_or(0.0);
        // Beside what a perfect delta would upload; and beside a whole copy of the state.
        let uploaded = row(place, "bytes_uploaded", false, &[figure("bytes_uploaded")], &[figure("delta_bytes")]);
        let read = row(place, "bytes_read", false, &[figure("bytes_read")], &[state_bytes as f64]);
        let same = |name: &str| row(place, name, false, &[figure(name)], &[figure(name)]);
        let rows = [uploaded, read, same("first_record_ms"), same("dependent_requests")];
        context.report.add(rows.into_iter().flatten().collect());
    }
    Ok(())
}
