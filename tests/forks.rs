//! Forks: what they share, what holds it, and when they stand on their own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::roots::{Root, Run, with_job};
use highwater::base::clock::SystemClock;
use highwater::checkpoint::fork::fork;
use highwater::checkpoint::manifests::segment_names;
use highwater::inspect;
use highwater::io::faulty::Fault;
use highwater::io::local_store::LocalStore;
use highwater::io::other_roots::OtherRoots;
use highwater::io::store::PutMode;
use highwater::{CheckpointKind, ErrorKind};

#[track_caller]
fn assert_only_pin(root: &Root, begins: &str) {
    let pins = root.pins();
    assert!(pins.len() == 1 && pins[0].starts_with(begins), "{pins:?}");
}

#[test]
fn a_fork_copies_no_data_and_stands_on_its_own_after_its_first_checkpoint() {
    let (source, target) = (with_job("source"), Root::new("target"));
    let id = source.newest().id();
    let forked = fork(&source.log(), id, &target.log()).unwrap();
    assert_eq!((forked.id().epoch, forked.id().id), (id.epoch + 1, id.id));
    assert!(target.names(".seg").is_empty() && target.names(".man").len() == 2, "{:?}", target.names(""));
    assert_only_pin(&source, "fork memory:///target as epoch ");
    // Again: nothing more happens.
    let before = (source.names(""), target.names(""));
    assert_eq!(fork(&source.log(), id, &target.log()).unwrap(), forked);
    assert_eq!((source.names(""), target.names("")), before);

    // The source goes on, and collects what it may.
    let mut first = Run::start(&source, &[], 1).unwrap();
    for round in 4..8 {
        first.put_all(|key| key * round);
        first.checkpoint();
        first.collect();
    }
    // At another parallelism; both write what the other doesn't see.
    let mut second = Run::start(&target, &[&source], 3).unwrap();
    second.assert_all(|key| key * 3);
    let own = second.checkpoint();
    assert_eq!(
        target.checkpoints().iter().map(|c| c.id()).collect::<Vec<_>>(),
        [own.id()],
        "the forked one is condemned"
    );
    assert!(target.names(".seg").len() >= 3, "all of it was uploaded");
    second.collect();
    second.collect();
    assert!(source.pins().is_empty(), "{:?}", source.pins());
    first.collect();
    first.assert_all(|key| key * 7);
    second.put_all(|key| key + 1);
    second.checkpoint();
    drop((first, second));

    // Without the source.
    let mut third = Run::start(&target, &[], 2).unwrap();
    third.assert_all(|key| key + 1);
}

#[test]
fn while_it_depends_on_its_source_the_pin_stays_and_a_source_that_is_gone_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source");
    let source = Root::over(Arc::new(LocalStore::open(&path, true).unwrap()));
    let mut run = Run::start(&source, &[], 1).unwrap();
    run.put_all(|key| key);
    let id = run.checkpoint().id();
    drop(run);
    let target = Root::new("target");
    let forked = fork(&source.log(), id, &target.log()).unwrap();
    let before = target.names("");
    let away = dir.path().join("away");
    std::fs::rename(&path, &away).unwrap();
    // Nothing but its log and manifests is here.
    let error = Run::start(&target, &[], 1).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains(source.store.url()), "{error}");
    let others = OtherRoots::new(Arc::new(SystemClock));
    let error = inspect::get(&target.store, &others, &forked, "values", b"1", 0).unwrap_err();
    assert!(error.to_string().contains(source.store.url()), "{error}");
    // An empty directory in its place holds no object of that name.
    std::fs::create_dir(&path).unwrap();
    let error = inspect::get(&target.store, &others, &forked, "values", b"1", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(".seg") && error.to_string().contains(source.store.url()), "{error}");
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&away, &path).unwrap();

    let mut run = Run::start(&target, &[], 2).unwrap();
    run.assert_all(|key| key);
    assert_eq!(target.names(".man"), before.iter().filter(|n| n.ends_with(".man")).cloned().collect::<Vec<_>>());
    run.collect();
    let others = OtherRoots::new(Arc::new(SystemClock));
    let found = inspect::get(&target.store, &others, &forked, "values", b"7", 0).unwrap();
    assert_eq!(found[0].entries.len(), 1);
    assert_eq!(inspect::describe(&target.store, &others, &forked).unwrap().states[0].name, "values");
    assert_eq!(source.pins().len(), 1);
    assert!(inspect::verify(&target.log(), &others).unwrap().bad.is_empty());
    let shared = source.names(".seg");
    let bytes = source.inner.get(&shared[0]).unwrap();
    source.inner.delete(&shared[0]).unwrap();
    let bad = inspect::verify(&target.log(), &others).unwrap().bad;
    assert!(bad.len() == 1 && bad[0].name == format!("{}/{}", source.store.url(), shared[0]), "{bad:?}");
    // What is shared is read to the last byte, like what is the fork's own.
    let mut damaged = bytes.to_vec();
    let middle = damaged.len() / 3;
    damaged[middle] ^= 1;
    source.inner.put(&shared[0], damaged.into(), PutMode::Create).unwrap();
    let bad = inspect::verify(&target.log(), &others).unwrap().bad;
    assert!(bad.len() == 1 && bad[0].name.ends_with(&shared[0]) && bad[0].reason.contains("expected"), "{bad:?}");
    source.inner.put(&shared[0], bytes, PutMode::Overwrite).unwrap();
    // A full one isn't built on: the next restore still needs the forked one.
    run.checkpoint_as(CheckpointKind::Full);
    run.collect();
    assert_eq!((source.pins().len(), target.checkpoints().len()), (1, 2));
    run.checkpoint();
    run.collect();
    run.collect();
    assert!(source.pins().is_empty());
}

