//! Cursors and views held across writes, and full scans, compared with the model.

use std::collections::{BTreeMap, VecDeque};

use highwater::ReadView;
use highwater::base::cursor::Direction;
use highwater::state::EntryCursor;
use highwater::state::list::read::ElementCursor;

use crate::job::{Job, Task};
use crate::model::{Expiring, ListKey, Model, RowKey};
use crate::ops::{Bounds, KeyNo};
use crate::run::Run;
use crate::states::{LIST, MERGED, Seen, byte_range, place, within};

pub enum Walk {
    Entries(EntryCursor<Vec<u8>, Vec<u8>>),
    Elements(ElementCursor<Vec<u8>>),
}

/// A cursor held across writes: what it has yet to show.
pub struct Held {
    task: usize,
    walk: Walk,
    /// User key (empty for list elements) and value.
    expected: VecDeque<(Vec<u8>, Expiring)>,
}

/// A read view held across writes, and the model as it was when it was opened.
pub struct View {
    task: usize,
    view: ReadView,
    model: Model,
    opened_ms: i64,
}

impl Run {
    pub fn open_cursor(&mut self, at: (u8, KeyNo, i8), bounds: Bounds, direction: Direction) {
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
    pub fn advance_cursor(&mut self, cursor: u8, count: u8) {
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

    pub fn close_cursor(&mut self, cursor: u8) {
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

    pub fn open_view(&mut self, subtask: u8) {
        if self.views.len() >= 3 {
            self.views.remove(0);
        }
        let task = usize::from(subtask) % self.job.tasks.len();
        let opened_ms = self.now(task);
        let view = self.job.tasks[task].backend.read_view().unwrap();
        self.views.push(View { task, view, model: self.model.clone(), opened_ms });
    }

    pub fn check_view(&mut self, view: u8) {
        if self.views.is_empty() {
            return;
        }
        let at = usize::from(view) % self.views.len();
        let now = self.now(self.views[at].task);
        let View { task, view, model, opened_ms } = &self.views[at];
        compare(&self.job, *task, view, model, (*opened_ms, now));
    }

    /// Compares everything: every row, element and timer, and that each is in one subtask alone.
    pub fn full_check(&mut self) {
        for task in 0..self.job.tasks.len() {
            let now = self.now(task);
            let view = self.job.tasks[task].backend.read_view().unwrap();
            compare(&self.job, task, &view, &self.model, (now, now));
            self.check_next_timer(task, false);
            self.check_next_timer(task, true);
        }
    }
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
