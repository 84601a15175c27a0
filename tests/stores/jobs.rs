//! A job's life on a store.

use std::time::Duration;

use highwater::base::clock::Clock;
use highwater::{CheckpointKind, ErrorKind};

use crate::Place;
use crate::common::rig::Rig;
use crate::common::tiny;
use crate::place::{ACCESS_KEY, SECRET_KEY};

/// Later than any store's own clock, so that what it holds is old as soon as this one moves on.
pub const LATER_MS: i64 = 4_000_000_000_000;

/// A job whose root is `place`, opened as a process of its own does.
pub fn rig(place: &Place) -> Rig {
    let rig = Rig::over(place.open(), tiny());
    rig.clock.set(LATER_MS);
    rig
}

pub fn what_was_committed_comes_back_without_the_working_directory(place: &Place) {
    let mut first = rig(place);
    first.start(2).unwrap();
    first.write_all(0..250).unwrap();
    first.incremental().unwrap();
    first.write_all(250..300).unwrap();
    let newest = first.incremental().unwrap();
    first.write_all(300..320).unwrap();
    first.kill();
    let mut second = rig(place);
    second.frozen = first.frozen.clone();
    for eager in [false, true] {
        second.eager = eager;
        second.start(2).unwrap();
        assert_eq!(second.env().latest_checkpoint().unwrap().unwrap().id(), newest.id());
        second.check().unwrap();
        second.kill_and_lose_directory();
    }
}

pub fn a_job_is_restored_at_another_parallelism(place: &Place) {
    let mut rig = rig(place);
    let mut written = 0;
    for parallelism in [1, 3, 2] {
        rig.start(parallelism).unwrap();
        rig.check().unwrap();
        rig.write_all(written..written + 150).unwrap();
        rig.incremental().unwrap();
        written += 150;
        rig.check().unwrap();
        rig.kill_and_lose_directory();
    }
    rig.start(4).unwrap();
    rig.check().unwrap();
}

pub fn an_aborted_checkpoint_leaves_the_next_one_whole(place: &Place) {
    let mut rig = rig(place);
    rig.start(2).unwrap();
    rig.write_all(0..100).unwrap();
    rig.incremental().unwrap();
    for (round, steps) in [0, 1, 2, 4, 9].into_iter().enumerate() {
        let from = 100 + round as u64 * 50;
        rig.write_all(from..from + 50).unwrap();
        let (id, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
        for _ in 0..steps {
            rig.executor.step(0);
        }
        rig.abort(id).unwrap();
        rig.work();
        drop(tickets);
    }
    rig.incremental().unwrap();
    rig.incremental().unwrap();
    rig.collect().unwrap();
    rig.collect().unwrap();
    assert_eq!(rig.object_names(), rig.reachable());
    rig.kill_and_lose_directory();
    rig.start(3).unwrap();
    rig.check().unwrap();
}

pub fn garbage_goes_and_what_is_reachable_stays(place: &Place) {
    let mut rig = rig(place);
    for (round, parallelism) in [2, 1, 3].into_iter().enumerate() {
        rig.start(parallelism).unwrap();
        rig.check().unwrap();
        for step in 0..3 {
            let from = round as u64 * 300 + step * 100;
            rig.write_all(from..from + 100).unwrap();
            rig.incremental().unwrap();
            rig.collect().unwrap();
        }
        rig.incremental().unwrap();
        rig.collect().unwrap();
        rig.collect().unwrap();
        assert_eq!(rig.object_names(), rig.reachable());
        rig.kill_and_lose_directory();
    }
}

pub fn a_paused_writer_that_wakes_under_its_successor_is_fenced(place: &Place) {
    let mut paused = rig(place);
    paused.start(2).unwrap();
    paused.write_all(0..100).unwrap();
    paused.incremental().unwrap();
    paused.write_all(100..150).unwrap();
    let (id, tickets) = paused.begin(CheckpointKind::Incremental).unwrap();
    paused.executor.step(0);

    let mut successor = rig(place);
    successor.frozen = paused.frozen.clone();
    successor.start(3).unwrap();
    successor.check().unwrap();
    successor.write_all(150..200).unwrap();
    successor.incremental().unwrap();

    paused.executor.run_until_idle();
    let coordinator = paused.coordinator.as_mut().unwrap();
    let mut outcomes: Vec<_> =
        tickets.iter().map(|ticket| coordinator.add(ticket.wait(Duration::ZERO).unwrap())).collect();
    let last = outcomes.pop().unwrap().unwrap_err();
    assert_eq!(last.kind(), ErrorKind::Fenced, "{last}");
    assert_eq!(coordinator.begin(id + 1).unwrap_err().kind(), ErrorKind::Fenced);
    let before = successor.object_names();
    assert_eq!(paused.collect().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(successor.object_names(), before, "a fenced writer deleted something");

    successor.check().unwrap();
    successor.incremental().unwrap();
    successor.clock.set(paused.clock.now_ms());
    successor.collect().unwrap();
    successor.kill_and_lose_directory();
    successor.start(1).unwrap();
    successor.check().unwrap();
}

pub fn objects_hold_no_credentials(place: &Place) {
    let mut rig = rig(place);
    rig.start(1).unwrap();
    rig.write_all(0..100).unwrap();
    rig.incremental().unwrap();
    let objects = rig.objects.list("").unwrap();
    assert!(objects.len() >= 4, "{objects:?}");
    for object in objects {
        let bytes = rig.objects.get(&object.name).unwrap();
        for secret in [SECRET_KEY, ACCESS_KEY] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{}", object.name);
        }
    }
}
