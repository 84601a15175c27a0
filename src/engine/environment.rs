//! One per process: what all backends share.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::backend::Backend;
use super::batched::Readers;
use super::disk::DiskBudget;
use super::folders::{self, Folders};
use super::meters::EnvironmentMeters;
use super::prefetch::{Prefetch, Prefetched};
use super::restore;
use super::tuning::Tuning;
use crate::base::clock::{Clock, SystemClock};
use crate::base::executor::{Executor, ThreadPool};
use crate::base::key_group::{KeyGroupRange, check_parallelism};
use crate::base::limits::{MAX_NAME_BYTES, MEMTABLE_PERCENT, MIN_MEMORY_BYTES};
use crate::base::random::{Random, SeededRandom};
use crate::cache::block_cache::BlockCache;
use crate::cache::budget::{Budget, Purpose, Reservation};
use crate::checkpoint::claim::Claim;
use crate::checkpoint::collector::{Collected, Collector};
use crate::checkpoint::completed::CompletedCheckpoint;
use crate::checkpoint::coordinator::{Coordinator, CoordinatorSettings};
use crate::checkpoint::fork;
use crate::checkpoint::log::RootLog;
use crate::checkpoint::manifests::segment_names;
use crate::io::files::{DirectoryLock, Files};
use crate::io::local_files::LocalFiles;
use crate::io::memory::Slabs;
use crate::io::metered::MeteredStore;
use crate::io::open_store::{StoreUrl, open_store_with};
use crate::io::other_roots::OtherRoots;
use crate::io::store::Store;
use crate::io::store_options::StoreOptions;
use crate::{Error, Result};

/// Threads that flush and merge, and threads that talk to the store. Apart, so that a store that hangs doesn't
/// keep local work from being done.
const LOCAL_THREADS: usize = 2;
const STORE_THREADS: usize = 4;

/// An operator: its stable name and its number of key groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    name: String,
    max_parallelism: u32,
}

impl Operator {
    /// The operator called `name` with `max_parallelism` key groups, which is fixed for the life of its state.
    #[must_use]
    pub fn new(name: impl Into<String>, max_parallelism: u32) -> Self {
        Self { name: name.into(), max_parallelism }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number of key groups.
    #[must_use]
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }
}

/// Which of an operator's subtasks a backend serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subtask {
    /// Index, from 0.
    pub index: u32,
    /// Number of subtasks.
    pub parallelism: u32,
}

/// How to open an [`Environment`]. A directory and a memory budget are a full configuration.
#[derive(Debug)]
#[must_use]
pub struct EnvironmentBuilder {
    directory: PathBuf,
    memory_bytes: u64,
    disk_bytes: Option<u64>,
    store_url: Option<StoreUrl>,
    store_options: StoreOptions,
    store: Option<Arc<dyn Store>>,
    other_roots: Vec<Arc<dyn Store>>,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    executors: Option<(Arc<dyn Executor>, Arc<dyn Executor>)>,
    tuning: Option<Tuning>,
    checkpoints: CoordinatorSettings,
    eager_restore: bool,
}

impl EnvironmentBuilder {
    /// Memory for all state of the process: pages, indexes, caches, buffers. Default 256 MiB, least 16 MiB.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Local disk for segment files. Default: nine tenths of what is free or ours already. A quarter of it is kept for merges. State that
    /// is larger is read from the store for the part that has no room here.
    pub fn disk_bytes(mut self, bytes: u64) -> Self {
        self.disk_bytes = Some(bytes);
        self
    }

