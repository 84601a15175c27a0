//! Checkpoints as the coordinator sees them: who may write, what is complete, what may go.
//!
//! Enters: parts, one a subtask, each naming a manifest that is already in the store. Leaves: completed
//! checkpoints, and the names of objects that nobody can reach any more. Always holds: a checkpoint is one entry
//! of the root log, so it is complete or absent; nothing that a retained, pinned or pending checkpoint
//! reaches is deleted; a writer that has been superseded changes nothing.

pub mod claim;
pub mod collector;
pub mod completed;
pub mod coordinator;
pub mod copy;
pub mod fork;
mod frame;
pub mod gc;
pub mod log;
pub mod manifests;
pub mod object_name;
pub mod part;
mod target;
pub mod ticket;
pub mod upload;
pub mod verify;

#[cfg(test)]
mod tests;
