//! Floor 1: the memory that a process may use, and the blocks kept in it.
//!
//! Enters: a number of bytes, given by the user. Leaves: reservations. Always holds: every byte that a
//! room keeps for long is reserved here under a purpose, and goes back when its owner is dropped.

pub mod budget;