    /// Where checkpoints go: `file:///abs/path`, a plain path, `memory:///`, or a cloud URL when its feature is
    /// on. Default: `checkpoints` below the directory, which survives a process, not a disk.
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store_url = Some(StoreUrl(url.into()));
        self
    }

    /// How the store that a URL names is reached: settings and credentials, retries, bandwidth.
    pub fn store_options(mut self, options: StoreOptions) -> Self {
        self.store_options = options;
        self
    }

    /// A store of one's own in place of a URL.
    pub fn store_with(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// A root that this one was forked from, for stores that their URL alone can't open. Others are opened when they are needed.
    pub fn other_root(mut self, store: Arc<dyn Store>) -> Self {
        self.other_roots.push(store);
        self
    }

    /// A file system of one's own, for tests.
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// A clock of one's own, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Randomness of one's own, for tests.
    pub fn random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// Where background work runs: flushes and merges by `local`, transfers by `store`.
    pub fn executors(mut self, local: Arc<dyn Executor>, store: Arc<dyn Executor>) -> Self {
        self.executors = Some((local, store));
        self
    }

    /// Sizes other than those that follow from the memory budget. For tests and experts.
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = Some(tuning);
        self
    }

    /// How the coordinator keeps, times out and tolerates checkpoints.
    pub fn checkpoints(mut self, settings: CoordinatorSettings) -> Self {
        self.checkpoints = settings;
        self
    }

    /// Fetch a restored backend's segments before it opens rather than in the background. Default false.
    pub fn eager_restore(mut self, eager: bool) -> Self {
        self.eager_restore = eager;
        self
    }

    /// Opens it: makes and locks the directory, opens the store.
    ///
    /// # Errors
    /// `InvalidArgument` for a budget or setting that makes no sense; `Locked` naming the process that uses the
    /// directory; store and I/O errors.
    pub fn open(self) -> Result<Environment> {
        if self.memory_bytes < MIN_MEMORY_BYTES {
            return Err(Error::invalid(format!(
                "memory budget of {} bytes is below the least of {MIN_MEMORY_BYTES}",
                self.memory_bytes
            )));
        }
        let tuning = self.tuning.unwrap_or_else(|| Tuning::for_memory(self.memory_bytes));
        tuning.check()?;
        self.files.create_directory(&self.directory)?;
        let lock = self.files.lock(&self.directory)?;
        let store = match (self.store, self.store_url) {
            (Some(store), _) => store,
            (None, Some(StoreUrl(url))) => open_store_with(&url, true, self.clock.clone(), &self.store_options)?,
            (None, None) => {
                let path = self.directory.join("checkpoints");
                tracing::warn!(path = %path.display(), "no store given: checkpoints share the working directory's disk");
                open_store_with(&path.to_string_lossy(), true, self.clock.clone(), &self.store_options)?
            }
        };
        let metered = Arc::new(MeteredStore::new(store, self.clock.clone()));
        let store: Arc<dyn Store> = metered.clone();
        let disk_bytes = match self.disk_bytes {
            Some(bytes) => bytes,
            None => default_disk_bytes(&self.directory, &*self.files)?,
        };
        let (local, remote, readers) = match self.executors {
            Some((local, remote)) => (local.clone(), remote, Readers::on(local)),
            None => {
                let (local, remote) = default_executors()?;
                (local, remote, Readers::default())
            }
        };
        let log = RootLog::new(store.clone(), self.clock.clone(), self.random.clone());
        let others = OtherRoots::with(self.clock.clone(), self.other_roots);
        let memory = MemoryPlan::of(self.memory_bytes);
        let budget = Budget::new(self.memory_bytes);
        let disk = Arc::new(DiskBudget::new(disk_bytes));
        Ok(Environment {
            inner: Arc::new(Inner {
                folders: Folders::open(&self.directory, &self.files, &disk)?,
                memory,
                _reserved: memory.reserve(&budget)?,
                budget,
                slabs: Slabs::default(),
                cache: Arc::new(BlockCache::new(memory.cache_bytes)?),
                disk,
                meters: EnvironmentMeters::new(self.memory_bytes, disk_bytes),
                opened_ns: self.clock.monotonic_ns(),
                store,
                metered,
                others,
                files: self.files,
                clock: self.clock,
                random: self.random,
                local,
                remote,
                readers,
                tuning,
                checkpoints: self.checkpoints,
                eager_restore: self.eager_restore,
                log,
                claim: Mutex::new(None),
                prefetched: Mutex::default(),
                open: Mutex::default(),
                open_backends: AtomicUsize::new(0),
                lock: Arc::from(lock),
            }),
        })
    }
}

