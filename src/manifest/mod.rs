//! Manifests: one subtask's part of a checkpoint, as bytes.
//!
//! Enters: a version whose segments are all durable, with what a restore must know beside it. Leaves: bytes,
//! or the same manifest again. Always holds: a manifest decodes to exactly what was encoded or not at all: a
//! damaged one is `Corruption`, one with a part that this version doesn't know is `Unsupported`, and both name
//! the file; a length that the bytes can't hold is never believed.

mod codec;
mod frame;
mod tree;

use bytes::Bytes;

use crate::base::descriptor::StateDescriptor;
use crate::base::ids::{CheckpointId, Sequence, StateId, WriterEpoch};
use crate::base::key_group::KeyGroupRange;
use crate::version::{SegmentRef, Version};
use crate::{Error, Result};

pub use codec::{decode, encode};
pub use frame::{MAJOR, MINOR};

/// What a checkpoint depends on, and who owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum CheckpointKind {
    /// Only new segments are uploaded; older ones of the lineage are shared.
    #[default]
    Incremental = 1,
    /// Everything is uploaded again; nothing older is needed.
    Full = 2,
    /// As full, and the user's to delete.
    Savepoint = 3,
}

/// One subtask's part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Stable name of the operator.
    pub operator: String,
    /// Index of the subtask that wrote it.
    pub subtask: u32,
    /// Subtasks of the operator at the time.
    pub parallelism: u32,
    /// Number of key groups of the lineage.
    pub max_parallelism: u32,
    /// Key groups it covers.
    pub groups: KeyGroupRange,
    /// Epoch of its writer.
    pub writer_epoch: WriterEpoch,
    /// The checkpoint it is a part of.
    pub checkpoint: CheckpointId,
    /// What it depends on.
    pub kind: CheckpointKind,
    /// When it was frozen, wall milliseconds.
    pub created_ms: i64,
    /// Sequence that the next record of the lineage gets; greater than every one in the tree.
    pub next_sequence: Sequence,
    /// Greatest time that the writer has seen; expiry never looks at an earlier one.
    pub time_high_water_ms: i64,
    /// URLs of the roots that hold the segments. Index 0 is the manifest's own root and stays empty, since a
    /// root can be moved as a whole.
    pub roots: Vec<String>,
    /// Every state with its descriptor.
    pub states: Vec<StateDescriptor>,
    /// States that were dropped: their records in older segments don't count.
    pub dropped: Vec<StateId>,
    /// The caller's own bytes: source offsets, transaction ids.
    pub metadata: Bytes,
    /// Segments.
    pub version: Version,
    /// Checkpoints that this lineage was last restored from.
    pub parents: Vec<CheckpointId>,
}

impl Manifest {
    /// URL of the root that holds the segment of `r`, which is one of this manifest's; `None` for its own root.
    ///
    /// # Errors
    /// Internal when its root isn't in the table.
    pub fn root_of(&self, r: &SegmentRef) -> Result<Option<&str>> {
        match (r.root(), self.roots.get(usize::from(r.root()))) {
            (0, _) => Ok(None),
            (_, Some(url)) => Ok(Some(url)),
            (root, None) => Err(Error::internal(format!("root {root} of a table of {}", self.roots.len()))),
        }
    }
}

#[cfg(test)]
mod tests;
