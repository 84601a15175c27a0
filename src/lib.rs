//! Highwater: a state backend for stream processors.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

pub mod base;
pub mod block;
pub mod cache;
pub mod checkpoint;
pub mod compaction;
pub mod engine;
pub mod flush;
pub mod inspect;
pub mod io;
pub mod manifest;
pub mod memtable;
pub mod read;
pub mod segment;
pub mod state;
pub mod version;

pub use base::error::{Error, ErrorKind, Result};
pub use checkpoint::claim::Claim;
pub use checkpoint::completed::CompletedCheckpoint;
pub use checkpoint::coordinator::{Begin, Coordinator, CoordinatorSettings};
pub use checkpoint::part::CheckpointPart;
pub use checkpoint::ticket::Ticket;
pub use engine::{
    Backend, BackendStats, Cursor, Environment, EnvironmentBuilder, EnvironmentStats, Operator, Prefix, RawState,
    ReadView, RestoredPart, Scan, Subtask, Tuning, Value, ViewEntry,
};
pub use manifest::CheckpointKind;
pub use state::{
    Address, AggregatingState, Aggregator, Codec, KeyedState, ListState, MapState, OrderedCodec, ReducingState, Serde,
    StateBuilder, TimeDomain, Timer, TimerService, ValueState,
};
