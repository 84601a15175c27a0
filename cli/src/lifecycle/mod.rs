//! What `highwater checkpoints` changes in roots: pins, deletes, garbage. The library does it; here are its arguments and reports.
//!
//! - Enters: a root and what to do there.
//! - Leaves: a report, as text or JSON.
//! - Always holds: no root is claimed, so no job is fenced; what is refused has changed nothing.

mod garbage;
mod pins;

pub use garbage::gc;
pub use pins::{delete, pin, unpin};