#[test]
fn a_fork_of_a_fork_reads_from_both_roots_behind_it() {
    let (a, b, c) = (with_job("a"), Root::new("b"), Root::new("c"));
    let first = fork(&a.log(), a.newest().id(), &b.log()).unwrap();
    let second = fork(&b.log(), first.id(), &c.log()).unwrap();
    assert_eq!(second.id().epoch, first.id().epoch + 1);
    // b goes on; what c needs stays pinned in b, and so what b's forked checkpoint needs in a.
    let mut run = Run::start(&b, &[&a], 2).unwrap();
    run.checkpoint();
    run.put_all(|key| key + 9);
    run.checkpoint();
    run.collect();
    run.collect();
    assert_eq!(a.pins().len(), 1);
    assert_only_pin(&b, "fork memory:///c as epoch ");
    let mut run = Run::start(&c, &[&a, &b], 1).unwrap();
    run.assert_all(|key| key * 3);
    run.checkpoint();
    run.collect();
    run.collect();
    drop(run);
    assert!(b.pins().iter().all(|pin| pin.starts_with("restore")), "{:?}", b.pins());
    Run::start(&c, &[], 2).unwrap().assert_all(|key| key * 3);
}

#[test]
fn a_fork_into_what_is_not_empty_or_of_what_is_not_there_is_refused_and_nothing_is_pinned() {
    let (source, job, photos) = (with_job("source"), with_job("job"), Root::new("photos"));
    photos.inner.put("cat.jpg", "x".into(), PutMode::Create).unwrap();
    let id = source.newest().id();
    for (target, kind, part) in [
        (&job, ErrorKind::AlreadyExists, "memory:///job"),
        (&photos, ErrorKind::InvalidArgument, "cat.jpg"),
        (&source, ErrorKind::InvalidArgument, "itself"),
    ] {
        let before = (source.names(""), target.names(""));
        let error = fork(&source.log(), id, &target.log()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!((source.names(""), target.names("")), before);
    }
    let old = highwater::base::ids::CheckpointId { epoch: id.epoch, id: id.id - 2 };
    let target = Root::new("target");
    assert_eq!(fork(&source.log(), old, &target.log()).unwrap_err().kind(), ErrorKind::NotFound, "condemned");
    // A fork of one isn't one of another.
    fork(&source.log(), id, &target.log()).unwrap();
    let other = source.checkpoints()[0].id();
    assert_eq!(fork(&source.log(), other, &target.log()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(source.pins().len(), 1);
}

#[test]
fn whichever_request_of_a_fork_fails_the_same_call_again_completes_it_and_its_data_was_never_at_risk() {
    let original = with_job("source");
    let id = original.newest().id();
    let (calm, target) = (original.twin(), Root::new("target"));
    fork(&calm.log(), id, &target.log()).unwrap();
    let sides = [calm.faults.calls(), target.faults.calls()];
    assert!(sides.iter().all(|calls| *calls > 5), "{sides:?}");
    for (side, calls) in sides.into_iter().enumerate() {
        for index in 0..calls {
            for fault in [Fault::ErrorBefore(ErrorKind::Io), Fault::ErrorAfter(ErrorKind::Io)] {
                let (source, target) = (original.twin(), Root::new("target"));
                let faulty = [&source, &target][side];
                faulty.faults.set(move |call| (call.index == index).then_some(fault));
                let tried = fork(&source.log(), id, &target.log());
                faulty.faults.set(|_| None);
                // Whatever stands in the target can be restored from: nothing, or all.
                if target.log().newest().unwrap().is_some_and(|entry| entry.state.latest().is_some()) {
                    assert_eq!(source.pins().len(), 1, "pinned before");
                }
                drop(tried);
                let forked =
                    fork(&source.log(), id, &target.log()).unwrap_or_else(|e| panic!("{fault:?} at {index}: {e}"));
                assert_eq!(forked.id().id, id.id);
                assert_only_pin(&source, "fork memory:///target as epoch ");
                Run::start(&target, &[&source], 1).unwrap().assert_all(|key| key * 3);
            }
        }
    }
}

#[test]
fn what_an_interrupted_fork_has_pinned_does_not_keep_the_next_one_from_another_checkpoint() {
    let (source, target) = (with_job("source"), Root::new("target"));
    let [older, newest] = &source.checkpoints()[..] else { panic!() };
    // Only the last entry of the fork fails.
    target.faults.set(|call| {
        (call.operation == "put" && call.name.ends_with("00002")).then_some(Fault::ErrorBefore(ErrorKind::Io))
    });
    fork(&source.log(), older.id(), &target.log()).unwrap_err();
    target.faults.set(|_| None);
    assert_eq!(source.pins().len(), 1);
    fork(&source.log(), newest.id(), &target.log()).unwrap();
    assert_only_pin(&source, "fork memory:///target as epoch ");
    Run::start(&target, &[&source], 1).unwrap().assert_all(|key| key * 3);
}

#[test]
fn of_two_forks_into_one_place_at_once_one_is_made_and_its_checkpoint_is_the_pinned_one() {
    let original = with_job("source");
    for round in 0..20 {
        let (source, target) = (original.twin(), Root::new("target"));
        let ids: Vec<_> = source.checkpoints().iter().map(|c| c.id()).collect();
        let made: Vec<_> = std::thread::scope(|scope| {
            let forks: Vec<_> = ids
                .iter()
                .map(|id| scope.spawn(|| fork(&source.log(), *id, &target.log()).map(|done| (*id, done.id()))))
                .collect();
            forks.into_iter().map(|fork| fork.join().unwrap()).collect()
        });
        let state = target.log().newest().unwrap().unwrap().state;
        let Some(origin) = state.origin else {
            assert!(made.iter().all(Result::is_err), "{round}: {made:?}");
            continue;
        };
        let pins = source.log().state().unwrap().pins;
        let held = pins.iter().find(|pin| pin.name == origin.pin).map(|pin| pin.id);
        assert_eq!(held, Some(origin.source), "{round}: {made:?}");
        assert_eq!(state.checkpoints.len(), 1);
    }
}

#[test]
fn whichever_request_of_a_release_fails_the_next_one_drops_the_pin() {
    let original = with_job("source");
    let prepare = || {
        let (source, target) = (original.twin(), Root::new("target"));
        fork(&source.log(), source.newest().id(), &target.log()).unwrap();
        let mut run = Run::start(&target, &[&source], 1).unwrap();
        run.checkpoint();
        let store = target.inner.clone();
        run.coordinator.collector().run(&|manifest| segment_names(&*store, manifest)).unwrap();
        (source, target)
    };
    let release = |source: &Root, target: &Root| {
        let others = OtherRoots::new(Arc::new(SystemClock));
        others.add(source.store.clone());
        highwater::checkpoint::fork::release(&target.log(), &others)
    };
    let (source, target) = prepare();
    let before = [source.faults.calls(), target.faults.calls()];
    assert!(release(&source, &target).unwrap());
    assert!(!release(&source, &target).unwrap(), "once");
    let after = [source.faults.calls(), target.faults.calls()];
    for side in 0..2 {
        for index in 0..after[side] - before[side] {
            for fault in [Fault::ErrorBefore(ErrorKind::Io), Fault::ErrorAfter(ErrorKind::Io)] {
                let (source, target) = prepare();
                let faulty = [&source, &target][side];
                let at = faulty.faults.calls() + index;
                faulty.faults.set(move |call| (call.index == at).then_some(fault));
                let _ = release(&source, &target);
                faulty.faults.set(|_| None);
                let _ = release(&source, &target).unwrap();
                assert!(source.pins().is_empty(), "{fault:?} at {index}");
                assert!(!target.log().state().unwrap().origin.unwrap().pinned);
            }
        }
    }
}
