//! Highwater: a state backend for stream processors.
//!
//! An operator of a streaming job keeps its keyed state in a [`Backend`], one for each subtask, owned by the thread
//! that processes its records. All backends of a process share an [`Environment`]: one memory budget, one pool of
//! workers, one object store. A checkpoint is started by a call that returns at once; workers flush, upload and hand
//! in each subtask's part, and when a [`Coordinator`] has the parts of all, the checkpoint is complete. A job comes
//! back from it at any parallelism.
//!
//! Typed state is reached through tokens that [`KeyedState`] registers: [`ValueState`], [`ListState`], [`MapState`],
//! [`ReducingState`], [`AggregatingState`], and a [`TimerService`]. They borrow nothing, so many are used with one
//! backend. Engines with serializers of their own use the raw layer of [`Backend`] itself.
//!
//! # Example
//! Counting, a checkpoint, a crash, and the counts again, on two subtasks in place of one.
//! ```
//! use std::time::Duration;
//! use highwater::base::key_group::{key_group_of, subtask_of};
//! use highwater::*;
//!
//! let root = tempfile::tempdir()?;
//! let store = format!("file://{}", root.path().join("job").display());
//! let op = Operator::new("count", 128);
//!
//! {
//!     let env = Environment::builder(root.path().join("first")).store(&store).open()?;
//!     let mut coordinator = env.coordinator(&[(&op, 1)])?;
//!     let mut b = env.backend(&op, Subtask { index: 0, parallelism: 1 }, None)?;
//!     let hits = b.value_state::<String, u64>("hits")?;
//!     for word in ["high", "water", "high"] {
//!         let n = hits.get(&mut b, word)?.unwrap_or(0);
//!         hits.put(&mut b, word, n + 1)?;
//!     }
//!     coordinator.begin(1)?;
//!     let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"offset 3")?;
//!     assert!(coordinator.add(ticket.wait(Duration::from_secs(60))?)?.is_some());
//!     hits.put(&mut b, "high", 1_000_000)?; // not in the checkpoint
//! } // a crash: local files are only a cache
//!
//! let env = Environment::builder(root.path().join("second")).store(&store).open()?;
//! let last = env.latest_checkpoint()?;
//! for index in 0..2 {
//!     let mut b = env.backend(&op, Subtask { index, parallelism: 2 }, last.as_ref())?;
//!     assert_eq!(b.restored_parts()[0].metadata(), b"offset 3"); // where to read on
//!     let hits = b.value_state::<String, u64>("hits")?;
//!     if subtask_of(key_group_of(b"high", 128), 2, 128) == index {
//!         assert_eq!(hits.get(&mut b, "high")?, Some(2));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//! Each module is a room on a floor, and imports go strictly downward: [`base`]; [`io`], [`cache`], [`block`],
//! [`version`]; [`segment`], [`memtable`], [`manifest`]; [`read`]; [`flush`], [`compaction`], [`checkpoint`];
//! [`engine`]; [`state`]. `design.md` says how they work together.
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
pub use io::store_options::StoreOptions;
pub use manifest::CheckpointKind;
pub use state::{
    Address, AggregatingState, Aggregator, Codec, KeyedState, ListState, MapState, OrderedCodec, ReducingState, Serde,
    StateBuilder, TimeDomain, Timer, TimerService, ValueState,
};

/// The examples of the README run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
