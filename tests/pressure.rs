//! Storage that hangs, fails, fills up or is slow: memory stays bounded, the owner is slowed down, then told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::rig::{Rig, mix};
use highwater::base::clock::{Clock, SystemClock};
use highwater::base::executor::{StepExecutor, ThreadPool};
use highwater::base::random::SeededRandom;
use highwater::io::faulty::{Fault, Faults, FaultyFiles, FaultyStore};
use highwater::io::local_files::LocalFiles;
use highwater::*;

const MIB: u64 = 1 << 20;

/// Waits on the system's clock until `done`; gives up after two minutes.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..120_000 {
        if done() {
            return;
        }
        SystemClock.sleep(Duration::from_millis(1));
    }
    panic!("{what} didn't come about");
}

/// A store whose uploads hang, on real threads: writes and checkpoints go on for many epochs within the memory
/// budget, each hung checkpoint can be given up, and once the store is back the next one restores exactly.
#[test]
fn a_hung_store_costs_disk_but_no_memory_and_the_next_checkpoint_works() {
    let directory = tempfile::tempdir().unwrap();
    let objects = Arc::new(common::MemoryStore::default());
    let faults = Faults::when(|_| None);
    let open = |faults: &Arc<Faults>, folder: &str| {
        Environment::builder(directory.path().join(folder))
            .memory_bytes(16 * MIB)
            .store_with(Arc::new(FaultyStore::new(objects.clone(), faults.clone())))
            .checkpoints(CoordinatorSettings { tolerated_failures: None, ..CoordinatorSettings::default() })
            .open()
            .unwrap()
    };
    let env = open(&faults, "a");
    let operator = Operator::new("op", 16);
    let mut coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
    let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
    let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
    let mut model = BTreeMap::new();
    faults.set(|call| call.operation.starts_with("put").then_some(Fault::Hang));
    let mut given_up: Vec<Ticket> = Vec::new();
    for id in 1..=12_u64 {
        for n in 0..4000_u32 {
            let (key, value) = (mix(id * 10_000 + u64::from(n)) as u32 % 60_000, vec![id as u8; 200]);
            put_in_time(&mut b, state, key, &value);
            model.insert(key, value);
        }
        coordinator.begin(id).unwrap();
        let ticket = b.checkpoint(id, CheckpointKind::Incremental, b"").unwrap();
        let stats = env.stats();
        assert!(stats.memory_used_bytes <= stats.memory_limit_bytes / 10 * 11, "{stats:?}");
        let waited = ticket.wait(Duration::from_millis(5)).unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::Timeout);
        // The first is given up in the middle of its upload, others wherever they are.
        for _ in 0..60_000 {
            if faults.hanging() > 0 {
                break;
            }
            SystemClock.sleep(Duration::from_millis(1));
        }
        coordinator.abort(id).unwrap();
        b.abort(id).unwrap();
        assert_eq!(ticket.wait(Duration::ZERO).unwrap_err().kind(), ErrorKind::Aborted);
        given_up.push(ticket);
    }
    assert!(faults.hanging() > 0);
    faults.set(|_| None);
    faults.release();
    coordinator.begin(20).unwrap();
    let ticket = b.checkpoint(20, CheckpointKind::Incremental, b"").unwrap();
    let part = ticket.wait(Duration::from_secs(120)).unwrap();
    coordinator.add(part).unwrap().unwrap();
    drop(b);
    drop((env, coordinator));
    let env = open(&faults, "b");
    let last = env.latest_checkpoint().unwrap();
    assert_eq!(last.as_ref().unwrap().id().id, 20);
    let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, last.as_ref()).unwrap();
    let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
    let view = b.read_view().unwrap();
    let mut found = BTreeMap::new();
    let insert = |k, (), v| {
        found.insert(k, v);
        Ok(())
    };
    state.for_each(&view, b.key_groups(), insert).unwrap();
    assert!(found == model, "{} of {} rows came back, or others", found.len(), model.len());
}

