//! Runs a history on the job and on the model, and compares at every step.

use std::collections::{BTreeMap, VecDeque};

use highwater::base::clock::Clock;
use highwater::base::cursor::Direction;
use highwater::base::record::NEVER;
use highwater::state::EntryCursor;
use highwater::state::list::read::ElementCursor;
use highwater::{ErrorKind, Result, TimeDomain, Timer};
use highwater::{ReadView, Tuning};

use crate::job::{Job, Task};
use crate::model::{Expiring, ListKey, Model, RowKey, TimerKey, group};
use crate::ops::{Bounds, KeyNo, Op, ValueSpec, key_bytes};
use crate::states::{
    LIST, MERGED, ROW_STATES, SUM, Seen, byte_range, concatenate, encoded_sum, place, row, ttl_ms, within,
};

enum Walk {
    Entries(EntryCursor<Vec<u8>, Vec<u8>>),
    Elements(ElementCursor<Vec<u8>>),
}

/// A cursor held across writes: what it has yet to show.
struct Held {
    task: usize,
    walk: Walk,
    /// User key (empty for list elements) and value.
    expected: VecDeque<(Vec<u8>, Expiring)>,
}

struct View {
    task: usize,
    view: ReadView,
    model: Model,
    opened_ms: i64,
}

/// Job and model side by side.
pub struct Run {
    job: Job,
    model: Model,
    /// Time as each subtask last told it.
    now_ms: Vec<i64>,
    cursors: Vec<Held>,
    views: Vec<View>,
}

