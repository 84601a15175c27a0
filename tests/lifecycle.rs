//! Checkpoints over a job's life: a paused writer that wakes under its successor, deltas after rescaling, retention
//! and garbage collection, full checkpoints.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::rig::{Rig, Task};
use common::tiny;
use highwater::checkpoint::manifests::read_part;
use highwater::checkpoint::object_name::{ObjectKind, ObjectName};
use highwater::*;

fn segments(names: &BTreeSet<String>) -> usize {
    names.iter().filter(|name| ObjectName::parse(name).unwrap().kind == ObjectKind::Segment).count()
}

/// A pauses with a checkpoint under way; B claims, restores, and goes on. A wakes: its parts are refused, it can't
/// begin, complete, pin or delete, and nothing of B's changes.
#[test]
fn a_paused_writer_that_wakes_under_its_successor_is_fenced() {
    let mut a = Rig::new(tiny());
    a.start(2).unwrap();
    a.write_all(0..200).unwrap();
    a.incremental().unwrap();
    let mut b = Rig::new(tiny());
    b.objects = a.objects.clone();
    b.frozen = a.frozen.clone();
    a.write_all(200..300).unwrap();
    let (id, tickets) = a.begin(CheckpointKind::Incremental).unwrap();
    a.executor.step(0);

    b.start(3).unwrap();
    b.check().unwrap();
    b.write_all(300..400).unwrap();
    b.incremental().unwrap();

    a.executor.run_until_idle();
    let coordinator = a.coordinator.as_mut().unwrap();
    let mut outcomes = tickets.iter().map(|t| coordinator.add(t.wait(Duration::ZERO).unwrap())).collect::<Vec<_>>();
    let last = outcomes.pop().unwrap().unwrap_err();
    assert_eq!(last.kind(), ErrorKind::Fenced, "{last}");
    assert!(coordinator.fenced().is_some());
    assert_eq!(coordinator.begin(id + 1).unwrap_err().kind(), ErrorKind::Fenced);
    let before = b.object_names();
    assert_eq!(a.collect().unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(b.object_names(), before, "a fenced writer deleted something");
    let last = b.env().latest_checkpoint().unwrap();
    let operator = Operator::new("other", 16);
    let error = a.env().backend(&operator, Subtask { index: 0, parallelism: 1 }, last.as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    // Its own state may still be read; B is untouched, and collects what A left behind.
    a.check().unwrap();
    b.check().unwrap();
    b.incremental().unwrap();
    b.incremental().unwrap();
    b.collect().unwrap();
    b.collect().unwrap();
    assert_eq!(b.object_names(), b.reachable());
    b.kill_and_lose_directory();
    b.start(1).unwrap();
    b.check().unwrap();
}

/// A part made under an older claim, carried across as bytes, is refused by the successor's coordinator.
#[test]
fn a_part_of_an_older_epoch_is_refused_by_the_successor() {
    let mut a = Rig::new(tiny());
    a.start(1).unwrap();
    a.write_all(0..50).unwrap();
    let (_, tickets) = a.begin(CheckpointKind::Incremental).unwrap();
    a.executor.run_until_idle();
    let bytes = tickets[0].wait(Duration::ZERO).unwrap().to_bytes();
    a.kill();
    a.start(1).unwrap();
    let part = CheckpointPart::from_bytes(&bytes).unwrap();
    let error = a.coordinator.as_mut().unwrap().add(part).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(a.env().completed_checkpoints().unwrap().is_empty());
}

/// 2 -> 3 -> 1 -> 4 -> 2: everything comes back, nothing is rewritten or uploaded again, and the first checkpoint
/// after each rescale sends only what changed.
#[test]
fn the_first_checkpoint_after_a_rescale_uploads_only_the_delta() {
    let mut rig = Rig::new(Tuning { epoch_bytes: 1 << 20, level_base_bytes: 1 << 20, level_zero_runs: 64, ..tiny() });
    rig.start(2).unwrap();
    rig.write_all(0..2000).unwrap();
    rig.incremental().unwrap();
    for (round, parallelism) in [3, 1, 4, 2].into_iter().enumerate() {
        rig.kill_and_lose_directory();
        let before = rig.object_names();
        rig.start(parallelism).unwrap();
        rig.check().unwrap();
        let unchanged = rig.incremental().unwrap();
        assert_eq!(unchanged.parts().iter().map(|part| part.delta_bytes).sum::<u64>(), 0);
        let after = rig.object_names();
        assert_eq!(segments(&after), segments(&before), "segments were uploaded with nothing written");
        assert_eq!(after.len() - before.len(), parallelism as usize, "one manifest a subtask");
        rig.put(3, vec![round as u8; 10]).unwrap();
        let changed = rig.incremental().unwrap();
        let (delta, full) =
            changed.parts().iter().fold((0, 0), |(d, f), part| (d + part.delta_bytes, f + part.full_bytes));
        assert!(delta > 0 && delta * 20 < full, "{delta} bytes of {full} for one key");
        assert_eq!(segments(&rig.object_names()), segments(&before) + 1, "one key changed: one segment");
        rig.check().unwrap();
    }
}

/// As a long life: many checkpoints with merges, rescales in between, retention of two, the collector after each.
#[test]
fn retention_and_garbage_collection_leave_exactly_what_is_reachable() {
    let mut rig = Rig::new(tiny());
    let mut n = 0;
    for (round, parallelism) in [2, 3, 1, 4, 2].into_iter().enumerate() {
        rig.start(parallelism).unwrap();
        rig.check().unwrap();
        for step in 0..6 {
            rig.write_all(n..n + 80).unwrap();
            n += 80;
            if step == 3 {
                let (id, _) = rig.begin(CheckpointKind::Incremental).unwrap();
                rig.executor.step(step);
                rig.abort(id).unwrap();
            }
            rig.incremental().unwrap();
            rig.collect().unwrap();
            assert!(rig.reachable().is_subset(&rig.object_names()), "round {round}: something retained is gone");
        }
        assert!(rig.env().completed_checkpoints().unwrap().len() <= 2);
        // Orphans of the aborted ones too, while their epoch lasts: no flush has been missed by the newest.
        rig.work();
        rig.incremental().unwrap();
        rig.incremental().unwrap();
        rig.collect().unwrap();
        rig.collect().unwrap();
        assert_eq!(rig.object_names(), rig.reachable(), "round {round}");
        rig.kill();
        if round % 2 == 0 {
            rig.kill_and_lose_directory();
        }
    }
    rig.start(1).unwrap();
    rig.incremental().unwrap();
    rig.write_all(n..n + 50).unwrap();
    rig.incremental().unwrap();
    rig.collect().unwrap();
    rig.collect().unwrap();
    assert_eq!(rig.object_names(), rig.reachable());
    let verified = inspect::verify::verify(&rig.env().log(), rig.env().other_roots()).unwrap();
    assert!(verified.bad.is_empty(), "{:?}", verified.bad);
    for checkpoint in rig.env().completed_checkpoints().unwrap() {
        rig.kill_and_lose_directory();
        rig.env = Some(rig.open_environment().unwrap());
        rig.start_from(3, Some(&checkpoint)).unwrap();
        rig.check().unwrap();
    }
}

/// A full checkpoint reaches only what was uploaded for it, so everything older may go.
#[test]
fn a_full_checkpoint_depends_on_nothing_older() {
    let mut rig = Rig::new(tiny());
    rig.start(2).unwrap();
    rig.write_all(0..600).unwrap();
    rig.incremental().unwrap();
    let older = rig.object_names();
    let full = rig.checkpoint(CheckpointKind::Full).unwrap();
    for part in full.parts() {
        assert!(part.self_contained && part.delta_bytes + part.manifest.length_bytes == part.full_bytes);
    }
    let reached = rig.reached_by(&full);
    assert!(reached.is_disjoint(&older), "a full checkpoint builds on older objects");
    rig.kill_and_lose_directory();
    older.iter().for_each(|name| rig.objects.delete(name).unwrap());
    rig.start(3).unwrap();
    rig.check().unwrap();
}

/// Closing waits for uploads: the checkpoint under way completes.
#[test]
fn close_lets_checkpoints_under_way_end() {
    let directory = tempfile::tempdir().unwrap();
    let env = Environment::builder(directory.path()).memory_bytes(16 << 20).tuning(tiny()).open().unwrap();
    let operator = Operator::new("op", 16);
    let mut coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
    let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
    let values = b.value_state::<u32, u32>("values").unwrap();
    (0..3000).for_each(|key| values.put(&mut b, &key, key).unwrap());
    let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
    b.close(Duration::from_secs(120)).unwrap();
    let part = ticket.wait(Duration::ZERO).unwrap();
    assert_eq!(coordinator.add(part).unwrap().unwrap().id().id, 1);
}

/// A view, or a job that ends late, of a backend that was closed and reopened from the same files in one process.
#[test]
fn what_a_closed_backend_still_holds_is_not_deleted_under_its_successor_nor_the_other_way_round() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..400).unwrap();
    rig.work();
    rig.incremental().unwrap();
    let view = rig.tasks[0].backend.read_view().unwrap();
    rig.work();
    let then = rig.tasks[0].read(&view).unwrap();
    assert_eq!(then, rig.model);
    // Merges what the checkpoint refers to: those files are held by the view alone.
    for n in 0..6 {
        rig.put(n, vec![1; 50]).unwrap();
        drop(rig.tasks[0].backend.read_view().unwrap());
        rig.work();
    }
    let last = rig.env().latest_checkpoint().unwrap();
    let old = rig.tasks.pop().unwrap();
    rig.coordinator = None;
    let error = rig.env().backend(&Rig::operator(), Subtask { index: 0, parallelism: 1 }, None).err();
    assert!(error.is_some_and(|error| error.kind() == ErrorKind::AlreadyExists), "one backend a subtask");
    let Task { backend, .. } = old;
    drop(backend);
    rig.start_from(1, last.as_ref()).unwrap();
    rig.executor.run_until_idle(); // finds the files here
    rig.check().unwrap();
    drop(view);
    rig.check().unwrap();
    rig.write_all(400..500).unwrap();
    rig.work();
    rig.check().unwrap();
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// Fetching restored files stops at an error of the store; the next checkpoint has it go on.
#[test]
fn fetching_restored_files_goes_on_after_the_store_was_away() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..400).unwrap();
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    let unavailable = highwater::io::faulty::Fault::ErrorBefore(ErrorKind::Unavailable);
    rig.store_faults.set(move |call| (call.operation == "get_range").then_some(unavailable));
    rig.executor.run_until_idle();
    assert_eq!(rig.env().stats().disk_used_bytes, 0);
    rig.store_faults.set(|_| None);
    rig.check().unwrap();
    rig.incremental().unwrap();
    rig.executor.run_until_idle();
    let calls = rig.store_faults.calls();
    assert!(rig.env().stats().disk_used_bytes > 0);
    rig.check().unwrap();
    assert_eq!(rig.store_faults.calls(), calls, "reads still go to the store");
}

