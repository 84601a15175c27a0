//! Measuring one store in a process of its own.

pub mod answers;
pub mod apply;
pub mod checkpoints;
pub mod latency;
pub mod process;
pub mod settle;
pub mod throughput;
pub mod verify;
