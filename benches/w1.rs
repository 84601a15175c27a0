//! W1 of the workloads, as one ratio: read-modify-write of 1M counters, Zipf 0.99, one thread, against
//! a plain hash map of boxed bytes; and how long a freeze takes at 1M dirty entries.
//!
//! `cargo bench --bench w1` prints a table. Pairs alternate within one run; quote the medians of ratios.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant;

use highwater::base::record::NEVER;
use highwater::cache::budget::Budget;
use highwater::memtable::{Below, Lookup, MemKey, Memtable, MemtableConfig};

use self::common::{
    FoldMap, KEYS, Map, Plain, SipMap, counter, encoded, filled_map, median, run_map, scrambled, uniform, zipf,
};

mod common;

const OPS: usize = 3_000_000;
const PAIRS: usize = 7;

fn filled_memtable() -> Memtable {
    let mut memtable = Memtable::new(MemtableConfig::new(Budget::new(4 << 30)));
    for id in scrambled() {
        memtable.put(MemKey::single(&encoded(id)), &0_u64.to_le_bytes(), NEVER, Below::unknown).unwrap();
    }
    memtable
}

fn run_memtable(memtable: &mut Memtable, ids: &[u64]) -> f64 {
    let start = Instant::now();
    for id in ids {
        let key = encoded(*id);
        let key = MemKey::single(&key);
        let old = match memtable.lookup(key) {
            Lookup::Record(record) => counter(record.value),
            _ => 0,
        };
        memtable.put(key, &(old + 1).to_le_bytes(), NEVER, Below::unknown).unwrap();
    }
    start.elapsed().as_nanos() as f64 / ids.len() as f64
}

fn compare<M: Plain>(name: &str, ids: &[u64]) {
    let (mut memtable, mut map) = (filled_memtable(), filled_map::<M, 22>(encoded));
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let a = run_memtable(&mut memtable, ids);
        let b = run_map(&mut map, ids, encoded);
        ours.push(a);
        theirs.push(b);
        ratios.push(b / a);
    }
    for id in (0..KEYS).step_by(97) {
        let key = encoded(id);
        let Lookup::Record(record) = memtable.lookup(MemKey::single(&key)) else { unreachable!() };
        assert_eq!(counter(record.value), map.read(&key).map_or(0, counter), "both must agree");
    }
    let ratio = median(&mut ratios);
    println!(
        "{name:<20} memtable {:4.0} ns/op   map {:4.0} ns/op   throughput ratio {ratio:.2} (min {:.2}, max {:.2})",
        median(&mut ours),
        median(&mut theirs),
        ratios[0],
        ratios[ratios.len() - 1]
    );
}

fn freezes() {
    let mut memtable = filled_memtable();
    let mut micros = Vec::new();
    for round in 0..100_u64 {
        let start = Instant::now();
        let epoch = memtable.freeze();
        micros.push(start.elapsed().as_nanos() as f64 / 1000.0);
        memtable.adopt(epoch.last_sequence());
        drop(black_box(epoch));
        // Every entry dirty again, and the old epoch gone.
        for id in 0..KEYS {
            memtable.put(MemKey::single(&encoded(id)), &round.to_le_bytes(), NEVER, Below::unknown).unwrap();
        }
        while memtable.evict_step(1 << 20) > 0 {}
        drop(memtable.take_trash());
    }
    micros.sort_by(f64::total_cmp);
    let at = |q: f64| micros[((micros.len() - 1) as f64 * q).round() as usize];
    println!(
        "freeze at 1M dirty entries ({} times): p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        micros.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn main() {
    let (zipf, uniform) = (zipf(OPS), uniform(OPS));
    compare::<SipMap>("Zipf, std SipHash", &zipf);
    compare::<Map>("Zipf, XXH3", &zipf);
    compare::<FoldMap>("Zipf, fold hash", &zipf);
    compare::<FoldMap>("uniform, fold hash", &uniform);
    freezes();
}
