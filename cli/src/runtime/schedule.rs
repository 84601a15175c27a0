//! When to take checkpoints, when to give them up: a decider over plain times, which the coordinator acts on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::runtime::Settings;

/// Checkpoints under way at most: more would only compete for the same store.
const MAX_IN_FLIGHT: usize = 4;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a barrier with this id.
    Trigger(u64),
    /// Give this one up: it has taken too long.
    Expire(u64),
}

/// Keeps the times of one run's checkpoints. All times are since the start of the run.
#[derive(Debug)]
pub struct CheckpointSchedule {
    interval: Duration,
    timeout: Duration,
    next_id: u64,
    due: Duration,
    urgent: bool,
    /// The first id of those of which only one is to complete: the run is about to stop.
    last_from: Option<u64>,
    in_flight: BTreeMap<u64, Duration>,
    skipped: u64,
}

impl CheckpointSchedule {
    /// The first checkpoint is due after one interval.
    pub fn new(settings: &Settings) -> Self {
        Self {
            interval: settings.interval,
            timeout: settings.checkpoint_timeout,
            next_id: settings.first_checkpoint,
            due: settings.interval,
            urgent: false,
            last_from: None,
            in_flight: BTreeMap::new(),
            skipped: 0,
        }
    }

    /// Asks for a checkpoint as soon as one may be started; it is not skipped.
    pub fn hurry(&mut self) {
        self.urgent = true;
    }

    /// One has failed that there was nothing left to do but to take: the next is due soon, however long the interval is.
    pub fn again(&mut self, now: Duration) {
        self.due = self.due.min(now + self.interval.min(self.timeout / 8));
    }

    /// From now on one checkpoint is taken, the last, at once, however many are under way; another only where it fails.
    pub fn wind_down(&mut self) {
        self.urgent = true;
        self.last_from = Some(self.next_id);
    }

    /// What is to be done at `now`.
    pub fn poll(&mut self, now: Duration) -> Vec<Action> {
        let overdue = |started: Duration| now >= started.saturating_add(self.timeout);
        let expired = self.in_flight.iter().filter(|(_, started)| overdue(**started));
        let mut actions: Vec<Action> = expired.map(|(id, _)| Action::Expire(*id)).collect();
        for action in &actions {
            if let Action::Expire(id) = action {
                self.in_flight.remove(id);
            }
        }
        if self.last_from.is_some_and(|first| self.in_flight.range(first..).next().is_some()) {
            self.due = now + self.interval;
            return actions;
        }
        if now < self.due && !self.urgent {
            return actions;
        }
        let room = self.in_flight.len() < MAX_IN_FLIGHT || self.last_from.is_some();
        if room {
            actions.push(Action::Trigger(self.next_id));
            self.in_flight.insert(self.next_id, now);
            self.next_id += 1;
            self.urgent = false;
        }
        if now >= self.due {
            self.skipped += u64::from(!room);
            // A process that was paused catches up with one checkpoint, not with all it missed.
            self.due = (self.due + self.interval).max(now);
            if self.due == now {
                self.due += self.interval;
            }
        }
        actions
    }

    /// Notes that `id` is complete, and returns how long it took; `None` where it had been given up.
    pub fn completed(&mut self, id: u64, now: Duration) -> Option<Duration> {
        self.in_flight.remove(&id).map(|started| now.saturating_sub(started))
    }

    /// Notes that `id` has failed; false where that was known.
    pub fn failed(&mut self, id: u64) -> bool {
        self.in_flight.remove(&id).is_some()
    }

    /// Whether `id` is under way.
    pub fn is_in_flight(&self, id: u64) -> bool {
        self.in_flight.contains_key(&id)
    }

