//! Floor 0: what every room above shares.
//!
//! Enters: nothing of ours. Leaves: errors, ids, key groups and the key encoding, records, checksums,
//! compression, bounded decoding, limits, and the seams for time, randomness and background work.
//! Always holds: nothing here does I/O, and nothing here knows a room above.

pub mod buffer;
pub mod checksum;
pub mod clock;
pub mod compression;
pub mod cursor;
pub mod descriptor;
pub mod error;
pub mod executor;
pub mod ids;
pub mod key;
pub mod key_group;
pub mod limits;
pub mod merge_operator;
pub mod meters;
pub mod operands;
pub mod random;
pub mod record;
pub mod short;
pub mod wire;