/// Nine tenths of what is free or ours already.
fn default_disk_bytes(directory: &Path, files: &dyn Files) -> Result<u64> {
    let left = folders::bytes_left(directory, files)?;
    Ok(files.free_bytes(directory)?.saturating_add(left) / 10 * 9)
}

fn default_executors() -> Result<(Arc<dyn Executor>, Arc<dyn Executor>)> {
    Ok((
        Arc::new(ThreadPool::start("highwater-local", LOCAL_THREADS)?),
        Arc::new(ThreadPool::start("highwater-store", STORE_THREADS)?),
    ))
}

/// How the memory budget is cut: what isn't named here is for the buffers of background work.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryPlan {
    /// The whole budget.
    pub total_bytes: u64,
    /// Pages and indexes of all memtables.
    pub memtable_bytes: u64,
    /// Blocks, indexes and filters.
    pub cache_bytes: u64,
}

impl MemoryPlan {
    fn of(total_bytes: u64) -> Self {
        Self { total_bytes, memtable_bytes: total_bytes / 100 * MEMTABLE_PERCENT, cache_bytes: total_bytes / 100 * 15 }
    }

    fn reserve(self, budget: &Budget) -> Result<[Reservation; 2]> {
        let buffers = self.total_bytes - self.memtable_bytes - self.cache_bytes;
        Ok([budget.try_reserve(Purpose::BlockCache, self.cache_bytes)?, budget.try_reserve(Purpose::Flush, buffers)?])
    }
}

#[derive(Debug)]
pub(super) struct Inner {
    folders: Folders,
    pub memory: MemoryPlan,
    pub budget: Budget,
    /// Where the backends' pages come from.
    pub slabs: Slabs,
    /// The cache's share and that of background buffers, so that memtables can't take them.
    _reserved: [Reservation; 2],
    pub cache: Arc<BlockCache>,
    pub disk: Arc<DiskBudget>,
    pub meters: EnvironmentMeters,
    /// When it was opened, on the clock's monotonic time.
    opened_ns: u64,
    pub store: Arc<dyn Store>,
    /// The same, to ask what was asked of it.
    pub metered: Arc<MeteredStore>,
    /// Roots that ours was forked from.
    pub others: OtherRoots,
    pub files: Arc<dyn Files>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub local: Arc<dyn Executor>,
    pub remote: Arc<dyn Executor>,
    /// Help with reads of many keys.
    pub readers: Readers,
    pub tuning: Tuning,
    pub checkpoints: CoordinatorSettings,
    pub eager_restore: bool,
    log: RootLog,
    pub claim: Mutex<Option<Claim>>,
    /// For the backends that open first. Gone once checkpoints are made.
    pub prefetched: Mutex<Prefetched>,
    /// Operators and subtasks whose backends are open.
    open: Mutex<HashSet<(String, u32)>>,
    open_backends: AtomicUsize,
    /// Of the directory.
    pub lock: Arc<dyn DirectoryLock>,
}

impl Inner {
    /// Memtable bytes that one backend may use now.
    pub fn memtable_share_bytes(&self) -> u64 {
        let share = self.memory.memtable_bytes / self.open_backends().max(1) as u64;
        share.min(self.tuning.memtable_bytes)
    }

    /// Number of open backends.
    pub fn open_backends(&self) -> usize {
        self.open_backends.load(Ordering::Relaxed)
    }

    /// The folder for the local files of a subtask whose backend opens.
    pub fn folder_of(&self, operator: &str, subtask: u32, parallelism: u32) -> PathBuf {
        let is_open = |index| self.open.lock().contains(&(operator.to_owned(), index));
        self.folders.enter(operator, subtask, parallelism, is_open)
    }
}

