//! Tests of the coordinator's half of checkpoints, with a toy subtask in place of a backend.

mod collector;
mod coordinator;
mod crash_sweep;
mod log;
mod orphans;
mod outside;
mod reachability;
mod world;
