//! What two hundred checkpoints of a real backend upload for what changed, and refer to for what is alive. Counts, not time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::rig::{Rig, mix};
use common::tiny;
use highwater::*;

const VALUE_BYTES: usize = 100;

struct Outcome {
    upload: f64,
    space: f64,
}

fn rig() -> Rig {
    let mut rig = Rig::new(Tuning {
        page_bytes: 64 << 10,
        epoch_bytes: 1 << 20,
        block_bytes: 4096,
        segment_bytes: 64 << 10,
        level_base_bytes: 128 << 10,
        level_zero_runs: 8,
        ..tiny()
    });
    rig.start(1).unwrap();
    rig
}

fn value(n: u64) -> Vec<u8> {
    (0..VALUE_BYTES as u64 / 8 + 1).flat_map(|i| mix(n * 31 + i).to_le_bytes()).take(VALUE_BYTES).collect()
}

/// `change` says what the keys become before checkpoint `n`. In the end another job takes over and finds everything.
#[expect(clippy::print_stdout, reason = "the figures that design.md quotes: run with --nocapture")]
fn follow(name: &str, mut change: impl FnMut(u64) -> BTreeMap<u32, Option<Vec<u8>>>) -> Outcome {
    let mut rig = rig();
    let mut outcome = Outcome { upload: 0.0, space: 0.0 };
    let (mut uploaded, mut changed) = (0, 0);
    for n in 0..200 {
        for (key, value) in change(n) {
            changed += if n > 0 { 4 + value.as_ref().map_or(0, Vec::len) as u64 } else { 0 };
            match value {
                Some(value) => rig.put(key, value).unwrap(),
                None => rig.delete(key).unwrap(),
            }
        }
        let completed = rig.incremental().unwrap();
        let part = &completed.parts()[0];
        if n > 0 {
            uploaded += part.delta_bytes;
        }
        if n > 20 {
            let alive: u64 = rig.model.values.values().map(|value| 4 + value.len() as u64).sum();
            outcome.space = outcome.space.max(part.full_bytes as f64 / alive as f64);
        }
    }
    outcome.upload = uploaded as f64 / changed as f64;
    println!("{name}: upload {:.2}, space {:.2}, manifests included", outcome.upload, outcome.space);
    rig.kill_and_lose_directory();
    rig.start(2).unwrap();
    rig.check().unwrap();
    outcome
}

#[test]
fn hot_keys_are_uploaded_little_more_than_they_change() {
    let mut draws = 0;
    let outcome = follow("hot", |n| {
        let mut changes = BTreeMap::new();
        if n == 0 {
            changes.extend((0..4_000).map(|key| (key, Some(value(key.into())))));
        }
        for _ in 0..400 {
            draws += 1;
            let at = (mix(draws) >> 11) as f64 / (1_u64 << 53) as f64;
            let key = mix((at.powi(4) * 4_000.0) as u64) % 4_000;
            changes.insert(key as u32, Some(value(draws)));
        }
        changes
    });
    // Twice, and a tenth that blocks, filters and manifests add.
    assert!(outcome.upload <= 2.25 && outcome.space <= 2.25, "{} {}", outcome.upload, outcome.space);
}

#[test]
fn state_that_dies_before_the_next_freeze_is_uploaded_once() {
    let outcome = follow("short-lived", |n| {
        let key = |n: u64, i: u64| (mix(n * 1_000 + i) >> 33) as u32;
        let mut changes = BTreeMap::new();
        if n > 0 {
            changes.extend((0..400).map(|i| (key(n - 1, i), None)));
        }
        changes.extend((0..400).map(|i| (key(n, i), Some(value(n * 1_000 + i)))));
        changes
    });
    assert!(outcome.upload <= 1.2 && outcome.space <= 1.3, "{} {}", outcome.upload, outcome.space);
}
