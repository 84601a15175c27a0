//! The store of a job, from the first look to the running state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwater::base::ids::CheckpointId;
use highwater::base::key_group::check_parallelism;
use highwater::base::limits::min_memory_bytes;
use highwater::checkpoint::fork::{fork, fork_newest};
use highwater::checkpoint::log::LineageState;
use highwater::io::files::Files;
use highwater::io::local_files::LocalFiles;
use highwater::io::open_store::open_store;
use highwater::io::store::Store;
use highwater::{CompletedCheckpoint, Coordinator, CoordinatorSettings, Environment, Operator, Subtask};

use crate::args::RunArgs;
use crate::backend::coordinator::impatient_log;
use crate::backend::counted::CountedStore;
use crate::backend::garbage::GarbageThread;
use crate::backend::peek::in_memory;
use crate::backend::{Context, KEYED, KeyedWindows, Peek, RootCoordinator, SINK, SinkRows, clock, reached, root_log};
use crate::console;
use crate::exit::{Failure, Outcome};
use crate::job::{Engine, Newest, Started};

/// Local disk without which a backend can't write any segment: a block with index and filter, and the quarter that is kept for merges. How much more it takes
/// depends on what is written between two checkpoints.
const DISK_BYTES_PER_BACKEND: u64 = 16 << 10;

/// Where a job lives, and with what budgets.
#[derive(Clone, Debug)]
pub struct Place {
    /// The root of its checkpoints.
    pub store: String,
    /// Whether the user named it.
    pub store_named: bool,
    /// The checkpoint of another job to begin on.
    pub from: Option<Beginning>,
    /// Whether to say what of it may surprise.
    pub warn: bool,
    /// The working directory.
    pub dir: PathBuf,
    /// The memory budget in bytes.
    pub memory: u64,
    /// The budget for local files in bytes, where it isn't left to the library.
    pub disk: Option<u64>,
    /// Key groups.
    pub max_parallelism: u32,
    /// Backends that share the memory: those of the subtasks and the sink's.
    pub backends: u64,
    /// Names of the job's streams.
    pub streams: Vec<String>,
    /// The time between checkpoints.
    pub interval: Duration,
    /// When one is given up.
    pub checkpoint_timeout: Duration,
    /// Completed checkpoints that are kept.
    pub retain: usize,
    /// For how long older ones are kept.
    pub retain_for: Duration,
    /// How long what nobody reaches is kept.
    pub grace: Duration,
}

/// Another job's checkpoint that a new job begins on.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The root that holds it.
    pub url: String,
    /// By its name; the newest otherwise.
    pub checkpoint: Option<String>,
    /// Whether that root is taken over, and is the store.
    pub claim: bool,
}

impl Place {
    /// As the command line has it.
    pub fn of_run(args: &RunArgs) -> Self {
        let dir = args.working_dir();
        let taken_over = args.from.clone().filter(|_| args.claim);
        let named = taken_over.or_else(|| args.store.clone());
        let from =
            args.from.clone().map(|url| Beginning { url, checkpoint: args.checkpoint.clone(), claim: args.claim });
        Self {
            store_named: named.is_some(),
            store: named.unwrap_or_else(|| dir.join("checkpoints").to_string_lossy().into_owned()),
            // A job that was begun in a root that it took over goes on there like any other.
            from: from.filter(|from| !(from.claim && args.resume)),
            warn: true,
            dir,
            memory: args.memory,
            disk: args.disk,
            max_parallelism: args.max_parallelism,
            backends: u64::from(args.parallelism) + 1,
            streams: vec![if args.windows.gap.is_some() { "sessions" } else { "windows" }.to_owned()],
            interval: args.interval,
            checkpoint_timeout: args.checkpoint_timeout,
            retain: args.retain as usize,
            retain_for: args.retain_for,
            grace: args.grace,
        }
    }

