//! Highwater beside what users would pick instead: the same operations on the same machine, in turns, as ratios.
#![allow(clippy::print_stdout, reason = "a program that prints tables")]

mod args;
mod checks;
mod child;
mod measure;
mod object_store;
mod ops;
mod parent;
mod report;
mod rows;
mod store;
mod stores;
mod values;
mod workloads;

use std::io::Read;
use std::process::ExitCode;

use clap::Parser;

/// Whatever went wrong.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result with any error.
pub type Result<T> = std::result::Result<T, Error>;

fn main() -> ExitCode {
    let args = args::Args::parse();
    if args.role.is_some() {
        // Nobody waits for what a process does whose parent was killed. Where that can't be asked for, it ends by itself.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
    let result = match &args.role {
        None => parent::run(&args),
        Some(args::Role::ObjectStore { root }) => object_store::server::serve(root),
        Some(args::Role::Child) => as_child(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("highwater-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads a job from standard input and prints its outcome.
fn as_child() -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let outcome = match serde_json::from_str(&text)? {
        child::Order::Measure(job) => child::run(&job)?,
        child::Order::Check(job) => checks::run(&job)?,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}
