//! Writes a run: sorted records, cut into as many segment files as their size asks for.

use std::sync::Arc;

use super::builder::{SegmentBuilder, SegmentOptions};
use crate::Result;
use crate::base::ids::SegmentId;
use crate::base::record::Record;
use crate::io::files::FileWriter;
use crate::version::segment_meta::SegmentMeta;

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

/// Splits records into files. Dropped before [`RunWriter::finish`] has succeeded, it removes all it made.
pub struct RunWriter<'a> {
    options: OutputOptions,
    outputs: &'a mut dyn Outputs,
    current: Option<(SegmentId, SegmentBuilder)>,
    created: Vec<Arc<SegmentMeta>>,
}

impl<'a> RunWriter<'a> {
    /// A writer that has written nothing.
    pub fn new(options: OutputOptions, outputs: &'a mut dyn Outputs) -> Self {
        Self { options, outputs, current: None, created: Vec::new() }
    }

    /// The next record in [`Record::order`]. Begins a new file before it when the current one is full, or when
    /// `cut` asks for it; never between a prefix delete and what it covers.
    ///
    /// # Errors
    /// As [`SegmentBuilder::add`]; I/O errors.
    pub fn add(&mut self, record: &Record<'_>, prefix_len: Option<usize>, cut: bool) -> Result<()> {
        let target_bytes = self.options.target_bytes;
        let ends = |builder: &SegmentBuilder| {
            (cut || builder.estimated_bytes() >= target_bytes) && builder.may_cut_before(record.key)
        };
        if self.current.as_ref().is_some_and(|(_, builder)| ends(builder)) {
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

    /// Ends the run and hands out its files in key order; none when there was no record.
    ///
    /// # Errors
    /// I/O errors, after which no file is left.
    pub fn finish(mut self) -> Result<Vec<Arc<SegmentMeta>>> {
        self.end_file()?;
        Ok(std::mem::take(&mut self.created))
    }

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
}

impl Drop for RunWriter<'_> {
    fn drop(&mut self) {
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
