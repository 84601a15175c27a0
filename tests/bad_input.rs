//! Input that is wrong, and storage that is: what the caller gets, and that nothing changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

mod common;

use std::ops::Bound::{Excluded, Included};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use common::rig::{Rig, Sum, merged_state, parts};
use common::{World, single, tiny};
use highwater::base::cursor::Direction;
use highwater::base::key::KeyParts;
use highwater::base::merge_operator::MergeOperator;
use highwater::io::faulty::Fault;
use highwater::io::store::PutMode;
use highwater::*;

fn refused<T: std::fmt::Debug>(outcome: Result<T>, names: &[&str]) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(names.iter().all(|name| error.to_string().contains(name)), "{error} names {names:?}");
}

#[test]
fn keys_that_are_not_utf_8_round_trip_through_files_and_restores() {
    let mut rig = Rig::new(tiny());
    let keys: Vec<Vec<u8>> =
        (0..=255_u8).map(|b| vec![b, 0xC3, 0x28, 0, b]).chain([vec![], vec![0], vec![0xFF; 3]]).collect();
    for parallelism in [1, 3] {
        rig.start(parallelism).unwrap();
        for task in &mut rig.tasks {
            let b = &mut task.backend;
            let state = b.value_state::<Vec<u8>, Vec<u8>>("bytes").unwrap();
            let map = b.map_state::<Vec<u8>, Vec<u8>, Vec<u8>>("byte map").unwrap();
            for key in
                keys.iter().filter(|key| b.key_groups().contains(b.key_group_of(key))).cloned().collect::<Vec<_>>()
            {
                if parallelism == 1 {
                    state.put(b, &key, &key).unwrap();
                    map.put(b, &key, &key, &key).unwrap();
                }
                assert_eq!(state.get(b, &key).unwrap().as_ref(), Some(&key));
                assert_eq!(map.get(b, &key, &key).unwrap().as_ref(), Some(&key));
            }
        }
        rig.incremental().unwrap();
        rig.kill();
    }
}

#[test]
fn names_that_are_empty_or_too_long_and_states_that_come_back_otherwise_are_refused_naming_both() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    for name in [String::new(), "x".repeat(1025)] {
        let subtask = Subtask { index: 0, parallelism: 1 };
        refused(rig.env().backend(&Operator::new(name.clone(), 16), subtask, None), &["operator name"]);
        refused(rig.tasks[0].backend.register(merged_state(&name, None), None), &["name"]);
    }
    let b = &mut rig.tasks[0].backend;
    refused(b.value_state::<u32, u32>("values"), &["bytes@1", "u32@1"]);
    refused(b.register(merged_state("sums", None), None), &["Some(\"sum\")", "None"]);
    refused(b.register(merged_state("sums", Some("max")), Some(Arc::new(Sum))), &["max", "sum"]);
    // A name of odd characters is a name, for states and for operators.
    for name in ["%20", "ü b", "..", ".", "log", "a/b", "\u{0}", "\n"] {
        let operator = Operator::new(name, 16);
        let mut b = rig.env().backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
        let state = b.value_state::<u32, u32>(name).unwrap();
        state.put(&mut b, &1, 1).unwrap();
        let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
        rig.executor.run_until_idle();
        ticket.wait(Duration::ZERO).unwrap();
    }
}

