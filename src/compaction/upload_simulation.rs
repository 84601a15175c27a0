//! Two hundred checkpoints without files: what is uploaded for what was changed, and what the store keeps for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::picker::{Options, pick};
use super::plan::Plan;
use super::stand_in;
use super::upload_choice::{Choice, Limits, Place, choose};
use crate::base::ids::SegmentId;
use crate::base::key::{KeyRange, prefix_end};
use crate::version::segment_meta::{BlockHandle, SegmentMeta};
use crate::version::{Edit, SegmentRef, Version};

const ENTRY_BYTES: u64 = 100;

/// What neighbours are multiplied by so that they aren't.
const SCRAMBLE: u32 = 2_654_435_761;

/// Keys with the sequence of their newest record, and whether it is a delete.
type Entries = BTreeMap<u32, (u64, bool)>;

struct Store {
    segments: HashMap<SegmentId, Entries>,
    next_id: u64,
    options: Options,
    target_bytes: u64,
    stored: HashSet<SegmentId>,
    version: Version,
}

impl Store {
    fn new(base_bytes: u64, target_bytes: u64) -> Self {
        let options = Options { base_bytes, level0_runs: 8, ..Options::default() };
        let (segments, stored, version) = Default::default();
        Self { segments, next_id: 0, options, target_bytes, stored, version }
    }

    fn write(&mut self, entries: Entries) -> Arc<SegmentMeta> {
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
        self.segments.insert(meta.id, entries);
        Arc::new(meta)
    }

    fn flush(&mut self, entries: Entries) -> u64 {
        let meta = self.write(entries);
        let bytes = meta.length_bytes;
        self.version = self.version.apply(&Edit::flush(vec![Arc::new(SegmentRef::local(meta))])).unwrap();
        bytes
    }

    fn compact(&mut self, plan: &Plan) {
        if let Some(edit) = plan.immediate_edit() {
            self.version = self.version.apply(&edit).unwrap();
            return;
        }
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
        let mut metas = Vec::new();
        let mut fences = plan.fences.iter().peekable();
        let mut chunk = Entries::new();
        for (key, value) in merged {
            let mut cut = chunk.len() as u64 * ENTRY_BYTES >= self.target_bytes;
            while fences.next_if(|start| start.as_slice() <= &key.to_be_bytes()[..]).is_some() {
                cut = true;
            }
            if cut && !chunk.is_empty() {
                metas.push(self.write(std::mem::take(&mut chunk)));
            }
            chunk.insert(key, value);
        }
        if !chunk.is_empty() {
            metas.push(self.write(chunk));
        }
        let stored = self.stored.clone();
        let is_stored = move |r: &SegmentRef| stored.contains(&r.meta().id);
        let outputs = stand_in::outputs(plan, &metas, &|_| Ok(None)).unwrap();
        let outputs = outputs.iter().map(|r| Arc::new(r.simplified(&is_stored, &is_stored))).collect();
        self.version = self.version.apply(&plan.edit(outputs)).unwrap();
    }

    fn settle(&mut self, most_bytes: u64) {
        while let Some(plan) = pick(&self.version, &self.options, 0).filter(|plan| plan.input_bytes() <= most_bytes) {
            self.compact(&plan);
        }
    }

    /// The tree that the store has, the bytes that were uploaded for it, and whether that is nearly full.
    fn checkpoint(&mut self, limits: &Limits) -> (Version, u64, bool) {
        let stored = self.stored.clone();
        let place = |id| if stored.contains(&id) { Place::Stored } else { Place::Here };
        let Choice { segments: chosen, nearly_full } = choose(&self.version, &place, limits);
        let view = self.version.stored(&|r| stored.contains(&r.meta().id) || chosen.contains(&r.meta().id)).unwrap();
        let new: HashMap<_, _> = view
            .refs()
            .map(|(_, _, r)| (r.meta().id, r.meta().length_bytes))
            .filter(|(id, _)| !stored.contains(id))
            .collect();
        self.stored.extend(new.keys());
        (view, new.values().sum(), nearly_full)
    }

