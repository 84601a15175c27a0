//! The whole backend against the plain map of boxed bytes: W1 of the workloads (read-modify-write of 1M counters,
//! one thread), how long `checkpoint()` takes, and typed operations.
//!
//! `cargo bench --bench backend` prints tables, then Criterion's figures; `-- --tables` the tables alone. Pairs
//! alternate within one run; quote the medians of ratios. Times are the processor time of the owner's thread, which is
//! what can be compared on a machine that others use too; latencies stand beside it by the wall.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group};
use highwater::base::cursor::Direction;
use highwater::base::key::KeyParts;
use highwater::{Backend, KeyedState, RawState, TimeDomain, ValueState};

use self::common::checkpointer::Checkpointer;
use self::common::engine::Engine;
use self::common::{
    FoldMap, KEYS, Map, Plain, counter, cpu_ns, filled_map, group_of, median, mix, percentile, run_map, scrambled,
    uniform, workload_key, zipf,
};

mod common;

const OPS: usize = 1_000_000;
const PAIRS: usize = 5;
const BUDGET: u64 = 2 << 30;
/// Operations between checkpoints, where there are any: a few times a second.
const INTERVAL: usize = 500_000;
/// Operations that one of a pair makes before it is the other's turn, so that both meet the same neighbours.
const TURN: usize = 50_000;

/// One way of keeping the counters in a backend.
trait Counters: Copy {
    fn new(engine: &mut Engine) -> Self;
    fn read(self, backend: &mut Backend, id: u64) -> u64;
    fn write(self, backend: &mut Backend, id: u64, value: u64);
}

fn parts(key: &[u8; 16]) -> KeyParts<'_> {
    KeyParts { group: group_of(key), key, namespace: &[], user_key: &[] }
}

/// The raw layer, the group told by the host.
impl Counters for RawState {
    fn new(engine: &mut Engine) -> Self {
        engine.raw_state()
    }

    #[inline]
    fn read(self, backend: &mut Backend, id: u64) -> u64 {
        backend.get(self, parts(&workload_key(id))).unwrap().map_or(0, |value| counter(&value))
    }

    #[inline]
    fn write(self, backend: &mut Backend, id: u64, value: u64) {
        backend.put(self, parts(&workload_key(id)), &value.to_le_bytes()).unwrap();
    }
}

/// The typed layer.
impl Counters for ValueState<u64, u64> {
    fn new(engine: &mut Engine) -> Self {
        engine.backend.value_state("counters").unwrap()
    }

    #[inline]
    fn read(self, backend: &mut Backend, id: u64) -> u64 {
        self.get(backend, &id).unwrap().unwrap_or(0)
    }

    #[inline]
    fn write(self, backend: &mut Backend, id: u64, value: u64) {
        self.put(backend, &id, value).unwrap();
    }
}

/// Processor nanoseconds of the owner a read-modify-write.
fn run<C: Counters>(backend: &mut Backend, counters: C, ids: &[u64]) -> f64 {
    let start = cpu_ns();
    for id in ids {
        let old = counters.read(backend, *id);
        counters.write(backend, *id, old + 1);
    }
    (cpu_ns() - start) / ids.len() as f64
}

