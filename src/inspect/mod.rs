//! Looking into a root without claiming or changing anything.
//!
//! Enters: a store, a completed checkpoint. Leaves: what it holds, as a whole or under one key, and whether every checksum holds. Always holds:
//! nothing is written.

pub mod describe;
pub mod get;
mod opener;
pub mod verify;

pub use describe::{Description, GroupBytes, PartMetadata, SegmentSummary, StateSummary, describe};
pub use get::{KeyEntries, StoredEntry, get};
pub use verify::verify;