#[test]
fn what_is_over_a_limit_is_refused_before_anything_is_written() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    let before = rig.tasks[0].backend.stats().memory;
    let task = &mut rig.tasks[0];
    let long = vec![0; (64 << 10) + 1];
    let large = vec![0; task.backend.max_value_bytes() + 1];
    refused(task.backend.put(task.sums, parts(&long), b""), &["65537", "65536"]);
    refused(task.backend.put(task.sums, parts(b"k"), &large), &["2097153", "2097152"]);
    refused(task.backend.merge(task.sums, parts(b"k"), &large), &["2097153"]);
    refused(task.backend.merge(task.sums, parts(&long), b""), &["65537"]);
    refused(task.backend.delete(task.sums, parts(&long)), &["65537"]);
    refused(task.backend.get(task.sums, parts(&long)).map(drop), &["65537"]);
    let with_user_key = KeyParts { user_key: b"u", ..parts(b"k") };
    refused(task.backend.put(task.sums, with_user_key, b""), &["sums"]);
    refused(task.backend.put(task.sums, KeyParts { group: 16, ..parts(b"k") }, b""), &["16", "0..=15"]);
    let metadata = vec![0; (64 << 20) + 1];
    refused(task.backend.checkpoint(1, CheckpointKind::Incremental, &metadata), &["67108865"]);
    assert_eq!(task.backend.stats().memory, before);
    assert_eq!(rig.executor.waiting(), 1, "background work was begun, beyond that of the restore");
    rig.check().unwrap();
    // In another backend a token is refused, not misread.
    let other = rig.env().backend(&Operator::new("other", 16), Subtask { index: 0, parallelism: 1 }, None);
    let mut other = other.unwrap();
    refused(other.put(rig.tasks[0].sums, parts(b"k"), b""), &["another backend"]);
    for bytes in [0, (16 << 20) - 1] {
        refused(Environment::builder(rig.directory.path().join("x")).memory_bytes(bytes).open(), &["16777216"]);
    }
    assert!(!rig.directory.path().join("x").exists());
}

#[test]
fn a_range_that_ends_before_it_starts_is_empty_in_memory_in_files_and_for_cursors() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    for round in 0..3 {
        for n in 0..300 {
            rig.put_entry(1, n * 3 + round, 1).unwrap();
        }
        if round > 0 {
            rig.incremental().unwrap();
            rig.kill();
            rig.start(1).unwrap();
        }
        let task = &mut rig.tasks[0];
        for direction in [Direction::Forward, Direction::Backward] {
            for range in [(Included(7), Excluded(3)), (Excluded(5), Excluded(5)), (Included(u32::MAX), Included(0))] {
                assert_eq!(task.entries.range(&mut task.backend, &1, range, direction).unwrap().count(), 0);
                let mut cursor = task.entries.range_cursor(&mut task.backend, &1, range, direction).unwrap();
                assert_eq!(cursor.next(&mut task.backend).unwrap(), None);
                cursor.close(&mut task.backend);
            }
        }
    }
}

#[test]
fn parallelism_of_zero_over_the_max_or_with_another_max_is_refused_naming_both() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..50).unwrap();
    rig.incremental().unwrap();
    rig.tasks.clear();
    let open = |max, index, parallelism, from: Option<&CompletedCheckpoint>| {
        rig.env().backend(&Operator::new("job", max), Subtask { index, parallelism }, from)
    };
    refused(open(16, 0, 0, None), &["0", "16"]);
    refused(open(16, 0, 17, None), &["17", "16"]);
    refused(open(0, 0, 1, None), &["0", "1"]);
    refused(open(32_769, 0, 1, None), &["32769", "32768"]);
    refused(open(16, 3, 3, None), &["3"]);
    refused(rig.env().coordinator(&[(&Rig::operator(), 0)]), &["0", "16"]);
    refused(rig.env().coordinator(&[(&Rig::operator(), 17)]), &["17", "16"]);
    refused(rig.env().coordinator(&[]), &["operators"]);
    let last = rig.env().latest_checkpoint().unwrap();
    for max in [15, 17, 128] {
        refused(open(max, 0, 1, last.as_ref()), &[&max.to_string(), "16", "job"]);
    }
    // Also when nothing was restored: the lineage remembers.
    let operator = Operator::new("job", 32);
    let mut coordinator = rig.env().coordinator(&[(&operator, 1)]).unwrap();
    let mut b = rig.env().backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
    let ticket = b.checkpoint(9, CheckpointKind::Incremental, b"").unwrap();
    rig.executor.run_until_idle();
    refused(coordinator.add(ticket.wait(Duration::ZERO).unwrap()), &["16", "32"]);
    drop((b, coordinator));
    rig.start_from(1, last.as_ref()).unwrap();
    rig.check().unwrap();
}