fn domain_of(processing: bool) -> TimeDomain {
    if processing { TimeDomain::Processing } else { TimeDomain::Event }
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

    pub fn history(mut self, ops: &[Op]) {
        for op in ops {
            self.apply(op);
        }
        self.full_check();
        self.job.world.executor.run_until_idle();
        self.job.poll();
        self.full_check();
    }

    /// The subtask's time, which never runs backwards and is never behind the clock.
    fn now(&mut self, task: usize) -> i64 {
        let now = self.job.tasks[task].backend.now_ms();
        assert!(now >= self.job.world.clock.now_ms() && now >= self.now_ms[task], "time ran backwards");
        self.now_ms[task] = now;
        now
    }

    fn expiry(&mut self, state: u8, task: usize) -> i64 {
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
    fn must_write_again(&mut self, outcome: Result<()>) -> bool {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Backpressure => true,
            other => {
                other.unwrap();
                false
            }
        }
    }

    /// Writes the model's list anew.
    fn list_again(&mut self, at: (u8, KeyNo, i8)) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        let now = self.now(task);
        let values = self.model.list(&place, now);
        let (key, namespace) = (key_bytes(at.1), i64::from(at.2));
        self.job.write(task, |t| t.states.list(at.0).clear(&mut t.backend, (&key, &namespace)));
        for value in &values {
            self.job.write(task, |t| t.states.list(at.0).add(&mut t.backend, (&key, &namespace), value));
        }
        let expiry = self.expiry(at.0, task);
        self.model.lists.insert(place, values.into_iter().map(|value| (value, expiry)).collect());
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

    fn list_write(&mut self, at: (u8, KeyNo, i8), values: &[ValueSpec], replace: bool) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.bytes()).collect();
        let (key, namespace) = (key_bytes(at.1), i64::from(at.2));
        let Task { backend, states } = &mut self.job.tasks[task];
        let list = states.list(at.0);
        let written = if replace {
            list.update(backend, (&key, &namespace), &values)
        } else {
            list.add_all(backend, (&key, &namespace), &values)
        };
        let expiry = self.expiry(at.0, task);
        let elements = self.model.lists.entry(place).or_default();
        if replace {
            elements.clear();
        }
        elements.extend(values.into_iter().map(|value| (value, expiry)));
        if self.must_write_again(written) {
            self.list_again(at);
        }
    }

    fn list_clear(&mut self, at: (u8, KeyNo, i8)) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        self.job.write(task, |t| t.states.list(at.0).clear(&mut t.backend, (&key_bytes(at.1), &i64::from(at.2))));
        self.model.lists.remove(&place);
    }

    fn list_merge(&mut self, at: (u8, KeyNo, i8), sources: &[i8]) {
        let target = place(at.0, at.1, at.2);
        let task = self.job.index_of(&target.1);
        let now = self.now(task);
        let namespaces: Vec<i64> = sources.iter().copied().map(i64::from).collect();
        let Task { backend, states } = &mut self.job.tasks[task];
        let list = states.list(at.0);
        let merged = list.merge_namespaces(backend, &key_bytes(at.1), &i64::from(at.2), &namespaces);
        for source in sources {
            let from = place(at.0, at.1, *source);
            if from != target {
                let moved = self.model.lists.remove(&from).unwrap_or_default();
                let live = moved.into_iter().filter(|(_, expiry)| *expiry > now);
                self.model.lists.entry(target.clone()).or_default().extend(live);
            }
        }
        if self.must_write_again(merged) {
            sources.iter().chain([&at.2]).for_each(|namespace| self.list_again((at.0, at.1, *namespace)));
        }
    }

    fn list_get(&mut self, at: (u8, KeyNo, i8)) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        let now = self.now(task);
        let Task { backend, states } = &mut self.job.tasks[task];
        let found = states.list(at.0).get(backend, (&key_bytes(at.1), &i64::from(at.2))).unwrap();
        assert_eq!(found, self.model.list(&place, now), "list {place:?} at {now}");
    }

    fn timer(&mut self, processing: bool, key: KeyNo, namespace: i8, time: i64, register: bool) {
        let (key, namespace) = (key_bytes(key), i64::from(namespace));
        let task = self.job.index_of(&key);
        let domain = domain_of(processing);
        self.job.write(task, |t| {
            let (timers, at) = (&mut t.states.timers, (&key, &namespace));
            if register {
                timers.register(&mut t.backend, domain, at, time)
            } else {
                timers.delete(&mut t.backend, domain, at, time)
            }
        });
        let timer = (processing, time, group(&key), key, namespace);
        if register {
            self.model.timers.insert(timer);
        } else {
            self.model.timers.remove(&timer);
        }
        self.check_next_timer(task, processing);
    }

    fn first_timer(&self, task: usize, processing: bool) -> Option<TimerKey> {
        let mine = |timer: &&TimerKey| timer.0 == processing && self.job.index_of(&timer.3) == task;
        self.model.timers.iter().find(mine).cloned()
    }

    fn check_next_timer(&mut self, task: usize, processing: bool) {
        let expected = self.first_timer(task, processing).map(|timer| timer.1);
        let Task { backend, states } = &mut self.job.tasks[task];
        assert_eq!(states.timers.next_timestamp(backend, domain_of(processing)).unwrap(), expected);
    }

    fn pop_timer(&mut self, processing: bool, subtask: u8, until: i64) {
        let task = usize::from(subtask) % self.job.tasks.len();
        for _ in 0..3 {
            let expected = self.first_timer(task, processing).filter(|timer| timer.1 <= until);
            let mut found = None;
            self.job.write(task, |t| {
                found = t.states.timers.pop_until(&mut t.backend, domain_of(processing), until)?;
                Ok(())
            });
            let as_timer = |(_, timestamp_ms, _, key, namespace): TimerKey| Timer { timestamp_ms, key, namespace };
            assert_eq!(found, expected.clone().map(as_timer));
            if let Some(expected) = expected {
                self.model.timers.remove(&expected);
            }
            self.check_next_timer(task, processing);
        }
    }

    fn open_cursor(&mut self, at: (u8, KeyNo, i8), bounds: Bounds, direction: Direction) {
        if self.cursors.len() >= 4 {
            return;
        }
        let state = if at.0 >= MERGED { at.0 + LIST - MERGED } else { at.0 };
        let at = (state, at.1, at.2);
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        let now = self.now(task);
        let Task { backend, states } = &mut self.job.tasks[task];
        let (walk, entries) = if state >= LIST {
            let elements = self.model.lists.get(&place).cloned().unwrap_or_default();
            let walk = Walk::Elements(states.list_cursor(backend, at).unwrap());
            (walk, elements.into_iter().map(|element| (Vec::new(), element)).collect())
        } else {
            let range = byte_range(bounds);
            let entries = within(self.model.entries(&place), &range, direction);
            (Walk::Entries(states.cursor(backend, at, range, direction).unwrap()), entries)
        };
        let expected = entries.into_iter().filter(|(_, (_, expiry))| *expiry > now).collect();
        self.cursors.push(Held { task, walk, expected });
    }

    /// What expires while the cursor is open may be shown or not.
    fn advance_cursor(&mut self, cursor: u8, count: u8) {
        if self.cursors.is_empty() {
            return;
        }
        let at = usize::from(cursor) % self.cursors.len();
        let task = self.cursors[at].task;
        let now = self.now(task);
        let Held { walk, expected, .. } = &mut self.cursors[at];
        let backend = &mut self.job.tasks[task].backend;
        for _ in 0..count {
            let found = match walk {
                Walk::Entries(cursor) => cursor.next(backend).unwrap(),
                Walk::Elements(cursor) => cursor.next(backend).unwrap().map(|element| (Vec::new(), element)),
            };
            loop {
                let front = expected.pop_front();
                match (&front, &found) {
                    (Some((user_key, (value, _))), Some(found)) if (user_key, value) == (&found.0, &found.1) => break,
                    (Some((_, (_, expiry))), _) if *expiry <= now => {}
                    (None, None) => break,
                    _ => panic!("the cursor shows {found:?} in place of {front:?} at {now}"),
                }
            }
        }
    }

    fn close_cursor(&mut self, cursor: u8) {
        if self.cursors.is_empty() {
            return;
        }
        let held = self.cursors.remove(usize::from(cursor) % self.cursors.len());
        let backend = &mut self.job.tasks[held.task].backend;
        match held.walk {
            Walk::Entries(cursor) => cursor.close(backend),
            Walk::Elements(cursor) => cursor.close(backend),
        }
    }

    fn open_view(&mut self, subtask: u8) {
        if self.views.len() >= 3 {
            self.views.remove(0);
        }
        let task = usize::from(subtask) % self.job.tasks.len();
        let opened_ms = self.now(task);
        let view = self.job.tasks[task].backend.read_view().unwrap();
        self.views.push(View { task, view, model: self.model.clone(), opened_ms });
    }

    fn check_view(&mut self, view: u8) {
        if self.views.is_empty() {
            return;
        }
        let at = usize::from(view) % self.views.len();
        let now = self.now(self.views[at].task);
        let View { task, view, model, opened_ms } = &self.views[at];
        compare(&self.job, *task, view, model, (*opened_ms, now));
    }

    /// Compares everything: every row, element and timer, and that each is in one subtask alone.
    fn full_check(&mut self) {
        for task in 0..self.job.tasks.len() {
            let now = self.now(task);
            let view = self.job.tasks[task].backend.read_view().unwrap();
            compare(&self.job, task, &view, &self.model, (now, now));
            self.check_next_timer(task, false);
            self.check_next_timer(task, true);
        }
    }

    fn crash(&mut self, parallelism: u32, finish_work: bool) {
        if finish_work {
            self.job.world.executor.run_until_idle();
            self.job.poll();
        }
        self.cursors.clear();
        self.views.clear();
        let frozen = self.job.crash(parallelism);
        self.model = frozen.model;
        self.now_ms = vec![i64::MIN; parallelism as usize];
        self.full_check();
    }
}

