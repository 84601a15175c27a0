//! Failures that other systems shipped, as steps with the right answer, through the whole backend. Each test is named
//! after its source. What can be shown of them in one room alone is tested there, under the same names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod checkpoints;
mod files;
mod levels;
mod merges;
mod ranges;
