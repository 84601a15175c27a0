//! Pins, deletes and garbage collection from outside of the job that runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::world::{GRACE, World};
use crate::ErrorKind;
use crate::base::ids::CheckpointId;
use crate::checkpoint::collector::{Collector, Step};
use crate::checkpoint::part::CheckpointPart;
use crate::io::faulty::Fault;

fn outside(world: &World, retain: Option<usize>, grace: Duration) -> Collector {
    Collector::outside(world.log(), retain.map(|newest| (newest, Duration::ZERO)), grace).unwrap()
}

fn id(epoch: u64, id: u64) -> CheckpointId {
    CheckpointId { epoch, id }
}

/// A root whose claim has completed checkpoints 1 to `count`, each with a segment of its own and one that all share.
fn with_checkpoints(world: &World, count: u64) -> (crate::checkpoint::coordinator::Coordinator, super::world::Subtask) {
    let claim = world.plain_log().claim(&[]).unwrap();
    let (mut coordinator, mut subtask) = (world.coordinator(claim, 100).unwrap(), world.subtask(claim));
    subtask.segment("shared").unwrap();
    for number in 1..=count {
        subtask.tree.truncate(1);
        subtask.segment(&format!("of {number}")).unwrap();
        assert!(coordinator.add(subtask.part(number).unwrap()).unwrap().is_some());
    }
    (coordinator, subtask)
}

#[test]
fn who_pins_condemns_and_collects_from_outside_does_not_fence_the_job() {
    let world = World::new();
    let (mut coordinator, mut subtask) = with_checkpoints(&world, 3);
    let (pinned, deleted) = (id(1, 1), id(1, 2));
    world.plain_log().pin("kept", pinned).unwrap();
    coordinator.begin(4).unwrap();
    world.plain_log().condemn(deleted).unwrap();
    world.clock.advance(GRACE);
    let collected = outside(&world, Some(1), GRACE).run(&world.references()).unwrap();
    assert_eq!((collected.condemned, collected.objects), (0, 2), "segment and manifest of 2; 3 is the newest");
    // The coordinator still believes in the entry before all that.
    let done = coordinator.add(subtask.part(4).unwrap()).unwrap().unwrap();
    assert!(coordinator.fenced().is_none());
    let state = world.plain_log().state().unwrap();
    let ids: Vec<_> = state.checkpoints.iter().map(|c| c.id()).collect();
    assert_eq!(ids, [pinned, id(1, 3), id(1, 4)]);
    state.checkpoints.iter().for_each(|c| world.assert_restorable(c));
    world.assert_restorable(&done);
    // The job's own collector goes on too.
    coordinator.collector().run(&world.references()).unwrap();
}

