//! Segments: immutable sorted files of records.
//!
//! Enters: records in order through [`builder`], or a [`crate::version::segment_meta::SegmentMeta`] and a
//! source of bytes through [`reader`]. Leaves: a file and its metadata, or records found by key and walked
//! in both directions. Always holds: opening does no I/O; a read fetches the blocks it needs, through the
//! cache; no byte is believed before its checksum; a file of another id never validates.
//!
//! ```text
//! data block* | filter partition* | index partition* | top-level index | statistics | footer
//! ```
//! - All but the footer are blocks under a [`crate::block::seal`].
//! - Data blocks hold records ([`crate::block::builder`]). One key is in one block. A block ends when it is
//!   full, and at the edge of a key group unless it would be very small.
//! - An index partition is a block of puts: key = the shortest start of the block's first key that is above all
//!   keys before it (nothing for a file's first block), value = the block's handle ([`index`]). So the block
//!   for a key is the last entry at or below it, and a clip at the edge of a key group touches no block beyond.
//! - The top-level index is such a block over the partitions: the key as above, the value two handles, of the
//!   index partition and of the filter partition ([`filter`]) for the same keys.
//! - [`stats`] counts; the [`footer`] has a fixed length and says where the rest begins.

pub mod builder;
pub mod cursor;
pub mod filter;
pub mod footer;
pub mod index;
pub mod lookup;
mod partition;
pub mod readahead;
pub mod reader;
pub mod run_writer;
pub mod stats;
pub mod tail;
mod top;
pub mod verify;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