    /// Refuses places that would get into each other's way, while nothing has been touched.
    ///
    /// # Errors
    ///
    /// The output is the working directory or the store, or the working directory is in the store (2).
    pub fn check_apart(&self, output: &Path) -> Outcome<()> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (output, dir) = (absolute(output), absolute(&self.dir));
        let local = self.store.strip_prefix("file://").or_else(|| (!self.store.contains(":/")).then_some(&*self.store));
        let store = local.map(|path| absolute(Path::new(path)));
        let both = |what: &str, other: &str, path: &Path| {
            Err(Failure::usage(format!("{what} and {other} can't be one: {}", path.display())))
        };
        match store {
            _ if output == dir => both("--output", "--dir", &dir),
            Some(store) if output == store => both("--output", "--store", &store),
            Some(store) if dir.starts_with(&store) => Err(Failure::usage(format!(
                "the working directory {} lies in the checkpoint store {}, which would list its files among its objects",
                dir.display(),
                store.display()
            ))),
            _ => Ok(()),
        }
    }

    fn settings(&self) -> CoordinatorSettings {
        CoordinatorSettings {
            retain: self.retain,
            retain_for: self.retain_for,
            grace: self.grace,
            timeout: self.checkpoint_timeout,
            // The schedule of the run counts those in flight, and a run puts up with any number of failures.
            max_in_flight: usize::MAX,
            tolerated_failures: None,
        }
    }

    /// Says what the user may not expect of where things lie.
    fn tell(&self) {
        if in_memory(&self.store) {
            console::warn("the store is in memory: its checkpoints end with this process");
        } else if !self.store_named {
            console::warn(format_args!(
                "no --store given: checkpoints go to {}, beside the working files, and are lost with them",
                self.store
            ));
        } else if same_disk(&self.dir, &self.store) {
            console::warn(format_args!(
                "the checkpoints in {} are on the same disk as the working directory, and are lost with it",
                self.store
            ));
        }
    }
}

/// Highwater under one job of this process.
#[derive(Debug)]
pub struct Highwater {
    place: Place,
    peek: Peek,
    open: Option<(Environment, Arc<CountedStore>)>,
    /// What the job goes on from.
    newest: Option<CompletedCheckpoint>,
    /// The other root that it lies in, until the job's own has it; with its id where the user named it.
    source: Option<(Arc<dyn Store>, Option<CheckpointId>)>,
}

impl Highwater {
    /// Looks at `place`; nothing is created yet.
    ///
    /// # Errors
    ///
    /// The store's URL or the working directory can't be used (2).
    pub fn at(place: Place) -> Outcome<Self> {
        if place.dir.exists() && !place.dir.is_dir() {
            return Err(Failure::usage(format!("the working directory {} is not a directory", place.dir.display())));
        }
        let least = min_memory_bytes(place.backends);
        if place.memory < least {
            return Err(Failure::usage(format!(
                "--memory of {} bytes is less than the {least} bytes ({}MiB) that the state needs at a parallelism of {}",
                place.memory,
                least >> 20,
                place.backends - 1
            )));
        }
        let least = place.backends * DISK_BYTES_PER_BACKEND;
        if let Some(disk) = place.disk.filter(|disk| *disk < least) {
            return Err(Failure::usage(format!(
                "--disk of {disk} bytes is less than the {least} bytes ({}KiB) that the least state needs at a parallelism of {}",
                least >> 10,
                place.backends - 1
            )));
        }
        let peek = Peek::at(&place.store)?;
        Ok(Self { place, peek, open: None, newest: None, source: None })
    }

    /// Whether nobody can go on from here: the store is in memory.
    pub fn ends_with_process(&self) -> bool {
        self.peek.ends_with_process()
    }

    fn environment(&self) -> Outcome<(&Environment, &Arc<CountedStore>)> {
        let open = self.open.as_ref().map(|(env, store)| (env, store));
        open.ok_or_else(|| Failure::internal("the store is used before it was claimed"))
    }

    fn keyed(&self) -> Operator {
        Operator::new(KEYED, self.place.max_parallelism)
    }

    /// Refuses what the state can't be restored under, while nothing has been touched.
    fn check_max_parallelism(&self, checkpoint: &CompletedCheckpoint) -> Outcome<()> {
        let ours = self.place.max_parallelism;
        match checkpoint.operators().into_iter().find(|(operator, ..)| *operator == KEYED) {
            Some((_, _, max)) if max != ours => Err(Failure::usage(format!(
                "max parallelism is fixed for the life of the state: the checkpoint has --max-parallelism {max}, the command line --max-parallelism {ours}"
            ))),
            _ => Ok(()),
        }
    }