#[test]
fn a_checkpoint_that_somebody_may_go_on_from_is_not_deleted() {
    let world = World::new();
    let (mut coordinator, mut subtask) = with_checkpoints(&world, 3);
    let full = CheckpointPart { self_contained: true, ..subtask.part(4).unwrap() };
    coordinator.add(full).unwrap().unwrap();
    let log = world.plain_log();
    log.pin("mine", id(1, 1)).unwrap();
    for (of, reason) in [(id(1, 1), "`mine`"), (id(1, 3), "later ones build on"), (id(1, 4), "the newest")] {
        let error = log.condemn(of).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(reason) && error.to_string().contains(&of.to_string()), "{error}");
    }
    log.condemn(id(1, 2)).unwrap();
    assert_eq!(log.condemn(id(1, 2)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(log.pin("late", id(1, 2)).unwrap_err().kind(), ErrorKind::NotFound, "condemned is condemned");
    log.unpin_from("mine", id(1, 1)).unwrap();
    log.condemn(id(1, 1)).unwrap();
}

#[test]
fn unpin_wants_the_pin_that_is_there() {
    let world = World::new();
    let _ = with_checkpoints(&world, 2);
    let log = world.plain_log();
    log.pin("mine", id(1, 1)).unwrap();
    let claim = log.claim(&[]).unwrap();
    log.pin_for_restore(&claim, id(1, 2)).unwrap();
    for (name, of, kind) in [
        ("mine", id(1, 2), ErrorKind::InvalidArgument),
        ("other", id(1, 1), ErrorKind::NotFound),
        ("restore of epoch 2", id(1, 2), ErrorKind::InvalidArgument),
    ] {
        assert_eq!(log.unpin_from(name, of).unwrap_err().kind(), kind, "{name}");
    }
    for name in ["", "restore of epoch 7"] {
        assert_eq!(log.pin(name, id(1, 1)).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
    }
    log.unpin_from("mine", id(1, 1)).unwrap();
    assert_eq!(log.state().unwrap().pins.len(), 1);
}

#[test]
fn an_outside_collector_holds_back_what_a_straggler_may_still_reach() {
    let world = World::new();
    let (mut coordinator, mut subtask) = with_checkpoints(&world, 1);
    coordinator.begin(2).unwrap();
    let straggler = subtask.part(2).unwrap();
    subtask.tree.clear();
    subtask.segment("compacted").unwrap();
    coordinator.add(subtask.part(3).unwrap()).unwrap().unwrap();
    let collect = || {
        let collector = outside(&world, Some(1), GRACE);
        collector.run(&world.references()).unwrap();
        world.clock.advance(GRACE);
        let mut held_back = false;
        collector
            .run_watched(&world.references(), &mut |step| {
                if let Step::Planned(plan) = step {
                    held_back = plan.held_back;
                }
            })
            .unwrap();
        held_back
    };
    assert!(collect());
    let done = coordinator.add(straggler).unwrap().unwrap();
    world.assert_restorable(&done);
    assert!(!collect());
    assert_eq!(world.names().len(), 2, "what 3 reaches");
    // One that was given up is held back until the next completion, and no longer.
    coordinator.begin(4).unwrap();
    coordinator.add(subtask.part(5).unwrap()).unwrap().unwrap();
    coordinator.abort(4).unwrap();
    assert!(collect());
    coordinator.add(subtask.part(6).unwrap()).unwrap().unwrap();
    assert!(!collect());
    coordinator.begin(7).unwrap();
    coordinator.add(subtask.part(8).unwrap()).unwrap().unwrap();
    coordinator.settle().unwrap();
    assert!(collect(), "it is still in flight");
    coordinator.abort(7).unwrap();
    assert!(collect());
    coordinator.settle().unwrap();
    assert!(!collect(), "a job that ends says that nothing is in flight");
    coordinator.begin(9).unwrap();
    coordinator.add(subtask.part(10).unwrap()).unwrap().unwrap();
    world.plain_log().claim(&[]).unwrap();
    assert!(!collect(), "a successor's claim ends what was in flight");
}

#[test]
fn a_dry_run_says_what_a_run_deletes_and_changes_nothing() {
    let world = World::new();
    let _ = with_checkpoints(&world, 4);
    world.plain_log().pin("kept", id(1, 1)).unwrap();
    world.clock.advance(GRACE);
    let collector = outside(&world, Some(1), Duration::ZERO);
    let (before, number) = (world.names(), world.plain_log().newest().unwrap().unwrap().number);
    let (ids, plan) = collector.preview(&world.references()).unwrap();
    assert_eq!(ids, [id(1, 2), id(1, 3)]);
    assert_eq!((world.names(), world.plain_log().newest().unwrap().unwrap().number), (before.clone(), number));
    let collected = collector.run(&world.references()).unwrap();
    assert_eq!((collected.condemned, collected.objects, collected.bytes), (2, plan.all().count(), plan.bytes));
    let after = world.names();
    let gone: Vec<_> = before.into_iter().filter(|name| !after.contains(name)).collect();
    let mut planned: Vec<_> = plan.all().map(|doomed| doomed.name.clone()).collect();
    planned.sort();
    assert_eq!(planned, gone);
}

#[test]
fn retention_by_age_keeps_what_is_young_and_the_newest_few_however_old() {
    let world = World::new();
    let (mut coordinator, mut subtask) = with_checkpoints(&world, 2);
    world.clock.advance(Duration::from_secs(100));
    coordinator.add(subtask.part(3).unwrap()).unwrap().unwrap();
    let kept = |newest, seconds| {
        let rule = Some((newest, Duration::from_secs(seconds)));
        let collector = Collector::outside(world.log(), rule, GRACE).unwrap();
        collector.preview(&world.references()).unwrap().0.iter().map(|id| id.id).collect::<Vec<_>>()
    };
    assert_eq!(kept(1, 0), [1, 2]);
    assert_eq!(kept(1, 99), [1, 2]);
    assert_eq!(kept(1, 101), [0; 0]);
    assert_eq!(kept(2, 0), [1]);
    assert_eq!(kept(3, 50), [0; 0]);
    let error = Collector::outside(world.log(), Some((0, GRACE)), GRACE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn whichever_request_of_an_outside_collector_fails_all_that_is_retained_stands_and_the_next_run_goes_on() {
    let collect = |world: &World| -> crate::Result<()> {
        world.log().pin("kept", id(1, 1))?;
        world.log().condemn(id(1, 2))?;
        outside(world, Some(2), Duration::ZERO).run(&world.references()).map(drop)
    };
    let calm = World::new();
    let (_, before) = (with_checkpoints(&calm, 6), calm.faults.calls());
    collect(&calm).unwrap();
    let (calls, left) = (calm.faults.calls() - before, calm.names());
    assert!(calls > 20, "{calls}");
    for index in before..before + calls {
        for fault in [Fault::ErrorBefore(ErrorKind::Io), Fault::ErrorAfter(ErrorKind::Io)] {
            let world = World::new();
            let (mut coordinator, mut subtask) = with_checkpoints(&world, 6);
            world.faults.set(move |call| (call.index == index).then_some(fault));
            let _ = collect(&world);
            world.faults.set(|_| None);
            world.plain_log().state().unwrap().checkpoints.iter().for_each(|c| world.assert_restorable(c));
            // It can't be condemned twice.
            let _ = collect(&world);
            outside(&world, Some(2), Duration::ZERO).run(&world.references()).unwrap();
            assert_eq!(world.names(), left, "{fault:?} at {index}");
            let done = coordinator.add(subtask.part(7).unwrap()).unwrap().unwrap();
            world.assert_restorable(&done);
        }
    }
}

#[test]
fn a_job_and_two_outside_collectors_at_once_lose_nothing() {
    let world = World::new();
    let claim = world.plain_log().claim(&[]).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    let collector = outside(&world, Some(1), Duration::ZERO);
                    match collector.run(&world.references()) {
                        // A manifest that the other one deleted, or a log that never stood still.
                        Err(error) => {
                            assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable), "{error}")
                        }
                        Ok(_) => world.plain_log().state().map(drop).unwrap(),
                    }
                }
            });
        }
        let mut coordinator = world.coordinator(claim, 2).unwrap();
        let mut subtask = world.subtask(claim);
        for number in 1..=60 {
            if number % 5 == 0 {
                subtask.tree.clear();
            }
            subtask.segment(&format!("{number}")).unwrap();
            let done = coordinator.add(subtask.part(number).unwrap()).unwrap().unwrap();
            assert_eq!(done.id().id, number);
            world.assert_restorable(&done);
        }
        over.store(true, Ordering::Release);
    });
    let state = world.plain_log().state().unwrap();
    assert_eq!(state.latest().unwrap().id(), id(1, 60));
    state.checkpoints.iter().for_each(|c| world.assert_restorable(c));
}
