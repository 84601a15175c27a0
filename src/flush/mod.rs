//! From a sealed epoch to the newest run of the tree.
//!
//! Enters: an epoch, frozen by its owner. Leaves: finished segment files that hold its records in order. Always
//! holds: a flush that fails leaves no file, and the epoch as it was.

use std::sync::Arc;

use bytes::Bytes;

use crate::Result;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::{Kind, NEVER, Record};
use crate::memtable::{EpochCursor, SealedEpoch};
use crate::read::{Carried, Pending, Shapes};
use crate::segment::run_writer::{OutputOptions, Outputs, RunWriter};
use crate::version::segment_meta::SegmentMeta;

/// Writes the records of `epoch` to new segment files, none when there are no records.
///
/// # Errors
/// I/O errors, after which no file is left.
pub fn write_epoch(
    epoch: &Arc<SealedEpoch>,
    shapes: &Shapes,
    options: OutputOptions,
    outputs: &mut dyn Outputs,
) -> Result<Vec<Arc<SegmentMeta>>> {
    let mut cursor = epoch.cursor(&KeyRange::all(), Direction::Forward);
    let mut run = RunWriter::new(options, outputs);
    while let Some(record) = cursor.record() {
        let prefix_len = shapes.prefix_len(record.key)?;
        if record.kind == Kind::Merge {
            write_merged(&mut cursor, prefix_len, &mut run)?;
        } else {
            run.add(&record, prefix_len, false)?;
            cursor.advance()?;
        }
    }
    run.finish()
}

/// A key whose newest record is a merge may have several in one epoch, when a view was opened in its middle: they
/// become one record.
fn write_merged(cursor: &mut EpochCursor, prefix_len: Option<usize>, run: &mut RunWriter<'_>) -> Result<()> {
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
    run.add(&Record { key: &key, sequence, kind: Kind::Merge, expiry: NEVER, value: &value }, prefix_len, false)
}
