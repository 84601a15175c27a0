//! A load without files: segments are sets of keys, so that weeks of flushes take seconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::picker::{Options, pick};
use super::plan::Action;
use crate::base::ids::SegmentId;
use crate::base::key::{KeyRange, prefix_end};
use crate::version::segment_meta::{BlockHandle, SegmentMeta};
use crate::version::{Edit, SegmentRef, Version};

const ENTRY_BYTES: u64 = 100;

/// Keys with the sequence of their newest record, and whether it is a delete.
type Entries = BTreeMap<u32, (u64, bool)>;

#[derive(Default)]
struct Store {
    segments: HashMap<SegmentId, Entries>,
    next_id: u64,
    written_bytes: u64,
    flushed_bytes: u64,
}

impl Store {
    fn write(&mut self, entries: Entries) -> Arc<SegmentRef> {
        self.next_id += 1;
        let (first, last) = (*entries.keys().next().unwrap(), *entries.keys().next_back().unwrap());
        let length_bytes = entries.len() as u64 * ENTRY_BYTES;
        let sequences = entries.values().map(|v| v.0);
        let meta = SegmentMeta {
            id: SegmentId(self.next_id),
            length_bytes,
            hash: 0,
            range: KeyRange { start: first.to_be_bytes().to_vec(), end: prefix_end(&last.to_be_bytes()) },
            entries: entries.len() as u64,
            deletes: entries.values().filter(|v| v.1).count() as u64,
            prefix_deletes: 0,
            merges: 0,
            sequences: (sequences.clone().min().unwrap(), sequences.max().unwrap()),
            expiries: (i64::MAX, i64::MAX),
            data_bytes: length_bytes,
            top_index: BlockHandle::default(),
        };
        self.written_bytes += length_bytes;
        self.segments.insert(meta.id, entries);
        Arc::new(SegmentRef::local(Arc::new(meta)))
    }

    fn compact(&mut self, version: &Version, options: &Options, target_bytes: u64) -> Option<Version> {
        let plan = pick(version, options, 0)?;
        if let Some(edit) = plan.immediate_edit() {
            return Some(version.apply(&edit).unwrap());
        }
        assert!(matches!(plan.action, Action::Rewrite(_)));
        let mut merged = Entries::new();
        for r in plan.refs() {
            for (key, value) in &self.segments[&r.meta().id] {
                if r.range().contains(&key.to_be_bytes()) {
                    let newest = merged.entry(*key).or_insert(*value);
                    *newest = (*newest).max(*value);
                }
            }
        }
        merged.retain(|key, value| !value.1 || plan.older_holds(&key.to_be_bytes()));
        let mut outputs = Vec::new();
        let merged: Vec<_> = merged.into_iter().collect();
        for chunk in merged.chunks((target_bytes / ENTRY_BYTES) as usize) {
            outputs.push(self.write(chunk.iter().copied().collect()));
        }
        Some(version.apply(&plan.edit(outputs)).unwrap())
    }
}

struct Load {
    flushes: u64,
    entries_per_flush: u32,
    keys: u32,
    deletes_percent: u32,
}

/// Write amplification, space amplification at its worst after the first tenth, most runs.
#[expect(clippy::print_stdout, reason = "the figures that design.md quotes: run with --nocapture")]
fn simulate(name: &str, load: &Load) -> (f64, f64, usize) {
    // Level 1 as large as sixteen flushes: 64 MiB against flushes of 4 MiB.
    let flush_bytes = u64::from(load.entries_per_flush) * ENTRY_BYTES;
    let options = Options { base_bytes: flush_bytes * 16, ..Options::default() };
    let (mut store, mut version, mut live) = (Store::default(), Version::default(), HashMap::new());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    let (mut most_runs, mut worst_space) = (0, 1.0_f64);
    for sequence in 1..=load.flushes {
        let mut entries = Entries::new();
        for _ in 0..load.entries_per_flush {
            entries.insert(random(load.keys), (sequence, random(100) < load.deletes_percent));
        }
        live.extend(entries.iter().map(|(k, v)| (*k, *v)));
        store.flushed_bytes += entries.len() as u64 * ENTRY_BYTES;
        let r = store.write(entries);
        version = version.apply(&Edit::flush(vec![r])).unwrap();
        while let Some(next) = store.compact(&version, &options, flush_bytes * 4) {
            version = next;
        }
        most_runs = most_runs.max(version.runs().count());
        if sequence > load.flushes / 10 {
            let living = live.values().filter(|v| !v.1).count().max(1) as u64 * ENTRY_BYTES;
            worst_space = worst_space.max(version.total_bytes() as f64 / living as f64);
        }
    }
    // What is left is the model.
    let mut found = Entries::new();
    for (_, _, r) in version.refs() {
        for (key, value) in store.segments[&r.meta().id].iter().filter(|(k, _)| r.range().contains(&k.to_be_bytes())) {
            let newest = found.entry(*key).or_insert(*value);
            assert!(newest.0 >= value.0, "key {key}: {newest:?} lies above {value:?}");
        }
    }
    let visible = |m: &mut dyn Iterator<Item = (u32, (u64, bool))>| m.filter(|(_, v)| !v.1).collect::<BTreeMap<_, _>>();
    assert_eq!(visible(&mut found.into_iter()), visible(&mut live.into_iter()));
    let write = store.written_bytes as f64 / store.flushed_bytes as f64;
    println!("{name}: write amplification {write:.1}, space {worst_space:.2}, runs {most_runs}");
    (write, worst_space, most_runs)
}

#[test]
fn two_thousand_flushes_keep_runs_and_amplification_bounded() {
    let uniform = Load { flushes: 2_000, entries_per_flush: 400, keys: 100_000, deletes_percent: 0 };
    let (write, space, runs) = simulate("uniform, 250 flushes of state", &uniform);
    assert!(write < 20.0 && space < 2.0 && runs <= 18, "write {write}, space {space}, runs {runs}");
    let small = Load { flushes: 2_000, entries_per_flush: 400, keys: 2_000, deletes_percent: 0 };
    let (write, space, runs) = simulate("small and hot, 5 flushes of state", &small);
    assert!(write < 8.0 && space < 5.0 && runs <= 18, "write {write}, space {space}, runs {runs}");
    let churn = Load { flushes: 2_000, entries_per_flush: 400, keys: 40_000, deletes_percent: 50 };
    let (write, space, runs) = simulate("half deletes, 100 flushes of keys", &churn);
    assert!(write < 20.0 && space < 4.0 && runs <= 18, "write {write}, space {space}, runs {runs}");
}
