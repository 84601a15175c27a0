//! The parts of the `highwater` command.
//!
//! `highwater run` and `highwater demo` are a small streaming job on top of Highwater, there to show the state backend at work:
//! [`job`] puts it together: [`input`] reads, [`runtime`] moves records between threads and takes checkpoints, [`window`] aggregates, [`output`] writes. The
//! command line is in [`args`], its exit codes in [`exit`], its JSON in [`report`].

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod aggregate;
pub mod args;
pub mod console;
pub mod demo;
pub mod exit;
pub mod input;
pub mod job;
pub mod output;
pub mod position;
pub mod report;
pub mod runtime;
pub mod tables;
pub mod units;
pub mod window;

#[cfg(test)]
pub(crate) mod testing;

use std::process::ExitCode;

use clap::Parser;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            console::note(format_args!("error: {failure}"));
            ExitCode::from(failure.code as u8)
        }
    }
}

fn dispatch(cli: args::Cli) -> exit::Outcome<()> {
    if let args::Command::Run(args) = &cli.command {
        args.validate()?;
    }
    Err(exit::Failure::internal("the state backend isn't linked into this build yet"))
}
