//! The demo: three lives of one job. The first two end in a crash, which takes everything in memory and the working directory; the third has one
//! subtask more and runs to the end. Then every row of the output is compared.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater::base::clock::SystemClock;

use crate::args::DemoArgs;
use crate::console;
use crate::demo::{BidSource, OUT_OF_ORDERNESS_NANOS, Pace, STREAMS, check};
use crate::exit::{Failure, Outcome};
use crate::job::{Display, Engine, Started, size_newest};
use crate::output::OutputFile;
use crate::position::Position;
use crate::report::{DemoReport, RestoreReport, RunReport};
use crate::runtime::{self, CheckpointStats, Ended, Ending, Job, JobMetadata, Settings, StagedOutput, Standing, Stop};
use crate::window::WindowOperator;

const SEED: u64 = 42;

/// What a demo that was stopped says.
pub(super) const INTERRUPTED: &str = "the demo was interrupted: nothing has been compared";

/// Key groups of the demo's job.
pub(super) const MAX_PARALLELISM: u32 = 128;

pub(super) const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between checkpoints: short demos see some too.
pub(super) fn interval(args: &DemoArgs) -> Duration {
    Duration::from_secs(1).min(Duration::from_millis(args.seconds * 1000 / 10))
}

/// One stretch of the job between two crashes.
struct Life {
    parallelism: u32,
    /// Since the start of the demo.
    crash_at: Option<Duration>,
}

/// What all lives share.
struct Demo<'a> {
    args: &'a DemoArgs,
    output: &'a Path,
    max_rate: u64,
    started: Instant,
    checkpoints: CheckpointStats,
    restores: Vec<RestoreReport>,
}

/// Runs the demo and compares its results; `open` opens the store anew with an empty working directory, as a machine that takes over would.
///
/// # Errors
///
/// The job can't run, or was interrupted. Differences are no errors: they are in the report.
pub fn run<E: Engine>(
    args: &DemoArgs,
    output: &Path,
    max_rate: u64,
    stop: &Stop,
    open: &mut dyn FnMut() -> Outcome<E>,
) -> Outcome<DemoReport> {
    let mut demo = Demo {
        args,
        output,
        max_rate,
        started: Instant::now(),
        checkpoints: CheckpointStats::default(),
        restores: Vec::new(),
    };
    let third = Duration::from_millis(args.seconds * 1000 / 3);
    let lives = [
        Life { parallelism: args.parallelism, crash_at: Some(third) },
        Life { parallelism: args.parallelism, crash_at: Some(third * 2) },
        Life { parallelism: args.parallelism + 1, crash_at: None },
    ];
    let crashes = lives.iter().filter(|life| life.crash_at.is_some()).count() as u64;
    let mut last = None;
    for life in &lives {
        let ended = demo.live(life, &stop.revived(), open)?;
        demo.checkpoints.merge(&ended.checkpoints);
        match (ended.ending, life.crash_at) {
            (Ending::Crashed, Some(_)) => {
                console::note("crash: everything in memory and the working directory is gone")
            }
            (Ending::Finished, None) => last = Some(ended),
            _ => {
                return Err(Failure::internal(INTERRUPTED));
            }
        }
    }
    let ended = last.ok_or_else(|| Failure::internal("the demo's last run did not finish"))?;
    let took = demo.started.elapsed();
    if let Some(row) = args.corrupt_row {
        corrupt(output, row)?;
    }
    console::note("comparing every result with a recomputation");
    let verdict = check(output, SEED, ended.position.offset)?;
    verdict.shown.iter().for_each(console::warn);
    Ok(DemoReport {
        events: ended.position.offset,
        run: RunReport::new(&ended, &demo.checkpoints, took, demo.restores),
        crashes,
        compared: verdict.compared,
        differences: verdict.differences,
    })
}

impl Demo<'_> {
    fn live<E: Engine>(&mut self, life: &Life, stop: &Stop, open: &mut dyn FnMut() -> Outcome<E>) -> Outcome<Ended> {
        let restoring = Instant::now();
        let mut engine = open()?;
        engine.claim()?;
        let newest = engine.newest()?;
        let Started { keyed, rows, coordinator, first_checkpoint } = engine.start(newest.as_ref(), life.parallelism)?;
        let (position, sink) = match &newest {
            Some(newest) => {
                let metadata = JobMetadata::decode(&newest.metadata)?;
                let file = OutputFile::check_resume(self.output, metadata.synced)?;
                (metadata.position.clone(), StagedOutput::resume(rows, file, &metadata)?)
            }
            None => {
                let file = OutputFile::create(self.output)?;
                let config = BTreeMap::from([("demo-seed".to_owned(), SEED.to_string())]);
                (Position::start(), StagedOutput::new(rows, file, config, b"")?)
            }
        };
        let keyed = keyed.into_iter().map(|state| WindowOperator::new(state, &STREAMS));
        let end = self.started + Duration::from_secs(self.args.seconds);
        let job = Job {
            source: BidSource::new(SEED, Pace::Until(end), &position),
            position,
            keyed: keyed.collect::<Outcome<Vec<_>>>()?,
            sink,
            coordinator,
            settings: self.settings(first_checkpoint),
            clock: Arc::new(SystemClock),
        };
        if let Some(newest) = &newest {
            console::note(format_args!(
                "restored from checkpoint {} at {} -> {} subtasks",
                newest.id, newest.parallelism, life.parallelism
            ));
        }
        let crash_at = life.crash_at.map(|at| self.started + at);
        let mut display = Display::new(self.args.json);
        // Nothing is generated while the job is down: it has caught up with its first event.
        let mut caught_up = false;
        let mut ended = runtime::run(job, stop, &Standing::default(), &mut |progress| {
            display.show(progress);
            if progress.events > 0 && !caught_up {
                engine.caught_up();
                caught_up = true;
            }
            // Without a checkpoint to come back to there would be nothing to see.
            if progress.completed > 0 && crash_at.is_some_and(|at| Instant::now() >= at) {
                stop.crash();
            }
        })?;
        display.finish();
        size_newest(&mut ended, &mut engine);
        self.restores.extend(newest.map(|newest| RestoreReport {
            from_checkpoint: newest.id,
            parallelism_from: newest.parallelism,
            parallelism_to: life.parallelism,
            first_record_ms: ended.first_record.map(|at| millis(at.saturating_duration_since(restoring))),
        }));
        Ok(ended)
    }

    fn settings(&self, first_checkpoint: u64) -> Settings {
        Settings {
            max_parallelism: MAX_PARALLELISM,
            out_of_orderness: OUT_OF_ORDERNESS_NANOS,
            rate: Some(self.max_rate),
            interval: interval(self.args),
            checkpoint_timeout: CHECKPOINT_TIMEOUT,
            first_checkpoint,
        }
    }
}

/// Changes the last digit of a row, so that a test can see the comparison fail.
fn corrupt(output: &Path, row: u64) -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::io("corrupt", output, &error);
    let mut file = std::fs::File::options().read(true).write(true).open(output).map_err(failed)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(failed)?;
    let mut ends = content.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
    let end = usize::try_from(row.saturating_sub(1)).ok().and_then(|row| ends.nth(row));
    let digit = end.and_then(|end| end.checked_sub(1)).and_then(|at| Some((at, *content.get(at)?)));
    let Some((at, digit)) = digit else {
        return Err(Failure::usage(format!("--corrupt-row {row}: the output has no such row")));
    };
    let other = if digit == b'7' { b"3" } else { b"7" };
    file.seek(SeekFrom::Start(at as u64)).and_then(|_| file.write_all(other)).map_err(failed)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
