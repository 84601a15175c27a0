//! `highwater demo` on Highwater.

use std::path::Path;
use std::time::Duration;

use highwater::base::clock::SystemClock;
use tempfile::TempDir;

use crate::args::DemoArgs;
use crate::backend::{Highwater, Peek, Place};
use crate::console;
use crate::demo::run::{CHECKPOINT_TIMEOUT, INTERRUPTED, MAX_PARALLELISM, interval};
use crate::demo::{run, summary};
use crate::exit::{Failure, Outcome};
use crate::metrics;
use crate::report::DemoReport;
use crate::runtime::Stop;
use crate::supervise::supervise;

/// Events a second at most: what a laptop with two cores keeps up with while it runs everything else.
const MAX_RATE: u64 = 100_000;

const MEMORY_BYTES: u64 = 256 << 20;

/// Runs the demo, shows what came of it, fails if a result is wrong.
///
/// # Errors
///
/// A difference (1); the store can't be used or holds a job (2); whatever stops a job.
pub fn main(args: &DemoArgs) -> Outcome<()> {
    metrics::serve(args.metrics)?;
    let stop = Stop::on_signals()?;
    let work = {
        let (args, stop) = (args.clone(), stop.clone());
        move || compared(&args, &stop)
    };
    let interrupted = || Err(Failure::internal(INTERRUPTED));
    let report = supervise(&stop, CHECKPOINT_TIMEOUT, &SystemClock, work)?.unwrap_or_else(interrupted)?;
    if args.json {
        console::json_line(&report)?;
    } else {
        console::table(&summary(&report))?;
    }
    match report.differences {
        0 => Ok(()),
        count => Err(Failure::internal(format!("{count} results differ from the recomputation"))),
    }
}

fn compared(args: &DemoArgs, stop: &Stop) -> Outcome<DemoReport> {
    let scratch = temporary()?;
    let store = match &args.store {
        Some(url) => url.clone(),
        None => scratch.path().join("checkpoints").to_string_lossy().into_owned(),
    };
    check_new(&store)?;
    console::note(format_args!(
        "a job of tumbling windows and sessions over generated bids, for {} s; checkpoints in {store}",
        args.seconds
    ));
    // The directory of the life that runs; the one before goes as the next begins.
    let mut dir: Option<TempDir> = None;
    let mut open = || {
        dir = None;
        let fresh = temporary()?;
        let engine = Highwater::at(place(&store, fresh.path(), args))?;
        dir = Some(fresh);
        Ok(engine)
    };
    run(args, &scratch.path().join("output.csv"), MAX_RATE, stop, &mut open)
}

/// The demo is a new job that a crash may not end.
fn check_new(store: &str) -> Outcome<()> {
    let peek = Peek::at(store)?;
    if peek.ends_with_process() {
        return Err(Failure::usage("the demo crashes: it needs a --store that outlives that, and memory:/// doesn't"));
    }
    match peek.newest()? {
        None => peek.check_not_foreign("--store"),
        Some(_) => Err(Failure::usage(format!("{store} holds a job already: name another --store"))),
    }
}

fn temporary() -> Outcome<TempDir> {
    let prefix = "highwater-demo-";
    TempDir::with_prefix(prefix).map_err(|error| Failure::io("make a folder in", &std::env::temp_dir(), &error))
}

fn place(store: &str, dir: &Path, args: &DemoArgs) -> Place {
    Place {
        store: store.to_owned(),
        warn: false,
        store_named: true,
        from: None,
        dir: dir.to_owned(),
        memory: MEMORY_BYTES,
        disk: None,
        max_parallelism: MAX_PARALLELISM,
        // One subtask more after the rescale, and the sink.
        backends: u64::from(args.parallelism) + 2,
        streams: vec!["auctions".to_owned(), "bidders".to_owned()],
        interval: interval(args),
        checkpoint_timeout: CHECKPOINT_TIMEOUT,
        retain: 3,
        retain_for: Duration::ZERO,
        grace: Duration::from_secs(60),
    }
}
