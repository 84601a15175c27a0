//! What an operation costs in allocations and in instructions: counts that don't depend on the machine's mood.
//!
//! `cargo bench --bench counts` prints both, `-- --check` compares them with `benches/counts.tsv` and fails where one has
//! grown by more than a twentieth, `-- --write` writes that file anew. Instructions are those of the owner's thread under
//! callgrind (`valgrind` must be there), the preparation left out; those of a build by another compiler are told but not
//! held against it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use highwater::base::cursor::Direction;
use highwater::base::key::KeyParts;
use highwater::base::record::NEVER;
use highwater::cache::budget::Budget;
use highwater::memtable::{Below, Lookup, MemKey, Memtable, MemtableConfig};
use highwater::{KeyedState, TimeDomain};

use self::common::engine::Engine;
use self::common::{Map, Plain, counter, encoded, group_of, mix, workload_key};

mod common;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller has it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const KEYS: u64 = 10_000;
const OPS: u64 = 100_000;
const BUDGET: u64 = 1 << 30;

/// Calls `operation` so often; returns the allocations that it made, on all threads.
#[inline(never)]
fn measured(times: u64, operation: &mut dyn FnMut(u64)) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for n in 0..times {
        operation(n);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Ids in no order, each below [`KEYS`].
fn scattered(n: u64) -> u64 {
    mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % KEYS
}

fn plain_map(times: u64) -> u64 {
    let mut map = Map::default();
    (0..KEYS).for_each(|id| map.write(&workload_key(id), &[0; 8]));
    measured(times, &mut |n| {
        let key = workload_key(scattered(n));
        let old = map.read(&key).map_or(0, counter);
        map.write(&key, &(old + 1).to_le_bytes());
    })
}

fn memtable(times: u64) -> u64 {
    let mut memtable = Memtable::new(MemtableConfig::new(Budget::new(BUDGET)));
    for id in 0..KEYS {
        memtable.put(MemKey::single(&encoded(id)), &[0; 8], NEVER, Below::unknown).unwrap();
    }
    measured(times, &mut |n| {
        let key = encoded(scattered(n));
        let key = MemKey::single(&key);
        let Lookup::Record(record) = memtable.lookup(key) else { unreachable!() };
        let old = counter(record.value);
        memtable.put(key, &(old + 1).to_le_bytes(), NEVER, Below::unknown).unwrap();
    })
}

fn raw(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let state = engine.raw_state();
    let b = &mut engine.backend;
    let mut write = |n: u64, id: u64| {
        let key = workload_key(id);
        let parts = KeyParts { group: group_of(&key), key: &key, namespace: &[], user_key: &[] };
        let old = if n == u64::MAX { 0 } else { b.get(state, parts).unwrap().map_or(0, |v| counter(&v)) };
        b.put(state, parts, &(old + 1).to_le_bytes()).unwrap();
    };
    (0..KEYS).for_each(|id| write(u64::MAX, id));
    measured(times, &mut |n| write(n, scattered(n)))
}

fn value(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let b = &mut engine.backend;
    let state = b.value_state::<u64, u64>("value").unwrap();
    (0..KEYS).for_each(|id| state.put(b, &id, 0).unwrap());
    measured(times, &mut |n| {
        let id = scattered(n);
        let old = state.get(b, &id).unwrap().unwrap_or(0);
        state.put(b, &id, old + 1).unwrap();
    })
}

fn value_update(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let b = &mut engine.backend;
    let state = b.value_state::<u64, u64>("value").unwrap();
    (0..KEYS).for_each(|id| state.put(b, &id, 0).unwrap());
    measured(times, &mut |n| state.update(b, &scattered(n), |old| Some(old.unwrap_or(0) + 1)).unwrap())
}

fn value_string_key(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let b = &mut engine.backend;
    let state = b.value_state::<String, u64>("value").unwrap();
    let keys: Vec<String> = (0..KEYS).map(|id| format!("customer-{id:08}")).collect();
    keys.iter().for_each(|key| state.put(b, key.as_str(), 0).unwrap());
    measured(times, &mut |n| {
        let key = keys[usize::try_from(scattered(n)).unwrap()].as_str();
        let old = state.get(b, key).unwrap().unwrap_or(0);
        state.put(b, key, old + 1).unwrap();
    })
}

/// A window's life: put, get and put a few times, then get and clear.
fn value_short_lived(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let b = &mut engine.backend;
    let state = b.value_state::<u64, u64>("value").unwrap();
    let mut live = |n: u64| {
        state.get(b, &n).unwrap();
        state.put(b, &n, 1).unwrap();
        if let Some(old) = n.checked_sub(1000) {
            state.get(b, &old).unwrap();
            state.clear(b, &old).unwrap();
        }
    };
    (0..KEYS).for_each(&mut live);
    measured(times, &mut |n| live(KEYS + n))
}

/// Elements of 64 bytes, so many a window; a window that is full is read and cleared.
fn list(times: u64, window: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let b = &mut engine.backend;
    let state = b.list_state::<u64, [u8; 64]>("list").unwrap();
    let mut add = |n: u64| {
        let key = n / window;
        state.add(b, &key, [7; 64]).unwrap();
        if n % window == window - 1 {
            state.iter(b, &key).unwrap().for_each(|element| assert_eq!(black_box(element.unwrap())[0], 7));
            state.clear(b, &key).unwrap();
        }
    };
    (0..4 * window).for_each(&mut add);
    measured(times, &mut |n| add(4 * window + n))
}

fn map_filled(engine: &mut Engine) -> highwater::MapState<u64, u64, u64> {
    let b = &mut engine.backend;
    let state = b.map_state::<u64, u64, u64>("map").unwrap();
    (0..KEYS * 10).for_each(|n| state.put(b, &(n / 10), &(n % 10), n).unwrap());
    state
}

fn map_get_put(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let state = map_filled(&mut engine);
    let b = &mut engine.backend;
    measured(times, &mut |n| {
        let (key, user_key) = (scattered(n), n % 10);
        let old = state.get(b, &key, &user_key).unwrap().unwrap();
        state.put(b, &key, &user_key, old + 1).unwrap();
    })
}

fn map_iterate_10(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let state = map_filled(&mut engine);
    let b = &mut engine.backend;
    measured(times, &mut |n| {
        let entries = state.iter(b, &scattered(n), Direction::Forward).unwrap();
        assert_eq!(entries.inspect(|entry| assert!(black_box(entry).is_ok())).count(), 10);
    })
}

fn map_remove_put(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let state = map_filled(&mut engine);
    let b = &mut engine.backend;
    measured(times, &mut |n| {
        let (key, user_key) = (scattered(n), n % 10);
        state.remove(b, &key, &user_key).unwrap();
        state.put(b, &key, &user_key, n).unwrap();
    })
}

/// Registers a timer and pops one, 10,000 outstanding in 128 groups.
fn timers(times: u64) -> u64 {
    let mut engine = Engine::new(BUDGET);
    let b = &mut engine.backend;
    let mut timers = b.timers::<u64, ()>("timers").unwrap();
    let time = |n: u64| i64::try_from(n * 10 + mix(n) % 10_000).unwrap();
    for n in 0..KEYS {
        timers.register(b, TimeDomain::Event, (&n, &()), time(n)).unwrap();
    }
    timers.next_timestamp(b, TimeDomain::Event).unwrap();
    measured(times, &mut |n| {
        timers.register(b, TimeDomain::Event, (&(KEYS + n), &()), time(KEYS + n)).unwrap();
        black_box(timers.pop_until(b, TimeDomain::Event, i64::MAX).unwrap().unwrap());
    })
}

type Operation = (&'static str, fn(u64) -> u64);

const OPERATIONS: [Operation; 13] = [
    ("plain_map", plain_map),
    ("memtable", memtable),
    ("raw", raw),
    ("value", value),
    ("value_update", value_update),
    ("value_string_key", value_string_key),
    ("value_short_lived", value_short_lived),
    ("list_8", |times| list(times, 8)),
    ("list_1000", |times| list(times, 1000)),
    ("map_get_put", map_get_put),
    ("map_iterate_10", map_iterate_10),
    ("map_remove_put", map_remove_put),
    ("timers", timers),
];

/// Operations under callgrind, where everything takes fifty times as long.
const FEW_OPS: u64 = 5_000;
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/counts.tsv");

/// What one operation costs.
#[derive(Debug, Clone, PartialEq)]
struct Cost {
    name: String,
    allocations: f64,
    instructions: f64,
}

/// Instructions that `measured` took for one operation, this binary run under callgrind.
fn instructions(name: &str) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*measured*", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .args([name, &FEW_OPS.to_string()])
        .stdout(Stdio::null())
        .status()
        .expect("valgrind must be installed");
    assert!(status.success(), "{name} under valgrind: {status}");
    // With several threads there is a file for each part; the totals of all count.
    let totals = std::fs::read_to_string(&out).unwrap();
    let total = totals.lines().find_map(|line| line.strip_prefix("totals: ")).expect("callgrind wrote no totals");
    total.trim().parse::<f64>().unwrap() / FEW_OPS as f64
}

fn measure() -> Vec<Cost> {
    let cost = |(name, operation): &Operation| {
        let allocations = operation(OPS) as f64 / OPS as f64;
        let cost = Cost { name: (*name).into(), allocations, instructions: instructions(name) };
        println!("{name:<20} {allocations:8.3} allocations {:8.0} instructions", cost.instructions);
        cost
    };
    OPERATIONS.iter().map(cost).collect()
}

/// The compiler: its version decides how many instructions there are.
fn compiler() -> String {
    let version = Command::new("rustc").arg("--version").output().unwrap();
    String::from_utf8(version.stdout).unwrap().trim().into()
}

fn write(costs: &[Cost]) {
    let mut text = format!("# {}\n# operation\tallocations\tinstructions\n", compiler());
    for cost in costs {
        text.push_str(&format!("{}\t{:.3}\t{:.0}\n", cost.name, cost.allocations, cost.instructions));
    }
    std::fs::write(BASELINE, text).unwrap();
}

fn read() -> (String, Vec<Cost>) {
    let text = std::fs::read_to_string(BASELINE).unwrap();
    let compiler = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap().to_string();
    let cost = |line: &str| {
        let mut fields = line.split('\t');
        let number = |field: Option<&str>| field.unwrap().parse().unwrap();
        let name = fields.next().unwrap().into();
        Cost { name, allocations: number(fields.next()), instructions: number(fields.next()) }
    };
    (compiler, text.lines().filter(|line| !line.starts_with('#')).map(cost).collect())
}

/// False when a count has grown by more than a twentieth.
fn check(costs: &[Cost]) -> bool {
    let (by, baseline) = read();
    let comparable = by == compiler();
    if !comparable {
        println!("instructions aren't held against those of {by}");
    }
    assert_eq!(costs.len(), baseline.len(), "benches/counts.tsv is of other operations: write it anew");
    let mut good = true;
    for (cost, was) in costs.iter().zip(&baseline) {
        assert_eq!(cost.name, was.name);
        // An allocation that a hundredth of the operations makes is the growth of some vector.
        let more_allocations = cost.allocations > was.allocations * 1.05 + 0.01;
        let more_instructions = comparable && cost.instructions > was.instructions * 1.05 + 1.0;
        if more_allocations || more_instructions {
            println!("{} costs more than in benches/counts.tsv: {cost:?}, was {was:?}", cost.name);
            good = false;
        }
    }
    good
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.iter().find_map(|name| OPERATIONS.iter().find(|(n, _)| n == name));
    if let Some((_, operation)) = named {
        let times = arguments.iter().find_map(|times| times.parse().ok()).unwrap_or(OPS);
        println!("{:.3} allocations an operation", operation(times) as f64 / times as f64);
        return;
    }
    let costs = measure();
    if arguments.iter().any(|a| a == "--write") {
        write(&costs);
    }
    if arguments.iter().any(|a| a == "--check") && !check(&costs) {
        std::process::exit(1);
    }
}
