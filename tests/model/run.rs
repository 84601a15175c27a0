//! Runs a history on the job and on the model, and compares at every step.

use highwater::base::clock::Clock;
use highwater::base::cursor::Direction;
use highwater::base::record::NEVER;
use highwater::{ErrorKind, Result, Tuning};

use crate::job::{Counts, Frozen, Job, Task};
use crate::model::{ListKey, Model, RowKey};
use crate::ops::{Bounds, KeyNo, Op, key_bytes};
use crate::states::{LIST, MERGED, ROW_STATES, SUM, byte_range, concatenate, encoded_sum, place, row, ttl_ms, within};
use crate::walks::{Held, View};

/// Job and model side by side.
pub struct Run {
    pub model: Model,
    /// Time as each subtask last told it.
    now_ms: Vec<i64>,
    pub cursors: Vec<Held>,
    pub views: Vec<View>,
    /// Last, so that it is dropped last.
    pub job: Job,
}

fn direction_of(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}

impl Run {
    pub fn new(tuning: Tuning, parallelism: u32) -> Self {
        let job = Job::start(tuning, parallelism);
        let now_ms = vec![i64::MIN; parallelism as usize];
        Self { job, model: Model::default(), now_ms, cursors: Vec::new(), views: Vec::new() }
    }

    pub fn history(mut self, ops: &[Op]) -> Counts {
        for op in ops {
            self.apply(op);
        }
        self.full_check();
        self.job.world.executor.run_until_idle();
        self.job.poll();
        self.full_check();
        self.job.counts
    }

    /// The subtask's time, which never runs backwards and is never behind the clock.
    pub fn now(&mut self, task: usize) -> i64 {
        let now = self.job.tasks[task].backend.now_ms();
        assert!(now >= self.job.world.clock.now_ms() && now >= self.now_ms[task], "time ran backwards");
        self.now_ms[task] = now;
        now
    }