    /// What a reader of `version` sees: of each key the record of the highest run.
    fn visible(&self, version: &Version) -> BTreeSet<(u32, u64)> {
        let mut seen = Entries::new();
        for (_, _, r) in version.refs() {
            for (key, value) in self.segments[&r.meta().id].iter().filter(|(k, _)| r.range().contains(&k.to_be_bytes()))
            {
                seen.entry(*key).or_insert(*value);
            }
        }
        seen.into_iter().filter(|(_, v)| !v.1).map(|(key, v)| (key, v.0)).collect()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below)) as u32
    }
}

/// Ranks drawn by Zipf's law with exponent 0.99.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: u32) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=keys)
                .map(|rank| {
                    sum += 1.0 / f64::from(rank).powf(0.99);
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let at = f64::from(random.below(1 << 30)) / f64::from(1 << 30) * self.0.last().unwrap();
        // Scrambled, so that neighbours in rank aren't neighbours in key.
        (self.0.partition_point(|sum| *sum <= at) as u32).wrapping_mul(SCRAMBLE)
    }
}

struct Outcome {
    upload: f64,
    late_upload: f64,
    space: f64,
    objects: usize,
    runs: usize,
    refs: usize,
    most: f64,
    most_objects: usize,
}

/// 200 checkpoints after one on `loaded`; `change` adds what is written before the next.
#[expect(clippy::print_stdout, reason = "the figures that design.md quotes: run with --nocapture")]
fn simulate(
    name: &str,
    (base_bytes, target_bytes): (u64, u64),
    loaded: Entries,
    mut change: impl FnMut(u64, &mut Entries),
) -> Outcome {
    let most_objects = 64 + (loaded.len() as u64 * ENTRY_BYTES / target_bytes) as usize;
    let limits = &Limits::with_segments_of(target_bytes);
    let mut live: Entries = loaded.clone();
    let mut store = Store::new(base_bytes, target_bytes);
    if !loaded.is_empty() {
        store.flush(loaded);
        store.settle(u64::MAX);
        store.checkpoint(limits);
    }
    let (mut uploaded, mut changed, mut full) = (Vec::new(), Vec::new(), false);
    let mut outcome =
        Outcome { upload: 0.0, late_upload: 0.0, space: 0.0, objects: 0, runs: 0, refs: 0, most: 0.0, most_objects };
    for sequence in 2..202 {
        let mut entries = Entries::new();
        change(sequence, &mut entries);
        entries.retain(|key, value| !value.1 || live.get(key).is_some_and(|v| !v.1));
        live.extend(entries.iter().map(|(k, v)| (*k, *v)));
        live.retain(|_, v| !v.1);
        changed.push(entries.len() as u64 * ENTRY_BYTES);
        let flushed = store.flush(entries);
        store.options.down_through = if full { u64::MAX } else { 0 };
        store.settle((flushed as f64 * AHEAD) as u64);
        let (view, bytes, nearly_full) = store.checkpoint(limits);
        (full, store.options.down_through) = (nearly_full, if nearly_full { sequence } else { 0 });
        uploaded.push(bytes);
        if sequence % 10 == 0 {
            let expected: BTreeSet<_> = live.iter().map(|(key, v)| (*key, v.0)).collect();
            assert_eq!(store.visible(&view), expected, "{name}: what the store has at {sequence}");
            assert_eq!(store.visible(&store.version), expected, "{name}: what is here at {sequence}");
        }
        if sequence > 20 {
            let space = view.total_bytes() as f64 / (live.len() as u64 * ENTRY_BYTES) as f64;
            outcome.space = outcome.space.max(space);
            outcome.objects =
                outcome.objects.max(view.refs().map(|(_, _, r)| r.meta().id).collect::<HashSet<_>>().len());
            outcome.runs = outcome.runs.max(view.runs().count());
            outcome.refs = outcome.refs.max(view.ref_count());
            outcome.most = outcome.most.max(bytes as f64 / flushed as f64);
        }
        store.settle(u64::MAX);
        let mut live_ids = HashSet::new();
        store.version.visit(&mut |r| {
            live_ids.insert(r.meta().id);
            true
        });
        view.visit(&mut |r| {
            live_ids.insert(r.meta().id);
            true
        });
        store.segments.retain(|id, _| live_ids.contains(id));
    }
    let ratio = |from: usize| uploaded[from..].iter().sum::<u64>() as f64 / changed[from..].iter().sum::<u64>() as f64;
    (outcome.upload, outcome.late_upload) = (ratio(0), ratio(100));
    println!(
        "{name}: upload {:.2} (second half {:.2}), space {:.2}, objects {}, runs {}, references {}, most uploaded at once {:.1} deltas",
        outcome.upload, outcome.late_upload, outcome.space, outcome.objects, outcome.runs, outcome.refs, outcome.most
    );
    outcome
}

