//! Reads of many keys at a time, with threads that help: the answers of single reads, whatever finishes first.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use highwater::*;

const SMALL: u64 = 3000;
/// So many that a round ends early for the bytes it holds.
const LARGE: u64 = 120;
const ABSENT: u64 = 500;

fn value_of(key: u64) -> Option<Vec<u8>> {
    match key {
        _ if key >= SMALL + LARGE => None,
        _ if key % 7 == 3 => None,
        _ => Some(key.to_le_bytes().repeat(if key < SMALL { 12 } else { 5000 })),
    }
}

fn environment(directory: &Path, store: &Path) -> Environment {
    Environment::builder(directory).memory_bytes(16 << 20).store(store.to_string_lossy()).open().unwrap()
}

fn backend(env: &Environment, last: Option<&CompletedCheckpoint>) -> Backend {
    env.backend(&Operator::new("op", 8), Subtask { index: 0, parallelism: 1 }, last).unwrap()
}

/// Leaves a completed checkpoint of [`value_of`], some keys in one segment and some in another, some deleted again.
fn fill(directory: &Path, store: &Path) {
    let env = environment(directory, store);
    let mut b = backend(&env, None);
    let mut coordinator = env.coordinator(&[(&Operator::new("op", 8), 1)]).unwrap();
    let state = b.value_state::<u64, Vec<u8>>("rows").unwrap();
    for id in 1..=2 {
        for key in (0..SMALL + LARGE).filter(|key| id == 2 || key % 2 == 0) {
            state.put(&mut b, &key, key.to_le_bytes().to_vec()).unwrap();
            match value_of(key) {
                Some(value) if id == 2 || key % 3 == 0 => state.put(&mut b, &key, value).unwrap(),
                None if id == 2 => state.clear(&mut b, &key).unwrap(),
                _ => {}
            }
        }
        coordinator.begin(id).unwrap();
        let ticket = b.checkpoint(id, CheckpointKind::Incremental, b"").unwrap();
        coordinator.add(ticket.wait(Duration::from_secs(120)).unwrap()).unwrap().expect("it is complete");
    }
}

/// Keys in an order that mixes all kinds, some of them twice.
fn asked() -> Vec<u64> {
    let all = SMALL + LARGE + ABSENT;
    (0..all).map(|n| n * 1789 % all).chain((0..all).step_by(9)).collect()
}

#[test]
fn many_reads_at_a_time_answer_as_single_ones_do() {
    let (directory, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(directory.path(), store.path());
    let env = environment(directory.path(), store.path());
    let last = env.latest_checkpoint().unwrap();
    let mut b = backend(&env, last.as_ref());
    let state = b.value_state::<u64, Vec<u8>>("rows").unwrap();
    // The second time memory knows part of it.
    for _ in 0..2 {
        let asked = asked();
        let mut visited = vec![0; asked.len()];
        state
            .get_many(&mut b, &asked, |index, value| {
                assert_eq!(value, value_of(asked[index]), "key {}", asked[index]);
                visited[index] += 1;
                Ok(())
            })
            .unwrap();
        assert!(visited.iter().all(|times| *times == 1));
    }
}

#[test]
fn an_error_of_one_read_and_of_a_visitor_end_the_batch() {
    let (directory, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(directory.path(), store.path());
    let spoilt = tempfile::tempdir().unwrap();
    let env = environment(spoilt.path(), store.path());
    let last = env.latest_checkpoint().unwrap();
    let mut b = backend(&env, last.as_ref());
    let state = b.value_state::<u64, Vec<u8>>("rows").unwrap();
    let error = state.get_many(&mut b, &asked(), |_, _| Err(Error::invalid("enough"))).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, "enough"));
    for (index, value) in [(0, 0_u64), (1, SMALL)].map(|(index, key)| (index, value_of(key))) {
        let keys = [0, SMALL];
        assert_eq!(state.get(&mut b, &keys[index]).unwrap(), value, "the backend goes on");
    }
}
