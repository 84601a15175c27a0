//! Collecting garbage.

use std::fmt::Write;
use std::time::Duration;

use highwater::base::ids::CheckpointId;
use highwater::checkpoint::collector::{Collector, Step};
use highwater::checkpoint::fork;
use highwater::checkpoint::gc::{Doomed, Plan};
use highwater::checkpoint::manifests::segment_names;
use highwater::io::other_roots::OtherRoots;
use serde::Serialize;

use crate::args::GcArgs;
use crate::backend::{Context, Peek, clock, root_log};
use crate::console;
use crate::exit::Outcome;
use crate::progress_bar::Bar;
use crate::units::format_size;

/// What `gc` prints.
#[derive(Debug, Serialize)]
struct GcReport {
    /// Whether nothing was changed.
    dry_run: bool,
    /// Checkpoints that were condemned, or would be.
    condemned: Vec<String>,
    /// Objects that were deleted, or would be.
    objects: usize,
    /// Their bytes.
    bytes: u64,
    /// The objects themselves.
    deleted: Vec<DeletedReport>,
    /// Whether condemned checkpoints stay for now, because an older one may still be in flight.
    held_back: bool,
    /// Whether this root, a fork, has given up its pin in the root that it was made from.
    released: bool,
}

#[derive(Debug, Serialize)]
struct DeletedReport {
    name: String,
    bytes: u64,
}

impl GcReport {
    fn new(dry_run: bool, condemned: &[CheckpointId], plan: &Plan) -> Self {
        let deleted = |doomed: &Doomed| DeletedReport { name: doomed.name.clone(), bytes: doomed.length_bytes };
        Self {
            dry_run,
            condemned: condemned.iter().map(ToString::to_string).collect(),
            objects: plan.all().count(),
            bytes: plan.bytes,
            deleted: plan.all().map(deleted).collect(),
            held_back: plan.held_back,
            released: false,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let (condemns, deletes) =
            if self.dry_run { ("would condemn", "would delete") } else { ("condemned", "deleted") };
        for id in &self.condemned {
            let _ = writeln!(text, "{condemns} checkpoint {id}, whose bytes go after the grace period");
        }
        for object in &self.deleted {
            let _ = writeln!(text, "{deletes} {} ({})", object.name, format_size(object.bytes));
        }
        if self.held_back {
            text += "a checkpoint may still be in flight that is older than the newest: condemned ones stay until the job has completed another\n";
        }
        if self.released {
            text += "the root that this one was forked from isn't needed any more: its pin there is given up\n";
        }
        let _ = writeln!(text, "{deletes} {} objects, {}", self.objects, format_size(self.bytes));
        text
    }
}

/// `checkpoints gc`.
///
/// # Errors
///
/// There is no job in the root, or a manifest that must stay can't be read, and nothing was deleted (3); the store (1, 5).
pub fn gc(args: &GcArgs) -> Outcome<()> {
    let peek = Peek::at(&args.url)?;
    let (store, _) = peek.job()?;
    let age = args.retain_for.unwrap_or(Duration::ZERO);
    let retain = (args.retain.is_some() || args.retain_for.is_some()).then(|| (args.retain.unwrap_or(1) as usize, age));
    let collector = Collector::outside(root_log(store), retain, args.grace).outcome()?;
    let references = |manifest: &_| segment_names(&**store, manifest);
    let report = if args.dry_run {
        let (condemned, plan) = collector.preview(&references).outcome()?;
        GcReport::new(true, &condemned, &plan)
    } else {
        let (mut condemned, mut report) = (Vec::new(), None);
        let mut bar = Bar::new("deleting", "objects", args.json);
        let ran = collector.run_watched(&references, &mut |step| match step {
            Step::Condemned(ids) => condemned = ids.to_vec(),
            Step::Planned(plan) => {
                bar.begin(plan.all().count() as u64);
                report = Some(GcReport::new(false, &condemned, plan));
            }
            Step::Deleted(more) => bar.advance(more as u64),
        });
        ran.outcome()?;
        let mut report = report.unwrap_or_else(|| GcReport::new(false, &condemned, &Plan::default()));
        report.released = fork::release(&root_log(store), &OtherRoots::new(clock())).outcome()?;
        report
    };
    if args.json { console::json_line(&report) } else { console::table(&report.text()) }
}
