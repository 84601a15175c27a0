//! Copies: whole, checked, taken up where they broke off, and standing on their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::roots::{KEYS, Root, Run, with_job};
use highwater::base::clock::SystemClock;
use highwater::checkpoint::copy::{Copied, Step, copy, copy_newest};
use highwater::checkpoint::fork::{fork, fork_newest};
use highwater::inspect;
use highwater::io::faulty::Fault;
use highwater::io::local_store::LocalStore;
use highwater::io::other_roots::OtherRoots;
use highwater::io::retry::Cancel;
use highwater::io::store::PutMode;
use highwater::{ErrorKind, Result};

fn others(roots: &[&Root]) -> OtherRoots {
    let others = OtherRoots::new(Arc::new(SystemClock));
    roots.iter().for_each(|root| others.add(root.store.clone()));
    others
}

fn newest_to(source: &Root, target: &Root, reached: &[&Root]) -> Result<Copied> {
    copy(&source.log(), source.newest().id(), &target.log(), &others(reached), &Cancel::new(), &mut |_| {})
}

#[track_caller]
fn assert_sound(root: &Root) {
    let verified = inspect::verify(&root.log(), &others(&[])).unwrap();
    assert!(verified.bad.is_empty() && verified.leftovers.is_empty(), "{verified:?}");
}

