//! Histories of operations, run on the engine and on plain ordered maps: the model test, steered by the fuzzer.
//!
//! The input is the randomness from which the model test's own strategies draw a history.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/model/job.rs"]
mod job;
#[path = "../../tests/model/model.rs"]
mod model;
#[path = "../../tests/model/ops.rs"]
mod ops;
#[path = "../../tests/model/run.rs"]
mod run;
#[path = "../../tests/model/states.rs"]
mod states;

use libfuzzer_sys::fuzz_target;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fuzz_target!(|input: &[u8]| {
    let rng = TestRng::from_seed(RngAlgorithm::PassThrough, input);
    let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    let Ok(history) = ops::history(200).new_tree(&mut runner) else { return };
    run::Run::new(common::cramped(), 2).history(&history.current());
});
