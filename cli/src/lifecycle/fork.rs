//! Forking a checkpoint into another root.

use highwater::ErrorKind;
use highwater::checkpoint::fork;
use highwater::io::open_store::open_store;
use serde::Serialize;

use crate::args::ForkArgs;
use crate::backend::{Context, Peek, clock, failure, root_log};
use crate::console;
use crate::exit::{Failure, Outcome};
use crate::units::format_size;

/// What `fork` prints.
#[derive(Debug, Serialize)]
struct ForkReport {
    /// The checkpoint that the new lineage begins with.
    forked: String,
    /// That of the old one.
    from: String,
    /// Bytes that the two share.
    shared_bytes: u64,
}

/// `checkpoints fork`.
///
/// # Errors
///
/// No such checkpoint (3); the new place isn't empty, or isn't one (2).
pub fn fork(args: &ForkArgs) -> Outcome<()> {
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let id = state.named(&args.id).outcome()?.id();
    if Peek::at(&args.new_url)?.ends_with_process() {
        return Err(Failure::usage("a fork needs a place that outlives this process, and memory:/// doesn't"));
    }
    let target = open_store(&args.new_url, true, clock()).opening()?;
    let done = fork::fork(&root_log(store), id, &root_log(&target)).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(error.to_string()),
        _ => failure(&error),
    })?;
    let report = ForkReport { forked: done.id().to_string(), from: id.to_string(), shared_bytes: done.full_bytes() };
    if args.json {
        return console::json_line(&report);
    }
    console::table(&format!(
        "checkpoint {} of {} is checkpoint {id} of {}, with which it shares {}; that one is pinned until the new lineage has a checkpoint of its own\n",
        report.forked,
        args.new_url,
        args.url,
        format_size(report.shared_bytes)
    ))
}
