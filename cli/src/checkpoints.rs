//! `highwater checkpoints`: what is in a root, without changing anything. What changes something is in [`lifecycle`].

use std::collections::BTreeSet;

use highwater::CompletedCheckpoint;
use highwater::inspect;
use highwater::io::other_roots::OtherRoots;

use crate::args::{CheckpointArgs, CheckpointsCommand, StoreArgs};
use crate::backend::{Context, KEYED, Peek, clock, reached, root_log};
use crate::console;
use crate::exit::{Failure, Outcome};
use crate::lifecycle;
use crate::lookup;
use crate::report::{
    BadObject, KeyGroupReport, ListReport, ListedCheckpoint, OriginReport, SegmentReport, ShowReport, StateReport,
    VerifyReport, readable_metadata,
};
use crate::tables;

/// Runs one of the commands.
///
/// # Errors
///
/// There is no job or no such checkpoint, or something in it is damaged (3); the URL names no store (2); those of [`lifecycle`].
pub fn main(command: &CheckpointsCommand) -> Outcome<()> {
    match command {
        CheckpointsCommand::Get(args) => lookup::get(args),
        CheckpointsCommand::Pin(args) => lifecycle::pin(args),
        CheckpointsCommand::Unpin(args) => lifecycle::unpin(args),
        CheckpointsCommand::Delete(args) => lifecycle::delete(args),
        CheckpointsCommand::Copy(args) => lifecycle::copy(args),
        CheckpointsCommand::Fork(args) => lifecycle::fork(args),
        CheckpointsCommand::Gc(args) => lifecycle::gc(args),
        CheckpointsCommand::List(args) => {
            let report = list(args)?;
            if args.json { console::json_line(&report) } else { console::table(&tables::list(&report)) }
        }
        CheckpointsCommand::Show(args) => {
            let report = show(args)?;
            if args.json { console::json_line(&report) } else { console::table(&tables::show(&report)) }
        }
        CheckpointsCommand::Verify(args) => {
            let report = verify(args)?;
            if args.json {
                console::json_line(&report)?
            } else {
                console::table(&tables::verify(&report))?
            }
            match report.bad.as_slice() {
                [] => Ok(()),
                // All of them are in what was printed.
                [first, others @ ..] => {
                    let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
                    let (url, name, reason) = (&args.url, &first.name, &first.reason);
                    Err(Failure::checkpoint(format!("{url} damaged: {name}: {reason}{more}")))
                }
            }
        }
    }
}

fn list(args: &StoreArgs) -> Outcome<ListReport> {
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let checkpoints = state.checkpoints.iter().map(|checkpoint| {
        let (parallelism, _) = parallelism(checkpoint);
        Ok(ListedCheckpoint {
            id: checkpoint.id().id,
            epoch: checkpoint.id().epoch,
            completed: utc(checkpoint.completed_ms())?,
            parallelism,
            bytes: reached(store, checkpoint)?.values().sum(),
            pins: state.pins_of(checkpoint.id()).map(|pin| pin.name.clone()).collect(),
        })
    });
    let forked_from = state.origin.as_ref().map(|origin| OriginReport {
        url: origin.url.clone(),
        checkpoint: origin.source.to_string(),
        forked: origin.forked.to_string(),
        needed: state.needs_origin(),
        pin: origin.pinned.then(|| origin.pin.clone()),
    });
    Ok(ListReport { checkpoints: checkpoints.collect::<Outcome<_>>()?, forked_from })
}

fn show(args: &CheckpointArgs) -> Outcome<ShowReport> {
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let checkpoint = match &args.id {
        Some(id) => state.named(id).outcome()?,
        None => state
            .latest()
            .ok_or_else(|| Failure::checkpoint(format!("the job in {} has no completed checkpoint", args.url)))?,
    };
    let holds = inspect::describe::describe(store, &OtherRoots::new(clock()), checkpoint).outcome()?;
    let (parallelism, max_parallelism) = parallelism(checkpoint);
    let metadata = match checkpoint.metadata() {
        [] => holds.parts.iter().map(|part| part.metadata.as_slice()).find(|bytes| !bytes.is_empty()),
        bytes => Some(bytes),
    };
    Ok(ShowReport {
        id: checkpoint.id().id,
        epoch: checkpoint.id().epoch,
        completed: utc(checkpoint.completed_ms())?,
        parallelism,
        max_parallelism,
        metadata: metadata.map_or(serde_json::Value::Null, readable_metadata),
        states: states(holds.states),
        segments: segments(&holds.segments),
        key_groups: holds
            .key_groups
            .into_iter()
            .map(|of| KeyGroupReport { operator: of.operator, group: of.group.into(), bytes: of.bytes })
            .collect(),
    })
}

fn states(states: Vec<inspect::describe::StateSummary>) -> Vec<StateReport> {
    let report = |s: inspect::describe::StateSummary| StateReport {
        name: s.name,
        kind: s.kind,
        entries: s.entries,
        bytes: s.bytes,
    };
    states.into_iter().map(report).collect()
}

/// Each object once, though subtasks may share it after a rescale.
fn segments(segments: &[inspect::describe::SegmentSummary]) -> Vec<SegmentReport> {
    let mut seen = BTreeSet::new();
    let level = |level: usize| u32::try_from(level).unwrap_or(u32::MAX);
    segments
        .iter()
        .filter(|segment| seen.insert(&segment.name))
        .map(|s| SegmentReport { name: s.name.clone(), bytes: s.bytes, entries: s.entries, level: level(s.level) })
        .collect()
}

fn verify(args: &CheckpointArgs) -> Outcome<VerifyReport> {
    let peek = Peek::at(&args.url)?;
    let store =
        peek.store().ok_or_else(|| Failure::checkpoint(format!("there is no Highwater job in {}", args.url)))?;
    let found = inspect::verify::verify(&root_log(store), &OtherRoots::new(clock())).outcome()?;
    let mut report = VerifyReport {
        objects: found.objects,
        bytes: found.bytes,
        bad: found.bad.into_iter().map(|bad| BadObject { name: bad.name, reason: bad.reason }).collect(),
        leftovers: found.leftovers.len() as u64,
    };
    if let Some(id) = &args.id {
        let (_, state) = peek.job()?;
        let objects = reached(store, state.named(id).outcome()?)?;
        // What lies in another root is that of the one checkpoint that a fork begins with.
        report.bad.retain(|bad| objects.contains_key(&bad.name) || bad.name.contains("://"));
        report.objects = objects.len() as u64;
        report.bytes = objects.values().sum();
    }
    Ok(report)
}

/// That of the keyed operator; of a job that isn't ours, that of its widest one.
fn parallelism(checkpoint: &CompletedCheckpoint) -> (u32, u32) {
    let operators = checkpoint.operators();
    let keyed = operators.iter().find(|(operator, ..)| *operator == KEYED);
    let widest = operators.iter().max_by_key(|(_, parallelism, _)| *parallelism);
    keyed.or(widest).map_or((0, 0), |(_, parallelism, max)| (*parallelism, *max))
}

fn utc(millis: i64) -> Outcome<String> {
    jiff::Timestamp::from_millisecond(millis)
        .map(|time| time.to_string())
        .map_err(|error| Failure::checkpoint(format!("a checkpoint completed at an impossible time: {error}")))
}