    /// Those that are under way, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = u64> {
        self.in_flight.keys().copied()
    }

    /// The time between checkpoints.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// How long one may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How many were due while too many were under way.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Expire, Trigger};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn schedule(interval: u64, timeout: u64) -> CheckpointSchedule {
        CheckpointSchedule::new(&Settings {
            max_parallelism: 128,
            out_of_orderness: 0,
            rate: None,
            interval: ms(interval),
            checkpoint_timeout: ms(timeout),
            first_checkpoint: 1,
        })
    }

    #[test]
    fn one_is_due_every_interval() {
        let mut schedule = schedule(100, 1000);
        for (now, want) in
            [(0, None), (99, None), (100, Some(1)), (150, None), (205, Some(2)), (299, None), (300, Some(3))]
        {
            let got = schedule.poll(ms(now));
            assert_eq!(got, want.map(Trigger).into_iter().collect::<Vec<_>>(), "at {now}");
            if let Some(id) = want {
                assert_eq!(schedule.completed(id, ms(now + 7)), Some(ms(7)));
            }
        }
        assert_eq!(schedule.skipped(), 0);
    }

    #[test]
    fn a_due_one_is_skipped_and_counted_while_four_are_under_way() {
        let mut schedule = schedule(100, 10_000);
        for now in [100, 200, 300, 400] {
            assert_eq!(schedule.poll(ms(now)), [Trigger(now / 100)]);
        }
        assert_eq!(schedule.poll(ms(500)), []);
        assert_eq!(schedule.poll(ms(510)), [], "counted once");
        assert_eq!(schedule.poll(ms(600)), []);
        assert_eq!(schedule.skipped(), 2);
        assert_eq!(schedule.completed(2, ms(650)), Some(ms(450)));
        assert_eq!(schedule.poll(ms(700)), [Trigger(5)]);
    }

    #[test]
    fn one_that_takes_too_long_is_given_up_and_its_room_used() {
        let mut schedule = schedule(100, 350);
        for now in [100, 200, 300, 400] {
            schedule.poll(ms(now));
        }
        assert_eq!(schedule.poll(ms(449)), []);
        assert_eq!(schedule.poll(ms(450)), [Expire(1)]);
        assert_eq!(schedule.poll(ms(550)), [Expire(2), Trigger(5)]);
        assert_eq!(schedule.completed(1, ms(560)), None, "too late");
        assert!(!schedule.failed(1));
        assert!(schedule.failed(3));
        assert_eq!(schedule.in_flight().collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn a_paused_process_catches_up_with_one() {
        let mut schedule = schedule(100, 60_000);
        assert_eq!(schedule.poll(ms(5000)), [Trigger(1)]);
        assert_eq!(schedule.poll(ms(5001)), []);
        assert_eq!(schedule.poll(ms(5100)), [Trigger(2)]);
        assert_eq!(schedule.skipped(), 0);
    }

    #[test]
    fn a_last_one_waits_for_room_and_is_not_skipped() {
        let mut schedule = schedule(100, 10_000);
        for now in [100, 200, 300, 400] {
            schedule.poll(ms(now));
        }
        schedule.hurry();
        assert_eq!(schedule.poll(ms(410)), []);
        assert_eq!(schedule.skipped(), 0);
        schedule.completed(1, ms(420));
        assert_eq!(schedule.poll(ms(420)), [Trigger(5)]);
        assert_eq!(schedule.poll(ms(421)), []);
    }

    #[test]
    fn a_job_that_has_nothing_else_to_do_tries_again_long_before_an_interval_is_over() {
        let mut schedule = schedule(3_600_000, 800);
        schedule.hurry();
        assert_eq!(schedule.poll(ms(10)), [Trigger(1)]);
        assert!(schedule.failed(1));
        schedule.again(ms(20));
        assert_eq!(schedule.poll(ms(119)), []);
        assert_eq!(schedule.poll(ms(120)), [Trigger(2)]);
    }

    #[test]
    fn a_run_that_is_about_to_stop_takes_one_more_however_many_are_under_way_and_none_after_it() {
        let mut schedule = schedule(100, 10_000);
        for now in [100, 200, 300, 400] {
            schedule.poll(ms(now));
        }
        schedule.wind_down();
        assert_eq!(schedule.poll(ms(410)), [Trigger(5)]);
        for now in [411, 500, 900, 5000] {
            assert_eq!(schedule.poll(ms(now)), []);
        }
        // Where it fails, there is another.
        assert!(schedule.failed(5));
        assert_eq!(schedule.poll(ms(5099)), []);
        assert_eq!(schedule.poll(ms(5100)), [Trigger(6)]);
        assert_eq!(schedule.poll(ms(5300)), []);
        schedule.failed(6);
        schedule.again(ms(5300));
        assert_eq!(schedule.poll(ms(5400)), [Trigger(7)]);
        assert_eq!(schedule.skipped(), 0);
    }
}
