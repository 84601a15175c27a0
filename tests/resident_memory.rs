//! What the operating system says a process uses, against the budget it was given: plus 10 % and 32 MiB.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use highwater::base::clock::{Clock, SystemClock};
use highwater::*;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
const ROLE: &str = "HIGHWATER_TEST_CHILD";

/// Anonymous and shared memory of this process now.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("0 0 kB");
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    field("RssAnon:") + field("RssShmem:")
}

fn mix(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 13
}

fn in_time(mut call: impl FnMut() -> Result<()>) {
    for _ in 0..120_000 {
        match call() {
            Err(error) if error.kind() == ErrorKind::Backpressure => SystemClock.sleep(Duration::from_millis(1)),
            other => return other.unwrap(),
        }
    }
    panic!("two minutes of backpressure");
}

/// The child's job: subtasks on threads of their own write, read and scan, with a checkpoint now and then.
fn child(subtasks: u32, value_bytes: u64, total_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let env = Environment::builder(directory.path().join("work"))
        .memory_bytes(BUDGET)
        .store(format!("{}", directory.path().join("store").display()))
        .open()
        .unwrap();
    let operator = Operator::new("op", 16);
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for index in 0..subtasks {
            let subtask = Subtask { index, parallelism: subtasks };
            let b = env.backend(&operator, subtask, None).unwrap();
            let most = &most;
            scope.spawn(move || write(b, value_bytes, total_bytes / u64::from(subtasks), most));
        }
    });
    most.fetch_max(resident_bytes(), SeqCst);
    println!("most {} now {} stats {:?}", most.load(SeqCst), resident_bytes(), env.stats());
}

fn write(mut b: Backend, value_bytes: u64, total_bytes: u64, most: &AtomicU64) {
    let values = b.value_state::<u64, Vec<u8>>("values").unwrap();
    let map = b.map_state::<u64, u64, Vec<u8>>("map").unwrap();
    let (mut written, mut checkpointed, mut id, mut n) = (0_u64, 0, 0, 0_u64);
    let mut open: Vec<Ticket> = Vec::new();
    let mut value = Vec::with_capacity(value_bytes as usize + 8);
    while written < total_bytes {
        n += 1;
        // Hardly compressible.
        let words = 1 + (mix(n) % value_bytes) / 8;
        value.clear();
        (0..words).for_each(|i| value.extend_from_slice(&mix(n * 64 + i).to_le_bytes()));
        let key = mix(n) % 1_500_000;
        if !b.key_groups().contains(b.key_group_of(&key.to_be_bytes())) {
            continue;
        }
        written += value.len() as u64 + 30;
        if n.is_multiple_of(4) {
            in_time(|| map.put(&mut b, &key, &(n % 1000), &value));
        } else {
            in_time(|| values.put(&mut b, &key, &value));
        }
        if n.is_multiple_of(if value_bytes > MIB { 13 } else { 3 }) {
            values.get(&mut b, &key).unwrap();
        }
        most.fetch_max(if n.is_multiple_of(500) || value_bytes >= MIB { resident_bytes() } else { 0 }, SeqCst);
        if written - checkpointed > total_bytes / 8 && open.len() < 4 {
            (id, checkpointed) = (id + 1, written);
            open.push(b.checkpoint(id, CheckpointKind::Incremental, b"").unwrap());
            let scan = map.iter(&mut b, &key, highwater::base::cursor::Direction::Forward).unwrap();
            assert!(scan.map(Result::unwrap).count() < 1000);
        }
        open.retain(|ticket| ticket.try_part().is_none_or(|part| part.is_err()));
    }
    open.iter().for_each(|ticket| drop(ticket.wait(Duration::from_secs(120)).unwrap()));
}

/// Runs the child of this test's name and checks what it reports.
fn check(test: &str, job: (u32, u64, u64)) {
    if std::env::var_os(ROLE).is_some() {
        return child(job.0, job.1, job.2);
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|line| line.contains("most ")).expect("the child reports");
    let most: u64 = line.split_whitespace().skip_while(|word| !word.ends_with("most")).nth(1).unwrap().parse().unwrap();
    let bound = BUDGET / 10 * 11 + 32 * MIB;
    assert!(most <= bound, "{} MiB resident at the height, {} allowed: {line}", most / MIB, bound / MIB);
}

#[test]
fn a_process_stays_within_its_memory_budget() {
    check("a_process_stays_within_its_memory_budget", (1, 450, 130 * MIB));
}

#[test]
fn so_does_one_with_four_subtasks_on_threads_of_their_own() {
    check("so_does_one_with_four_subtasks_on_threads_of_their_own", (4, 450, 130 * MIB));
}

#[test]
fn so_does_one_whose_values_are_up_to_a_mebibyte() {
    check("so_does_one_whose_values_are_up_to_a_mebibyte", (1, MIB, 200 * MIB));
}

#[test]
fn so_does_one_whose_values_are_a_tenth_of_the_budget() {
    check("so_does_one_whose_values_are_a_tenth_of_the_budget", (1, 6 * MIB, 260 * MIB));
}