/// Newer beats older by sequence, so a writer begins above all its parents, also above the one that is far ahead.
#[test]
fn a_restored_backend_writes_above_every_sequence_that_it_restored() {
    let mut rig = Rig::new(tiny());
    rig.start(2).unwrap();
    for parallelism in [1, 3, 2, 1] {
        rig.write_all(0..200).unwrap();
        for _ in 0..40 * rig.tasks.len() {
            rig.put(7, b"old".to_vec()).unwrap();
            let view = rig.task_of(7).backend.read_view().unwrap();
            let backend = &rig.task_of(7).backend;
            assert_eq!((view.key_groups(), view.max_parallelism()), (backend.key_groups(), backend.max_parallelism()));
        }
        rig.put(7, b"older".to_vec()).unwrap();
        let checkpoint = rig.incremental().unwrap();
        let mut greatest = 0;
        for part in checkpoint.parts() {
            let manifest = read_part(&*rig.objects, part).unwrap();
            let sequences = manifest.version.refs().map(|(_, _, r)| r.meta().sequences.1);
            greatest = sequences.fold(greatest, u64::max);
        }
        rig.kill_and_lose_directory();
        rig.start(parallelism).unwrap();
        let own = rig.task_of(7).backend.current_sequence();
        assert!(own > greatest && greatest > 40, "{own} after {greatest}");
        rig.put(7, b"new".to_vec()).unwrap();
        rig.incremental().unwrap();
        rig.work();
        rig.check().unwrap();
    }
}
