//! A completed checkpoint, as the root log tells it.

use super::part::{CheckpointPart, ObjectRef};
use crate::base::ids::CheckpointId;

/// All parts of a checkpoint. It was complete from the moment its entry stood in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedCheckpoint {
    pub(super) id: CheckpointId,
    pub(super) completed_ms: i64,
    pub(super) metadata: Vec<u8>,
    pub(super) parts: Vec<CheckpointPart>,
}

impl CompletedCheckpoint {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// When it was completed, wall milliseconds.
    #[must_use]
    pub fn completed_ms(&self) -> i64 {
        self.completed_ms
    }

    /// What the job attached to the whole checkpoint; each subtask's own metadata is in its manifest.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Parts of all operators, by operator, then subtask.
    #[must_use]
    pub fn parts(&self) -> &[CheckpointPart] {
        &self.parts
    }

    /// Parts of one operator, by subtask; none when the checkpoint doesn't know it.
    pub fn parts_of<'a>(&'a self, operator: &'a str) -> impl Iterator<Item = &'a CheckpointPart> {
        self.parts.iter().filter(move |part| part.operator == operator)
    }

    /// Names of its operators with their parallelism and max parallelism, by name.
    #[must_use]
    pub fn operators(&self) -> Vec<(&str, u32, u32)> {
        let mut operators: Vec<_> =
            self.parts.iter().map(|p| (p.operator.as_str(), p.parallelism, p.max_parallelism)).collect();
        operators.dedup();
        operators
    }

    /// True when later checkpoints don't build on it: a full one or a savepoint.
    #[must_use]
    pub fn self_contained(&self) -> bool {
        self.parts.iter().all(|part| part.self_contained)
    }

    /// Bytes of all that it reaches.
    #[must_use]
    pub fn full_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.full_bytes).sum()
    }

    /// Its manifests.
    pub fn manifests(&self) -> impl Iterator<Item = &ObjectRef> {
        self.parts.iter().map(|part| &part.manifest)
    }
}