fn row_of((state, key, namespace): ListKey) -> RowKey {
    (state, key, namespace, Vec::new())
}

/// Compares what a view of a subtask shows with the model. What was alive at the second time must be
/// there, what was dead at the first must not.
fn compare(job: &Job, task: usize, view: &ReadView, model: &Model, (from_ms, to_ms): (i64, i64)) {
    let Task { backend, states } = &job.tasks[task];
    let mut seen = Seen::default();
    states.collect(view, backend, &mut seen).unwrap();
    let found: BTreeMap<RowKey, Vec<u8>> = seen.rows.iter().cloned().collect();
    assert_eq!(found.len(), seen.rows.len(), "a row was shown twice");
    for (row, (value, expiry)) in model.rows.iter().filter(|(row, _)| job.index_of(&row.1) == task) {
        match found.get(row) {
            Some(found) => assert!(found == value && *expiry > from_ms, "{row:?} is {found:?}, not {value:?}"),
            None => assert!(*expiry <= to_ms, "{row:?} is missing at {to_ms}"),
        }
    }
    if let Some(extra) = found.keys().find(|row| !model.rows.contains_key(*row)) {
        panic!("{extra:?} shouldn't be there");
    }
    let mut lists: BTreeMap<ListKey, Vec<Vec<u8>>> = BTreeMap::new();
    for (list, element) in seen.elements {
        lists.entry(list).or_default().push(element);
    }
    for list in model.lists.keys().filter(|list| job.index_of(&list.1) == task) {
        let found = lists.remove(list).unwrap_or_default();
        assert_eq!(found, model.list(list, to_ms), "list {list:?} at {to_ms}");
    }
    assert!(lists.is_empty(), "lists that shouldn't be there: {:?}", lists.keys());
    seen.timers.sort();
    let timers: Vec<_> = model.timers.iter().filter(|timer| job.index_of(&timer.3) == task).cloned().collect();
    assert_eq!(seen.timers, timers);
}