    /// The job's own store, once it is there.
    pub fn store(&self) -> Option<Arc<dyn Store>> {
        match &self.open {
            Some((env, _)) => Some(env.store().clone()),
            None => self.peek.store().cloned(),
        }
    }

    fn own_state(&self) -> Outcome<Option<LineageState>> {
        match &self.open {
            Some((env, _)) => Ok(env.log().newest().outcome()?.map(|entry| entry.state)),
            None => self.peek.state(),
        }
    }

    /// What the job goes on from, and whether that is another's checkpoint.
    fn choose(&mut self) -> Outcome<Option<(CompletedCheckpoint, bool)>> {
        let state = self.own_state()?;
        match &self.place.from {
            Some(from) if from.claim => {
                let none = || Failure::checkpoint(format!("there is no Highwater job in {}", from.url));
                return Ok(Some((chosen(&state.ok_or_else(none)?, from)?, true)));
            }
            _ => {}
        }
        if let Some(state) = state
            && let Some(newest) = state.latest()
        {
            let forked = state.origin.as_ref().is_some_and(|origin| origin.forked == newest.id());
            return Ok(Some((newest.clone(), forked)));
        }
        let Some(from) = &self.place.from else { return Ok(None) };
        let peek = Peek::at(&from.url)?;
        let (store, state) = peek.job()?;
        let checkpoint = chosen(&state, from)?;
        self.source = Some((store.clone(), from.checkpoint.as_ref().map(|_| checkpoint.id())));
        Ok(Some((checkpoint, true)))
    }

    /// True of the job's own store when an earlier attempt of the same command has made it a fork, and has completed nothing since: there
    /// is nothing to lose, and the command goes on from there.
    fn has_forked(&self, state: &LineageState) -> Outcome<bool> {
        let (Some(from), Some(origin)) = (&self.place.from, &state.origin) else { return Ok(false) };
        if state.latest().map(CompletedCheckpoint::id) != Some(origin.forked) {
            return Ok(false);
        }
        let peek = Peek::at(&from.url)?;
        // Where the other root is away, the restore says so by its name.
        let Some(store) = peek.store() else { return Ok(true) };
        let wanted = match &from.checkpoint {
            Some(_) => chosen(&peek.job()?.1, from)?.id() == origin.source,
            None => true,
        };
        Ok(wanted && store.url() == origin.url)
    }

    fn coordinator(&self, parallelism: u32) -> Outcome<RootCoordinator> {
        let (env, store) = self.environment()?;
        let keyed = self.keyed();
        check_parallelism(parallelism, keyed.max_parallelism()).outcome()?;
        let operators = [(KEYED.to_owned(), parallelism), (SINK.to_owned(), 1)];
        let (log, claim) = (impatient_log(env.store().clone()), env.claim().outcome()?);
        let mut inner = Coordinator::new(log, claim, &operators, self.place.settings()).outcome()?;
        inner.count_requests_of(env.metered_store().clone());
        let pause = self.place.interval.max(self.place.grace / 8);
        let garbage = GarbageThread::start(env.clone(), inner.collector(), self.place.interval, pause)?;
        Ok(RootCoordinator::new(inner, store.clone(), garbage))
    }
}

impl Engine for Highwater {
    type Keyed = KeyedWindows;
    type Rows = SinkRows;
    type Coordinator = RootCoordinator;

    fn place(&self) -> String {
        self.place.store.clone()
    }

    fn holds_job(&mut self) -> Outcome<bool> {
        let taken_over = self.place.from.as_ref().is_some_and(|from| from.claim);
        let Some(state) = self.peek.state()?.filter(|_| !taken_over) else { return Ok(false) };
        Ok(state.latest().is_some() && !self.has_forked(&state)?)
    }

    fn newest(&mut self) -> Outcome<Option<Newest>> {
        let Some((newest, of_another_job)) = self.choose()? else {
            self.newest = None;
            return Ok(None);
        };
        self.check_max_parallelism(&newest)?;
        let parallelism = newest.operators().into_iter().find(|(operator, ..)| *operator == KEYED);
        let found = Newest {
            id: newest.id().id,
            parallelism: parallelism.map_or(0, |(_, parallelism, _)| parallelism),
            metadata: newest.metadata().to_vec(),
            of_another_job,
        };
        self.newest = Some(newest);
        Ok(Some(found))
    }

