//! The block format: sorted records, and the seal that every block of a file carries.
//!
//! Enters: records in order, or bytes that nobody has vouched for. Leaves: sealed bytes, or records found by
//! key and walked in both directions. Always holds: no length is used before it is bounded, no byte is
//! believed before its checksum; nothing here does I/O.
//!
//! - [`seal`]: compression tag, length and checksum around a block's bytes;
//! - [`entry`]: one record in a block; [`builder`] writes them, [`reader`] finds them;
//! - [`forward`] and [`backward`]: the two ways to walk.

pub mod backward;
pub mod builder;
pub mod entry;
pub mod forward;
pub mod reader;
pub mod seal;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
