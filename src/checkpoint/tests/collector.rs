use std::time::Duration;

use super::world::{GRACE, Subtask, World};
use crate::ErrorKind;
use crate::base::clock::ManualClock;
use crate::checkpoint::claim::Claim;
use crate::checkpoint::coordinator::Coordinator;
use crate::checkpoint::object_name::ObjectKind;
use crate::checkpoint::part::CheckpointPart;
use crate::checkpoint::verify::verify;
use crate::io::faulty::Fault;
use crate::io::local_store::LocalStore;
use crate::io::store::PutMode;

fn start(world: &World, retain: usize) -> (Claim, Coordinator) {
    let claim = world.log().claim(&[]).unwrap();
    (claim, world.coordinator(claim, retain).unwrap())
}

fn add(coordinator: &mut Coordinator, part: CheckpointPart) {
    assert!(coordinator.add(part).unwrap().is_some());
}

/// Runs the collector twice, the grace period apart.
fn collect(world: &World, coordinator: &Coordinator) {
    coordinator.collector().run(&world.references()).unwrap();
    world.clock.advance(GRACE);
    coordinator.collector().run(&world.references()).unwrap();
}

fn assert_latest_restorable(world: &World) {
    world.assert_restorable(world.plain_log().state().unwrap().latest().unwrap());
}

#[test]
fn what_fell_out_of_retention_goes_after_the_grace_period_and_shared_objects_stay() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("shared").unwrap();
    subtask.segment("old").unwrap();
    add(&mut coordinator, subtask.part(1).unwrap());
    let old = subtask.tree.pop().unwrap();
    subtask.segment("new").unwrap();
    add(&mut coordinator, subtask.part(2).unwrap());
    assert_eq!(world.plain_log().state().unwrap().condemned.len(), 1);
    world.clock.advance(GRACE - Duration::from_millis(1));
    let collector = coordinator.collector();
    assert_eq!(collector.run(&world.references()).unwrap().objects, 0);
    world.clock.advance(Duration::from_millis(1));
    let collected = collector.run(&world.references()).unwrap();
    assert_eq!((collected.objects, collected.forgotten), (2, 1), "segment `old` and the first manifest");
    assert!(!world.names().contains(&old));
    assert_eq!(world.names().len(), 3);
    assert!(world.plain_log().state().unwrap().condemned.is_empty());
    assert_latest_restorable(&world);
}

#[test]
fn replay_15_flink_21351_a_savepoint_does_not_subsume_the_last_checkpoint() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("base").unwrap();
    add(&mut coordinator, subtask.part(1).unwrap());
    add(&mut coordinator, full_copy(&mut subtask, 2));
    collect(&world, &coordinator);
    subtask.segment("more").unwrap();
    add(&mut coordinator, subtask.part(3).unwrap());
    collect(&world, &coordinator);
    assert_latest_restorable(&world);
    assert_eq!(world.plain_log().state().unwrap().checkpoints.len(), 1);
}

/// The part of a full checkpoint: its own copy of the one segment `base`, and nothing builds on it.
fn full_copy(subtask: &mut Subtask, id: u64) -> CheckpointPart {
    let own = subtask.put("base", Some(id), ObjectKind::Segment).unwrap();
    let tree = std::mem::replace(&mut subtask.tree, vec![own.name]);
    let part = CheckpointPart { self_contained: true, ..subtask.part(id).unwrap() };
    subtask.tree = tree;
    part
}

#[test]
fn replay_15_flink_21351_nor_does_it_subsume_what_a_restore_builds_on() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("base").unwrap();
    let full = CheckpointPart { self_contained: true, ..subtask.part(1).unwrap() };
    add(&mut coordinator, full);
    let latest = world.plain_log().state().unwrap().latest().unwrap().clone();
    let (claim, mut coordinator) = start(&world, 1);
    world.log().pin_for_restore(&claim, latest.id()).unwrap();
    let mut restored = world.subtask(claim);
    restored.tree.clone_from(&subtask.tree);
    add(&mut coordinator, full_copy(&mut restored, 0));
    collect(&world, &coordinator);
    add(&mut coordinator, restored.part(1).unwrap());
    collect(&world, &coordinator);
    assert_latest_restorable(&world);
    assert_eq!(world.plain_log().state().unwrap().checkpoints.len(), 1);
}

