//! References and trees for tests.

use std::sync::Arc;

use super::segment_meta::{BlockHandle, SegmentMeta};
use super::segment_ref::SegmentRef;
use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::base::record::NEVER;

/// Key groups `first..=last`.
pub(crate) fn groups(first: u16, last: u16) -> KeyRange {
    KeyRange { start: first.to_be_bytes().to_vec(), end: Some((last + 1).to_be_bytes().to_vec()) }
}

/// A segment over the key groups `first..=last` with puts that never expire.
pub(crate) fn meta(id: u64, first: u16, last: u16, sequences: (u64, u64), length_bytes: u64) -> SegmentMeta {
    SegmentMeta {
        id: SegmentId(id),
        length_bytes,
        hash: id * 31,
        range: groups(first, last),
        entries: length_bytes / 100 + 1,
        deletes: 0,
        prefix_deletes: 0,
        merges: 0,
        sequences,
        expiries: (NEVER, NEVER),
        data_bytes: length_bytes,
        top_index: BlockHandle { offset: length_bytes.saturating_sub(10), length_bytes: 8 },
    }
}

/// A whole local reference to [`meta`].
pub(crate) fn local(id: u64, first: u16, last: u16, sequences: (u64, u64), length_bytes: u64) -> Arc<SegmentRef> {
    Arc::new(SegmentRef::local(Arc::new(meta(id, first, last, sequences, length_bytes))))
}