/// One subtask's right to a backend and to its folder of local files, for as long as the handle lives.
#[derive(Debug)]
pub(super) struct OpenSubtask {
    inner: Arc<Inner>,
    key: (String, u32),
}

impl OpenSubtask {
    /// # Errors
    /// `AlreadyExists` while another backend of this subtask is open.
    pub fn new(inner: &Arc<Inner>, operator: &str, subtask: u32) -> Result<Self> {
        let key = (operator.to_owned(), subtask);
        if !inner.open.lock().insert(key.clone()) {
            let message = format!("subtask {subtask} of `{operator}` has an open backend in this environment");
            return Err(Error::new(crate::ErrorKind::AlreadyExists, message));
        }
        inner.open_backends.fetch_add(1, Ordering::Relaxed);
        Ok(Self { inner: inner.clone(), key })
    }
}

impl Drop for OpenSubtask {
    fn drop(&mut self) {
        self.inner.open.lock().remove(&self.key);
        self.inner.open_backends.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One per process: memory budget, caches, workers, clock, local directory and store, shared by many backends.
///
/// Cheap to clone; any thread may hold one. Dropping the last handle releases the directory once background
/// work that still holds it has ended.
#[derive(Debug, Clone)]
pub struct Environment {
    pub(super) inner: Arc<Inner>,
}

impl Environment {
    /// Starts configuring an environment whose local files live in `directory`.
    pub fn builder(directory: impl AsRef<Path>) -> EnvironmentBuilder {
        EnvironmentBuilder {
            directory: directory.as_ref().to_path_buf(),
            memory_bytes: 256 << 20,
            disk_bytes: None,
            store_url: None,
            store_options: StoreOptions::default(),
            store: None,
            other_roots: Vec::new(),
            files: Arc::new(LocalFiles::new()),
            clock: Arc::new(SystemClock),
            random: Arc::new(SeededRandom::from_system()),
            executors: None,
            tuning: None,
            checkpoints: CoordinatorSettings::default(),
            eager_restore: false,
        }
    }

    /// The store that checkpoints go to.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The same store, to ask what was asked of it.
    #[must_use]
    pub fn metered_store(&self) -> &Arc<MeteredStore> {
        &self.inner.metered
    }

    /// The roots that this one was forked from, to look into its checkpoints ([`crate::inspect`]).
    #[must_use]
    pub fn other_roots(&self) -> &OtherRoots {
        &self.inner.others
    }

    /// The newest completed checkpoint of the root, if there is one: what this job goes on from. Claims the root
    /// first, so that no predecessor completes another one behind our back, and pins the checkpoint in the same entry.
    /// While that goes on, what backends will need first of the checkpoint is fetched.
    ///
    /// Whether its manifests can be read shows when a backend is opened on it: an unreadable newest checkpoint is
    /// an error there, never passed over.
    ///
    /// # Errors
    /// Store errors; `Corruption` or `Unsupported` naming the log entry.
    pub fn latest_checkpoint(&self) -> Result<Option<CompletedCheckpoint>> {
        let mut held = self.inner.claim.lock();
        if held.is_some() {
            drop(held);
            return Ok(self.completed_checkpoints()?.pop());
        }
        let mut prefetch = Prefetch::within(self.inner.memory.total_bytes);
        let (claim, state) = self.log().claim_and_pin(&mut prefetch)?;
        *self.inner.prefetched.lock() = prefetch.found();
        *held = Some(claim);
        Ok(state.latest().cloned())
    }

    /// The completed checkpoints that the root retains, oldest first. Claims nothing.
    ///
    /// # Errors
    /// As [`Environment::latest_checkpoint`].
    pub fn completed_checkpoints(&self) -> Result<Vec<CompletedCheckpoint>> {
        Ok(self.log().state()?.checkpoints)
    }

    /// Claims the root for this process's job, once: the first call appends a claim to the root log, which
    /// fences every earlier claimant; later calls return the same one.
    ///
    /// # Errors
    /// Store errors.
    pub fn claim(&self) -> Result<Claim> {
        let mut claim = self.inner.claim.lock();
        if let Some(claim) = *claim {
            return Ok(claim);
        }
        Ok(*claim.insert(Coordinator::claim(&self.log())?))
    }

    /// Works under a claim that another process of the job made ([`Claim::from_bytes`]).
    ///
    /// # Errors
    /// `AlreadyExists` when this environment works under another claim.
    pub fn adopt_claim(&self, claim: Claim) -> Result<()> {
        let mut held = self.inner.claim.lock();
        match &*held {
            Some(held) if *held != claim => Err(Error::new(
                crate::ErrorKind::AlreadyExists,
                format!("this environment works under the claim of epoch {}", held.epoch),
            )),
            _ => {
                *held = Some(claim);
                Ok(())
            }
        }
    }

    /// The coordinator of a job with these operators and their parallelisms. One process of a job has one.
    ///
    /// # Errors
    /// As [`Environment::claim`]; `InvalidArgument` for a parallelism or setting that makes no sense.
    pub fn coordinator(&self, operators: &[(&Operator, u32)]) -> Result<Coordinator> {
        for (operator, parallelism) in operators {
            check_parallelism(*parallelism, operator.max_parallelism)?;
        }
        let expected: Vec<_> = operators.iter().map(|(o, parallelism)| (o.name.clone(), *parallelism)).collect();
        let mut coordinator = Coordinator::new(self.log(), self.claim()?, &expected, self.inner.checkpoints.clone())?;
        coordinator.count_requests_of(self.inner.metered.clone());
        Ok(coordinator)
    }

    /// Deletes what no retained, pinned, pending or still-in-grace checkpoint of the coordinator's job reaches, and of a fork that needs
    /// its source no more releases the pin there. It
    /// lists the root and reads every manifest within reach: run it on a worker every now and then (an eighth of the
    /// grace period is often enough), not after every checkpoint. Crashing in the middle is fine.
    ///
    /// # Errors
    /// `Fenced`; what reading a manifest that must stay failed with, in which case nothing was deleted; store errors.
    pub fn collect_garbage(&self, collector: &Collector) -> Result<Collected> {
        let _span = tracing::debug_span!("collect_garbage").entered();
        let store = &self.inner.store;
        let collected = collector.run(&|manifest| segment_names(&**store, manifest))?;
        if collected.is_pinned_elsewhere
            && let Err(error) = fork::release(&self.inner.log, &self.inner.others)
        {
            tracing::warn!(%error, "the pin of a fork that needs it no more stays in the root that it was made from");
        }
        Ok(collected)
    }

    /// Takes down that the job has caught up with its input after a start, for metrics: only the host knows.
    pub fn report_caught_up(&self) {
        let took_ns = self.inner.clock.monotonic_ns().saturating_sub(self.inner.opened_ns);
        self.inner.meters.recovery.set(took_ns as f64 / 1e9);
    }

    /// The root log of the store.
    #[must_use]
    pub fn log(&self) -> RootLog {
        self.inner.log.clone()
    }

    /// Opens the backend of one subtask: empty, or with its share of a completed checkpoint made at any
    /// parallelism.
    ///
    /// # Errors
    /// `InvalidArgument` when the subtask or the max parallelism doesn't fit, naming both values; `NotFound`,
    /// `Corruption` or `Unsupported` naming the object that can't be restored from, with nothing changed;
    /// `AlreadyExists` while another backend of the subtask is open here.
    pub fn backend(
        &self,
        operator: &Operator,
        subtask: Subtask,
        from: Option<&CompletedCheckpoint>,
    ) -> Result<Backend> {
        let groups = KeyGroupRange::of_subtask(subtask.index, subtask.parallelism, operator.max_parallelism)?;
        if operator.name.is_empty() || operator.name.len() > MAX_NAME_BYTES {
            return Err(Error::invalid(format!(
                "operator name `{}` must be 1 to {MAX_NAME_BYTES} bytes long",
                operator.name
            )));
        }
        restore::open_backend(self, operator, subtask, groups, from)
    }
}