/// A put that waits out backpressure on the system's clock, as a host does.
fn put_in_time(b: &mut Backend, state: ValueState<u32, Vec<u8>>, key: u32, value: &Vec<u8>) {
    for _ in 0..60_000 {
        match state.put(b, &key, value) {
            Err(error) if error.kind() == ErrorKind::Backpressure => SystemClock.sleep(Duration::from_millis(1)),
            other => return other.unwrap(),
        }
    }
    panic!("a minute of backpressure");
}

/// A value that needs a page of its own is taken while the budget is full of free pages of the usual size: those of the backend itself
/// are given back. Neighbours whose owners do nothing meanwhile hold the rest.
#[test]
fn a_value_larger_than_a_page_is_not_refused_for_ever_while_free_pages_fill_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let env = Environment::builder(directory.path()).memory_bytes(16 * MIB).store("memory:///").open().unwrap();
    let operator = Operator::new("op", 16);
    let mut backends: Vec<_> =
        (0..4).map(|index| env.backend(&operator, Subtask { index, parallelism: 4 }, None).unwrap()).collect();
    for b in &mut backends {
        let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
        let ours: Vec<u32> =
            (0..40_000).filter(|key: &u32| b.key_groups().contains(b.key_group_of(&key.to_be_bytes()))).collect();
        for key in &ours {
            put_in_time(b, state, *key, &vec![1; 1000]);
        }
    }
    let b = backends.last_mut().unwrap();
    let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
    let key = (0..).find(|key: &u32| b.key_groups().contains(b.key_group_of(&key.to_be_bytes()))).unwrap();
    for length in [66_000, 200_000, 500_000] {
        put_in_time(b, state, key, &vec![2; length]);
        assert_eq!(state.get(b, &key).unwrap().unwrap().len(), length);
    }
}

/// Makes a write that may have to wait for background work, all of which is done in between, but for nobody else.
fn go_on(executor: &StepExecutor, mut write: impl FnMut() -> Result<()>) {
    for _ in 0..200 {
        match write() {
            Err(error) if error.kind() == ErrorKind::Backpressure => executor.run_until_idle(),
            other => return other.unwrap(),
        }
    }
    panic!("refused 200 times with no background work left");
}

/// Backends that were opened one after the other, wrote and went idle hold more memory than there is for so many, and give
/// nothing back, since nobody calls them. One more goes on all the same, with small and large values and with calls that
/// are admitted as a whole. When the others are called again, they give back what is over their share.
#[test]
fn a_backend_goes_on_while_idle_neighbours_hold_all_the_memory() {
    let (directory, executor) = (tempfile::tempdir().unwrap(), Arc::new(StepExecutor::new()));
    let env = Environment::builder(directory.path())
        .memory_bytes(16 * MIB)
        .store_with(Arc::new(common::MemoryStore::default()))
        .clock(Arc::new(SleepClock::default()))
        .executors(executor.clone(), executor.clone())
        .open()
        .unwrap();
    let operator = Operator::new("op", 64);
    let open = |index| {
        let b = env.backend(&operator, Subtask { index, parallelism: 17 }, None).unwrap();
        let keys: Vec<u32> =
            (0..200_000).filter(|key: &u32| b.key_groups().contains(b.key_group_of(&key.to_be_bytes()))).collect();
        (b, keys)
    };
    let mut idle = Vec::new();
    for index in 0..16 {
        let (mut b, keys) = open(index);
        let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
        for key in keys.iter().take(if index == 0 { 10_000 } else { 500 }) {
            go_on(&executor, || state.put(&mut b, key, vec![1; 1000]));
        }
        let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
        executor.run_until_idle();
        ticket.wait(Duration::ZERO).unwrap();
        idle.push(b);
    }
    let stats = env.stats();
    assert!(stats.memory_used_bytes > stats.memory_limit_bytes / 20 * 19, "memory is held: {stats:?}");
    let (mut b, keys) = open(16);
    let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
    let list = b.list_state::<u32, Vec<u8>>("list").unwrap();
    let length = |n: usize| if n.is_multiple_of(500) { 300_000 } else { 1000 };
    for (n, key) in keys.iter().take(3000).enumerate() {
        go_on(&executor, || state.put(&mut b, key, vec![n as u8; length(n)]));
        go_on(&executor, || list.add(&mut b, &keys[n % 7], vec![n as u8; 100]));
        let stats = env.stats();
        assert!(stats.memory_used_bytes <= 24 * MIB, "a floor for each, no more: {stats:?}");
    }
    for (n, key) in keys.iter().take(3000).enumerate() {
        assert!(state.get(&mut b, key).unwrap().unwrap() == vec![n as u8; length(n)]);
    }
    assert_eq!((0..7).map(|n| list.get(&mut b, &keys[n]).unwrap().len()).sum::<usize>(), 3000);
    for _ in 0..12 {
        idle.iter_mut().for_each(|b| b.confirm(1).unwrap());
        executor.run_until_idle();
    }
    let held: Vec<u64> = idle.iter().map(|b| b.stats().memory).map(|m| m.clean_bytes + m.pooled_bytes).collect();
    assert!(held.iter().all(|held| *held <= 16 * MIB * 65 / 100 / 17 + (128 << 10)), "{held:?}");
}

