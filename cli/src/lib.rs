//! The parts of the `highwater` command.
//!
//! `highwater run` and `highwater demo` are a small streaming job on top of Highwater, there to show the state backend at work:
//! [`job`] puts it together: [`input`] reads, [`runtime`] moves records between threads and takes checkpoints, [`window`] aggregates, [`output`] writes. The
//! command line is in [`args`], its exit codes in [`exit`], its JSON in [`report`]. Everything stands behind seams but [`backend`], which knows Highwater; [`checkpoints`]
//! looks into stores.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod aggregate;
pub mod args;
pub mod backend;
pub mod checkpoints;
pub mod console;
pub mod demo;
pub mod exit;
pub mod input;
pub mod job;
pub mod kill;
pub mod lifecycle;
pub mod lookup;
pub mod metrics;
pub mod output;
pub mod position;
pub mod progress_bar;
pub mod report;
pub mod runtime;
pub mod supervise;
pub mod tables;
pub mod units;
pub mod window;

#[cfg(test)]
pub(crate) mod testing;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use clap::Parser;
use highwater::base::clock::SystemClock;
use highwater::io::store::Store;
use tracing_subscriber::EnvFilter;

use crate::args::{Command, RunArgs};
use crate::backend::{Highwater, Peek, Place};
use crate::exit::{Failure, Outcome};
use crate::job::Account;
use crate::runtime::{Ended, Ending, Stop, Stopped};
use crate::supervise::supervise;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = args::Cli::parse();
    log_to_stderr();
    match dispatch(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::note(format_args!("error: {failure}"));
            ExitCode::from(failure.code as u8)
        }
    }
}

/// The library's warnings, or what `RUST_LOG` asks for.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines = tracing_subscriber::fmt().event_format(console::LogLine);
    lines.with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn dispatch(command: &Command) -> Outcome<()> {
    match command {
        Command::Run(args) => run(args),
        Command::Demo(args) => demo::main(args),
        Command::Checkpoints { command } => checkpoints::main(command),
    }
}

fn run(args: &RunArgs) -> Outcome<()> {
    args.validate()?;
    metrics::serve(args.metrics)?;
    if let Some(url) = &args.savepoint_at_end {
        check_savepoint_place(url)?;
    }
    let (stop, account) = (Stop::on_signals()?, Account::open());
    let kept = Arc::<OnceLock<Arc<dyn Store>>>::default();
    let work = {
        let (args, stop, account, kept) = (args.clone(), stop.clone(), account.clone(), kept.clone());
        move || run_job(&args, &stop, &account, &kept)
    };
    let ended = match supervise(&stop, args.checkpoint_timeout, &SystemClock, work)? {
        Some(ended) => ended?,
        None => match account.standing().now() {
            Some(ended) => ended,
            None => {
                console::warn("stopped before the job had begun: the same command tries again");
                return Ok(());
            }
        },
    };
    job::tell_end(&ended, args);
    let mut report = account.report(&ended);
    if let Some(url) = &args.savepoint_at_end {
        report.savepoint = Some(save(&ended, kept.get(), url, args.json)?);
    }
    if args.json { console::json_line(&report) } else { Ok(()) }
}

fn run_job(args: &RunArgs, stop: &Stop, account: &Account, kept: &OnceLock<Arc<dyn Store>>) -> Outcome<Ended> {
    let place = Place::of_run(args);
    place.check_apart(&args.output)?;
    let mut store = Highwater::at(place)?;
    if args.resume && store.ends_with_process() {
        return Err(Failure::usage("--resume needs a --store that outlives a process, and memory:/// doesn't"));
    }
    let ended = job::run(args, &mut store, stop, account)?;
    if let Some(store) = store.store() {
        let _ = kept.set(store);
    }
    Ok(ended)
}

/// Refuses a place for a savepoint that holds something, before hours of work are done for it.
fn check_savepoint_place(url: &str) -> Outcome<()> {
    let peek = Peek::at(url)?;
    if peek.newest()?.is_some() {
        return Err(Failure::usage(format!(
            "--savepoint-at-end {url} holds a job already: name a new or an empty place"
        )));
    }
    peek.check_not_foreign("--savepoint-at-end")
}

/// Copies the last checkpoint of a job that has ended to `url`.
fn save(ended: &Ended, store: Option<&Arc<dyn Store>>, url: &str, quiet: bool) -> Outcome<lifecycle::CopyReport> {
    let complete = matches!(ended.ending, Ending::Finished | Ending::Stopped(Stopped::Complete | Stopped::Unwritten));
    let Some(store) = store.filter(|_| complete) else {
        return Err(Failure::internal(format!(
            "no savepoint was made in {url}: the last checkpoint was not completed; go on with --resume, or copy an earlier one"
        )));
    };
    let report = lifecycle::copy_to(store, None, url, quiet)?;
    console::note(format_args!("savepoint: checkpoint {} is in {url}", report.checkpoint));
    Ok(report)
}
