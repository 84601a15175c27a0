//! Filters: how long a probe and a build take.
//!
//! `cargo bench --bench filter`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench, not the library")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use highwater::segment::filter::{Filter, build, key_hash};

const HASHES: u64 = 8192;

fn filters(c: &mut Criterion) {
    let hashes: Vec<u64> = (0..HASHES).map(|n| key_hash(&n.to_be_bytes())).collect();
    let bytes = build(&hashes);
    let mut group = c.benchmark_group("filter");
    let mut n = 0_u64;
    group.bench_function("hash_and_probe_present", |b| {
        b.iter(|| {
            n = (n + 4097) % HASHES;
            let filter = Filter::parse(black_box(&bytes)).unwrap();
            black_box(filter.may_contain(key_hash(&n.to_be_bytes())))
        });
    });
    group.bench_function("hash_and_probe_absent", |b| {
        b.iter(|| {
            n += 1;
            let filter = Filter::parse(black_box(&bytes)).unwrap();
            black_box(filter.may_contain(key_hash(&(n + HASHES).to_be_bytes())))
        });
    });
    group.throughput(Throughput::Elements(HASHES));
    group.bench_function("build_8192", |b| b.iter(|| black_box(build(black_box(&hashes)))));
    group.finish();
    let filter = Filter::parse(&bytes).unwrap();
    let passed = (HASHES..HASHES + 1_000_000).filter(|n| filter.may_contain(key_hash(&n.to_be_bytes()))).count();
    #[expect(clippy::print_stdout, reason = "a bench reports")]
    {
        println!("absent keys that pass: {passed} of 1,000,000");
    }
}

criterion_group!(benches, filters);
criterion_main!(benches);
