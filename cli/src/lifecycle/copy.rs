//! Copying a checkpoint to another root.

use std::sync::Arc;

use highwater::base::ids::CheckpointId;
use highwater::checkpoint::copy::{self, Copied, Step};
use highwater::io::open_store::open_store;
use highwater::io::other_roots::OtherRoots;
use highwater::io::retry::Cancel;
use highwater::io::store::Store;
use highwater::{CompletedCheckpoint, ErrorKind};
use serde::Serialize;

use crate::args::CopyArgs;
use crate::backend::{Context, Peek, clock, failure, root_log};
use crate::console;
use crate::exit::{Failure, Outcome};
use crate::progress_bar::Bar;
use crate::units::format_size;

/// What `copy` prints, and `run --savepoint-at-end` in its report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Where the copy is.
    pub url: String,
    /// The checkpoint, there as here.
    pub checkpoint: String,
    /// Objects that were sent.
    pub sent_objects: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Objects that were there already.
    pub kept_objects: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// `checkpoints copy`.
///
/// # Errors
///
/// No such checkpoint, or an object of it is missing or damaged (3); the other place holds something else (2); the stores (1, 5).
pub fn copy(args: &CopyArgs) -> Outcome<()> {
    let peek = Peek::at(&args.from_url)?;
    let (store, state) = peek.job()?;
    let id = args.checkpoint.as_ref().map(|id| state.named(id).outcome().map(CompletedCheckpoint::id)).transpose()?;
    if state.latest().is_none() {
        return Err(Failure::checkpoint(format!("the job in {} has no completed checkpoint", args.from_url)));
    }
    if Peek::at(&args.to_url)?.ends_with_process() {
        return Err(Failure::usage("a copy needs a place that outlives this process, and memory:/// doesn't"));
    }
    let report = copy_to(store, id, &args.to_url, args.json)?;
    if args.json {
        return console::json_line(&report);
    }
    console::table(&format!(
        "checkpoint {} is in {}: {} objects sent ({}), {} were there ({})\n",
        report.checkpoint,
        report.url,
        report.sent_objects,
        format_size(report.sent_bytes),
        report.kept_objects,
        format_size(report.kept_bytes)
    ))
}

/// Copies checkpoint `id` of `store`, or its newest, to `url`.
///
/// # Errors
///
/// As [`copy()`].
pub fn copy_to(store: &Arc<dyn Store>, id: Option<CheckpointId>, url: &str, quiet: bool) -> Outcome<CopyReport> {
    let target = open_store(url, true, clock()).opening()?;
    let mut bar = Bar::new("copying", "bytes", quiet);
    let mut watch = |step| match step {
        Step::Planned { bytes, .. } => bar.begin(bytes),
        Step::Kept(bytes) | Step::Sent(bytes) => bar.advance(bytes),
    };
    let (others, cancel) = (OtherRoots::new(clock()), Cancel::new());
    let (source, target) = (root_log(store), root_log(&target));
    let copied = match id {
        Some(id) => copy::copy(&source, id, &target, &others, &cancel, &mut watch),
        None => copy::copy_newest(&source, &target, &others, &cancel, &mut watch),
    };
    let Copied { checkpoint, sent, kept } = copied.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(error.to_string()),
        _ => failure(&error),
    })?;
    Ok(CopyReport {
        url: url.to_owned(),
        checkpoint: checkpoint.id().to_string(),
        sent_objects: sent.0,
        sent_bytes: sent.1,
        kept_objects: kept.0,
        kept_bytes: kept.1,
    })
}
