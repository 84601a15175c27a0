//! `highwater run`: puts source, windows, sink and checkpoints together.
//!
//! - Enters: the command line, and an [`Engine`]: the store of checkpoints with the state that lives on it.
//! - Leaves: the output file, a report.
//! - Always holds: everything that can be refused, the first record included, is checked before anything is claimed, created or cut. A store without a
//!   completed checkpoint holds nothing to lose: who claims it begins, and fences whoever had claimed it before.

mod account;
mod engine;
mod progress;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater::base::clock::SystemClock;

use crate::args::RunArgs;
use crate::console;
use crate::exit::{Code, Failure, Outcome};
use crate::input::{CsvOptions, CsvSource};
use crate::output::{OutputFile, ResumableOutput, session_header, window_header};
use crate::position::Position;
use crate::runtime::{self, Ended, Ending, Job, JobMetadata, Settings, StagedOutput, Stop, Stopped};
use crate::units::{format_duration, nanos};
use crate::window::{WindowKind, WindowOperator};

pub use account::{Account, tell_end};
pub use engine::{Engine, Newest, PartOf, Started, StartedOn};
pub use progress::Display;

/// Where a run begins: everything that was checked and not yet touched.
struct Begin {
    source: CsvSource,
    position: Position,
    /// The checkpoint to go on from, and the output that it was found to match; none where that is another job's.
    from: Option<(Newest, JobMetadata, Option<ResumableOutput>)>,
}

impl Begin {
    fn newest(&self) -> Option<&Newest> {
        self.from.as_ref().map(|(newest, ..)| newest)
    }
}

/// Runs the job of the command line on `engine`, and keeps `account` of it.
///
/// # Errors
///
/// Usage, configuration or input (2), the checkpoint (3), locked or fenced (4), out of a resource (5).
pub fn run<E: Engine>(args: &RunArgs, engine: &mut E, stop: &Stop, account: &Account) -> Outcome<Ended> {
    args.validate()?;
    let (kind, config) = (args.windows.kind()?, config(args)?);
    let mut begun = begin(args, kind, &config, engine)?;
    engine.claim()?;
    if begun.newest() != engine.newest()?.as_ref() {
        // A predecessor that was still alive has completed another checkpoint before we fenced it.
        if !args.resume && args.from.is_none() {
            return Err(holds_job(&engine.place()));
        }
        begun = begin(args, kind, &config, engine)?;
    }
    // One that was taken over is no checkpoint of this job yet: the same command begins on it again.
    let from = begun.newest().filter(|newest| !(newest.of_another_job && args.claim)).map(|newest| newest.id);
    let ran = run_once(args, kind, config, begun, engine, stop, account);
    let mut ended = ran.map_err(|failure| keep_going(failure, account.standing().newest(from), args))?;
    size_newest(&mut ended, engine);
    Ok(ended)
}

/// Measures the newest checkpoint of a run that ended with one. What its parts said counts for each what they share, and a resume of a
/// finished job has none of its own.
pub(crate) fn size_newest<E: Engine>(ended: &mut Ended, engine: &mut E) {
    if matches!(ended.ending, Ending::Finished | Ending::Stopped(Stopped::Complete))
        && let Ok(Some(bytes)) = engine.newest_bytes()
    {
        ended.checkpoints.full_bytes = bytes;
    }
}

/// Says of a failure how the job goes on from its `newest` checkpoint.
fn keep_going(failure: Failure, newest: Option<u64>, args: &RunArgs) -> Failure {
    let how = match newest {
        _ if !args.outlives_process() => return failure,
        Some(id) => format!("the same command with --resume goes on from checkpoint {id}"),
        None => "no checkpoint had been completed, so the same command starts from the beginning".to_owned(),
    };
    let message = match failure.code {
        Code::Usage | Code::Resource => format!("{}; once this is put right, {how}", failure.message),
        Code::Internal => format!("{}; {how}", failure.message),
        // The checkpoint is what can't be used, or somebody else has the job.
        _ => return failure,
    };
    Failure { message, ..failure }
}

fn holds_job(place: &str) -> Failure {
    Failure::usage(format!("{place} holds a job already: use --resume to go on with it, or name another --store"))
}