/// As long as the plain map is asked for 16 bytes by the raw layer and for 8 by the typed one.
fn compare<C: Counters, M: Plain, const N: usize>(name: &str, ids: &[u64], key: fn(u64) -> [u8; N], checkpoints: bool) {
    let mut engine = Engine::new(BUDGET);
    let counters = C::new(&mut engine);
    scrambled().for_each(|id| counters.write(&mut engine.backend, id, 0));
    let mut checkpointer = checkpoints.then(|| Checkpointer::new(&engine));
    let mut map = filled_map::<M, N>(key);
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let (mut a, mut b) = (0.0, 0.0);
        for (n, ids) in ids.chunks(TURN).enumerate() {
            if let Some(checkpointer) = checkpointer.as_mut().filter(|_| n % (INTERVAL / TURN) == 0) {
                checkpointer.checkpoint(&mut engine);
            }
            a += run(&mut engine.backend, counters, ids);
            b += run_map(&mut map, ids, key);
        }
        checkpointer.iter_mut().for_each(Checkpointer::wait);
        let turns = ids.len().div_ceil(TURN) as f64;
        ours.push(a / turns);
        theirs.push(b / turns);
        ratios.push(b / a);
    }
    for id in (0..KEYS).step_by(97) {
        let expected = map.read(&key(id)).map_or(0, counter);
        assert_eq!(counters.read(&mut engine.backend, id), expected, "both must agree");
    }
    let ratio = median(&mut ratios);
    println!(
        "{name:<44} backend {:4.0} ns/op   map {:4.0} ns/op   throughput ratio {ratio:.2} (min {:.2}, max {:.2})",
        median(&mut ours),
        median(&mut theirs),
        ratios[0],
        ratios[ratios.len() - 1]
    );
}

/// The same in a map that needs no bytes at all.
fn unboxed(ids: &[u64]) {
    let mut map: HashMap<u64, u64> = scrambled().map(|id| (id, 0)).collect();
    let mut all = Vec::new();
    for _ in 0..PAIRS {
        let start = cpu_ns();
        for id in ids {
            let old = map.get(id).copied().unwrap_or(0);
            map.insert(*id, old + 1);
        }
        all.push((cpu_ns() - start) / ids.len() as f64);
    }
    println!("{:<44} {:4.0} ns/op", "for orientation: std HashMap<u64, u64>", median(&mut all));
}

