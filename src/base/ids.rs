//! Identities: states, segments, writer epochs, checkpoints.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::checksum;

/// The low 32 bits of the XXH3-64 of a state's name.
///
/// Two subtasks that register a state lazily must agree on its id without talking, and immutable
/// segments can't be renumbered, so the id follows from the name alone. Two names with one id are
/// refused at registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

impl StateId {
    /// The id of the state called `name`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the id is the low half by definition")]
    pub fn of(name: &str) -> Self {
        Self(checksum::hash64(name.as_bytes()) as u32)
    }
}

/// Seeds a segment's checksums, so that a stale file of the same name and size never validates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u64);

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Number of a claim on a root: every writer of a job's run holds the same one, a successor a higher one.
pub type WriterEpoch = u64;

/// A checkpoint: the host's id within the writer epoch that made it. Ordered oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CheckpointId {
    /// The writer epoch.
    pub epoch: WriterEpoch,
    /// The host's id, growing within the epoch.
    pub id: u64,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.id)
    }
}

impl From<CheckpointId> for u64 {
    /// The host's id: what calls within one writer epoch take.
    fn from(id: CheckpointId) -> Self {
        id.id
    }
}

/// Sequence of a record: the generation of its writer in which it was written. Newer is greater; a
/// generation ends when the memtable is frozen or a view is opened, so records of one generation
/// that nobody else can see are updated in place.
pub type Sequence = u64;