/// Opens and checks whatever can be without changing anything.
fn begin<E: Engine>(
    args: &RunArgs,
    kind: WindowKind,
    config: &BTreeMap<String, String>,
    engine: &mut E,
) -> Outcome<Begin> {
    let options = CsvOptions {
        path: args.input.clone(),
        key: args.key.clone(),
        time: args.time.clone(),
        value: args.value.clone(),
        time_unit: args.time_unit,
        reach: kind.reach(),
        skip_bad_rows: args.skip_bad_rows,
    };
    if !args.resume && engine.holds_job()? {
        return Err(holds_job(&engine.place()));
    }
    let newest = if args.resume || args.from.is_some() { engine.newest()? } else { None };
    let Some(newest) = newest else {
        // Nothing has been committed yet, so an output with content isn't this job's.
        let advice = if args.resume {
            format!(
                "{} holds no completed checkpoint that says what was written there; name the --store of the job that wrote it, empty the file, or name \
                 another one",
                engine.place()
            )
        } else {
            "go on with the job that wrote it by --resume; where no checkpoint of that job says what it has written, empty the file or name another one"
                .to_owned()
        };
        OutputFile::check_new(&args.output, &advice)?;
        if args.resume {
            console::note(format_args!(
                "{} holds no completed checkpoint: starting from the beginning",
                engine.place()
            ));
        }
        let mut source = CsvSource::open(options)?;
        source.read_ahead()?;
        return Ok(Begin { source, position: Position::start(), from: None });
    };
    let metadata = JobMetadata::decode(&newest.metadata)?;
    metadata.check_config(config)?;
    let mut source = CsvSource::resume(options, &metadata.position)?;
    if !metadata.position.finished {
        source.read_ahead()?;
    }
    let output = if newest.of_another_job {
        OutputFile::check_new(
            &args.output,
            "a job that begins on another's state has an output of its own: empty it or name another one",
        )?;
        None
    } else {
        Some(OutputFile::check_resume(&args.output, metadata.synced)?)
    };
    let position = metadata.position.clone();
    Ok(Begin { source, position, from: Some((newest, metadata, output)) })
}

/// Restores and runs.
fn run_once<E: Engine>(
    args: &RunArgs,
    kind: WindowKind,
    config: BTreeMap<String, String>,
    begin: Begin,
    engine: &mut E,
    stop: &Stop,
    account: &Account,
) -> Outcome<Ended> {
    account.restores(begin.newest(), args.parallelism);
    let Started { keyed, rows, coordinator, first_checkpoint } = engine.start(begin.newest(), args.parallelism)?;
    let complete = begin.from.as_ref().is_some_and(|(_, metadata, output)| metadata.complete && output.is_some());
    let sink = match begin.from {
        Some((_, metadata, Some(output))) => StagedOutput::resume(rows, output, &metadata)?,
        Some((_, metadata, None)) => {
            StagedOutput::begin_on(rows, OutputFile::create(&args.output)?, config, header(kind), &metadata)?
        }
        None => StagedOutput::new(rows, OutputFile::create(&args.output)?, config, header(kind))?,
    };
    if complete {
        console::note("the job has finished already: its output is complete");
        return Ok(Ended::of_finished(begin.position, sink.totals()));
    }
    let keyed = keyed.into_iter().map(|state| WindowOperator::new(state, &[kind.alone()]));
    let job = Job {
        position: begin.position,
        source: begin.source,
        keyed: keyed.collect::<Outcome<Vec<_>>>()?,
        sink,
        coordinator,
        settings: settings(args, first_checkpoint),
        clock: Arc::new(SystemClock),
    };
    let mut display = Display::new(args.json);
    runtime::run(job, stop, account.standing(), &mut |progress| display.show(progress))
}

fn settings(args: &RunArgs, first_checkpoint: u64) -> Settings {
    Settings {
        max_parallelism: args.max_parallelism,
        out_of_orderness: nanos(args.out_of_orderness),
        rate: args.rate,
        interval: args.interval,
        checkpoint_timeout: args.checkpoint_timeout,
        first_checkpoint,
    }
}

fn header(kind: WindowKind) -> &'static [u8] {
    match kind {
        WindowKind::Tumbling { .. } => window_header(),
        WindowKind::Session { .. } => session_header(),
    }
}

/// The options that make the job what it is: a resume must have the same.
fn config(args: &RunArgs) -> Outcome<BTreeMap<String, String>> {
    let windows = match (args.windows.window, args.windows.gap) {
        (Some(size), None) => ("window", format_duration(size)),
        (None, Some(gap)) => ("gap", format_duration(gap)),
        _ => return Err(Failure::usage("one of --window and --gap is needed")),
    };
    let options = [
        ("key", args.key.clone()),
        ("time", args.time.clone()),
        ("value", args.value.clone()),
        ("time-unit", args.time_unit.name().to_owned()),
        ("out-of-orderness", format_duration(args.out_of_orderness)),
        windows,
    ];
    Ok(options.into_iter().map(|(option, value)| (option.to_owned(), value)).collect())
}