/// One upload that hangs for good doesn't keep the next checkpoint from being made once its own has been given up.
#[test]
fn a_checkpoint_takes_over_the_upload_in_which_a_given_up_one_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let objects = Arc::new(common::MemoryStore::default());
    let seen = AtomicU64::new(0);
    let faults = Faults::when(move |call| {
        (call.operation == "put_stream" && seen.fetch_add(1, SeqCst) == 0).then_some(Fault::Hang)
    });
    let env = Environment::builder(directory.path())
        .memory_bytes(16 * MIB)
        .store_with(Arc::new(FaultyStore::new(objects, faults.clone())))
        .open()
        .unwrap();
    let operator = Operator::new("op", 16);
    let mut coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
    let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
    let state = b.value_state::<u32, u32>("values").unwrap();
    state.put(&mut b, &1, 1).unwrap();
    coordinator.begin(1).unwrap();
    let first = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
    wait_for("the hang", || faults.hanging() == 1);
    coordinator.abort(1).unwrap();
    b.abort(1).unwrap();
    coordinator.begin(2).unwrap();
    let second = b.checkpoint(2, CheckpointKind::Incremental, b"").unwrap();
    let part = second.wait(Duration::from_secs(60)).unwrap();
    assert_eq!(coordinator.add(part).unwrap().unwrap().id().id, 2);
    assert_eq!((faults.hanging(), first.wait(Duration::ZERO).unwrap_err().kind()), (1, ErrorKind::Aborted));
    faults.release();
}

/// A clock that counts its sleeps.
#[derive(Debug, Default)]
struct SleepClock {
    sleeps: AtomicU64,
    longest_ns: AtomicU64,
    slept_ns: AtomicU64,
}

impl Clock for SleepClock {
    fn now_ms(&self) -> i64 {
        0
    }