    pub fn expiry(&mut self, state: u8, task: usize) -> i64 {
        let now = self.now(task);
        ttl_ms(state).map_or(NEVER, |ttl| now.saturating_add_unsigned(ttl))
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Put { state, key, namespace, user_key, value } => {
                self.put((state % ROW_STATES, *key, *namespace, *user_key), &value.bytes());
            }
            Op::Delete { state, key, namespace, user_key } => {
                self.delete((state % ROW_STATES, *key, *namespace, *user_key));
            }
            Op::DeletePrefix { state, key, namespace } => self.delete_prefix(state % ROW_STATES, *key, *namespace),
            Op::Fill { state, key, namespace, from, count, value } => {
                for user_key in 0..*count {
                    let at = (2 + state % 3, *key, *namespace, from.wrapping_add(user_key));
                    self.put(at, &value.bytes());
                }
            }
            Op::Merge { key, operand } => self.merge(*key, &operand.bytes()),
            Op::Reduce { key, namespace, value } => self.reduce(*key, *namespace, i64::from(*value)),
            Op::ReduceMerge { key, target, sources } => self.reduce_merge(*key, *target, sources),
            Op::Get { state, key, namespace, user_key } => {
                self.get((state % (SUM + 1), *key, *namespace, *user_key));
            }
            Op::Scan { state, key, namespace, bounds, backward } => {
                self.scan((2 + state % 3, *key, *namespace), *bounds, direction_of(*backward));
            }
            Op::CursorOpen { state, key, namespace, bounds, backward } => {
                self.open_cursor((2 + state % 5, *key, *namespace), *bounds, direction_of(*backward));
            }
            Op::CursorNext { cursor, count } => self.advance_cursor(*cursor, *count),
            Op::CursorClose { cursor } => self.close_cursor(*cursor),
            Op::ViewOpen { subtask } => self.open_view(*subtask),
            Op::ViewCheck { view } => self.check_view(*view),
            Op::FullCheck => self.full_check(),
            Op::Clock { by_ms } => {
                let clock = &self.job.world.clock;
                clock.set(clock.now_ms() + i64::from(*by_ms));
            }
            Op::Checkpoint { kind } => self.job.checkpoint(*kind, &self.model),
            Op::Work { picks } => self.job.work(picks),
            Op::Confirm { checkpoint } => self.job.confirm(*checkpoint),
            Op::Abort { checkpoint } => self.job.abort(*checkpoint),
            _ => self.apply_more(op),
        }
    }

    fn apply_more(&mut self, op: &Op) {
        match op {
            Op::ListAdd { state, key, namespace, values } => {
                self.list_write((LIST + state % 2, *key, *namespace), values, false);
            }
            Op::ListUpdate { state, key, namespace, values } => {
                self.list_write((LIST + state % 2, *key, *namespace), values, true);
            }
            Op::ListClear { state, key, namespace } => self.list_clear((LIST + state % 2, *key, *namespace)),
            Op::ListMerge { state, key, target, sources } => {
                self.list_merge((LIST + state % 2, *key, *target), sources);
            }
            Op::ListGet { state, key, namespace } => self.list_get((LIST + state % 2, *key, *namespace)),
            Op::TimerRegister { domain, key, namespace, time } => self.timer(*domain, *key, *namespace, *time, true),
            Op::TimerDelete { domain, key, namespace, time } => self.timer(*domain, *key, *namespace, *time, false),
            Op::TimerPop { domain, subtask, until } => self.pop_timer(*domain, *subtask, *until),
            Op::Usurp { parallelism } => self.usurp(u32::from(*parallelism)),
            Op::GetMany { subtask } => self.get_many(*subtask),
            Op::Collect => self.job.collect(),
            Op::Crash { parallelism, finish_work } => self.crash(u32::from(*parallelism), *finish_work),
            other => panic!("{other:?} is applied by nobody"),
        }
    }

    fn put(&mut self, at: (u8, KeyNo, i8, KeyNo), value: &[u8]) {
        let row = row(at.0, at.1, at.2, at.3);
        let task = self.job.index_of(&row.1);
        let value = value.to_vec();
        self.job.write(task, |t| t.states.put(&mut t.backend, at, &value));
        let expiry = self.expiry(at.0, task);
        self.model.rows.insert(row, (value, expiry));
    }

    fn delete(&mut self, at: (u8, KeyNo, i8, KeyNo)) {
        let row = row(at.0, at.1, at.2, at.3);
        let task = self.job.index_of(&row.1);
        self.job.write(task, |t| t.states.delete(&mut t.backend, at));
        self.model.rows.remove(&row);
    }

    fn delete_prefix(&mut self, state: u8, key: KeyNo, namespace: i8) {
        let at = place(state, key, namespace);
        let task = self.job.index_of(&at.1);
        self.job.write(task, |t| t.states.delete_prefix(&mut t.backend, state, key, namespace));
        self.model.clear(&at);
    }

    fn merge(&mut self, key: KeyNo, operand: &[u8]) {
        let row = row_of(place(MERGED, key, 0));
        let task = self.job.index_of(&row.1);
        self.job.write(task, |t| t.states.merge(&mut t.backend, key, operand));
        let (value, _) = self.model.rows.entry(row).or_insert_with(|| (Vec::new(), NEVER));
        concatenate(value, operand);
    }

    fn sum(&self, row: &RowKey) -> Option<i64> {
        use highwater::Codec;
        self.model.rows.get(row).map(|(value, _)| i64::decode(value).unwrap())
    }

    fn reduce(&mut self, key: KeyNo, namespace: i8, value: i64) {
        let row = row_of(place(SUM, key, namespace));
        let task = self.job.index_of(&row.1);
        self.job.write(task, |t| t.states.sum.add(&mut t.backend, (&key_bytes(key), &i64::from(namespace)), value));
        let sum = self.sum(&row).map_or(value, |old| old.wrapping_add(value));
        self.model.rows.insert(row, (encoded_sum(sum), NEVER));
    }

    fn reduce_merge(&mut self, key: KeyNo, target: i8, sources: &[i8]) {
        let row = row_of(place(SUM, key, target));
        let task = self.job.index_of(&row.1);
        let namespaces: Vec<i64> = sources.iter().copied().map(i64::from).collect();
        let Task { backend, states } = &mut self.job.tasks[task];
        let merged = states.sum.merge_namespaces(backend, &key_bytes(key), &i64::from(target), &namespaces);
        for source in sources {
            let from = row_of(place(SUM, key, *source));
            if from == row {
                continue;
            }
            let Some(value) = self.sum(&from) else { continue };
            let sum = self.sum(&row).map_or(value, |old| old.wrapping_add(value));
            self.model.rows.remove(&from);
            self.model.rows.insert(row.clone(), (encoded_sum(sum), NEVER));
        }
        if self.must_write_again(merged) {
            for namespace in sources.iter().chain([&target]) {
                let at = (key_bytes(key), i64::from(*namespace));
                self.job.write(task, |t| t.states.sum.clear(&mut t.backend, (&at.0, &at.1)));
                if let Some(sum) = self.sum(&row_of(place(SUM, key, *namespace))) {
                    self.job.write(task, |t| t.states.sum.add(&mut t.backend, (&at.0, &at.1), sum));
                }
            }
        }
    }

    /// True after backpressure in the middle of a call that is many writes: no one can say how far it came.
    pub fn must_write_again(&mut self, outcome: Result<()>) -> bool {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Backpressure => true,
            other => {
                other.unwrap();
                false
            }
        }
    }

    fn get(&mut self, at: (u8, KeyNo, i8, KeyNo)) {
        let row = if at.0 >= MERGED { row_of(place(at.0, at.1, at.2)) } else { row(at.0, at.1, at.2, at.3) };
        let task = self.job.index_of(&row.1);
        let now = self.now(task);
        let Task { backend, states } = &mut self.job.tasks[task];
        let found = states.get(backend, at).unwrap();
        assert_eq!(found.as_ref(), self.model.get(&row, now), "get {row:?} at {now}");
        let others = self.job.parallelism() as usize;
        if others > 1 && at.0 < ROW_STATES {
            let Task { backend, states } = &mut self.job.tasks[(task + 1) % others];
            let error = states.get(backend, at).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "a key of another subtask");
        }
    }

    fn get_many(&mut self, subtask: u8) {
        let task = usize::from(subtask) % self.job.tasks.len();
        let keys: Vec<KeyNo> = (0..40).filter(|key| self.job.index_of(&key_bytes(*key)) == task).collect();
        let Task { backend, states } = &mut self.job.tasks[task];
        let found = states.get_many(backend, &keys).unwrap();
        for (key, found) in keys.into_iter().zip(found) {
            let row = row_of(place(MERGED, key, 0));
            assert_eq!(found.as_ref(), self.model.get(&row, 0), "get_many {row:?}");
        }
    }

    fn scan(&mut self, at: (u8, KeyNo, i8), bounds: Bounds, direction: Direction) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        let now = self.now(task);
        let range = byte_range(bounds);
        let expected: Vec<_> = within(self.model.entries(&place), &range, direction)
            .into_iter()
            .filter(|(_, (_, expiry))| *expiry > now)
            .map(|(user_key, (value, _))| (user_key, value))
            .collect();
        let Task { backend, states } = &mut self.job.tasks[task];
        let found = states.scan(backend, at, range.clone(), direction).unwrap();
        assert_eq!(found, expected, "scan of {place:?} over {range:?}, {direction:?}");
    }

    fn crash(&mut self, parallelism: u32, finish_work: bool) {
        if finish_work {
            self.job.world.executor.run_until_idle();
            self.job.poll();
        }
        let frozen = self.job.crash(parallelism);
        self.continue_from(frozen);
    }

    fn usurp(&mut self, parallelism: u32) {
        let frozen = self.job.usurp(parallelism);
        self.continue_from(frozen);
    }

    /// Handles of the job that is gone are dropped only now: they may outlive it.
    fn continue_from(&mut self, frozen: Frozen) {
        self.cursors.clear();
        self.views.clear();
        self.model = frozen.model;
        self.now_ms = vec![i64::MIN; self.job.tasks.len()];
        self.full_check();
    }
}

fn row_of((state, key, namespace): ListKey) -> RowKey {
    (state, key, namespace, Vec::new())
}
