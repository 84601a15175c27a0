//! Local files that vanish, go bad or don't fit: what the store has too is taken from there, what only this machine had
//! ends the job by name, and nothing waits for ever.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use common::rig::Rig;
use common::tiny;
use highwater::base::clock::Clock;
use highwater::io::faulty::Fault;
use highwater::io::store::PutMode;
use highwater::*;

fn folder(rig: &Rig, subtask: u32) -> PathBuf {
    rig.directory.path().join(format!("job-{subtask}"))
}

fn segment_files(rig: &Rig, subtask: u32) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder(rig, subtask)) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().unwrap() == "seg").collect()
}

/// Flips a bit in every block, through the inode that readers have open.
fn spoil(path: &PathBuf) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    for at in (0..bytes.len()).step_by(40) {
        file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    }
}

fn spoil_objects(rig: &Rig) {
    for object in rig.objects.list("").unwrap().into_iter().filter(|object| object.name.ends_with(".seg")) {
        let mut bytes = rig.objects.get(&object.name).unwrap().to_vec();
        bytes.iter_mut().step_by(40).for_each(|byte| *byte ^= 1);
        rig.objects.put(&object.name, Bytes::from(bytes), PutMode::Overwrite).unwrap();
    }
}

fn refuse_puts(rig: &Rig, kind: ErrorKind) {
    rig.store_faults.set(move |call| call.operation.starts_with("put").then_some(Fault::ErrorBefore(kind)));
}

fn pass(rig: &Rig, time: Duration) {
    rig.clock.sleep(time);
}

/// Stores what merging has made since the last checkpoint.
fn settle(rig: &mut Rig) {
    for _ in 0..3 {
        rig.incremental().unwrap();
    }
}

/// Lets background work be done and failed flushes be tried again, a few times.
fn work(rig: &mut Rig) {
    for _ in 0..4 {
        rig.work();
    }
    rig.executor.run_until_idle();
}

#[test]
fn a_working_directory_deleted_under_a_job_ends_it_by_name_and_a_restart_is_exact() {
    let mut rig = Rig::new(tiny());
    rig.start(2).unwrap();
    rig.write_all(0..300).unwrap();
    let completed = rig.incremental().unwrap();
    rig.write_all(300..350).unwrap();
    let path = rig.directory.path().to_owned();
    std::fs::remove_dir_all(&path).unwrap();
    let (id, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    let error = rig.finish(id, &tickets).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    let task = &mut rig.tasks[0];
    let source = std::error::Error::source(&task.backend.poll().unwrap_err()).unwrap().to_string();
    assert!(source.contains("deleted, moved or replaced while in use"), "{source}");
    assert!(!path.exists(), "nothing is founded in its place, which may be another process's by now");
    rig.kill_and_lose_directory();
    rig.start(3).unwrap();
    assert_eq!(rig.env().latest_checkpoint().unwrap().unwrap().id(), completed.id());
    rig.check().unwrap();
}

#[test]
fn a_subtasks_folder_deleted_alone_is_made_again_and_its_segments_are_read_from_the_store() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..600).unwrap();
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    rig.executor.run_until_idle();
    std::fs::remove_dir_all(folder(&rig, 0)).unwrap();
    rig.check().unwrap();
    rig.write_all(600..900).unwrap();
    rig.incremental().unwrap();
    rig.check().unwrap();
    assert!(!segment_files(&rig, 0).is_empty());
    rig.kill_and_lose_directory();
    rig.start(2).unwrap();
    rig.check().unwrap();
}

#[test]
fn a_file_that_went_bad_before_its_upload_stops_the_backend_by_name_instead_of_failing_every_checkpoint() {
    for truncate in [false, true] {
        let mut rig = Rig::new(tiny());
        rig.start(1).unwrap();
        rig.write_all(0..300).unwrap();
        let completed = rig.incremental().unwrap();
        refuse_puts(&rig, ErrorKind::Io);
        let before = segment_files(&rig, 0);
        rig.write_all(300..340).unwrap();
        let error = rig.incremental().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "a store that refuses says nothing of our files: {error}");
        rig.tasks[0].backend.poll().unwrap();
        let new: Vec<_> = segment_files(&rig, 0).into_iter().filter(|path| !before.contains(path)).collect();
        assert!(!new.is_empty());
        for path in &new {
            if truncate {
                std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(10).unwrap();
            } else {
                spoil(path);
            }
        }
        rig.store_faults.set(|_| None);
        let (_, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
        rig.executor.run_until_idle();
        assert_eq!(tickets[0].wait(Duration::ZERO).unwrap_err().kind(), ErrorKind::Corruption);
        let error = rig.tasks[0].backend.poll().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        let cause = std::error::Error::source(&error).unwrap().downcast_ref::<Error>().unwrap().clone();
        assert_eq!(cause.kind(), ErrorKind::Corruption);
        assert!(new.iter().any(|path| cause.to_string().contains(&*path.to_string_lossy())), "{cause}");
        rig.kill();
        rig.start(2).unwrap();
        assert_eq!(rig.env().latest_checkpoint().unwrap().unwrap().id(), completed.id());
        rig.check().unwrap();
    }
}