    fn monotonic_ns(&self) -> u64 {
        self.slept_ns.load(SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        let ns = duration.as_nanos() as u64;
        self.sleeps.fetch_add(1, SeqCst);
        self.longest_ns.fetch_max(ns, SeqCst);
        self.slept_ns.fetch_add(ns, SeqCst);
    }
}

/// A disk that takes nothing: first no delay, then delays that grow and stay within a millisecond a write, then
/// refusals with nothing applied, while reads and checkpoints go on. It comes back: everything resumes.
#[test]
fn a_full_disk_slows_writes_then_refuses_them_whole_and_they_resume() {
    let directory = tempfile::tempdir().unwrap();
    let (clock, executor) = (Arc::new(SleepClock::default()), Arc::new(StepExecutor::new()));
    let faults = Faults::when(|_| None);
    let env = Environment::builder(directory.path())
        .memory_bytes(16 * MIB)
        .store_with(Arc::new(common::MemoryStore::default()))
        .files(Arc::new(FaultyFiles::new(Arc::new(LocalFiles::new()), faults.clone())))
        .clock(clock.clone())
        .random(Arc::new(SeededRandom::new(1)))
        .executors(executor.clone(), executor.clone())
        .open()
        .unwrap();
    let operator = Operator::new("op", 16);
    let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
    let map = b.map_state::<u32, u32, Vec<u8>>("map").unwrap();
    let list = b.list_state::<u32, Vec<u8>>("list").unwrap();
    faults.set(|c| {
        matches!(c.operation, "append" | "create").then_some(Fault::ErrorBefore(ErrorKind::ResourceExhausted))
    });
    let (mut model, mut appended) = (BTreeMap::new(), 0_usize);
    let (mut delayed, mut refused, mut last_delay) = (0, 0, 0);
    for n in 0..120_000_u32 {
        let (key, user_key) = (n % 50, mix(n.into()) as u32 % 3000);
        let before = (clock.sleeps.load(SeqCst), clock.slept_ns.load(SeqCst));
        let written = map.put(&mut b, &key, &user_key, vec![n as u8; 100]);
        let (sleeps, slept) = (clock.sleeps.load(SeqCst) - before.0, clock.slept_ns.load(SeqCst) - before.1);
        assert!(sleeps <= 1 && slept <= 1_000_000, "one write slept {sleeps} times, {slept} ns");
        match written {
            Ok(()) => {
                assert!(refused == 0 || n % 7 == 0, "refused, then admitted with nothing freed");
                model.insert((key, user_key), vec![n as u8; 100]);
                delayed += u32::from(slept > 0);
                assert!(slept + 300_000 >= last_delay, "delays grow steadily");
                last_delay = slept;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Backpressure, "{error}");
                assert!(error.to_string().contains("injected"), "{error} gives the reason");
                refused += 1;
            }
        }
        if list.add(&mut b, &1, vec![1; 50]).is_ok() {
            appended += 1;
        }
        if n % 64 == 0 {
            executor.run_until_idle();
        }
        if refused > 200 {
            break;
        }
    }
    assert!(delayed > 0 && refused > 200, "{delayed} delayed, {refused} refused");
    let stats = env.stats();
    assert!(stats.memory_used_bytes <= stats.memory_limit_bytes / 10 * 11, "{stats:?}");
    let check = |b: &mut Backend| {
        for ((key, user_key), value) in &model {
            assert_eq!(map.get(b, key, user_key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(list.iter(b, &1).unwrap().map(Result::unwrap).count(), appended);
    };
    check(&mut b);
    let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
    assert_eq!(map.clear(&mut b, &1).unwrap_err().kind(), ErrorKind::Backpressure);
    assert_eq!(map.remove(&mut b, &1, &1).unwrap_err().kind(), ErrorKind::Backpressure);
    faults.set(|_| None);
    for _ in 0..4 {
        b.poll().unwrap();
        executor.run_until_idle();
    }
    ticket.wait(Duration::ZERO).unwrap();
    check(&mut b);
    for n in 0..5000 {
        map.put(&mut b, &100, &n, vec![0; 100]).unwrap();
    }
    assert_eq!(b.stats().waiting_epochs, 0);
}

/// A disk budget that is too small for the state while the store is away: writes are refused with that as the reason,
/// and what was written can be read.
#[test]
fn a_disk_budget_that_is_used_up_is_the_reason_given() {
    let mut rig = Rig::new(Tuning::for_memory(16 * MIB));
    rig.disk_bytes = 4 * MIB;
    rig.start(1).unwrap();
    rig.store_faults
        .set(|call| call.operation.starts_with("put").then_some(Fault::ErrorBefore(ErrorKind::Unavailable)));
    let mut reason = None;
    for key in 0..200_000 {
        let task = rig.task_of(key);
        let value = vec![key as u8; 200];
        if let Err(error) = task.values.put(&mut task.backend, &key, &value) {
            rig.executor.run_until_idle();
            reason = Some(error);
            if rig.tasks[0].backend.stats().flush_error.is_some() {
                break;
            }
            continue;
        }
        rig.model.values.insert(key, value);
        if key % 1000 == 0 {
            rig.executor.run_until_idle();
        }
    }
    let task = &mut rig.tasks[0];
    let error = task.values.put(&mut task.backend, &0, vec![]).err().or(reason).expect("refused at last");
    assert_eq!(error.kind(), ErrorKind::Backpressure);
    let why = rig.tasks[0].backend.stats().flush_error.unwrap();
    assert_eq!(why.kind(), ErrorKind::ResourceExhausted);
    assert!(why.to_string().contains("local disk budget of 4194304 bytes"), "{why}");
    let stats = rig.env().stats();
    assert!(stats.disk_used_bytes <= stats.disk_limit_bytes, "{stats:?}");
    assert_eq!(rig.read_all().unwrap().values.len(), rig.model.values.len());
    // On disk there is no more than was counted.
    let files = std::fs::read_dir(rig.directory.path().join("job-0")).unwrap();
    let on_disk: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk <= stats.disk_used_bytes, "{on_disk} bytes on disk, {} counted", stats.disk_used_bytes);
}

/// Opening and closing the backend again and again in one process costs the disk budget nothing.
#[test]
fn a_reopened_backend_counts_its_local_files_once() {
    let mut rig = Rig::new(common::tiny());
    rig.start(1).unwrap();
    rig.write_all(0..500).unwrap();
    rig.work();
    rig.incremental().unwrap();
    let mut used = None;
    for _ in 0..5 {
        rig.tasks.clear();
        rig.coordinator = None;
        rig.executor.run_until_idle();
        let last = rig.env().latest_checkpoint().unwrap();
        rig.start_from(1, last.as_ref()).unwrap();
        rig.executor.run_until_idle();
        rig.check().unwrap();
        let now = rig.env().stats().disk_used_bytes;
        assert!(now > 0 && now <= *used.get_or_insert(now), "{now} bytes, {used:?} before");
    }
}

/// Ten times the memory for pages, on stepped and on real threads: everything is readable, memory was evicted,
/// and the budget held at every step.
#[test]
fn two_hundred_thousand_keys_in_sixteen_mebibytes() {
    let step = Arc::new(StepExecutor::new());
    for threads in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut builder = Environment::builder(directory.path()).memory_bytes(16 * MIB).store("memory:///");
        if threads {
            let pool = || Arc::new(ThreadPool::start("test", 2).unwrap());
            builder = builder.executors(pool(), pool());
        } else {
            builder = builder.executors(step.clone(), step.clone());
        }
        let env = builder.open().unwrap();
        let operator = Operator::new("op", 16);
        let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
        let state = b.value_state::<u32, Vec<u8>>("values").unwrap();
        let value = |key: u32| [&key.to_le_bytes()[..], &[key as u8; 96]].concat();
        let mut most = 0;
        for key in 0..200_000_u32 {
            if threads {
                put_in_time(&mut b, state, key, &value(key));
            } else {
                let put = state.put(&mut b, &key, value(key));
                if put.is_err() || key % 500 == 0 {
                    step.run_until_idle();
                    b.poll().unwrap();
                }
                put.or_else(|_| state.put(&mut b, &key, value(key))).unwrap();
            }
            if key % 100 == 0 {
                most = most.max(env.stats().memory_used_bytes);
            }
        }
        assert!(most <= 16 * MIB / 10 * 11, "{most} bytes of budget at the height");
        let stats = b.stats();
        assert!(stats.memory.single_keys < 150_000, "{} keys in memory: nothing was evicted", stats.memory.single_keys);
        for key in (0..200_000_u32).step_by(7) {
            assert!(state.get(&mut b, &key).unwrap() == Some(value(key)), "key {key}");
        }
        assert!(env.stats().memory_used_bytes <= 16 * MIB / 10 * 11);
        assert!(state.get(&mut b, &200_000).unwrap().is_none());
    }
}
