//! Makes a plan happen.

use std::iter::Peekable;
use std::sync::Arc;

use super::plan::Plan;
use super::rewrite::{Pace, Rules, Sink, rewrite};
use crate::Result;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::SegmentId;
use crate::base::record::Record;
use crate::io::files::FileWriter;
use crate::read::{MergeCursor, Tree};
use crate::segment::builder::{SegmentBuilder, SegmentOptions};
use crate::version::segment_meta::SegmentMeta;
use crate::version::{Edit, SegmentRef};

/// Where new segments go.
pub trait Outputs {
    /// A new file under an id that was never used.
    ///
    /// # Errors
    /// I/O errors.
    fn create(&mut self) -> Result<(SegmentId, Box<dyn FileWriter>)>;

    /// Removes a file that [`Outputs::create`] gave, finished or not. Its own failures are its own to report.
    fn remove(&mut self, id: SegmentId);
}

/// How outputs are written.
#[derive(Debug, Clone, Copy)]
pub struct OutputOptions {
    /// A file ends at about this size, where it may.
    pub target_bytes: u64,
    /// How each file is written.
    pub segment: SegmentOptions,
}

impl Default for OutputOptions {
    fn default() -> Self {
        Self { target_bytes: 16 << 20, segment: SegmentOptions::default() }
    }
}

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
    let mut writer =
        Writer { options, outputs, fences: plan.fences.iter().peekable(), current: None, created: Vec::new() };
    match write(plan, tree, rules, &mut writer, pace) {
        Ok(()) => {
            let refs = writer.created.iter().map(|meta| Arc::new(SegmentRef::local(Arc::clone(meta)))).collect();
            Ok(Outcome { edit: plan.edit(refs), created: writer.created })
        }
        Err(error) => {
            writer.remove_all();
            Err(error)
        }
    }
}

fn write(plan: &Plan, tree: &Tree, rules: Rules<'_>, writer: &mut Writer<'_>, pace: &mut Pace<'_>) -> Result<()> {
    let mut cursors: Vec<Box<dyn RecordCursor>> = Vec::with_capacity(plan.inputs.len());
    for refs in &plan.inputs {
        cursors.push(Box::new(tree.run_cursor(refs, Direction::Forward, false)?));
    }
    rewrite(plan, MergeCursor::new(cursors, Direction::Forward), rules, writer, pace)?;
    writer.end_file()
}

/// Splits what is kept into files.
struct Writer<'a> {
    options: OutputOptions,
    outputs: &'a mut dyn Outputs,
    /// Starts of the target level's other segments, those passed left out.
    fences: Peekable<std::slice::Iter<'a, Vec<u8>>>,
    current: Option<(SegmentId, SegmentBuilder)>,
    created: Vec<Arc<SegmentMeta>>,
}

impl Writer<'_> {
    fn end_file(&mut self) -> Result<()> {
        let Some((id, builder)) = self.current.take() else { return Ok(()) };
        match builder.finish() {
            Ok(meta) => {
                self.created.push(Arc::new(meta));
                Ok(())
            }
            Err(error) => {
                self.outputs.remove(id);
                Err(error)
            }
        }
    }

    fn remove_all(&mut self) {
        // The builder goes before its file does.
        if let Some((id, builder)) = self.current.take() {
            drop(builder);
            self.outputs.remove(id);
        }
        for meta in self.created.drain(..) {
            self.outputs.remove(meta.id);
        }
    }
}

impl Sink for Writer<'_> {
    fn add(&mut self, record: &Record<'_>, prefix_len: Option<usize>) -> Result<()> {
        let mut fenced = false;
        while self.fences.next_if(|start| start.as_slice() <= record.key).is_some() {
            fenced = true;
        }
        let full = |builder: &SegmentBuilder| {
            (fenced || builder.estimated_bytes() >= self.options.target_bytes) && builder.may_cut_before(record.key)
        };
        if self.current.as_ref().is_some_and(|(_, builder)| full(builder)) {
            self.end_file()?;
        }
        if let Some((_, builder)) = &mut self.current {
            return builder.add(record, prefix_len);
        }
        let (id, file) = self.outputs.create()?;
        let builder = SegmentBuilder::new(file, id, self.options.segment);
        let (_, builder) = self.current.insert((id, builder));
        builder.add(record, prefix_len)
    }
}
