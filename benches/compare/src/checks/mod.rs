//! What is measured around checkpoints and recovery.

pub mod c1_c8_state;
pub mod c2_no_stall;
pub mod c3_amplification;
pub mod c4_first_record;
pub mod c5_rescale;
pub mod c6_requests;
pub mod c7_memory;
pub mod state;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::args::Args;
use crate::child::{Order, Outcome};
use crate::measure::checkpoints::CheckpointLog;
use crate::object_store::client::Client;
use crate::parent::{ObjectStore, start_child};
use crate::report::Report;
use crate::stores::{Setting, StoreKind};
use crate::workloads::Stream;

/// What a child does for a check.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Step {
    /// Loads state of so many bytes, then checkpoints after every so many changed keys.
    Deltas {
        /// Bytes of keys and values.
        state_bytes: u64,
        /// Keys changed before each checkpoint.
        changed: u64,
        /// Checkpoints.
        rounds: u64,
    },
    /// Goes through a stream with a checkpoint after every so many operations of it.
    Amplification {
        /// Title of the workload.
        workload: String,
        /// Its operations.
        stream: Stream,
        /// Operations between checkpoints.
        every: u64,
        /// Checkpoints.
        rounds: u64,
    },
    /// Loads state and makes one checkpoint of it, from so many subtasks.
    Fill {
        /// Bytes of keys and values.
        state_bytes: u64,
        /// Subtasks.
        parallelism: u32,
    },
    /// Restores it on one subtask and reads.
    Restore {
        /// Bytes of keys and values.
        state_bytes: u64,
        /// Fetches everything before it opens.
        eager: bool,
    },
    /// Restores it on so many subtasks, changes a little, makes a checkpoint.
    Rescale {
        /// Bytes of keys and values.
        state_bytes: u64,
        /// Subtasks.
        parallelism: u32,
    },
}

/// A step with its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// What to do.
    pub step: Step,
    /// The store.
    pub store: StoreKind,
    /// A fresh directory.
    pub directory: PathBuf,
    /// Where checkpoints go.
    pub object_store: SocketAddr,
    /// Memory budget.
    pub memory_bytes: u64,
}

impl Job {
    fn setting(&self, states: &'static [crate::store::StateSpec]) -> Setting {
        Setting {
            directory: self.directory.clone(),
            memory_bytes: self.memory_bytes,
            states,
            object_store: Some(self.object_store),
        }
    }

    fn client(&self) -> Arc<Client> {
        Arc::new(Client::new(self.object_store))
    }
}

/// Does a step, in a child.
pub fn run(job: &Job) -> Result<Outcome> {
    let log = CheckpointLog::new();
    match &job.step {
        Step::Deltas { state_bytes, changed, rounds } => {
            c1_c8_state::deltas(job, &log, *state_bytes, *changed, *rounds)
        }
        Step::Amplification { workload, stream, every, rounds } => {
            c3_amplification::follow(job, &log, workload, stream, *every, *rounds)
        }
        Step::Fill { state_bytes, parallelism } => c5_rescale::fill(job, &log, *state_bytes, *parallelism),
        Step::Restore { state_bytes, eager } => c4_first_record::restore(job, *state_bytes, *eager),
        Step::Rescale { state_bytes, parallelism } => c5_rescale::rescale(job, *state_bytes, *parallelism),
    }
}

/// What the checks share, in the parent.
pub struct Context<'a> {
    /// The command line.
    pub args: &'a Args,
    /// Where directories are made.
    pub scratch: &'a Path,
    /// Where rows go.
    pub report: &'a mut Report,
}

impl Context<'_> {
    /// Ours, then the others that can make checkpoints.
    pub fn stores(&self) -> Vec<StoreKind> {
        let others = self.args.against.iter().filter(|store| store.is_rocksdb() && !self.args.leaves_out(**store));
        std::iter::once(StoreKind::Highwater).chain(others.copied()).collect()
    }

    /// Does `step` with `store` on an object store of its own.
    pub fn step(&mut self, store: StoreKind, step: Step) -> Option<Outcome> {
        let objects = tempfile::tempdir_in(self.scratch).ok()?;
        let server = ObjectStore::start(objects.path());
        let server = self.or_note(store, &step, server)?;
        self.step_on(store, step, &server)
    }

    /// Does it with checkpoints on `server`.
    pub fn step_on(&mut self, store: StoreKind, step: Step, server: &ObjectStore) -> Option<Outcome> {
        let started = tempfile::tempdir_in(self.scratch).map_err(Into::into).and_then(|directory| {
            let job = Job {
                step: step.clone(),
                store,
                directory: directory.path().to_path_buf(),
                object_store: server.address,
                memory_bytes: self.args.memory_bytes(),
            };
            start_child(&Order::Check(job))
        });
        let outcome = self.or_note(store, &step, started)?;
        self.report.progress(format!("{} {}: {}", brief(&step), store.name(), outcome.described));
        Some(outcome)
    }

    fn or_note<T>(&mut self, store: StoreKind, step: &Step, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.report.note(format!("{} {}: {error}", brief(step), store.name()))).ok()
    }
}

fn brief(step: &Step) -> String {
    let text = format!("{step:?}");
    text.split(", stream: ").next().unwrap_or_default().chars().take(90).collect()
}

/// A check, in the parent.
type Check = fn(&mut Context<'_>) -> Result<()>;

/// Runs the checks that are asked for.
pub fn compare(args: &Args, scratch: &Path, report: &mut Report) {
    let mut context = Context { args, scratch, report };
    let checks: [(&[&str], Check); 7] = [
        (&["C1", "C8"], c1_c8_state::compare),
        (&["C7"], c7_memory::compare),
        (&["C3"], c3_amplification::compare),
        (&["C2"], c2_no_stall::compare),
        (&["C6"], c6_requests::compare),
        (&["C4"], c4_first_record::compare),
        (&["C5"], c5_rescale::compare),
    ];
    for (names, check) in checks {
        if names.iter().any(|name| args.wants(name))
            && let Err(error) = check(&mut context)
        {
            context.report.note(format!("{}: {error}", names.join(" ")));
        }
    }
}
