//! A small streaming runtime in one process: source -> key-by over channels -> keyed subtasks -> transactional sink.
//!
//! ```text
//!            batches, barriers            steps, barriers
//! reader ----> subtask 0 ----\
//!   |    \---> subtask 1 -----+----> sink ----> output file
//!   |                |                 |
//!   |  commands      | acks, tickets   | acks, "written"
//!   +-------- coordinator -------------+   (runs on the caller's thread; confirms and aborts go back)
//! ```
//!
//! - Enters: a [`Job`]: its source, its keyed operators, its sink, its coordinator of checkpoints.
//! - Leaves: how it ended, and what was measured. Rows leave through the sink.
//! - Always holds: every channel is bounded, and so is every message: windows fire in steps, however many are due at one watermark, and what the sink can't
//!   pass on yet waits in its state. All subtasks see the same sequence of batches and barriers; no barrier waits for more than the step that is under way and
//!   the batches before it. The reader alone makes watermarks, in input order.

mod coordinate;
mod metadata;
mod order;
mod reader;
mod record;
mod route;
mod schedule;
mod seam;
mod signals;
mod sink;
mod staging;
mod standing;
mod stats;
mod subtask;
mod throttle;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use crossbeam::channel::{bounded, unbounded};

use highwater::base::clock::Clock;

use crate::exit::{Failure, Outcome};
use crate::position::Position;

pub use coordinate::{Ending, Progress, Stopped, time_of};
pub use metadata::{JobMetadata, Totals};
pub use record::{Fired, Key, Record, Row, StreamId};
pub use route::subtask_of;
pub use schedule::{Action, CheckpointSchedule};
pub use seam::{Completed, Control, Coordinator, KeyedOperator, Snapshots, Source, StagedRows, Ticket};
pub use signals::Stop;
pub use staging::StagedOutput;
pub use standing::Standing;
pub use stats::{CheckpointStats, Quantiles};

use coordinate::Coordination;
use reader::Reader;

/// Batches that may wait for a subtask, or for the sink: a few keep everyone busy, more only make barriers late.
const CHANNEL_BATCHES: usize = 8;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Key groups.
    pub max_parallelism: u32,
    /// How far the watermark trails the latest time, in nanoseconds.
    pub out_of_orderness: i64,
    /// The most events a second.
    pub rate: Option<u64>,
    /// The time between checkpoints.
    pub interval: Duration,
    /// When a checkpoint is given up.
    pub checkpoint_timeout: Duration,
    /// The first id to use: the one after that of the checkpoint that the job goes on from, 1 for a new job.
    pub first_checkpoint: u64,
}

/// Everything that runs.
pub struct Job<S, K, R, C> {
    /// Where records come from; already at the position to go on from.
    pub source: S,
    /// That position.
    pub position: Position,
    /// One operator for each subtask.
    pub keyed: Vec<K>,
    /// Where rows go.
    pub sink: StagedOutput<R>,
    /// Makes checkpoints complete.
    pub coordinator: C,
    /// How it runs.
    pub settings: Settings,
    /// By which checkpoints are due, expire, and a stop has its time.
    pub clock: Arc<dyn Clock>,
}

/// How a run ended, and what it measured.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Why it ended.
    pub ending: Ending,
    /// The newest completed checkpoint of the job.
    pub newest: Option<u64>,
    /// The position there: what the job has for good.
    pub position: Position,
    /// The totals there.
    pub totals: Totals,
    /// What the checkpoints took.
    pub checkpoints: CheckpointStats,
    /// When the first record of this run had been processed.
    pub first_record: Option<Instant>,
}

impl Ended {
    /// The end of a job that had finished before this process began.
    pub fn of_finished(position: Position, totals: Totals) -> Self {
        Self {
            ending: Ending::Finished,
            newest: None,
            position,
            totals,
            checkpoints: CheckpointStats::default(),
            first_record: None,
        }
    }
}

/// Runs `job` until its input ends, `stop` is asked for, or something fails; calls `observe` several times a second. Keeps `standing` true meanwhile.
///
/// Once a stop is asked for, this returns at the latest when a checkpoint may take no longer, unless a call to the file system or the source hangs.
///
/// # Errors
///
/// The first failure of any part: of the input (2), of the state or the output (1, 5), or being fenced (4). A checkpoint that fails is no failure of
/// the run.
pub fn run<S, K, R, C>(
    job: Job<S, K, R, C>,
    stop: &Stop,
    standing: &Standing,
    observe: &mut dyn FnMut(&Progress),
) -> Outcome<Ended>
where
    S: Source,
    K: KeyedOperator,
    R: StagedRows + Snapshots<Ticket = <K::Snapshots as Snapshots>::Ticket>,
    C: Coordinator<Part = <<K::Snapshots as Snapshots>::Ticket as Ticket>::Part>,
{
    let parallelism = job.keyed.len();
    let restored = job.settings.first_checkpoint.checked_sub(1).filter(|id| *id > 0);
    standing.begin(Ended {
        ending: Ending::Stopped(Stopped::Incomplete { newest: restored }),
        newest: restored,
        ..Ended::of_finished(job.position.clone(), job.sink.totals())
    });
    let (events_in, events) = unbounded();
    let (commands, commands_out) = unbounded();
    let ended = Arc::new(AtomicBool::new(false));
    let mut to_subtasks = Vec::with_capacity(parallelism);
    let mut from_subtasks = Vec::with_capacity(parallelism);
    let mut controls = Vec::with_capacity(parallelism + 1);

    std::thread::scope(|scope| {
        for (index, operator) in job.keyed.into_iter().enumerate() {
            let (records_in, records) = bounded(CHANNEL_BATCHES);
            let (rows, rows_out) = bounded(CHANNEL_BATCHES);
            let (control_in, control) = unbounded();
            to_subtasks.push(records_in);
            from_subtasks.push(rows_out);
            controls.push(control_in);
            let events = events_in.clone();
            named(scope, &format!("subtask-{index}"), move || {
                subtask::run(operator, &records, &control, &rows, &events)
            })?;
        }
        let (control_in, control) = unbounded();
        controls.push(control_in);
        let (sink, events_of_sink) = (job.sink, events_in.clone());
        let fired = Arc::<AtomicU64>::default();
        let counter = fired.clone();
        named(scope, "sink", move || sink::run(sink, &from_subtasks, &control, &events_of_sink, &counter))?;

        let coordination = Coordination {
            events,
            commands,
            controls,
            coordinator: job.coordinator,
            schedule: CheckpointSchedule::new(&job.settings),
            clock: job.clock,
            standing: standing.clone(),
            restored,
            fired: fired.clone(),
            ended: ended.clone(),
            read: Arc::default(),
        };
        let reader =
            Reader::new(job.source, &job.position, &job.settings, to_subtasks, coordination.read.clone(), ended);
        named(scope, "source", move || reader.run(&commands_out, &events_in))?;
        // Ends with the channels closed, which ends the threads that the scope then waits for.
        coordination.run(stop, observe)
    })?;
    standing.now().ok_or_else(|| Failure::internal("a run that never began has ended"))
}

fn named<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() + Send + 'scope,
) -> Outcome<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, body)
        .map(drop)
        .map_err(|error| Failure::new(crate::exit::Code::Resource, format!("cannot start a thread: {error}")))
}
