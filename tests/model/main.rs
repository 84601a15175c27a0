//! The model test: random histories over the public API, run on the engine and on plain ordered maps.
//!
//! A history writes, reads, holds cursors and views across writes, moves the clock both ways, takes
//! checkpoints, runs background work in any order, aborts, crashes, and restores at another parallelism.
//! Everything must agree at every step. `HIGHWATER_MODEL_CASES` sets the number of histories for each
//! configuration (default 24).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod job;
mod model;
mod ops;
mod run;
mod states;

use highwater::Tuning;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};

fn check(tuning: &Tuning, parallelism: u32) {
    let cases = std::env::var("HIGHWATER_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(24);
    let config = ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/model/regressions.txt"))),
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&ops::history(400), |history| {
        run::Run::new(tuning.clone(), parallelism).history(&history);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn tiny_everything() {
    check(&common::cramped(), 2);
}

#[test]
fn many_levels_of_small_segments() {
    let tuning = Tuning {
        block_bytes: 256,
        segment_bytes: 2048,
        level_base_bytes: 2048,
        level_zero_runs: 2,
        epoch_bytes: 32 << 10,
        ..common::cramped()
    };
    check(&tuning, 3);
}

#[test]
fn one_level() {
    let tuning = Tuning {
        block_bytes: 1024,
        segment_bytes: 1 << 20,
        level_base_bytes: 1 << 30,
        level_zero_runs: 2,
        epoch_bytes: 64 << 10,
        ..common::cramped()
    };
    check(&tuning, 1);
}

#[test]
fn runs_pile_up() {
    let tuning = Tuning {
        block_bytes: 512,
        segment_bytes: 1 << 20,
        level_base_bytes: 1 << 20,
        level_zero_runs: 64,
        epoch_bytes: 8 << 10,
        ..common::cramped()
    };
    check(&tuning, 5);
}

#[test]
fn everything_stays_in_memory_until_a_checkpoint() {
    let tuning = Tuning {
        block_bytes: 4096,
        segment_bytes: 1 << 20,
        level_base_bytes: 8 << 20,
        level_zero_runs: 4,
        epoch_bytes: 8 << 20,
        ..common::tiny()
    };
    check(&tuning, 2);
}
