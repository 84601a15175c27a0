//! Looking into a root without claiming or changing anything.
//!
//! Enters: a store, a completed checkpoint. Leaves: what it holds, and whether every checksum holds. Always holds:
//! nothing is written.

pub mod describe;
pub mod verify;

pub use describe::{Description, GroupBytes, PartMetadata, SegmentSummary, StateSummary, describe};
pub use verify::verify;
