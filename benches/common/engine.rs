//! A backend to measure: files in a directory that goes with it, checkpoints in memory, real threads.

use highwater::base::descriptor::{Layout, StateDescriptor};
use highwater::base::key::KeyShape;
use highwater::{Backend, Environment, Operator, RawState, Subtask};

/// An environment, its directory, and one backend that has all key groups.
pub struct Engine {
    pub backend: Backend,
    pub env: Environment,
    _directory: tempfile::TempDir,
}

impl Engine {
    /// One under `memory_bytes` of budget, its checkpoints in memory.
    pub fn new(memory_bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let env = Environment::builder(directory.path()).memory_bytes(memory_bytes).store("memory:///").open().unwrap();
        let subtask = Subtask { index: 0, parallelism: 1 };
        let backend = env.backend(&Operator::new("bench", 128), subtask, None).unwrap();
        Self { backend, env, _directory: directory }
    }

    /// A raw state of single values whose keys are 16 bytes long.
    pub fn raw_state(&mut self) -> RawState {
        let descriptor = StateDescriptor {
            name: "raw".into(),
            kind: "raw".into(),
            layout: Layout::Single,
            shape: KeyShape { key_width: Some(16), namespace_width: Some(0) },
            codecs: Default::default(),
            ttl_ms: None,
            merge_operator: None,
        };
        self.backend.register(descriptor, None).unwrap()
    }
}