#[test]
fn replay_16_flink_30461_24611_an_abort_leaks_nothing_for_ever_and_deletes_nothing_reused() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("base").unwrap();
    add(&mut coordinator, subtask.part(1).unwrap());
    coordinator.begin(2).unwrap();
    subtask.segment("reused").unwrap();
    subtask.put("never used", None, ObjectKind::Segment).unwrap();
    coordinator.abort(2).unwrap();
    collect(&world, &coordinator);
    collect(&world, &coordinator);
    add(&mut coordinator, subtask.part(3).unwrap());
    collect(&world, &coordinator);
    assert_latest_restorable(&world);
    assert_eq!(world.names().len(), 3, "base, reused, manifest: what was never used is gone");
}

#[test]
fn replay_17_spark_43404_flink_29095_same_size_other_bytes_after_a_retry() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("base").unwrap();
    add(&mut coordinator, subtask.part(1).unwrap());
    subtask.segment("AAAA").unwrap();
    subtask.part(2).unwrap();
    let base = subtask.tree[0].clone();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.tree.push(base);
    subtask.segment("BBBB").unwrap();
    add(&mut coordinator, subtask.part(2).unwrap());
    collect(&world, &coordinator);
    assert_latest_restorable(&world);
    let bytes: Vec<_> = subtask.tree.iter().map(|name| world.inner.get(name).unwrap()).collect();
    assert_eq!(bytes, ["base", "BBBB"]);
}

#[test]
fn a_straggler_older_than_the_newest_keeps_what_only_it_still_reaches() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("old").unwrap();
    add(&mut coordinator, subtask.part(1).unwrap());
    coordinator.begin(2).unwrap();
    let straggler = subtask.part(2).unwrap();
    subtask.tree.clear();
    subtask.segment("compacted").unwrap();
    add(&mut coordinator, subtask.part(3).unwrap());
    collect(&world, &coordinator);
    assert_eq!(world.plain_log().state().unwrap().condemned.len(), 1, "held back");
    let done = coordinator.add(straggler).unwrap().unwrap();
    world.assert_restorable(&done);
    assert_eq!(world.plain_log().state().unwrap().latest().unwrap().id().id, 3);
    collect(&world, &coordinator);
    assert!(world.plain_log().state().unwrap().condemned.is_empty());
    assert_eq!(world.names().len(), 2);
    assert_latest_restorable(&world);
}

#[test]
fn pinned_checkpoints_stay_restorable() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    subtask.segment("old").unwrap();
    add(&mut coordinator, subtask.part(1).unwrap());
    let first = world.plain_log().state().unwrap().latest().unwrap().clone();
    world.log().pin("fork", first.id()).unwrap();
    subtask.tree.clear();
    for id in 2..5 {
        subtask.segment("new").unwrap();
        add(&mut coordinator, subtask.part(id).unwrap());
        collect(&world, &coordinator);
        world.assert_restorable(&first);
    }
    world.log().unpin("fork").unwrap();
    collect(&world, &coordinator);
    assert_eq!(world.plain_log().state().unwrap().checkpoints.len(), 1);
    assert_latest_restorable(&world);
}

#[test]
fn when_a_needed_manifest_cant_be_read_nothing_is_deleted() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    for id in 1..3 {
        subtask.segment("x").unwrap();
        add(&mut coordinator, subtask.part(id).unwrap());
        subtask.tree.clear();
    }
    world.clock.advance(GRACE);
    let before = world.names();
    let latest = world.plain_log().state().unwrap().latest().unwrap().manifests().next().unwrap().clone();
    let good = world.inner.get(&latest.name).unwrap();
    world.inner.put(&latest.name, "junk".into(), PutMode::Overwrite).unwrap();
    let error = coordinator.collector().run(&world.references()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains(&latest.name), "{error}");
    let name = latest.name.clone();
    world.faults.set(move |call| (call.name == name).then_some(Fault::ErrorBefore(ErrorKind::Unavailable)));
    assert_eq!(coordinator.collector().run(&world.references()).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(world.names(), before);
    world.faults.set(|_| None);
    world.inner.put(&latest.name, good, PutMode::Overwrite).unwrap();
    assert_eq!(coordinator.collector().run(&world.references()).unwrap().forgotten, 1);
}

