//! Old values that come back: through levels, through files that are deleted one by one, through expiry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use highwater::base::cursor::Direction;
use highwater::io::faulty::Fault;
use highwater::*;

use crate::common::rig::{Rig, mix};
use crate::common::tiny;

/// Overlapping small flushes, one key overwritten in each; after every single step of background work get, scan and
/// view agree on the newest.
#[test]
fn lsm_tree_old_value_came_back_after_a_table_moved_behind_an_older_overlapping_run() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    for round in 0..60_u64 {
        rig.put_entry(1, 7, round).unwrap();
        for i in 0..12 {
            let key = mix(round * 100 + i) as u32;
            rig.put_entry(1, key % 60, round).unwrap();
            rig.put(key % 50, vec![round as u8; 20]).unwrap();
        }
        rig.put_entry(1, 7, round).unwrap();
        drop(rig.tasks[0].backend.read_view().unwrap()); // flushed on its own
        let mut step = round as usize;
        while rig.executor.step(step) {
            step += 1;
            let task = &mut rig.tasks[0];
            task.backend.poll().unwrap();
            assert_eq!(task.entries.get(&mut task.backend, &1, &7).unwrap(), Some(round));
        }
        if round % 6 == 0 {
            rig.check().unwrap();
        }
    }
    let segments = rig.tasks[0].backend.stats().segments;
    assert!(segments > 3, "{segments} segments: too few to tell");
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// One key in every block of many files, because views keep all its versions.
#[test]
fn slatedb_1367_one_key_over_many_blocks_and_files_reads_newest_and_a_view_stays_as_it_was() {
    let mut rig = Rig::new(Tuning { block_bytes: 128, ..tiny() });
    rig.start(1).unwrap();
    rig.put(1, b"first".to_vec()).unwrap();
    rig.put_entry(1, 1, u64::MAX).unwrap();
    let task = &mut rig.tasks[0];
    let view = task.backend.read_view().unwrap();
    let mut cursor = task.entries.cursor(&mut task.backend, &1, Direction::Forward).unwrap();
    let seen = rig.model.clone();
    for n in 0..500_u64 {
        rig.put(1, format!("{n} {}", "x".repeat(n as usize % 90)).into_bytes()).unwrap();
        rig.put_entry(1, 1, n).unwrap();
        if n % 5 == 0 {
            drop(rig.tasks[0].backend.read_view().unwrap());
        }
        if n % 35 == 0 {
            rig.work();
            rig.check().unwrap();
            assert_eq!(rig.tasks[0].read(&view).unwrap(), seen);
        }
    }
    rig.work();
    rig.check().unwrap();
    assert_eq!(rig.tasks[0].read(&view).unwrap(), seen);
    let task = &mut rig.tasks[0];
    assert_eq!(cursor.next(&mut task.backend).unwrap(), Some((1, u64::MAX)));
    assert_eq!(cursor.next(&mut task.backend).unwrap(), None);
    cursor.close(&mut task.backend);
    drop(view);
    rig.work();
    rig.work(); // superseded trees are dropped by workers
    assert_eq!(rig.env().stats().disk_pinned_bytes, 0);
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// The first block of a later file can't be read: the scan's error sticks, the merge keeps its inputs, and a retry
/// gives everything.
#[test]
fn rocksdb_11782_keys_were_lost_because_an_error_in_a_later_file_went_unchecked() {
    let mut rig = Rig::new(Tuning { level_zero_runs: 4, ..tiny() });
    rig.start(1).unwrap();
    for n in 0..400 {
        rig.put_entry(1, n, u64::from(n)).unwrap();
    }
    rig.incremental().unwrap();
    rig.kill();
    rig.eager = true;
    rig.start(1).unwrap();
    let files = segment_files(&rig);
    assert!(files.len() > 3);
    for bad in files {
        let name = bad.clone();
        rig.file_faults.set(move |call| {
            (call.operation == "read_at" && call.name == name).then_some(Fault::ErrorBefore(ErrorKind::Io))
        });
        let task = &mut rig.tasks[0];
        // A small group is read ahead when the scan opens.
        let mut scan = match task.entries.iter(&mut task.backend, &1, Direction::Forward) {
            Ok(scan) => scan,
            Err(error) => {
                assert!(error.to_string().contains(&bad), "{error} doesn't name {bad}");
                continue;
            }
        };
        let mut found = 0;
        let error = loop {
            match scan.next() {
                Some(Ok((key, value))) => {
                    assert_eq!((key, value), (found, u64::from(found)));
                    found += 1;
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match error {
            Some(error) => assert!(error.to_string().contains(&bad), "{error} doesn't name {bad}"),
            // Its blocks are in the cache by now.
            None => assert_eq!(found, 400),
        }
        assert!(scan.next().is_none(), "the scan went on after its error");
    }
    // Now the merge meets it.
    let deep = segment_files(&rig).swap_remove(2);
    let met = Arc::new(AtomicBool::new(false));
    let (name, noted) = (deep, met.clone());
    rig.file_faults.set(move |call| {
        let bad = call.operation == "read_at" && call.name == name;
        noted.fetch_or(bad, SeqCst);
        bad.then_some(Fault::ErrorBefore(ErrorKind::Io))
    });
    for n in 0..8 {
        rig.put_entry(1, n * 50, 1).unwrap();
        drop(rig.tasks[0].backend.read_view().unwrap());
        rig.work();
    }
    rig.file_faults.set(|_| None);
    rig.check().unwrap();
    if met.load(SeqCst) {
        rig.put_entry(1, 3, 3).unwrap();
        drop(rig.tasks[0].backend.read_view().unwrap());
        rig.work();
        assert!(rig.tasks[0].backend.stats().compaction_error.is_none());
    }
    rig.check().unwrap();
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// Paths of the job's segment files.
fn segment_files(rig: &Rig) -> Vec<String> {
    let mut found: Vec<_> = std::fs::read_dir(rig.directory.path().join("job-0"))
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .filter(|path| path.ends_with(".seg"))
        .collect();
    found.sort();
    found
}

/// A crash after only the file with the tombstone was deleted: the file with the value is still there.
#[test]
fn scylladb_4082_deleted_data_came_back_after_a_crash_while_inputs_were_being_deleted() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.put(1, b"deleted".to_vec()).unwrap();
    rig.put_entry(1, 1, 1).unwrap();
    drop(rig.tasks[0].backend.read_view().unwrap());
    while segment_files(&rig).is_empty() {
        assert!(rig.executor.step(0));
    }
    let holds_the_value = segment_files(&rig);
    assert_eq!(holds_the_value.len(), 1);
    let kept = holds_the_value[0].clone();
    rig.file_faults.set(move |call| {
        (call.operation == "remove" && call.name == kept).then_some(Fault::ErrorBefore(ErrorKind::Io))
    });
    rig.delete(1).unwrap();
    let task = &mut rig.tasks[0];
    task.entries.clear(&mut task.backend, &1).unwrap();
    rig.model.entries.clear();
    rig.put(2, b"other".to_vec()).unwrap();
    rig.incremental().unwrap();
    for n in 0..4 {
        rig.put(2, vec![n]).unwrap();
        drop(rig.tasks[0].backend.read_view().unwrap());
        rig.work();
    }
    rig.incremental().unwrap();
    assert!(segment_files(&rig).contains(&holds_the_value[0]), "the file with the value should still be there");
    rig.kill();
    rig.file_faults.set(|_| None);
    rig.start(1).unwrap();
    rig.check().unwrap();
    rig.work();
    rig.check().unwrap();
    assert!(!segment_files(&rig).contains(&holds_the_value[0]), "a file that nothing refers to is swept");
}

/// A value that lives for ever at the bottom, one that expires above it: whatever is merged, the older never shows.
#[test]
fn paimon_8872_dropping_an_expired_value_exposed_the_older_one() {
    let mut rig = Rig::new(tiny());
    let ttl = |rig: &mut Rig, ttl| rig.tasks[0].backend.state("aging").ttl(ttl).value::<u32, u32>().unwrap();
    rig.start(1).unwrap();
    let state = ttl(&mut rig, Duration::MAX);
    for key in 0..200 {
        state.put(&mut rig.tasks[0].backend, &key, 1).unwrap();
    }
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    let state = ttl(&mut rig, Duration::from_millis(10));
    for key in 0..200 {
        state.put(&mut rig.tasks[0].backend, &key, 2).unwrap();
        assert_eq!(state.get(&mut rig.tasks[0].backend, &key).unwrap(), Some(2));
    }
    rig.incremental().unwrap();
    rig.clock.set(11);
    let expired = |rig: &mut Rig| {
        for key in 0..200 {
            assert_eq!(state.get(&mut rig.tasks[0].backend, &key).unwrap(), None, "key {key}");
        }
        let b = &mut rig.tasks[0].backend;
        let view = b.read_view().unwrap();
        state.for_each(&view, b.key_groups(), |k, (), v| panic!("{k} is back with {v}")).unwrap();
    };
    expired(&mut rig);
    for n in 0..30 {
        rig.put(n, vec![0; 30]).unwrap();
        drop(rig.tasks[0].backend.read_view().unwrap());
        for step in 0.. {
            // Each look flushes an epoch of its own, so not at every step.
            if !rig.executor.step(step) {
                break;
            }
            rig.tasks[0].backend.poll().unwrap();
            if step < 3 {
                expired(&mut rig);
            }
        }
    }
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.clock.set(0); // a clock that runs backwards brings nothing back
    rig.start(1).unwrap();
    let again = ttl(&mut rig, Duration::from_millis(10));
    for key in 0..200 {
        assert_eq!(again.get(&mut rig.tasks[0].backend, &key).unwrap(), None, "key {key}");
    }
}

/// An empty value is no tombstone, through flush, merge, checkpoint and rescale.
#[test]
fn paimon_8880_an_empty_value_was_taken_for_a_tombstone() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    for key in 0..100 {
        rig.put(key, vec![1; 10]).unwrap();
    }
    rig.incremental().unwrap();
    for key in 0..100 {
        rig.put(key, Vec::new()).unwrap();
        if key % 20 == 0 {
            drop(rig.tasks[0].backend.read_view().unwrap());
            rig.work();
        }
    }
    for parallelism in [1, 3, 2] {
        rig.work();
        rig.check().unwrap();
        rig.incremental().unwrap();
        rig.kill();
        rig.start(parallelism).unwrap();
        rig.check().unwrap();
        assert_eq!(rig.model.values.values().filter(|value| value.is_empty()).count(), 100);
    }
}
