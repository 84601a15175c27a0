//! Memory: the one budget, and the cache of decoded blocks.
//!
//! Enters: reservations with a purpose; blocks read from segments. Leaves: room, or a refusal; shared blocks.
//! Always holds: what is reserved is given back, on whatever thread that happens; the cache stays within its
//! capacity, and losing a block costs a read, never an answer.

pub mod block_cache;
pub mod budget;