#[test]
fn a_zombie_can_neither_condemn_nor_delete() {
    let world = World::new();
    let (claim, mut zombie) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    for id in 1..3 {
        subtask.segment("x").unwrap();
        add(&mut zombie, subtask.part(id).unwrap());
        subtask.tree.clear();
    }
    world.clock.advance(GRACE);
    let before = (world.names(), world.plain_log().state().unwrap().condemned.len());
    // The successor claims while the zombie is between planning and deleting.
    let other = world.plain_log();
    let mut reads = 0;
    world.faults.set(move |call| {
        reads += u32::from(call.name.ends_with(".man"));
        if reads == 1 {
            reads += 1;
            other.claim(&[]).unwrap();
        }
        None
    });
    assert_eq!(zombie.collector().run(&world.references()).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(zombie.collector().run(&world.references()).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!((world.names(), world.plain_log().state().unwrap().condemned.len()), before);
}

#[test]
fn bad_input_a_clock_that_runs_backwards_deletes_nothing_early() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    let mut subtask = world.subtask(claim);
    for id in 1..3 {
        add(&mut coordinator, subtask.part(id).unwrap());
    }
    world.clock.set_ms(0);
    assert_eq!(coordinator.collector().run(&world.references()).unwrap().objects, 0);
    world.clock.set_ms(i64::MIN);
    assert_eq!(coordinator.collector().run(&world.references()).unwrap().objects, 0);
}

#[test]
fn files_that_arent_ours_are_never_deleted() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 1);
    for name in ["sink/rows.csv", "op/0/1/readme.txt", "op/x/0/1-0000000000000001.seg", "README"] {
        world.inner.put(name, "x".into(), PutMode::Create).unwrap();
    }
    add(&mut coordinator, world.subtask(claim).part(1).unwrap());
    let (_, successor) = start(&world, 1);
    collect(&world, &successor);
    assert_eq!(world.names().len(), 5);
}

#[test]
fn leftovers_of_interrupted_writes_go_after_the_grace_period() {
    let dir = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(LocalStore::open(&dir.path().join("root"), true).unwrap());
    let clock = std::sync::Arc::new(ManualClock::at_ms(0));
    let world = World::over(store, clock);
    let (claim, mut coordinator) = start(&world, 1);
    add(&mut coordinator, world.subtask(claim).part(1).unwrap());
    std::fs::write(dir.path().join("root/op/0/1/9-00.seg#1"), "half").unwrap();
    let written_ms = world.inner.leftovers().unwrap()[0].modified_ms;
    for (age_ms, left) in [(59_999, 1), (60_000, 0)] {
        world.clock.set_ms(written_ms + age_ms);
        coordinator.collector().run(&world.references()).unwrap();
        assert_eq!(world.inner.leftovers().unwrap().len(), left);
    }
    assert_latest_restorable(&world);
}

#[test]
fn verify_finds_what_is_corrupt_or_missing_and_nothing_else() {
    let world = World::new();
    let (claim, mut coordinator) = start(&world, 2);
    let mut subtask = world.subtask(claim);
    for (id, text) in [(1, "one"), (2, "two")] {
        subtask.segment(text).unwrap();
        add(&mut coordinator, subtask.part(id).unwrap());
    }
    let run = || {
        verify(
            &world.log(),
            &|name, object| {
                let bytes = world.inner.get(&object.name)?;
                let good = crate::base::checksum::hash64(&bytes) == name.hash;
                if good { Ok(()) } else { Err(crate::Error::corruption(format!("`{}`", object.name))) }
            },
            &world.references(),
        )
        .unwrap()
    };
    let good = run();
    assert_eq!((good.objects, good.bad.len(), good.leftovers.len()), (7, 0, 0));
    let (lost, flipped) = (subtask.tree[0].clone(), subtask.tree[1].clone());
    world.inner.delete(&lost).unwrap();
    world.inner.put(&flipped, "twx".into(), PutMode::Overwrite).unwrap();
    world.inner.put("log/00000000000000000002", "junk".into(), PutMode::Overwrite).unwrap();
    let mut expected = vec![lost, flipped, "log/00000000000000000002".to_owned()];
    expected.sort();
    let names: Vec<_> = run().bad.into_iter().map(|bad| bad.name).collect();
    assert_eq!(names, expected);
    world.inner.put("log/00000000000000000003", "junk".into(), PutMode::Overwrite).unwrap();
    assert!(run().bad.iter().any(|bad| bad.name == "log/00000000000000000003"));
    assert_eq!(verify(&World::new().log(), &|_, _| Ok(()), &|_| Ok(vec![])).unwrap_err().kind(), ErrorKind::NotFound);
}
