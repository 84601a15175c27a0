//! From a sealed epoch to the newest run of the tree.
//!
//! Enters: an epoch, frozen by its owner. Leaves: finished segment files that hold its records in order. Always
//! holds: a flush that fails leaves the epoch as it was, and says which files it had finished.

use std::sync::Arc;

use bytes::Bytes;

use crate::Result;
use crate::base::compression::Compression;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::base::record::{Kind, NEVER, Record};
use crate::io::files::FileWriter;
use crate::memtable::{EpochCursor, SealedEpoch};
use crate::read::{Carried, Pending, Shapes};
use crate::segment::builder::{SegmentBuilder, SegmentOptions};
use crate::version::segment_meta::SegmentMeta;

/// How segments are cut.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Size at which a file ends and the next one begins.
    pub segment_bytes: u64,
    /// Size of a block before compression.
    pub block_bytes: usize,
}

/// Makes the file for a new segment.
pub type NewFile<'a> = dyn FnMut() -> Result<(SegmentId, Box<dyn FileWriter>)> + 'a;

/// Writes the records of `epoch` to as many segments as their size asks for, none when there are no records.
///
/// Blocks stay raw: most of what a flush writes is merged away soon.
///
/// # Errors
/// I/O errors; the finished segments of a failed flush are in `finished`, for the caller to discard.
pub fn write_epoch(
    epoch: &Arc<SealedEpoch>,
    shapes: &Shapes,
    options: &Options,
    new_file: &mut NewFile<'_>,
    finished: &mut Vec<Arc<SegmentMeta>>,
) -> Result<()> {
    let mut cursor = epoch.cursor(&KeyRange::all(), Direction::Forward);
    let mut run = RunWriter { options, new_file, finished, current: None };
    while let Some(record) = cursor.record() {
        let prefix_len = shapes.prefix_len(record.key)?;
        if record.kind == Kind::Merge {
            write_merged(&mut cursor, prefix_len, &mut run)?;
        } else {
            run.add(&record, prefix_len)?;
            cursor.advance()?;
        }
    }
    run.end()
}

/// A key whose newest record is a merge may have several in one epoch, when a view was opened in its middle: they
/// become one record.
fn write_merged(cursor: &mut EpochCursor, prefix_len: Option<usize>, run: &mut RunWriter<'_, '_>) -> Result<()> {
    let Some(newest) = cursor.record() else { return Ok(()) };
    let (key, sequence) = (newest.key.to_vec(), newest.sequence);
    let mut pending = Pending::default();
    let mut base: Option<Option<Vec<u8>>> = None;
    while let Some(record) = cursor.record().filter(|record| record.key == key) {
        match record.kind {
            Kind::Merge => pending.push_older(Bytes::copy_from_slice(record.value))?,
            Kind::Put => base = Some(Some(record.value.to_vec())),
            Kind::Delete | Kind::PrefixDelete => base = Some(None),
        }
        cursor.advance()?;
    }
    let carried = match &base {
        None => Carried::Older,
        Some(None) => Carried::Absent,
        Some(Some(value)) => Carried::Value(value),
    };
    let value = pending.carry(carried)?;
    run.add(&Record { key: &key, sequence, kind: Kind::Merge, expiry: NEVER, value: &value }, prefix_len)
}

/// Cuts a run into segment files.
struct RunWriter<'a, 'b> {
    options: &'a Options,
    new_file: &'a mut NewFile<'b>,
    finished: &'a mut Vec<Arc<SegmentMeta>>,
    current: Option<SegmentBuilder>,
}

impl RunWriter<'_, '_> {
    fn add(&mut self, record: &Record<'_>, prefix_len: Option<usize>) -> Result<()> {
        let limit = self.options.segment_bytes;
        let is_full = |b: &mut SegmentBuilder| b.estimated_bytes() >= limit && b.may_cut_before(record.key);
        if let Some(full) = self.current.take_if(is_full) {
            self.finished.push(Arc::new(full.finish()?));
        }
        let builder = match &mut self.current {
            Some(builder) => builder,
            none => {
                let (id, file) = (self.new_file)()?;
                let block_bytes = self.options.block_bytes;
                let options = SegmentOptions { block_bytes, compression: Compression::None, sync: false };
                none.insert(SegmentBuilder::new(file, id, options))
            }
        };
        builder.add(record, prefix_len)
    }

    fn end(mut self) -> Result<()> {
        if let Some(last) = self.current.take() {
            self.finished.push(Arc::new(last.finish()?));
        }
        Ok(())
    }
}