fn all(keys: u32) -> Entries {
    (0..keys).map(|key| (key.wrapping_mul(SCRAMBLE), (1, false))).collect()
}

/// Merges that are made before an upload, in bytes for each byte flushed, as in the engine.
const AHEAD: f64 = 8.0;

/// What may be uploaded for a changed byte, in all and in the second half, and kept for one alive. No more than 64 objects
/// beside one for each full segment file.
fn assert_within(outcome: &Outcome, upload: f64, late_upload: f64, space: f64) {
    assert!(outcome.upload <= upload && outcome.late_upload <= late_upload, "upload {:.2}", outcome.upload);
    assert!(outcome.space <= space, "space {:.2}", outcome.space);
    assert!(outcome.objects <= outcome.most_objects, "{} objects, {} wanted", outcome.objects, outcome.most_objects);
}

#[test]
fn two_hundred_checkpoints_of_hot_keys_upload_little_more_than_what_changed() {
    let keys = 40_000;
    let state = u64::from(keys) * ENTRY_BYTES;
    for (name, draws, upload) in
        [("hot, 3 %", keys / 15, 1.9), ("hot, 7 %", keys / 6, 2.0), ("hot, 30 %", keys * 5 / 4, 1.7)]
    {
        let (zipf, mut random) = (Zipf::new(keys), Random(1));
        let outcome = simulate(name, (state, state * 2), all(keys), |sequence, entries| {
            for _ in 0..draws {
                entries.insert(zipf.draw(&mut random), (sequence, false));
            }
        });
        assert_within(&outcome, upload, upload, 2.0);
    }
}

#[test]
fn two_hundred_checkpoints_of_small_deltas_keep_few_objects() {
    let keys = 100_000;
    let state = u64::from(keys) * ENTRY_BYTES;
    let sizes = (state / 19, state / 19);
    let (zipf, mut random) = (Zipf::new(keys), Random(1));
    let outcome = simulate("uniform, 0.2 %", sizes, all(keys), |sequence, entries| {
        for _ in 0..keys / 500 {
            entries.insert(random.below(keys).wrapping_mul(SCRAMBLE), (sequence, false));
        }
    });
    assert_within(&outcome, 1.95, 2.3, 1.5);
    let outcome = simulate("hot, 0.1 %", sizes, all(keys), |sequence, entries| {
        for _ in 0..keys / 500 {
            entries.insert(zipf.draw(&mut random), (sequence, false));
        }
    });
    assert_within(&outcome, 1.8, 1.8, 1.3);
}

#[test]
fn two_hundred_checkpoints_of_uniform_keys_upload_little_more_than_what_changed() {
    let keys = 40_000;
    let state = u64::from(keys) * ENTRY_BYTES;
    let mut random = Random(1);
    let outcome = simulate("uniform, 1 %", (state / 16, state / 40), all(keys), |sequence, entries| {
        for _ in 0..keys / 100 {
            entries.insert(random.below(keys).wrapping_mul(SCRAMBLE), (sequence, false));
        }
    });
    assert_within(&outcome, 2.7, 3.3, 2.0);
}

#[test]
fn state_that_dies_before_the_next_freeze_is_uploaded_once_and_keeps_no_space() {
    let bytes = 100_000;
    let outcome = simulate("short-lived", (bytes, bytes * 2), Entries::new(), |sequence, entries| {
        // All that lived at the last freeze is deleted, and as much lives at this one.
        for key in 0..1_000 {
            entries.insert((key + 1_000 * (sequence as u32 - 1)).wrapping_mul(SCRAMBLE), (sequence, true));
            entries.insert((key + 1_000 * sequence as u32).wrapping_mul(SCRAMBLE), (sequence, false));
        }
    });
    // Half of what changes are deletes, which are never uploaded: this is once what lives.
    assert_within(&outcome, 0.51, 0.51, 1.01);
}