fn report(what: &str, mut micros: Vec<f64>) {
    micros.sort_by(f64::total_cmp);
    let at = |q| percentile(&micros, q);
    println!(
        "{what:<50} {:7} times: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, max {:.1} us",
        micros.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

/// How long the call of `checkpoint()` takes with so many dirty entries, each checkpoint complete before the next.
fn checkpoint_calls(dirty: u64, times: u64) {
    let mut engine = Engine::new(BUDGET);
    let counters = RawState::new(&mut engine);
    scrambled().for_each(|id| counters.write(&mut engine.backend, id, 0));
    let mut checkpointer = Checkpointer::new(&engine);
    for round in 0..times {
        (0..dirty).for_each(|id| counters.write(&mut engine.backend, id, round));
        checkpointer.checkpoint(&mut engine);
        checkpointer.wait();
    }
    // The first one has all keys dirty.
    report(&format!("checkpoint() call, {dirty} dirty entries, wall"), checkpointer.wall_us.split_off(1));
    report(&format!("checkpoint() call, {dirty} dirty entries, processor"), checkpointer.cpu_us.split_off(1));
}

/// How long each put takes while epochs are flushed, merged and evicted behind it.
fn put_latencies(budget: u64, ids: &[u64]) {
    let mut engine = Engine::new(budget);
    let counters = RawState::new(&mut engine);
    let mut checkpointer = Checkpointer::new(&engine);
    let (mut wall, mut cpu) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
    for (n, id) in ids.iter().enumerate() {
        if n % (INTERVAL / 2) == 0 {
            checkpointer.checkpoint(&mut engine);
        }
        let (before, cpu_before) = (Instant::now(), cpu_ns());
        counters.write(&mut engine.backend, *id, n as u64);
        cpu.push((cpu_ns() - cpu_before) / 1000.0);
        wall.push(before.elapsed().as_nanos() as f64 / 1000.0);
    }
    report(&format!("put, {} MiB budget, wall", budget >> 20), wall);
    report(&format!("put, {} MiB budget, processor", budget >> 20), cpu);
}

fn tables() {
    let (zipf, uniform) = (zipf(OPS), uniform(OPS));
    compare::<RawState, Map, 16>("raw, Zipf, XXH3 map", &zipf, workload_key, false);
    compare::<RawState, FoldMap, 16>("raw, Zipf, fold-hash map", &zipf, workload_key, false);
    compare::<RawState, FoldMap, 16>("raw, uniform, fold-hash map", &uniform, workload_key, false);
    compare::<RawState, Map, 16>("raw, Zipf, XXH3 map, with checkpoints", &zipf, workload_key, true);
    let eight = u64::to_be_bytes;
    compare::<ValueState<u64, u64>, Map, 8>("ValueState, Zipf, XXH3 map", &zipf, eight, false);
    compare::<ValueState<u64, u64>, FoldMap, 8>("ValueState, Zipf, fold-hash map", &zipf, eight, false);
    compare::<ValueState<u64, u64>, Map, 8>("ValueState, Zipf, XXH3 map, with checkpoints", &zipf, eight, true);
    unboxed(&zipf);
    checkpoint_calls(1000, 1001);
    checkpoint_calls(KEYS, 21);
    put_latencies(BUDGET, &uniform);
    put_latencies(64 << 20, &uniform);
}

fn operations(c: &mut Criterion) {
    let mut group = c.benchmark_group("backend");
    group.throughput(Throughput::Elements(1));
    let mut engine = Engine::new(BUDGET);
    let raw = RawState::new(&mut engine);
    let b = &mut engine.backend;
    let value = b.value_state::<u64, u64>("value").unwrap();
    let map = b.map_state::<u64, u64, u64>("map").unwrap();
    let list = b.list_state::<u64, [u8; 64]>("list").unwrap();
    let mut timers = b.timers::<u64, ()>("timers").unwrap();
    for id in 0..200_000 {
        raw.write(b, id, 0);
        value.write(b, id, 0);
        map.put(b, &(id / 10), &id, id).unwrap();
        timers.register(b, TimeDomain::Event, (&id, &()), i64::try_from(mix(id) >> 1).unwrap()).unwrap();
    }
    let mut n = 0_u64;
    let mut next = move || {
        n += 1;
        n
    };
    group.bench_function("raw read-modify-write, 200K keys", |bench| {
        bench.iter(|| {
            let id = mix(next()) % 200_000;
            let old = raw.read(b, id);
            raw.write(b, id, old + 1);
        });
    });
    group.bench_function("ValueState read-modify-write, 200K keys", |bench| {
        bench.iter(|| value.update(b, &(mix(next()) % 200_000), |old| Some(old.unwrap_or(0) + 1)).unwrap());
    });
    group.bench_function("MapState put and get, 20K maps of 10", |bench| {
        bench.iter(|| {
            let id = mix(next()) % 200_000;
            map.put(b, &(id / 10), &id, id + 1).unwrap();
            black_box(map.get(b, &(id / 10), &id).unwrap())
        });
    });
    group.bench_function("MapState iterate 10 entries", |bench| {
        bench.iter(|| map.iter(b, &(mix(next()) % 20_000), Direction::Forward).unwrap().count());
    });
    for window in [8, 1000] {
        group.bench_function(format!("ListState add of 64 B, cleared after {window}"), |bench| {
            bench.iter(|| {
                let n = next();
                list.add(b, &(n / window), [7; 64]).unwrap();
                if n % window == window - 1 {
                    list.clear(b, &(n / window)).unwrap();
                }
            });
        });
    }
    group.bench_function("timers, register and pop, 200K outstanding", |bench| {
        bench.iter(|| {
            let n = next();
            timers.register(b, TimeDomain::Event, (&n, &()), i64::try_from(mix(n) >> 1).unwrap()).unwrap();
            black_box(timers.pop_until(b, TimeDomain::Event, i64::MAX).unwrap())
        });
    });
    group.finish();
}

criterion_group!(benches, operations);

fn main() {
    tables();
    if std::env::args().all(|argument| argument != "--tables") {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}