    fn newest_bytes(&mut self) -> Outcome<Option<u64>> {
        let newest = self.own_state()?.and_then(|mut state| state.checkpoints.pop());
        let (Some(store), Some(newest)) = (self.store(), newest) else { return Ok(None) };
        Ok(Some(reached(&store, &newest)?.values().sum()))
    }

    fn claim(&mut self) -> Outcome<()> {
        self.peek.check_not_foreign("--store")?;
        let place = &self.place;
        // Before the store is created: a directory in use refuses the run, and then nothing may be left behind.
        if place.dir.is_dir() {
            drop(LocalFiles::new().lock(&place.dir).opening()?);
        }
        let store = match self.peek.store() {
            Some(store) => store.clone(),
            None => open_store(&place.store, true, clock()).opening()?,
        };
        let forks = self.place.from.as_ref().is_some_and(|from| !from.claim);
        if let Some((source, id)) = self.source.take().filter(|_| forks) {
            // Nothing is copied: the first checkpoint brings all of it here, and then needs the other root no more.
            let (source, own) = (root_log(&source), root_log(&store));
            match id {
                Some(id) => fork(&source, id, &own).outcome()?,
                None => fork_newest(&source, &own).outcome()?,
            };
        }
        let store = Arc::new(CountedStore::new(store));
        let mut builder = Environment::builder(&place.dir)
            .memory_bytes(place.memory)
            .store_with(store.clone())
            .checkpoints(place.settings());
        if let Some(disk) = place.disk {
            builder = builder.disk_bytes(disk);
        }
        let env = builder.open().opening()?;
        if place.warn {
            place.tell();
        }
        env.claim().outcome()?;
        self.open = Some((env, store));
        Ok(())
    }

    fn start(
        &mut self,
        from: Option<&Newest>,
        parallelism: u32,
    ) -> Outcome<Started<KeyedWindows, SinkRows, RootCoordinator>> {
        let (env, _) = self.environment()?;
        let from = match from {
            None => None,
            Some(newest) => Some(
                self.newest
                    .as_ref()
                    .filter(|found| found.id().id == newest.id)
                    .ok_or_else(|| Failure::checkpoint(format!("checkpoint {} is gone", newest.id)))?,
            ),
        };
        let operator = self.keyed();
        let keyed = (0..parallelism).map(|index| {
            let backend = env.backend(&operator, Subtask { index, parallelism }, from).outcome()?;
            KeyedWindows::new(backend, &self.place.streams)
        });
        let keyed = keyed.collect::<Outcome<Vec<_>>>()?;
        let sink = env.backend(&Operator::new(SINK, 1), Subtask { index: 0, parallelism: 1 }, from).outcome()?;
        Ok(Started {
            keyed,
            rows: SinkRows::new(sink)?,
            coordinator: self.coordinator(parallelism)?,
            first_checkpoint: from.map_or(1, |checkpoint| checkpoint.id().id + 1),
        })
    }

    fn caught_up(&self) {
        if let Some((env, _)) = &self.open {
            env.report_caught_up();
        }
    }
}

/// The checkpoint that a job was told to begin on.
fn chosen(state: &LineageState, from: &Beginning) -> Outcome<CompletedCheckpoint> {
    match &from.checkpoint {
        Some(id) => Ok(state.named(id).outcome()?.clone()),
        None => state
            .latest()
            .cloned()
            .ok_or_else(|| Failure::checkpoint(format!("the job in {} has no completed checkpoint", from.url))),
    }
}

/// Whether losing the disk of `dir` loses a local `store` too; either may still have to be created.
fn same_disk(dir: &Path, store: &str) -> bool {
    let path = match store.strip_prefix("file://") {
        Some(path) => PathBuf::from(path),
        None if store.contains("://") => return false,
        None => PathBuf::from(store),
    };
    matches!((device_of(dir), device_of(&path)), (Some(a), Some(b)) if a == b)
}

/// The device of a path's nearest ancestor that is there.
fn device_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|ancestor| std::fs::metadata(ancestor).ok()).map(|metadata| metadata.dev())
}