/// Sums, but panics or fails at some operands.
struct Touchy(Arc<AtomicBool>);

impl MergeOperator for Touchy {
    fn name(&self) -> &str {
        "sum"
    }

    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        assert!(!self.0.load(SeqCst), "the operator panics");
        if operands.iter().any(|operand| operand.len() != 8) {
            return Err("not 8 bytes".into());
        }
        Sum.merge(base, operands)
    }
}

/// Where the fold happens at the call, the call fails and nothing changes; where it happens later, the read fails,
/// again and again, and the operands outlive flushes, merges and restores until the operator works.
#[test]
fn a_merge_without_operator_or_with_one_that_panics_is_an_error_and_loses_nothing() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let touchy = |rig: &mut Rig| {
        let operator = Arc::new(Touchy(panics.clone()));
        rig.tasks[0].backend.register(merged_state("touchy", Some("sum")), Some(operator)).unwrap()
    };
    let plain = rig.tasks[0].backend.register(merged_state("plain", None), None).unwrap();
    let error = rig.tasks[0].backend.merge(plain, parts(b"k"), &[0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Merge, "{error}");
    assert!(rig.tasks[0].backend.get(plain, parts(b"k")).unwrap().is_none());

    let state = touchy(&mut rig);
    let b = &mut rig.tasks[0].backend;
    b.put(state, parts(b"k"), &5_i64.to_le_bytes()).unwrap();
    panics.store(true, SeqCst);
    assert_eq!(b.merge(state, parts(b"k"), &1_i64.to_le_bytes()).unwrap_err().kind(), ErrorKind::Merge);
    panics.store(false, SeqCst);
    assert_eq!(&*b.get(state, parts(b"k")).unwrap().unwrap(), 5_i64.to_le_bytes());
    b.merge(state, parts(b"k"), &1_i64.to_le_bytes()).unwrap();
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    // Nothing in memory: operands are folded when they are read.
    panics.store(true, SeqCst);
    let state = touchy(&mut rig);
    for n in 0..20 {
        rig.tasks[0].backend.merge(state, parts(b"k"), &2_i64.to_le_bytes()).unwrap();
        rig.put(n, vec![1; 50]).unwrap();
        if n % 2 == 0 {
            drop(rig.tasks[0].backend.read_view().unwrap());
            rig.work();
        }
    }
    for _ in 0..2 {
        let b = &mut rig.tasks[0].backend;
        let error = b.get(state, parts(b"k")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Merge, "{error}");
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(b.read_view().unwrap().get(state, parts(b"k")).unwrap_err().kind(), ErrorKind::Merge);
    }
    rig.check().unwrap(); // the other states are as well as ever
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    // Registered without its operator it can't be: the state says that it has one.
    refused(rig.tasks[0].backend.register(merged_state("touchy", None), None), &["touchy"]);
    let state = touchy(&mut rig);
    assert_eq!(rig.tasks[0].backend.get(state, parts(b"k")).unwrap_err().kind(), ErrorKind::Merge);
    panics.store(false, SeqCst);
    assert_eq!(&*rig.tasks[0].backend.get(state, parts(b"k")).unwrap().unwrap(), 46_i64.to_le_bytes());
}

