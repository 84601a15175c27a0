//! Makes a plan happen.

use std::iter::Peekable;
use std::sync::Arc;

use super::plan::Plan;
use super::rewrite::{Pace, Rules, Sink, rewrite};
use super::stand_in;
use crate::Result;
use crate::base::cursor::Direction;
use crate::base::record::Record;
use crate::read::{MergeCursor, Tree};
use crate::segment::run_writer::{OutputOptions, Outputs, RunWriter};
use crate::version::Edit;
use crate::version::segment_meta::SegmentMeta;

/// What a compaction did.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// To be applied to the current version.
    pub edit: Edit,
    /// The new files, in key order.
    pub created: Vec<Arc<SegmentMeta>>,
}

/// Executes `plan`, whose inputs are open in `tree`.
///
/// # Errors
/// Of the inputs, of the outputs, of `pace`. No output is left behind, and the inputs stay as they are.
pub fn run(
    plan: &Plan,
    tree: &Tree,
    rules: Rules<'_>,
    options: OutputOptions,
    outputs: &mut dyn Outputs,
    pace: &mut Pace<'_>,
) -> Result<Outcome> {
    if let Some(edit) = plan.immediate_edit() {
        return Ok(Outcome { edit, created: Vec::new() });
    }
    let mut writer = Fenced { run: RunWriter::new(options, outputs), fences: plan.fences.iter().peekable() };
    write(plan, tree, rules, &mut writer, pace)?;
    let created = writer.run.finish()?;
    let refs = stand_in::outputs(plan, &created, &|key| rules.shapes.prefix_len(key))?;
    Ok(Outcome { edit: plan.edit(refs), created })
}

fn write(plan: &Plan, tree: &Tree, rules: Rules<'_>, writer: &mut Fenced<'_>, pace: &mut Pace<'_>) -> Result<()> {
    let cursors = tree.run_cursors(&plan.inputs, Direction::Forward)?;
    rewrite(plan, MergeCursor::new(cursors, Direction::Forward), rules, writer, pace)
}

/// Begins a new file where one would reach across a segment that stays in the target level.
struct Fenced<'a> {
    run: RunWriter<'a>,
    /// Starts of the target level's other segments, those passed left out.
    fences: Peekable<std::slice::Iter<'a, Vec<u8>>>,
}

impl Sink for Fenced<'_> {
    fn add(&mut self, record: &Record<'_>, prefix_len: Option<usize>) -> Result<()> {
        let mut fenced = false;
        while self.fences.next_if(|start| start.as_slice() <= record.key).is_some() {
            fenced = true;
        }
        self.run.add(record, prefix_len, fenced)
    }
}
