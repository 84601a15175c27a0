//! What the operating system says a process uses, against the budget it was given: plus 10 % and 32 MiB.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

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

/// The child: about 300 MB of values and map entries, with a checkpoint now and then, reads and a scan.
fn child() {
    let directory = tempfile::tempdir().unwrap();
    let env = Environment::builder(directory.path().join("work"))
        .memory_bytes(BUDGET)
        .store(format!("{}", directory.path().join("store").display()))
        .open()
        .unwrap();
    let operator = Operator::new("op", 16);
    let mut coordinator = env.coordinator(&[(&operator, 1)]).unwrap();
    let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None).unwrap();
    let values = b.value_state::<u64, Vec<u8>>("values").unwrap();
    let map = b.map_state::<u64, u64, Vec<u8>>("map").unwrap();
    let (mut written, mut most, mut id, mut n) = (0_u64, 0, 0, 0_u64);
    let mut open: Vec<Ticket> = Vec::new();
    while written < 300 * MIB {
        n += 1;
        let value = vec![n as u8; 50 + mix(n) as usize % 400];
        written += value.len() as u64 + 30;
        let key = mix(n) % 1_500_000;
        if n % 4 == 0 {
            in_time(|| map.put(&mut b, &(key % 1000), &key, &value));
        } else {
            in_time(|| values.put(&mut b, &key, &value));
        }
        if n % 3 == 0 {
            values.get(&mut b, &(mix(n * 7) % 1_500_000)).unwrap();
        }
        if n % 1000 == 0 {
            most = most.max(resident_bytes());
        }
        if n % 100_000 == 0 && open.len() < 4 {
            id += 1;
            coordinator.begin(id).unwrap();
            open.push(b.checkpoint(id, CheckpointKind::Incremental, b"").unwrap());
            let _ = map.iter(&mut b, &(n % 1000), highwater::base::cursor::Direction::Forward).unwrap().count();
        }
        let done = |ticket: &Ticket| ticket.try_part();
        open.retain(|ticket| done(ticket).is_none_or(|part| coordinator.add(part.unwrap()).is_err()));
    }
    open.iter().for_each(|ticket| drop(coordinator.add(ticket.wait(Duration::from_secs(120)).unwrap()).unwrap()));
    most = most.max(resident_bytes());
    println!("most {most} now {} stats {:?}", resident_bytes(), env.stats());
}

#[test]
fn a_process_stays_within_its_memory_budget() {
    if std::env::var_os(ROLE).is_some() {
        return child();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_process_stays_within_its_memory_budget", "--exact", "--nocapture", "--test-threads=1"])
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