#[test]
fn a_ttl_of_nothing_is_refused_one_without_end_never_ends_and_a_clock_that_runs_back_brings_nothing_back() {
    let mut rig = Rig::new(tiny());
    rig.clock.set(1000);
    for round in 0..3 {
        rig.start(1).unwrap();
        let b = &mut rig.tasks[0].backend;
        refused(b.state("none").ttl(Duration::ZERO).value::<u32, u32>(), &["none"]);
        let mut nothing = merged_state("none", None);
        nothing.ttl_ms = Some(0);
        refused(b.register(nothing, None), &["none"]);
        let forever = b.state("forever").ttl(Duration::MAX).value::<u32, u32>().unwrap();
        let mut most = merged_state("most", None);
        most.ttl_ms = Some(u64::MAX);
        let most = b.register(most, None).unwrap();
        let brief = b.state("brief").ttl(Duration::from_millis(10)).value::<u32, u32>().unwrap();
        if round == 0 {
            forever.put(b, &1, 1).unwrap();
            b.put(most, parts(b"k"), b"v").unwrap();
            brief.put(b, &1, 1).unwrap();
            rig.clock.set(1009);
            assert_eq!(brief.get(b, &1).unwrap(), Some(1), "not early");
            rig.clock.set(1010);
        } else {
            rig.clock.set(0);
        }
        assert_eq!(brief.get(b, &1).unwrap(), None, "in round {round}");
        assert_eq!(forever.get(b, &1).unwrap(), Some(1), "in round {round}");
        assert_eq!(&*b.get(most, parts(b"k")).unwrap().unwrap(), b"v");
        rig.clock.set(i64::MAX - 1);
        assert_eq!(forever.get(&mut rig.tasks[0].backend, &1).unwrap(), Some(1), "in round {round}");
        rig.incremental().unwrap();
        rig.kill();
    }
}

