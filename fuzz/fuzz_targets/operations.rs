//! Histories of operations, run on the engine and on plain ordered maps: the model test, steered by the fuzzer.
//!
//! Each four bytes of the input stand for one step, drawn by the model test's own strategies, so that a changed byte
//! changes one step.
#![no_main]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/model/job.rs"]
mod job;
#[path = "../../tests/model/lists.rs"]
mod lists;
#[path = "../../tests/model/model.rs"]
mod model;
#[path = "../../tests/model/ops.rs"]
mod ops;
#[path = "../../tests/model/run.rs"]
mod run;
#[path = "../../tests/model/states.rs"]
mod states;
#[path = "../../tests/model/walks.rs"]
mod walks;

use libfuzzer_sys::fuzz_target;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Steps of the longest history.
const MAX_STEPS: usize = 200;

/// The step that four bytes of the input stand for: they seed the generator from which it is drawn.
fn step(strategy: &impl Strategy<Value = ops::Op>, bytes: &[u8]) -> Option<ops::Op> {
    let mut seed = [0; 32];
    seed[..bytes.len()].copy_from_slice(bytes);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let config = Config { failure_persistence: None, ..Config::default() };
    Some(strategy.new_tree(&mut TestRunner::new_with_rng(config, rng)).ok()?.current())
}

fuzz_target!(|input: &[u8]| {
    let strategy = ops::op();
    let history: Vec<_> = input.chunks(4).take(MAX_STEPS).filter_map(|bytes| step(&strategy, bytes)).collect();
    let _ = run::Run::new(common::cramped(), 2).history(&history);
});
