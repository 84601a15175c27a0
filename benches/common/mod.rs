//! What several benches share: the workload's keys and order of operations, the plain map, and medians.
#![allow(dead_code, clippy::unwrap_used, clippy::disallowed_methods, reason = "each bench uses its own part")]

use std::time::Instant;

pub mod checkpointer;
pub mod engine;

/// Distinct keys of W1.
pub const KEYS: u64 = 1_000_000;

pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Zipf ranks by the method of Gray et al. (SIGMOD 1994), as YCSB uses it.
pub fn zipf(count: usize) -> Vec<u64> {
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

pub fn uniform(count: usize) -> Vec<u64> {
    (0..count as u64).map(|i| mix(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % KEYS).collect()
}

/// The workload's key: hash and id.
pub fn workload_key(id: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(id ^ 0x5851_f42d_4c95_7f2d).to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// Its group, as a host would tell it from a hash of its own.
pub fn group_of(key: &[u8; 16]) -> u16 {
    u16::from(key[7] % 128)
}

/// Key group, state id, then the workload's key, as the engine encodes them.
pub fn encoded(id: u64) -> [u8; 22] {
    let mut key = [0; 22];
    let bytes = workload_key(id);
    key[..2].copy_from_slice(&group_of(&bytes).to_be_bytes());
    key[2..6].copy_from_slice(&[0, 0, 0, 42]);
    key[6..].copy_from_slice(&bytes);
    key
}

pub fn counter(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Ids in an order that has nothing to do with how often they are used.
pub fn scrambled() -> impl Iterator<Item = u64> {
    (0..KEYS).map(|i| i * 7_368_787 % KEYS)
}

pub type Map = hashbrown::HashMap<Box<[u8]>, Box<[u8]>, std::hash::BuildHasherDefault<xxhash_rust::xxh3::Xxh3Default>>;
pub type SipMap = std::collections::HashMap<Box<[u8]>, Box<[u8]>>;

/// The plain map, with one hasher or another.
pub trait Plain: FromIterator<(Box<[u8]>, Box<[u8]>)> {
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
pub struct Fold(u64);

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

pub type FoldMap = hashbrown::HashMap<Box<[u8]>, Box<[u8]>, std::hash::BuildHasherDefault<Fold>>;

/// All keys, as `key` makes them of ids, with counters of 0.
pub fn filled_map<M: Plain, const N: usize>(key: fn(u64) -> [u8; N]) -> M {
    scrambled().map(|id| (Box::from(&key(id)[..]), Box::from(&0_u64.to_le_bytes()[..]))).collect()
}

/// Nanoseconds a read-modify-write.
pub fn run_map<M: Plain, const N: usize>(map: &mut M, ids: &[u64], key: impl Fn(u64) -> [u8; N]) -> f64 {
    let start = Instant::now();
    for id in ids {
        let key = key(*id);
        let old = map.read(&key).map_or(0, counter);
        map.write(&key, &(old + 1).to_le_bytes());
    }
    start.elapsed().as_nanos() as f64 / ids.len() as f64
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