#[test]
fn a_local_file_that_went_bad_after_it_was_fetched_or_stored_is_read_from_the_store() {
    for restored in [true, false] {
        let mut rig = Rig::new(tiny());
        rig.start(1).unwrap();
        rig.write_all(0..600).unwrap();
        settle(&mut rig);
        if restored {
            rig.kill();
            rig.start(1).unwrap();
            rig.executor.run_until_idle();
        }
        let files = segment_files(&rig, 0);
        assert!(files.len() > 1);
        files.iter().for_each(spoil);
        rig.check().unwrap();
        let left = segment_files(&rig, 0);
        assert!(files.iter().all(|path| !left.contains(path)), "bad files go: {left:?}");
        assert_eq!(rig.env().stats().disk_used_bytes, 0);
        rig.checkpoint(CheckpointKind::Full).unwrap();
        rig.write_all(600..700).unwrap();
        rig.incremental().unwrap();
        rig.kill_and_lose_directory();
        rig.start(2).unwrap();
        rig.check().unwrap();
    }
}

#[test]
fn a_full_checkpoint_copies_a_file_that_went_bad_from_the_store() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..600).unwrap();
    settle(&mut rig);
    segment_files(&rig, 0).iter().for_each(spoil);
    rig.checkpoint(CheckpointKind::Full).unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

#[test]
fn bytes_that_are_bad_here_and_in_the_store_are_corruption_that_names_the_object() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..600).unwrap();
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    rig.executor.run_until_idle();
    segment_files(&rig, 0).iter().for_each(spoil);
    spoil_objects(&rig);
    let error = rig.read_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("job/0/"), "{error}");
}

#[test]
fn state_larger_than_the_disk_budget_is_read_from_the_store_for_what_has_no_room() {
    let mut rig = Rig::new(tiny());
    rig.disk_bytes = 64 << 10;
    rig.start(1).unwrap();
    for round in 0..3_u8 {
        for key in 0..4000 {
            rig.put(key, vec![round; 60]).unwrap();
        }
        if round != 1 {
            rig.incremental().unwrap();
        }
        let stats = rig.env().stats();
        assert!(stats.disk_used_bytes <= stats.disk_limit_bytes, "{stats:?}");
    }
    let bytes = rig.tasks[0].backend.stats().segment_bytes;
    assert!(bytes > 2 * rig.disk_bytes, "{bytes} bytes of state");
    assert_eq!(rig.read_all().unwrap(), rig.model);
    rig.kill();
    for eager in [false, true] {
        rig.eager = eager;
        rig.start(1).unwrap();
        rig.executor.run_until_idle();
        let stats = rig.env().stats();
        assert!(stats.disk_used_bytes > 0 && stats.disk_used_bytes <= stats.disk_limit_bytes, "{stats:?}");
        let there: u64 = segment_files(&rig, 0).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert_eq!(there, stats.disk_used_bytes, "what is here is what was counted");
        assert_eq!(rig.read_all().unwrap(), rig.model);
        rig.kill();
    }
}

/// Overwrites of the same keys: merging gives back what flushes take, as long as it has room to begin with.
#[test]
fn a_disk_budget_that_flushes_fill_leaves_merging_the_room_that_frees_it() {
    let mut rig = Rig::new(tiny());
    rig.disk_bytes = 128 << 10;
    rig.start(1).unwrap();
    refuse_puts(&rig, ErrorKind::Unavailable);
    for n in 0..40_000_u32 {
        rig.put(n % 200, vec![n as u8; 100]).unwrap();
    }
    for _ in 0..1000 {
        rig.work();
    }
    let stats = rig.tasks[0].backend.stats();
    assert!(stats.flush_error.is_none() && stats.waiting_epochs == 0, "{stats:?} {:?}", rig.env().stats());
    assert_eq!(rig.read_all().unwrap(), rig.model);
}

/// Fills memory and the disk budget of a job whose store takes nothing; what the write is refused with.
fn fill(rig: &mut Rig) -> Error {
    for key in 0..200_000 {
        if key % 500 == 0 {
            rig.executor.run_until_idle();
        }
        if let Err(error) = rig.put(key, vec![key as u8; 200]) {
            return error;
        }
    }
    panic!("never refused");
}

fn narrow() -> Rig {
    let mut rig = Rig::new(common::cramped());
    rig.disk_bytes = 128 << 10;
    rig.settings.timeout = Duration::from_secs(600);
    rig
}

