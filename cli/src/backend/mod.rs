//! The job's state on Highwater: what `run` and `demo` ask of their seams, answered by the library.
//!
//! - Enters: where the store is, the working directory, budgets; a checkpoint to go on from.
//! - Leaves: a window store a keyed subtask, staged rows for the sink, a coordinator.
//! - Always holds: until the root is claimed, nothing is created or changed, neither in the store nor in the working directory.
//!
//! Two operators share the root: [`KEYED`] at the parallelism of the job, and [`SINK`] with one subtask.

mod coordinator;
mod counted;
mod engine;
mod failure;
mod garbage;
mod keyed;
mod peek;
mod reached;
mod rows;
mod subtask;

#[cfg(test)]
mod tests;

pub use coordinator::RootCoordinator;
pub use engine::{Beginning, Highwater, Place};
pub use failure::{Context, checkpoint_failure, failure};
pub use keyed::KeyedWindows;
pub use peek::{Peek, clock, root_log};
pub use reached::reached;
pub use rows::SinkRows;
pub use subtask::PartTicket;

/// The operator of the keyed subtasks.
pub const KEYED: &str = "windows";

/// The operator of the sink.
pub const SINK: &str = "output";
