//! What a tree knows of a segment without opening it.

use crate::base::ids::{SegmentId, Sequence};
use crate::base::key::KeyRange;
use crate::base::record::ExpiryMs;

/// Where a block lies in its file, its trailer included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockHandle {
    /// First byte.
    pub offset: u64,
    /// Bytes on disk.
    pub length_bytes: u32,
}

/// A finished segment, enough of it to plan with and to read its blocks without reading its footer first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentMeta {
    /// Seeds its checksums.
    pub id: SegmentId,
    /// Length of the file.
    pub length_bytes: u64,
    /// XXH3-64 of the whole file.
    pub hash: u64,
    /// Every key that a record of it is at or, for prefix deletes, covers.
    pub range: KeyRange,
    /// Records.
    pub entries: u64,
    /// Records that are deletes.
    pub deletes: u64,
    /// Records that are prefix deletes.
    pub prefix_deletes: u64,
    /// Records that are merges.
    pub merges: u64,
    /// Least and greatest sequence of its records.
    pub sequences: (Sequence, Sequence),
    /// Least and greatest expiry of its puts ([`crate::base::record::NEVER`] counts as an expiry).
    pub expiries: (ExpiryMs, ExpiryMs),
    /// Sum of key and value lengths, before compression.
    pub data_bytes: u64,
    /// The top-level index.
    pub top_index: BlockHandle,
}
