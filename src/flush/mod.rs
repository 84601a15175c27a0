//! From a sealed epoch to the newest run of the tree.
//!
//! Enters: an epoch, frozen by its owner. Leaves: finished segment files that hold its records in order. Always
//! holds: a flush that fails leaves no file, and the epoch as it was.

use std::sync::Arc;

use crate::Result;
use crate::base::compression::Compression;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::io::files::FileWriter;
use crate::memtable::SealedEpoch;
use crate::read::MergeCursor;
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
/// `prefix_len` is the length of the group prefix of a grouped state's encoded key.
///
/// Blocks stay raw: most of what a flush writes is merged away soon.
///
/// # Errors
/// I/O errors; the finished segments of a failed flush are in `finished`, for the caller to discard.
pub fn write_epoch(
    epoch: &Arc<SealedEpoch>,
    prefix_len: &dyn Fn(&[u8]) -> Result<Option<usize>>,
    options: &Options,
    new_file: &mut NewFile<'_>,
    finished: &mut Vec<Arc<SegmentMeta>>,
) -> Result<()> {
    let mut cursor = epoch.cursor(&KeyRange::all(), Direction::Forward);
    let segment_options =
        SegmentOptions { block_bytes: options.block_bytes, compression: Compression::None, sync: false };
    let mut building: Option<SegmentBuilder> = None;
    while let Some(record) = cursor.record() {
        if let Some(full) = building.take_if(|b| {
            b.estimated_bytes() >= options.segment_bytes && b.may_cut_before(record.key)
        }) {
            finished.push(Arc::new(full.finish()?));
        }
        let builder = match &mut building {
            Some(builder) => builder,
            none => {
                let (id, file) = new_file()?;
                none.insert(SegmentBuilder::new(file, id, segment_options))
            }
        };
        builder.add(&record, prefix_len(record.key)?)?;
        cursor.advance()?;
    }
    if let Some(last) = building {
        finished.push(Arc::new(last.finish()?));
    }
    Ok(())
}