#[test]
fn a_checkpoint_id_used_twice_or_older_is_refused_and_so_is_keeping_none() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.next_id = 5;
    rig.write_all(0..20).unwrap();
    let (_, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    for id in [5, 4, 0] {
        let error = rig.tasks[0].backend.checkpoint(id, CheckpointKind::Incremental, b"").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert!(error.to_string().contains(&id.to_string()) && error.to_string().contains('5'), "{error}");
        let error = rig.coordinator.as_mut().unwrap().begin(id).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
    rig.finish(5, &tickets).unwrap();
    // The same part again is nothing new; another one in its place can't be.
    let mut part = tickets[0].wait(Duration::ZERO).unwrap();
    assert!(rig.coordinator.as_mut().unwrap().add(part.clone()).unwrap().is_none());
    part.subtask = 1;
    refused(rig.coordinator.as_mut().unwrap().add(part).map(drop), &["subtask 1"]);
    let error = rig.tasks[0].backend.checkpoint(6, CheckpointKind::Savepoint, b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for (retain, max_in_flight) in [(0, 4), (3, 0)] {
        let mut other = Rig::new(tiny());
        other.settings.retain = retain;
        other.settings.max_in_flight = max_in_flight;
        refused(other.start(1), &["at least 1"]);
    }
}

/// Every object that a restore needs, missing, cut short, with one bit flipped, foreign, or of a newer format: the
/// kind and the name, nothing changed, and a retry with the object put right works.
#[test]
fn a_restore_from_bad_objects_names_them_and_a_retry_works() {
    let mut rig = Rig::new(tiny());
    rig.start(2).unwrap();
    rig.write_all(0..400).unwrap();
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    let names: Vec<_> = rig.objects.list("").unwrap().into_iter().map(|object| object.name).collect();
    let newest_entry = names.iter().filter(|name| name.starts_with("log/")).max().unwrap().clone();
    let good: Vec<_> = names.into_iter().map(|name| (name.clone(), rig.objects.get(&name).unwrap())).collect();
    for (name, bytes) in &good {
        if name.starts_with("log/") && *name != newest_entry {
            continue;
        }
        for (bad, kinds) in damaged(bytes) {
            for eager in [true, false] {
                rig.eager = eager;
                match &bad {
                    Some(bad) => rig.objects.put(name, bad.clone(), PutMode::Overwrite).unwrap(),
                    None => rig.objects.delete(name).unwrap(),
                }
                // What stands behind a segment's end is never read, its footer only when all of it is fetched. Without
                // its newest entry the log ends with the one before.
                let unread = name.ends_with(".seg") && bad.as_ref().is_some_and(|b| b.starts_with(bytes) || !eager);
                match rig.start(1).and_then(|()| rig.check()) {
                    Ok(()) => assert!(unread || bad.is_none() && *name == newest_entry, "{name}: nothing noticed"),
                    Err(error) => {
                        assert!(kinds.contains(&error.kind()), "{name}: {error}");
                        assert!(error.to_string().contains(name.as_str()), "{error} names {name}");
                    }
                }
                rig.tasks.clear();
                rig.executor.clear();
                rig.objects.put(name, bytes.clone(), PutMode::Overwrite).unwrap();
                if !name.starts_with("log/") {
                    let last = rig.env().latest_checkpoint().unwrap();
                    rig.start_from(1, last.as_ref()).unwrap();
                    rig.check().unwrap();
                }
                rig.kill_and_lose_directory();
                rig.objects.list("").unwrap().iter().for_each(|object| rig.objects.delete(&object.name).unwrap());
                good.iter().for_each(|(name, bytes)| rig.objects.put(name, bytes.clone(), PutMode::Create).unwrap());
            }
        }
    }
}

/// Ways for an object to be bad, and the kinds that say so. `None`: it is gone.
fn damaged(bytes: &Bytes) -> Vec<(Option<Bytes>, Vec<ErrorKind>)> {
    let corrupt = vec![ErrorKind::Corruption];
    let mut ways = vec![(None, vec![ErrorKind::NotFound])];
    for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        ways.push((Some(bytes.slice(..length)), corrupt.clone()));
    }
    for at in [0, bytes.len() / 3, bytes.len() - 1] {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x10;
        ways.push((Some(flipped.into()), corrupt.clone()));
    }
    ways.push((Some(Bytes::from_static(b"PK\x03\x04 something else entirely")), corrupt.clone()));
    ways.push((Some([bytes, &[0_u8][..]].concat().into()), corrupt));
    ways
}

/// Raises the version in the frame around claims, parts and log entries, all else being right.
fn make_newer(bytes: &mut [u8]) {
    bytes[4] = 0xFE;
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let sum = highwater::base::checksum::hash64_seeded(&bytes[16..], header);
    bytes[8..16].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_newer_format_is_unsupported_not_corrupt() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..100).unwrap();
    let (_, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    rig.executor.run_until_idle();
    let mut part = tickets[0].wait(Duration::ZERO).unwrap().to_bytes();
    make_newer(&mut part);
    assert_eq!(CheckpointPart::from_bytes(&part).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut claim = rig.coordinator.as_ref().unwrap().claimed().to_bytes();
    make_newer(&mut claim);
    assert_eq!(Claim::from_bytes(&claim).unwrap_err().kind(), ErrorKind::Unsupported);
    let entry = rig.objects.list("log/").unwrap().pop().unwrap().name;
    let mut newer = rig.objects.get(&entry).unwrap().to_vec();
    make_newer(&mut newer);
    rig.objects.put(&entry, newer.into(), PutMode::Overwrite).unwrap();
    rig.kill();
    let error = rig.start(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(&entry), "{error}");
}

/// A live holder is named; the lock of a process that was killed is no obstacle.
#[test]
fn a_live_lock_names_its_holder_and_a_stale_one_opens() {
    if let Some(directory) = std::env::var_os("HIGHWATER_TEST_HOLD") {
        let _env = Environment::builder(directory).memory_bytes(16 << 20).open().unwrap();
        println!("held");
        loop {
            std::thread::park();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_live_lock_names_its_holder_and_a_stale_one_opens", "--exact", "--nocapture"])
        .env("HIGHWATER_TEST_HOLD", directory.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    while !lines.next().expect("the child holds the lock").unwrap().contains("held") {}
    let open = || Environment::builder(directory.path()).memory_bytes(16 << 20).open();
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    assert!(error.to_string().contains(&child.id().to_string()), "{error} names {}", child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    let env = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Locked);
    drop(env);
    open().unwrap();
}

/// No new file can be made: opening, flushing and checkpointing say why, what is there stays readable, and writes
/// resume. (Rights don't stop a privileged user, so the seam says no.)
#[test]
fn a_directory_that_takes_no_files_fails_writes_with_a_reason_and_keeps_the_state() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..300).unwrap();
    rig.incremental().unwrap();
    rig.file_faults.set(|call| {
        matches!(call.operation, "create" | "create_directory" | "rename").then_some(Fault::ErrorBefore(ErrorKind::Io))
    });
    rig.write_all(300..350).unwrap();
    rig.check().unwrap();
    rig.work();
    let stats = rig.tasks[0].backend.stats();
    assert!(stats.flush_error.unwrap().to_string().contains("injected"));
    let other = rig.directory.path().join("not made");
    let files = Arc::new(highwater::io::faulty::FaultyFiles::new(
        Arc::new(highwater::io::local_files::LocalFiles::new()),
        rig.file_faults.clone(),
    ));
    let error = Environment::builder(&other).files(files).open().unwrap_err();
    assert!(error.to_string().contains("not made"), "{error}");
    // Looking at the checkpoint needs no directory at all.
    let last = rig.env().completed_checkpoints().unwrap().pop().unwrap();
    assert!(inspect::verify::verify(&rig.env().log(), rig.env().other_roots()).unwrap().bad.is_empty());
    rig.file_faults.set(|_| None);
    rig.work();
    rig.incremental().unwrap();
    rig.check().unwrap();
    assert_ne!(rig.env().latest_checkpoint().unwrap().unwrap().id(), last.id());
}

/// Working directory and root at odd paths, relative ones and links among them: a job that is restored finds its own.
#[test]
fn paths_with_spaces_percents_umlauts_dots_and_links_work_and_stay_inside() {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("real")).unwrap();
    std::os::unix::fs::symlink(base.path().join("real"), base.path().join("link")).unwrap();
    let operator = Operator::new("../ü %20", 16);
    for odd in ["a b", "%20", "ü", "x/../y", "./z", "link/inner"] {
        let root = base.path().join(odd);
        let round_trip = |work: &Path, expected: Option<u32>| {
            let url = root.display().to_string();
            let env = Environment::builder(work).memory_bytes(16 << 20).store(url).open().unwrap();
            let last = env.latest_checkpoint().unwrap();
            let mut coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
            let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, last.as_ref()).unwrap();
            let state = b.value_state::<String, u32>(odd).unwrap();
            assert_eq!(state.get(&mut b, "k").unwrap(), expected, "{odd}");
            state.put(&mut b, "k", 7).unwrap();
            let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
            coordinator.add(ticket.wait(Duration::from_secs(60)).unwrap()).unwrap().unwrap();
        };
        if let Some(parent) = root.parent() {
            std::fs::create_dir_all(base.path().join("x")).unwrap();
            std::fs::create_dir_all(parent).unwrap();
        }
        round_trip(&base.path().join(format!("work {}", odd.len())).join(odd.replace('/', "-")), None);
        round_trip(&base.path().join("work again").join(odd.replace('/', "-")), Some(7));
    }
    let outside: Vec<_> = std::fs::read_dir(base.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(outside.iter().all(|name| !name.to_string_lossy().contains("~")), "an operator escaped: {outside:?}");
}

/// Sixty-four file descriptors and a cache of one byte: slower, correct.
#[test]
fn few_file_descriptors_are_enough() {
    const ROLE: &str = "HIGHWATER_TEST_FEW";
    if std::env::var_os(ROLE).is_none() {
        let this = std::env::current_exe().unwrap();
        let run = "ulimit -n 64; exec \"$0\" few_file_descriptors_are_enough --exact --test-threads=1";
        let output = std::process::Command::new("sh").arg("-c").arg(run).arg(this).env(ROLE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let mut rig = Rig::new(Tuning { level_base_bytes: 4096, segment_bytes: 1024, ..tiny() });
    let mut views = Vec::new();
    for parallelism in [4, 2] {
        rig.eager = true;
        rig.start(parallelism).unwrap();
        rig.check().unwrap();
        for round in 0..15_u64 {
            let from = u64::from(parallelism) * 10_000 + round * 50;
            rig.write_all(from..from + 50).unwrap();
            for n in 0..200 {
                rig.put(1000 + round as u32 * 200 + n, vec![n as u8; 50]).unwrap();
            }
            rig.work();
            views.extend(rig.tasks.iter_mut().map(|task| task.backend.read_view().unwrap()));
        }
        rig.incremental().unwrap();
        let segments: usize = rig.tasks.iter().map(|task| task.backend.stats().segments).sum();
        assert!(parallelism == 2 || segments > 64, "{segments} segments: too few to tell");
        rig.check().unwrap();
        views.clear();
        rig.kill();
    }
}

/// Held for hours: the files of a view and of a cursor stay, are reported, and go afterwards.
#[test]
fn a_cursor_held_long_pins_its_files_and_they_are_reported() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    for n in 0..300 {
        rig.put_entry(1, n, 1).unwrap();
    }
    rig.incremental().unwrap();
    rig.kill();
    rig.eager = true;
    rig.start(1).unwrap();
    let task = &mut rig.tasks[0];
    let mut cursor = task.entries.cursor(&mut task.backend, &1, Direction::Forward).unwrap();
    let view = task.backend.read_view().unwrap();
    let then = rig.model.clone();
    assert_eq!(rig.env().stats().disk_pinned_bytes, 0);
    for round in 0..10 {
        for n in 0..300 {
            rig.put_entry(1, n, round).unwrap();
        }
        drop(rig.tasks[0].backend.read_view().unwrap());
        rig.work();
    }
    let pinned = rig.env().stats().disk_pinned_bytes;
    assert!(pinned > 0, "what the cursor reads should be reported");
    assert_eq!(rig.tasks[0].backend.stats().memory.open_views, 1);
    for n in 0..300 {
        assert_eq!(cursor.next(&mut rig.tasks[0].backend).unwrap(), Some((n, 1)));
    }
    assert_eq!(rig.tasks[0].read(&view).unwrap(), then);
    cursor.close(&mut rig.tasks[0].backend);
    drop(view);
    rig.work();
    rig.work();
    assert_eq!(rig.env().stats().disk_pinned_bytes, 0);
    rig.check().unwrap();
    let on_disk = std::fs::read_dir(rig.directory.path().join("job-0")).unwrap().count();
    assert_eq!(on_disk, rig.tasks[0].backend.stats().segments, "files without a use stay behind");
}

#[test]
fn a_hash_below_zero_has_a_group_and_every_group_has_a_subtask() {
    use highwater::base::key_group::{key_group_of, subtask_of};
    for max in [1, 3, 7, 128, 32_768] {
        for key in [i32::MIN, -1, 0, 1, i32::MAX] {
            let group = key_group_of(&key.to_le_bytes(), max);
            assert!(u32::from(group) < max);
            for parallelism in [1, 3].into_iter().filter(|p| *p <= max) {
                assert!(subtask_of(group, parallelism, max) < parallelism);
            }
        }
    }
    let world = World::new(tiny());
    let mut b = single(&world);
    let state = b.value_state::<i32, i32>("signed").unwrap();
    for key in [i32::MIN, -1, 0, 1, i32::MAX] {
        state.put(&mut b, &key, key).unwrap();
        assert_eq!(state.get(&mut b, &key).unwrap(), Some(key));
    }
}
