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

const KEYS: u64 = 1_000_000;
const OPS: usize = 3_000_000;
const PAIRS: usize = 7;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Zipf ranks by the method of Gray et al. (SIGMOD 1994), as YCSB uses it.
fn zipf(count: usize) -> Vec<u64> {
    let theta = 0.99_f64;
    let zeta = |n: u64| (1..=n).map(|i| 1.0 / (i as f64).powf(theta)).sum::<f64>();
    let zetan = zeta(KEYS);
    let alpha = 1.0 / (1.0 - theta);
    let eta = (1.0 - (2.0 / KEYS as f64).powf(1.0 - theta)) / (1.0 - zeta(2) / zetan);
    let mut state = 42_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let u = (mix(state) >> 11) as f64 / (1_u64 << 53) as f64;
        let uz = u * zetan;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(theta) {
            1
        } else {
            ((KEYS as f64) * (eta * u - eta + 1.0).powf(alpha)) as u64
        }
    };
    (0..count).map(|_| next().min(KEYS - 1)).collect()
}

fn uniform(count: usize) -> Vec<u64> {
    (0..count as u64).map(|i| mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % KEYS).collect()
}

/// Key group, state id, then the 16 bytes of the workload: hash and id. The plain map's key is the same.
fn encoded(id: u64) -> [u8; 22] {
    let mut key = [0; 22];
    let hash = mix(id ^ 0x5851_f42d_4c95_7f2d);
    key[..2].copy_from_slice(&((hash % 128) as u16).to_be_bytes());
    key[2..6].copy_from_slice(&[0, 0, 0, 42]);
    key[6..14].copy_from_slice(&hash.to_be_bytes());
    key[14..].copy_from_slice(&id.to_be_bytes());
    key
}

fn counter(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Ids in an order that has nothing to do with how often they are used.
fn scrambled() -> impl Iterator<Item = u64> {
    (0..KEYS).map(|i| i * 7_368_787 % KEYS)
}

fn filled_memtable() -> Memtable {
    let mut memtable = Memtable::new(MemtableConfig::new(Budget::new(4 << 30)));
    for id in scrambled() {
        memtable.put(MemKey::single(&encoded(id)), &0_u64.to_le_bytes(), NEVER, Below::unknown).unwrap();
    }
    memtable
}

type Map = hashbrown::HashMap<Box<[u8]>, Box<[u8]>, std::hash::BuildHasherDefault<xxhash_rust::xxh3::Xxh3Default>>;
type SipMap = std::collections::HashMap<Box<[u8]>, Box<[u8]>>;

/// The plain map, with one hasher or another.
trait Plain: FromIterator<(Box<[u8]>, Box<[u8]>)> {
    fn read(&self, key: &[u8]) -> Option<&[u8]>;
    fn write(&mut self, key: &[u8], value: &[u8]);
}

macro_rules! plain {
    ($map:ty) => {
        impl Plain for $map {
            fn read(&self, key: &[u8]) -> Option<&[u8]> {
                self.get(key).map(|v| &**v)
            }

            /// In place where it fits, as good as a plain map can be.
            fn write(&mut self, key: &[u8], value: &[u8]) {
                match self.get_mut(key) {
                    Some(held) if held.len() == value.len() => held.copy_from_slice(value),
                    _ => {
                        self.insert(key.into(), value.into());
                    }
                }
            }
        }
    };
}
plain!(FoldMap);
plain!(Map);
plain!(SipMap);

/// Folded multiply over words, about the cheapest hash that is any good: what hashbrown users get.
#[derive(Default)]
struct Fold(u64);

impl std::hash::Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_f39c;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type FoldMap = hashbrown::HashMap<Box<[u8]>, Box<[u8]>, std::hash::BuildHasherDefault<Fold>>;

fn filled_map<M: Plain>() -> M {
    scrambled()
        .map(|id| (Box::from(encoded(id)), Box::from(0_u64.to_le_bytes())))
        .map(|(k, v): (Box<[u8; 22]>, Box<[u8; 8]>)| (k as Box<[u8]>, v as Box<[u8]>))
        .collect()
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

fn run_map<M: Plain>(map: &mut M, ids: &[u64]) -> f64 {
    let start = Instant::now();
    for id in ids {
        let key = encoded(*id);
        let old = map.read(&key).map_or(0, counter);
        map.write(&key, &(old + 1).to_le_bytes());
    }
    start.elapsed().as_nanos() as f64 / ids.len() as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare<M: Plain>(name: &str, ids: &[u64]) {
    let (mut memtable, mut map) = (filled_memtable(), filled_map::<M>());
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let a = run_memtable(&mut memtable, ids);
        let b = run_map(&mut map, ids);
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
