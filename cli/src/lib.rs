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
pub mod metrics;
pub mod output;
pub mod position;
pub mod report;
pub mod runtime;
pub mod supervise;
pub mod tables;
pub mod units;
pub mod window;

#[cfg(test)]
pub(crate) mod testing;

use std::process::ExitCode;

use clap::Parser;
use highwater::base::clock::SystemClock;
use tracing_subscriber::EnvFilter;

use crate::args::{Command, RunArgs};
use crate::backend::{Highwater, Place};
use crate::exit::{Failure, Outcome};
use crate::job::Account;
use crate::runtime::{Ended, Stop};
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
    let (stop, account) = (Stop::on_signals()?, Account::open());
    let work = {
        let (args, stop, account) = (args.clone(), stop.clone(), account.clone());
        move || run_job(&args, &stop, &account)
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
    if args.json { console::json_line(&account.report(&ended)) } else { Ok(()) }
}

fn run_job(args: &RunArgs, stop: &Stop, account: &Account) -> Outcome<Ended> {
    let place = Place::of_run(args);
    place.check_apart(&args.output)?;
    let mut store = Highwater::at(place)?;
    if args.resume && store.ends_with_process() {
        return Err(Failure::usage("--resume needs a --store that outlives a process, and memory:/// doesn't"));
    }
    job::run(args, &mut store, stop, account)
}
