//! The memtable's parts. For W1 as a ratio to a plain map, and for freezing, see `benches/w1.rs`.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use highwater::base::cursor::{Direction, RecordCursor};
use highwater::base::key::KeyRange;
use highwater::base::record::NEVER;
use highwater::cache::budget::Budget;
use highwater::memtable::{ALL_USER_KEYS, Below, MemKey, Memtable, MemtableConfig};

const KEYS: u64 = 200_000;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(id: u64) -> [u8; 22] {
    let mut key = [0; 22];
    key[6..14].copy_from_slice(&mix(id + 1).to_be_bytes());
    key[14..].copy_from_slice(&id.to_be_bytes());
    key
}

fn empty() -> Memtable {
    Memtable::new(MemtableConfig::new(Budget::new(4 << 30)))
}

fn filled() -> Memtable {
    let mut memtable = empty();
    for id in 0..KEYS {
        memtable.put(MemKey::single(&key(id)), &id.to_le_bytes(), NEVER, Below::unknown).unwrap();
    }
    memtable
}

fn points(c: &mut Criterion) {
    let mut group = c.benchmark_group("point");
    group.throughput(Throughput::Elements(1));
    let mut memtable = filled();
    let mut id = 0;
    let mut next = || {
        id = mix(id + 7) % KEYS;
        key(id)
    };
    group.bench_function("get uniform, 200K keys", |b| {
        b.iter(|| black_box(memtable.lookup(MemKey::single(&next()))).clone())
    });
    group.bench_function("put in place, 200K keys", |b| {
        b.iter(|| memtable.put(MemKey::single(&next()), &[1; 8], NEVER, Below::unknown).unwrap());
    });
    let mut fresh = KEYS;
    group.bench_function("put and delete of a key that dies young", |b| {
        b.iter(|| {
            fresh += 1;
            let key = key(fresh);
            memtable.put(MemKey::single(&key), &[1; 8], NEVER, || Below::NothingAtKey).unwrap();
            memtable.delete(MemKey::single(&key), Below::unknown).unwrap();
        });
    });
    let keys: Vec<_> = (0..64).map(|i| key(mix(i) % KEYS)).collect();
    let keys: Vec<_> = keys.iter().map(|key| MemKey::single(key)).collect();
    group.throughput(Throughput::Elements(64));
    group.bench_function("get_many of 64", |b| b.iter(|| black_box(memtable.get_many(&keys)).len()));
    group.finish();
}

fn groups(c: &mut Criterion) {
    let mut group = c.benchmark_group("group");
    let mut memtable = empty();
    for id in 0..KEYS {
        let member = [&key(id / 10)[..], &id.to_be_bytes()].concat();
        memtable.put(MemKey::grouped(&member, 22), &[1; 8], NEVER, Below::unknown).unwrap();
    }
    let mut id = 0;
    group.bench_function("scan of 10 entries", |b| {
        b.iter(|| {
            id = mix(id + 7) % (KEYS / 10);
            let mut scan = memtable.scan(&key(id), ALL_USER_KEYS, Direction::Forward);
            let mut count = 0;
            while scan.record().is_some() {
                count += 1;
                scan.advance().unwrap();
            }
            count
        });
    });
    let mut timers = empty();
    let timer = |time: u64| [b"\0\0\0\0\0\x2A".as_slice(), &time.to_be_bytes()].concat();
    for id in 0..KEYS {
        timers.put(MemKey::grouped(&timer(mix(id)), 6), b"", NEVER, || Below::NothingAtPrefix).unwrap();
    }
    group.bench_function("register and pop a timer, 200K outstanding", |b| {
        b.iter(|| {
            id += 1;
            timers.put(MemKey::grouped(&timer(mix(id + KEYS)), 6), b"", NEVER, || Below::NothingAtPrefix).unwrap();
            let first: [u8; 14] = timers
                .scan(&timer(0)[..6], ALL_USER_KEYS, Direction::Forward)
                .record()
                .map(|record| record.key.try_into().unwrap())
                .unwrap();
            timers.delete(MemKey::grouped(&first, 6), Below::unknown).unwrap();
        });
    });
    group.finish();
}

fn epochs(c: &mut Criterion) {
    let mut group = c.benchmark_group("epoch");
    group.sample_size(10);
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("sort 200K records", |b| {
        b.iter_batched(
            || filled().freeze(),
            |epoch| black_box(epoch.cursor(&KeyRange::all(), Direction::Forward)),
            BatchSize::LargeInput,
        );
    });
    group.bench_function("evict 200K records", |b| {
        let clean = || {
            let mut memtable = filled();
            let epoch = memtable.freeze();
            memtable.adopt(epoch.last_sequence());
            memtable
        };
        b.iter_batched(clean, |mut memtable| while memtable.evict_step(64 << 10) > 0 {}, BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, points, groups, epochs);
criterion_main!(benches);
