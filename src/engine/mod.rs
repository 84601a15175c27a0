//! Floor 5: the backend itself.
//!
//! Enters: calls of the owner thread. Leaves: values, tickets, views. Always holds: the owner does no I/O except to read
//! what isn't in memory, and the lock that it shares with workers is never held across I/O; a tree is replaced, never changed; an epoch's memory counts as clean only
//! once the owner reads from the tree that holds it.
//!
//! Read [`backend`] for the owner's side, [`background`] for what it shares with workers, [`jobs`] for what they do,
//! [`checkpoints`] for how a checkpoint is made, [`restore`] and [`hydration`] for how one is opened, and [`room`] for what happens when local disk is short.

mod admitted;
mod backend;
mod background;
mod batched;
mod bring_in;
mod checkpoints;
mod current_key;
mod disk;
mod environment;
mod fetch;
mod folders;
mod hydration;
mod jobs;
mod meters;
mod ops;
mod prefetch;
mod pressure;
mod restore;
mod room;
mod scan;
mod segment_files;
mod states;
mod stats;
mod stored;
mod tuning;
mod value;
mod view;

pub use backend::{Backend, RestoredPart};
pub use environment::{Environment, EnvironmentBuilder, Operator, Subtask};
pub use scan::{Cursor, Prefix, Scan};
pub use states::RawState;
pub use stats::{BackendStats, EnvironmentStats};
pub use tuning::Tuning;
pub use value::Value;
pub use view::{ReadView, ViewEntry};
