//! One history, with every single call on files and store failing once, before or after it took effect, and with
//! every stretch of calls failing: no panic, no wrong answer, and once things work again a checkpoint completes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::rig::Rig;
use common::tiny;
use std::collections::BTreeMap;
use std::sync::Arc;

use highwater::io::faulty::{Call, Fault, Faults};
use highwater::*;
use parking_lot::Mutex;

/// Sizes at which the script makes a few hundred calls and still reaches every part.
fn rig() -> Rig {
    Rig::new(Tuning { block_bytes: 1024, segment_bytes: 4096, level_base_bytes: 8192, ..tiny() })
}

/// Writes, checkpoints, compactions, two restores, rescaling and garbage collection. Goes on after each failure as an
/// operator would: it retries what may be retried, and starts again from the newest checkpoint when a step fails.
fn script(rig: &mut Rig) -> Result<()> {
    rig.start(2)?;
    rig.write_all(0..250)?;
    tolerate(rig.incremental())?;
    rig.write_all(250..600)?;
    rig.executor.run_until_idle();
    tolerate(rig.incremental())?;
    rig.check()?;
    rig.collect().map(drop)?;
    rig.kill();
    rig.start(3)?;
    rig.check()?;
    rig.write_all(600..800)?;
    tolerate(rig.incremental())?;
    tolerate(rig.checkpoint(CheckpointKind::Full))?;
    rig.collect().map(drop)?;
    rig.kill_and_lose_directory();
    rig.eager = true;
    rig.start(1)?;
    rig.write_all(800..900)?;
    tolerate(rig.incremental())?;
    rig.check()
}

/// A checkpoint may fail, the job goes on; anything else about it that is wrong is not put up with.
fn tolerate(outcome: Result<CompletedCheckpoint>) -> Result<()> {
    match outcome {
        Err(error) if !is_injected(&error) => panic!("a checkpoint failed with {error}"),
        _ => Ok(()),
    }
}

fn is_injected(error: &Error) -> bool {
    error.to_string().contains("injected") || error.kind() == ErrorKind::Aborted || error.kind() == ErrorKind::Timeout
}

/// Runs the script under faults, then without, and checks that all is well in the end.
fn run(what: &str, arm: impl Fn(&Rig)) {
    let mut rig = rig();
    arm(&rig);
    if let Err(error) = script(&mut rig) {
        assert!(is_injected(&error) || error.kind() == ErrorKind::Backpressure, "{what}: {error}");
    }
    rig.file_faults.set(|_| None);
    rig.store_faults.set(|_| None);
    let recover = |rig: &mut Rig| -> Result<()> {
        // A file that only this machine had and that couldn't be read has stopped its backend: then a restart it is.
        let stopped = |error: Error| error.kind() == ErrorKind::Poisoned && is_injected(&error);
        if rig.tasks.iter_mut().any(|task| task.backend.poll().is_err_and(stopped)) {
            rig.kill();
        }
        if rig.tasks.is_empty() {
            rig.kill();
            rig.start(2)?;
        }
        rig.check()?;
        rig.write_all(1000..1100)?;
        let completed = rig.incremental()?;
        rig.check()?;
        let frozen = rig.model.clone();
        rig.kill();
        rig.start(3)?;
        assert_eq!(rig.env().latest_checkpoint()?.map(|last| last.id()), Some(completed.id()));
        assert_eq!(rig.model, frozen);
        rig.check()?;
        rig.collect().map(drop)?;
        rig.kill_and_lose_directory();
        rig.start(1)?;
        rig.check()
    };
    recover(&mut rig).unwrap_or_else(|error| panic!("{what}: not well again: {error}"));
    let stats = rig.env().stats();
    rig.kill();
    assert!(stats.memory_used_bytes <= stats.memory_limit_bytes, "{what}: {stats:?}");
}