#[test]
fn a_full_disk_before_a_store_that_refuses_for_good_ends_the_wait_with_both_reasons() {
    let mut rig = narrow();
    rig.start(1).unwrap();
    refuse_puts(&rig, ErrorKind::ResourceExhausted);
    let error = fill(&mut rig);
    assert_eq!(error.kind(), ErrorKind::Backpressure, "{error}");
    assert!(error.to_string().contains("local disk budget of 131072 bytes"), "{error}");
    let (_, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    work(&mut rig);
    assert_eq!(tickets[0].wait(Duration::ZERO).unwrap_err().kind(), ErrorKind::Timeout);
    pass(&rig, Duration::from_secs(601));
    work(&mut rig);
    let refused = rig.put(0, vec![1]).unwrap_err();
    for error in [refused, tickets[0].wait(Duration::ZERO).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted, "{error}");
        let message = error.to_string();
        assert!(message.contains("out of local disk: used ") && message.contains(" of 131072 bytes"), "{message}");
        assert!(message.contains("the store takes nothing either") && message.contains("injected"), "{message}");
    }
    // Room after all: nothing that was written is lost.
    rig.store_faults.set(|_| None);
    rig.abort(1).unwrap();
    work(&mut rig);
    rig.put(0, vec![2]).unwrap();
    rig.incremental().unwrap();
    assert_eq!(rig.read_all().unwrap(), rig.model);
}

#[test]
fn a_full_disk_before_a_store_that_is_merely_away_is_waited_out() {
    let mut rig = narrow();
    rig.start(1).unwrap();
    refuse_puts(&rig, ErrorKind::Unavailable);
    assert_eq!(fill(&mut rig).kind(), ErrorKind::Backpressure);
    for _ in 0..5 {
        pass(&rig, Duration::from_secs(3600));
        work(&mut rig);
        let error = rig.put(0, vec![1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Backpressure, "{error}");
    }
    rig.store_faults.set(|_| None);
    work(&mut rig);
    for key in 0..2000 {
        rig.put(key, vec![3; 100]).unwrap();
    }
    rig.incremental().unwrap();
    assert_eq!(rig.read_all().unwrap(), rig.model);
    rig.kill_and_lose_directory();
    rig.start(2).unwrap();
    assert_eq!(rig.read_all().unwrap(), rig.model);
}

#[test]
fn a_file_system_that_takes_nothing_ends_the_wait_with_its_reason() {
    for (kind, ends_with) in
        [(ErrorKind::ResourceExhausted, ErrorKind::ResourceExhausted), (ErrorKind::Io, ErrorKind::Io)]
    {
        let mut rig = narrow();
        rig.start(1).unwrap();
        rig.file_faults.set(move |call| (call.operation == "append").then_some(Fault::ErrorBefore(kind)));
        assert_eq!(fill(&mut rig).kind(), ErrorKind::Backpressure);
        pass(&rig, Duration::from_secs(601));
        work(&mut rig);
        let error = rig.put(0, vec![1]).unwrap_err();
        assert_eq!(error.kind(), ends_with, "{error}");
        assert!(error.to_string().contains("injected into append"), "{error}");
        rig.file_faults.set(|_| None);
        work(&mut rig);
        rig.put(0, vec![1]).unwrap();
        rig.incremental().unwrap();
        assert_eq!(rig.read_all().unwrap(), rig.model);
    }
}

#[test]
fn a_full_file_system_gets_room_from_files_that_the_store_has_too() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..600).unwrap();
    settle(&mut rig);
    let files = segment_files(&rig, 0);
    assert!(files.len() > 1);
    // Full for as long as any of them is there.
    let folder = folder(&rig, 0);
    rig.file_faults.set(move |call| {
        let full = files.iter().any(|file| file.starts_with(&folder) && file.exists());
        (call.operation == "append" && full).then_some(Fault::ErrorBefore(ErrorKind::ResourceExhausted))
    });
    rig.write_all(600..700).unwrap();
    let (id, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    work(&mut rig);
    rig.finish(id, &tickets).unwrap();
    rig.check().unwrap();
}

#[test]
fn folders_of_subtasks_that_are_no_more_go_and_those_of_other_operators_are_counted_until_room_is_short() {
    let mut rig = Rig::new(tiny());
    rig.start(4).unwrap();
    rig.write_all(0..600).unwrap();
    rig.incremental().unwrap();
    rig.kill();
    assert!((0..4).all(|subtask| !segment_files(&rig, subtask).is_empty()));
    let other = rig.directory.path().join("gone-0");
    let theirs = [rig.directory.path().join("job-x"), rig.directory.path().join("job-03")];
    for folder in theirs.iter().chain([&other]) {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("0.seg"), vec![0; 100_000]).unwrap();
    }
    rig.disk_bytes = 200_000;
    rig.start(2).unwrap();
    rig.executor.run_until_idle();
    assert!(!folder(&rig, 2).exists() && !folder(&rig, 3).exists());
    let here: u64 = (0..2).flat_map(|i| segment_files(&rig, i)).map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(rig.env().stats().disk_used_bytes, here + 100_000);
    rig.check().unwrap();
    for key in 0..3000 {
        rig.put(key, vec![1; 100]).unwrap();
    }
    rig.executor.run_until_idle();
    assert!(!other.join("0.seg").exists(), "it made room");
    assert!(theirs.iter().all(|folder| folder.join("0.seg").exists()), "not named as ours are");
}