#[test]
fn a_copy_on_another_store_stands_on_its_own_and_is_the_same_checkpoint() {
    let source = with_job("source");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backup");
    let target = Root::over(Arc::new(LocalStore::open(&path, true).unwrap()));
    let (mut planned, mut moved) = (None, 0);
    let id = source.newest().id();
    let copied = copy(&source.log(), id, &target.log(), &others(&[]), &Cancel::new(), &mut |step| match step {
        Step::Planned { objects, bytes } => planned = Some((objects, bytes)),
        Step::Kept(bytes) | Step::Sent(bytes) => moved += bytes,
    })
    .unwrap();
    assert_eq!((Some(copied.sent), copied.kept, moved), (planned, (0, 0), copied.sent.1));
    assert_eq!(target.newest().id(), id);
    assert!(source.pins().is_empty());
    assert_sound(&target);
    // Relocated as a whole, and without the source.
    let moved = dir.path().join("elsewhere");
    std::fs::rename(&path, &moved).unwrap();
    let target = Root::over(Arc::new(LocalStore::open(&moved, false).unwrap()));
    assert_sound(&target);
    let mut run = Run::start(&target, &[], 3).unwrap();
    run.assert_all(|key| key * 3);
    run.put_all(|key| key + 1);
    let done = run.checkpoint();
    assert!(done.id() > id);
    run.checkpoint();
    run.collect();
    drop(run);
    Run::start(&target, &[], 1).unwrap().assert_all(|key| key + 1);
    // Once a job has gone on there, it isn't that copy any more.
    assert_eq!(newest_to(&source, &target, &[]).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn what_is_there_with_the_right_bytes_is_not_sent_again_and_what_is_damaged_is_mended() {
    let (source, target) = (with_job("source"), Root::new("target"));
    let first = newest_to(&source, &target, &[]).unwrap();
    let again = newest_to(&source, &target, &[]).unwrap();
    assert_eq!((again.sent, again.kept, &again.checkpoint), ((0, 0), first.sent, &first.checkpoint));
    let names: Vec<_> = [target.names(".seg"), target.names(".man")].concat();
    for (at, name) in names.iter().enumerate() {
        let good = target.inner.get(name).unwrap();
        let mut bad = good.to_vec();
        match at % 3 {
            0 => bad.truncate(good.len() / 2),
            1 => bad[good.len() / 2] ^= 1,
            _ => target.inner.delete(name).unwrap(),
        }
        if at % 3 < 2 {
            target.inner.put(name, bad.into(), PutMode::Overwrite).unwrap();
        }
        let mended = newest_to(&source, &target, &[]).unwrap();
        assert_eq!(mended.sent, (1, good.len() as u64), "{name}");
        assert_eq!(target.inner.get(name).unwrap(), good);
    }
    assert_sound(&target);
}

#[test]
fn a_source_whose_bytes_are_bad_is_named_and_nothing_is_completed() {
    let (source, target) = (with_job("source"), Root::new("target"));
    let name = inspect::describe(&source.store, &others(&[]), &source.newest()).unwrap().segments[0].name.clone();
    let good = source.inner.get(&name).unwrap();
    let mut bad = good.to_vec();
    bad[good.len() / 2] ^= 1;
    source.inner.put(&name, bad.into(), PutMode::Overwrite).unwrap();
    let error = newest_to(&source, &target, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains(&name), "{error}");
    assert!(target.log().newest().unwrap().is_none() && !target.names("").contains(&name));
    source.inner.put(&name, good, PutMode::Overwrite).unwrap();
    newest_to(&source, &target, &[]).unwrap();
    assert!(source.pins().is_empty());
    assert_sound(&target);
}

#[test]
fn a_copy_of_a_fork_holds_what_lies_in_both_roots() {
    let (source, between, target) = (with_job("source"), Root::new("fork"), Root::new("target"));
    let forked = fork(&source.log(), source.newest().id(), &between.log()).unwrap();
    let copied = newest_to(&between, &target, &[&source]).unwrap();
    assert_eq!(copied.checkpoint.id(), forked.id());
    assert_eq!(newest_to(&between, &target, &[&source]).unwrap().sent, (0, 0));
    assert_sound(&target);
    Run::start(&target, &[], 2).unwrap().assert_all(|key| key * 3);
}

#[test]
fn a_copy_into_what_is_something_else_is_refused_and_nothing_changes() {
    let (source, job, photos) = (with_job("source"), with_job("job"), Root::new("photos"));
    photos.inner.put("cat.jpg", "x".into(), PutMode::Create).unwrap();
    let other = Root::new("other");
    let strange = job.names(".seg")[0].clone();
    other.inner.put(&strange, "x".into(), PutMode::Create).unwrap();
    let claimed = Root::new("claimed");
    claimed.log().claim(&[]).unwrap();
    for (target, kind, part) in [
        (&job, ErrorKind::AlreadyExists, "memory:///job"),
        (&photos, ErrorKind::InvalidArgument, "cat.jpg"),
        (&other, ErrorKind::InvalidArgument, ".seg"),
        (&source, ErrorKind::InvalidArgument, "itself"),
    ] {
        let before = (source.names(""), target.names(""));
        let error = newest_to(&source, target, &[]).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
        assert_eq!((source.names(""), target.names("")), before);
    }
    // A claim without a checkpoint holds nothing to lose.
    newest_to(&source, &claimed, &[]).unwrap();
    // Another checkpoint of the same job isn't the same copy.
    let older = source.checkpoints()[0].id();
    let error = copy(&source.log(), older, &claimed.log(), &others(&[]), &Cancel::new(), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let cancel = Cancel::new();
    cancel.cancel();
    let error = copy(&source.log(), older, &Root::new("x").log(), &others(&[]), &cancel, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
}

#[test]
fn whichever_request_of_a_copy_fails_the_same_call_again_completes_it_without_sending_all_again() {
    let original = with_job("source");
    let (calm, target) = (original.twin(), Root::new("target"));
    let whole = newest_to(&calm, &target, &[]).unwrap();
    let sides = [calm.faults.calls(), target.faults.calls()];
    assert!(sides.iter().all(|calls| *calls > 8), "{sides:?}");
    let mut kept = 0;
    for (side, calls) in sides.into_iter().enumerate() {
        for index in 0..calls {
            for fault in [Fault::ErrorBefore(ErrorKind::Io), Fault::ErrorAfter(ErrorKind::Io)] {
                let (source, target) = (original.twin(), Root::new("target"));
                let faulty = [&source, &target][side];
                faulty.faults.set(move |call| (call.index == index).then_some(fault));
                let tried = newest_to(&source, &target, &[]);
                faulty.faults.set(|_| None);
                if target.log().newest().unwrap().is_some_and(|entry| entry.state.latest().is_some()) {
                    assert_sound(&target);
                }
                // Retention can't take what is half copied.
                assert!(tried.is_ok() || source.pins().len() <= 1);
                let copied = newest_to(&source, &target, &[]).unwrap_or_else(|e| panic!("{fault:?} at {index}: {e}"));
                assert_eq!(copied.sent.0 + copied.kept.0, whole.sent.0);
                kept += copied.kept.0;
                assert!(source.pins().is_empty());
                assert_sound(&target);
            }
        }
    }
    assert!(kept > 0 && KEYS > 0);
    let mut run = Run::start(&target, &[], 1).unwrap();
    run.assert_all(|key| key * 3);
}

#[test]
fn when_the_newest_is_condemned_before_it_is_pinned_the_one_after_it_is_copied_or_forked() {
    for forks in [false, true] {
        let (source, target) = (with_job("source"), Root::new("target"));
        let job = Root::over(source.inner.clone());
        let mut run = Some(Run::start(&job, &[], 1).unwrap());
        let seen = source.newest().id();
        // The first entry that the copy or fork writes to the log is its pin. Before it, the job retains others.
        source.faults.set(move |call| {
            if call.operation == "put"
                && let Some(mut run) = run.take()
            {
                (0..3).for_each(|_| drop(run.checkpoint()));
            }
            None
        });
        let id = if forks {
            fork_newest(&source.log(), &target.log()).unwrap().id()
        } else {
            copy_newest(&source.log(), &target.log(), &others(&[]), &Cancel::new(), &mut |_| {})
                .unwrap()
                .checkpoint
                .id()
        };
        source.faults.set(|_| None);
        assert!(source.log().state().unwrap().checkpoint(seen).is_err());
        assert_eq!(id.id, source.newest().id().id);
        Run::start(&target, &[&source], 1).unwrap().assert_all(|key| key * 3);
    }
}
