//! Lists and timers, on the job and on the model.

use highwater::{TimeDomain, Timer};

use crate::job::Task;
use crate::model::{TimerKey, group};
use crate::ops::{KeyNo, ValueSpec, key_bytes};
use crate::run::Run;
use crate::states::place;

fn domain_of(processing: bool) -> TimeDomain {
    if processing { TimeDomain::Processing } else { TimeDomain::Event }
}

impl Run {
    /// Writes the model's list anew.
    pub fn list_again(&mut self, at: (u8, KeyNo, i8)) {
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

    pub fn list_write(&mut self, at: (u8, KeyNo, i8), values: &[ValueSpec], replace: bool) {
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

    pub fn list_clear(&mut self, at: (u8, KeyNo, i8)) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        self.job.write(task, |t| t.states.list(at.0).clear(&mut t.backend, (&key_bytes(at.1), &i64::from(at.2))));
        self.model.lists.remove(&place);
    }

    pub fn list_merge(&mut self, at: (u8, KeyNo, i8), sources: &[i8]) {
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

    pub fn list_get(&mut self, at: (u8, KeyNo, i8)) {
        let place = place(at.0, at.1, at.2);
        let task = self.job.index_of(&place.1);
        let now = self.now(task);
        let Task { backend, states } = &mut self.job.tasks[task];
        let found = states.list(at.0).get(backend, (&key_bytes(at.1), &i64::from(at.2))).unwrap();
        assert_eq!(found, self.model.list(&place, now), "list {place:?} at {now}");
    }

    pub fn timer(&mut self, processing: bool, key: KeyNo, namespace: i8, time: i64, register: bool) {
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

    pub fn first_timer(&self, task: usize, processing: bool) -> Option<TimerKey> {
        let mine = |timer: &&TimerKey| timer.0 == processing && self.job.index_of(&timer.3) == task;
        self.model.timers.iter().find(mine).cloned()
    }

    pub fn check_next_timer(&mut self, task: usize, processing: bool) {
        let expected = self.first_timer(task, processing).map(|timer| timer.1);
        let Task { backend, states } = &mut self.job.tasks[task];
        assert_eq!(states.timers.next_timestamp(backend, domain_of(processing)).unwrap(), expected);
    }

    pub fn pop_timer(&mut self, processing: bool, subtask: u8, until: i64) {
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
}
