//! Blocks and segments: how long a record takes to be found and walked over, by block size and restart interval.
//!
//! `cargo bench --bench block`. Keys are 20 bytes under a shared prefix of 12, values 8 and 100 bytes.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench, not the library")]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highwater::Result;
use highwater::base::compression::Compression;
use highwater::base::cursor::{Direction, RecordCursor};
use highwater::base::ids::SegmentId;
use highwater::base::key::KeyRange;
use highwater::base::record::{Kind, NEVER, Record};
use highwater::block::backward::Backward;
use highwater::block::builder::BlockBuilder;
use highwater::block::forward::Forward;
use highwater::block::reader::Block;
use highwater::block::seal;
use highwater::cache::block_cache::BlockCache;
use highwater::io::files::{FileWriter, ReadAt};
use highwater::segment::builder::{SegmentBuilder, SegmentOptions};
use highwater::segment::reader::Segment;
use parking_lot::Mutex;

const RECORDS: u32 = 200_000;

#[derive(Clone, Default)]
struct MemoryWriter(Arc<Mutex<Vec<u8>>>);

impl FileWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, _: bool) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile(Vec<u8>);

impl ReadAt for MemoryFile {
    fn name(&self) -> &str {
        "memory"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap();
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
        Ok(())
    }
}

/// Key group, state, then an id in order: every second one is put.
fn key(n: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..6].copy_from_slice(&[0, 5, 1, 2, 3, 4]);
    key[12..].copy_from_slice(&(u64::from(n) * 2).to_be_bytes());
    key
}

fn block(block_bytes: usize, interval: usize, value: &[u8]) -> (Block, u32) {
    let (mut builder, mut n) = (BlockBuilder::new(interval), 0);
    while builder.len() < block_bytes {
        builder.add(&Record { key: &key(n), sequence: 7, kind: Kind::Put, expiry: NEVER, value });
        n += 1;
    }
    (Block::parse(Bytes::from(builder.finish())).unwrap(), n)
}

fn segment(options: SegmentOptions, value: &[u8], cache_bytes: u64) -> Arc<Segment> {
    let writer = MemoryWriter::default();
    let mut builder = SegmentBuilder::new(Box::new(writer.clone()), SegmentId(1), options);
    for n in 0..RECORDS {
        let record = Record { key: &key(n), sequence: 7, kind: Kind::Put, expiry: NEVER, value };
        builder.add(&record, None).unwrap();
    }
    let meta = builder.finish().unwrap();
    let bytes = std::mem::take(&mut *writer.0.lock());
    Segment::open(meta, Arc::new(MemoryFile(bytes)), Arc::new(BlockCache::new(cache_bytes).unwrap()))
}

/// Steps through all numbers below `limit` in an order that no cache foresees.
fn scattered(limit: u32) -> impl FnMut() -> u32 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % u64::from(limit)).unwrap()
    }
}

fn find_in_block(c: &mut Criterion) {
    let mut group = c.benchmark_group("block_find");
    for block_bytes in [4 << 10, 8 << 10] {
        for interval in [4, 8, 16, 32] {
            let (block, records) = block(block_bytes, interval, &[7; 8]);
            let mut next = scattered(records);
            let id =
                BenchmarkId::new(format!("{block_bytes}B"), format!("interval_{interval}_len_{}", block.bytes().len()));
            group.bench_function(id, |b| b.iter(|| black_box(block.find(&key(next())).unwrap().unwrap())));
        }
    }
    group.finish();
}

fn walk_block(c: &mut Criterion) {
    let (block, records) = block(4 << 10, 16, &[7; 8]);
    let mut group = c.benchmark_group("block_walk");
    group.throughput(Throughput::Elements(u64::from(records)));
    group.bench_function("forward", |b| {
        b.iter(|| {
            let mut cursor = Forward::first(block.clone()).unwrap();
            while let Some(record) = cursor.record() {
                black_box(record);
                cursor.advance().unwrap();
            }
        });
    });
    group.bench_function("backward", |b| {
        b.iter(|| {
            let mut cursor = Backward::last(block.clone()).unwrap();
            while let Some(record) = cursor.record() {
                black_box(record);
                cursor.advance().unwrap();
            }
        });
    });
    group.finish();
}

fn unseal(c: &mut Criterion) {
    let mut group = c.benchmark_group("unseal");
    for method in [Compression::None, Compression::Zstd] {
        let (block, _) = block(4 << 10, 16, &[7; 8]);
        let mut sealed = Vec::new();
        seal::seal(block.bytes(), method, 1, &mut sealed).unwrap();
        group.throughput(Throughput::Bytes(block.bytes().len() as u64));
        group.bench_function(format!("{method:?}_4096B"), |b| {
            b.iter(|| black_box(seal::unseal(black_box(sealed.clone()), 1).unwrap()));
        });
    }
    group.finish();
}

fn point_reads(c: &mut Criterion) {
    let mut group = c.benchmark_group("segment_get");
    for value_bytes in [8, 100] {
        for block_bytes in [2 << 10, 4 << 10, 8 << 10, 16 << 10] {
            let options = SegmentOptions { block_bytes, ..SegmentOptions::default() };
            let value = vec![7; value_bytes];
            let warm = segment(options, &value, 1 << 30);
            let mut next = scattered(RECORDS);
            let name = |what: &str| BenchmarkId::new(format!("{what}_v{value_bytes}"), block_bytes);
            group.bench_function(name("cached"), |b| {
                b.iter(|| black_box(warm.get(&key(next()), None).unwrap().record.unwrap()));
            });
            group.bench_function(name("cached_absent"), |b| {
                b.iter(|| {
                    let mut absent = key(next());
                    absent[19] += 1;
                    black_box(warm.get(&absent, None).unwrap())
                });
            });
            // Every get reads its data block from memory and checks it; indexes and filters stay cached.
            let cold = segment(options, &value, 2 << 20);
            group.bench_function(name("small_cache"), |b| {
                b.iter(|| black_box(cold.get(&key(next()), None).unwrap().record.unwrap()));
            });
        }
    }
    group.finish();
}

fn whole_segments(c: &mut Criterion) {
    let mut group = c.benchmark_group("segment_whole");
    group.throughput(Throughput::Elements(u64::from(RECORDS)));
    group.sample_size(10);
    for compression in [Compression::None, Compression::Zstd] {
        let options = SegmentOptions { compression, ..SegmentOptions::default() };
        group.bench_function(format!("build_{compression:?}"), |b| {
            b.iter(|| segment(options, &[7; 100], 1));
        });
        let built = segment(options, &[7; 100], 1);
        for direction in [Direction::Forward, Direction::Backward] {
            group.bench_function(format!("scan_{compression:?}_{direction:?}"), |b| {
                b.iter(|| {
                    let mut cursor = built.cursor(&KeyRange::all(), direction, false).unwrap();
                    while let Some(record) = cursor.record() {
                        black_box(record);
                        cursor.advance().unwrap();
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, find_in_block, walk_block, unseal, point_reads, whole_segments);
criterion_main!(benches);
