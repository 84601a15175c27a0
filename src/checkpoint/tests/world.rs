//! What these tests share: a store under faults, a clock, and a toy subtask whose manifest is a list of names.

use std::sync::Arc;
use std::time::Duration;

use crate::base::checksum::hash64;
use crate::base::clock::ManualClock;
use crate::base::ids::CheckpointId;
use crate::base::key_group::KeyGroupRange;
use crate::base::random::SeededRandom;
use crate::checkpoint::claim::Claim;
use crate::checkpoint::completed::CompletedCheckpoint;
use crate::checkpoint::coordinator::{Coordinator, CoordinatorSettings};
use crate::checkpoint::log::RootLog;
use crate::checkpoint::object_name::{ObjectKind, ObjectName};
use crate::checkpoint::part::{CheckpointPart, ObjectRef};
use crate::io::faulty::{Faults, FaultyStore};
use crate::io::memory_store::MemoryStore;
use crate::io::retry::{Cancel, RetryPolicy};
use crate::io::store::{PutMode, Store};
use crate::{Error, Result};

pub const GRACE: Duration = Duration::from_secs(60);

pub struct World {
    /// Without faults.
    pub inner: Arc<dyn Store>,
    pub store: Arc<dyn Store>,
    pub faults: Arc<Faults>,
    pub clock: Arc<ManualClock>,
    pub random: Arc<SeededRandom>,
}

impl World {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        Self::over(Arc::new(MemoryStore::new(clock.clone())), clock)
    }

    pub fn over(inner: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        let faults = Faults::none();
        let store = Arc::new(FaultyStore::new(inner.clone(), faults.clone()));
        Self { inner, store, faults, clock, random: Arc::new(SeededRandom::new(7)) }
    }

    /// The log, under faults, each request tried once.
    pub fn log(&self) -> RootLog {
        let once = RetryPolicy { deadline: Duration::ZERO, ..RetryPolicy::default() };
        RootLog::with_retries(self.store.clone(), self.clock.clone(), self.random.clone(), once, Cancel::new())
    }

    /// The log without faults.
    pub fn plain_log(&self) -> RootLog {
        RootLog::new(self.inner.clone(), self.clock.clone(), self.random.clone())
    }

    pub fn coordinator(&self, claim: Claim, retain: usize) -> Result<Coordinator> {
        let settings = CoordinatorSettings { retain, grace: GRACE, ..CoordinatorSettings::default() };
        Coordinator::new(self.log(), claim, &[("op".to_owned(), 1)], settings)
    }

    pub fn subtask(&self, claim: Claim) -> Subtask {
        Subtask { store: self.store.clone(), claim, counter: 0, tree: Vec::new() }
    }

    pub fn references(&self) -> impl Fn(&ObjectRef) -> Result<Vec<String>> + use<> {
        let store = self.store.clone();
        move |manifest| references(store.as_ref(), manifest)
    }

    /// Checks that all is there, byte for byte, that `checkpoint` reaches.
    pub fn assert_restorable(&self, checkpoint: &CompletedCheckpoint) {
        for manifest in checkpoint.manifests() {
            for name in references(self.inner.as_ref(), manifest).unwrap() {
                let bytes = self.inner.get(&name).unwrap_or_else(|e| panic!("{}: {e}", checkpoint.id()));
                assert_eq!(hash64(&bytes), ObjectName::parse(&name).unwrap().hash, "{name}");
            }
        }
    }

    pub fn names(&self) -> Vec<String> {
        let all = self.inner.list("").unwrap();
        all.into_iter().map(|o| o.name).filter(|name| !name.starts_with("log/")).collect()
    }
}

pub fn references(store: &dyn Store, manifest: &ObjectRef) -> Result<Vec<String>> {
    let bytes = store.get(&manifest.name)?;
    if hash64(&bytes) != manifest.hash || bytes.len() as u64 != manifest.length_bytes {
        return Err(Error::corruption(format!("manifest `{}`", manifest.name)));
    }
    Ok(String::from_utf8(bytes.to_vec()).unwrap().lines().map(str::to_owned).collect())
}

/// The one subtask of the operator `op`.
pub struct Subtask {
    store: Arc<dyn Store>,
    pub claim: Claim,
    counter: u64,
    /// Names of its live segments.
    pub tree: Vec<String>,
}

impl Subtask {
    /// Uploads an object, for one checkpoint alone or a segment for any.
    pub fn put(&mut self, bytes: &str, checkpoint: Option<u64>, kind: ObjectKind) -> Result<ObjectRef> {
        self.counter += 1;
        let hash = hash64(bytes.as_bytes());
        let (epoch, counter) = (self.claim.epoch, self.counter);
        let name = ObjectName { folder: "op".to_owned(), subtask: 0, epoch, counter, hash, checkpoint, kind };
        let name = name.to_string();
        self.store.put(&name, bytes.to_owned().into(), PutMode::Overwrite)?;
        Ok(ObjectRef { name, length_bytes: bytes.len() as u64, hash })
    }

    /// Uploads a segment that holds `bytes`, a part of the tree from now on.
    pub fn segment(&mut self, bytes: &str) -> Result<()> {
        let segment = self.put(bytes, None, ObjectKind::Segment)?;
        self.tree.push(segment.name);
        Ok(())
    }

    /// Uploads the manifest of the tree as it stands. Of what was uploaded before and isn't in the tree, nothing will be
    /// used again.
    pub fn part(&mut self, id: u64) -> Result<CheckpointPart> {
        let settled = 0..self.counter + 1;
        let manifest = self.put(&self.tree.join("\n"), Some(id), ObjectKind::Manifest)?;
        Ok(CheckpointPart {
            checkpoint: CheckpointId { epoch: self.claim.epoch, id },
            operator: "op".to_owned(),
            subtask: 0,
            parallelism: 1,
            max_parallelism: 128,
            key_groups: KeyGroupRange::of_subtask(0, 1, 128).unwrap(),
            manifest,
            self_contained: false,
            settled,
            delta_bytes: 1,
            uploaded_bytes: 2,
            full_bytes: 3,
        })
    }
}