/// The operation of every call that the script makes without any fault.
fn operations(of: impl Fn(&Rig) -> &Faults) -> Vec<&'static str> {
    let mut rig = rig();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    of(&rig).set(move |call| {
        log.lock().push(call.operation);
        None
    });
    script(&mut rig).unwrap();
    rig.kill();
    std::mem::take(&mut *seen.lock())
}

/// Of each kind of call up to `most`, evenly spread, so that rare ones get their turn too.
fn picked(operations: &[&'static str], most: usize) -> Vec<u64> {
    let mut by_kind = BTreeMap::<_, Vec<u64>>::new();
    for (index, operation) in operations.iter().enumerate() {
        by_kind.entry(operation).or_default().push(index as u64);
    }
    let spread = |calls: Vec<u64>| {
        let few = calls.len().min(most);
        (0..few).map(move |i| calls[i * calls.len() / few]).collect::<Vec<_>>()
    };
    by_kind.into_values().flat_map(spread).collect()
}

fn nth(n: u64, length: u64, fault: Fault) -> impl FnMut(&Call<'_>) -> Option<Fault> + Send + 'static {
    move |call| (n..n + length).contains(&call.index).then_some(fault)
}

const STORE_FAULTS: [Fault; 4] = [
    Fault::ErrorBefore(ErrorKind::Unavailable),
    Fault::ErrorAfter(ErrorKind::Unavailable),
    Fault::ErrorBefore(ErrorKind::Io),
    Fault::ErrorAfter(ErrorKind::Io),
];
const FILE_FAULTS: [Fault; 3] = [
    Fault::ErrorBefore(ErrorKind::Io),
    Fault::ErrorAfter(ErrorKind::Io),
    Fault::ErrorBefore(ErrorKind::ResourceExhausted),
];

#[test]
fn any_store_call_that_fails_once_leaves_a_job_that_recovers() {
    let operations = operations(|rig| &rig.store_faults);
    for kind in ["put", "put_stream", "get", "get_range", "list", "delete"] {
        assert!(operations.contains(&kind), "the script makes no {kind}");
    }
    for n in picked(&operations, 7) {
        for fault in STORE_FAULTS {
            let what = format!("store call {n}, {}, {fault:?}", operations[n as usize]);
            run(&what, |rig| rig.store_faults.set(nth(n, 1, fault)));
        }
    }
}

#[test]
fn any_file_call_that_fails_once_leaves_a_job_that_recovers() {
    let operations = operations(|rig| &rig.file_faults);
    for kind in ["create", "append", "finish", "open", "read_at", "rename", "remove", "list", "lock"] {
        assert!(operations.contains(&kind), "the script makes no {kind}");
    }
    for n in picked(&operations, 5) {
        for fault in FILE_FAULTS {
            let what = format!("file call {n}, {}, {fault:?}", operations[n as usize]);
            run(&what, |rig| rig.file_faults.set(nth(n, 1, fault)));
        }
    }
}

#[test]
fn seams_that_fail_for_a_while_leave_a_job_that_recovers() {
    let store = operations(|rig| &rig.store_faults).len() as u64;
    for n in (0..store).step_by(store as usize / 9) {
        for fault in [STORE_FAULTS[0], STORE_FAULTS[3]] {
            run(&format!("store calls from {n}, {fault:?}"), |rig| rig.store_faults.set(nth(n, store / 9, fault)));
        }
    }
    let files = operations(|rig| &rig.file_faults).len() as u64;
    for n in (0..files).step_by(files as usize / 9) {
        for fault in [FILE_FAULTS[1], FILE_FAULTS[2]] {
            run(&format!("file calls from {n}, {fault:?}"), |rig| rig.file_faults.set(nth(n, files / 9, fault)));
        }
    }
}

/// Everything fails for ever: the owner is told, and nothing hangs.
#[test]
fn a_dead_store_and_a_dead_disk_are_reported_and_nothing_hangs() {
    let mut rig = Rig::new(tiny());
    rig.start(2).unwrap();
    rig.write_all(0..100).unwrap();
    rig.store_faults.set(|_| Some(Fault::ErrorBefore(ErrorKind::Unavailable)));
    let error = rig.incremental().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    rig.file_faults.set(|_| Some(Fault::ErrorBefore(ErrorKind::ResourceExhausted)));
    rig.write_all(100..200).unwrap();
    let (id, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    rig.executor.run_until_idle();
    for (ticket, task) in tickets.iter().zip(&rig.tasks) {
        assert_eq!(ticket.wait(std::time::Duration::ZERO).unwrap_err().kind(), ErrorKind::Timeout);
        let stats = task.backend.stats();
        assert_eq!(stats.flush_error.unwrap().kind(), ErrorKind::ResourceExhausted);
        assert_eq!((stats.waiting_epochs, stats.checkpoints), (1, 1));
    }
    rig.abort(id).unwrap();
    assert!(tickets.iter().all(|t| t.wait(std::time::Duration::ZERO).unwrap_err().kind() == ErrorKind::Aborted));
    // What is in memory is read without the disk.
    for (key, value) in rig.model.values.clone() {
        let task = rig.task_of(key);
        assert_eq!(task.values.get(&mut task.backend, &key).unwrap(), Some(value));
    }
    // Both come back: polling is enough to have the failed flush tried again.
    rig.store_faults.set(|_| None);
    rig.file_faults.set(|_| None);
    rig.work();
    rig.executor.run_until_idle();
    assert!(rig.tasks.iter().all(|task| task.backend.stats().waiting_epochs == 0));
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// A drop in any state of the background work.
#[test]
fn dropping_with_work_in_flight_ends_tickets_and_releases_the_directory() {
    for steps in 0..40 {
        let mut rig = Rig::new(tiny());
        rig.start(2).unwrap();
        rig.write_all(0..300).unwrap();
        let (_, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
        let view = rig.tasks[0].backend.read_view().unwrap();
        let cursor = {
            let task = &mut rig.tasks[0];
            let key = (0..8).find(|k| task.entries.is_empty(&mut task.backend, k).is_ok()).unwrap();
            task.entries.cursor(&mut task.backend, &key, highwater::base::cursor::Direction::Forward).unwrap()
        };
        for step in 0..steps {
            rig.executor.step(step);
        }
        match steps % 3 {
            0 => rig.env = None,
            1 => rig.coordinator = None,
            _ => drop(view),
        }
        rig.tasks.clear();
        for ticket in tickets {
            let outcome = ticket.wait(std::time::Duration::ZERO);
            assert!(outcome.is_ok() || outcome.unwrap_err().kind() == ErrorKind::Closed);
        }
        rig.executor.run_until_idle();
        drop(cursor);
        rig.kill();
        rig.start(1).unwrap();
    }
}

/// On threads and inside an async runtime: dropped there, awaited there, neither panics nor hangs.
#[test]
fn dropping_inside_a_tokio_runtime_neither_panics_nor_hangs() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for round in 0..6_u64 {
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let env = Environment::builder(directory.path()).memory_bytes(16 << 20).tuning(tiny()).open().unwrap();
            let operator = Operator::new("job", 128);
            let mut coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
            let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
            let values = b.value_state::<u64, u64>("values").unwrap();
            (0..2000).for_each(|i| values.put(&mut b, &i, i).unwrap());
            let first = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
            let part = first.await.unwrap();
            assert_eq!(coordinator.add(part).unwrap().unwrap().id().id, 1);
            (0..2000).for_each(|i| values.put(&mut b, &i, i + 1).unwrap());
            let second = b.checkpoint(2, CheckpointKind::Incremental, b"").unwrap();
            let waiting = tokio::spawn(second);
            match round % 3 {
                0 => drop(b),
                1 => drop(env),
                _ => b.close(std::time::Duration::from_secs(60)).unwrap(),
            }
            let outcome = waiting.await.unwrap();
            match round % 3 {
                0 => assert!(outcome.is_ok() || outcome.unwrap_err().kind() == ErrorKind::Closed),
                _ => drop(outcome.unwrap()),
            }
        });
    }
}
