//! What `highwater checkpoints` changes in roots: pins, deletes, garbage, forks, copies. The library does it; here are its arguments and reports.
//!
//! - Enters: a root and what to do there.
//! - Leaves: a report, as text or JSON.
//! - Always holds: no root is claimed but one that a command makes, so no job is fenced; what is refused has changed nothing.

mod copy;
mod fork;
mod garbage;
mod pins;

pub use copy::{CopyReport, copy, copy_to};
pub use fork::fork;
pub use garbage::gc;
pub use pins::{delete, pin, unpin};
