//! The tree section of a manifest.
//!
//! ```text
//! segments varint | segment* | levels varint | level*
//! segment: id u64 | length varint | hash u64 | range | entries, deletes, prefix deletes, merges varints
//!          | sequences varint, varint | expiries i64, i64 | data bytes varint
//!          | top index offset varint, length varint | root varint | name text
//! level:   runs varint | run*        run: refs varint | ref*        ref: index of its segment varint | clip range
//! range:   start bytes | has end u8 (0 or 1) | end bytes (when 1)
//! ```
//! Bytes and text have a varint length before them. A segment that stands twice in the tree, with two clips, is
//! in the table once. Worked bytes of an empty tree: `00 00`; of a clip to the key groups 0..=9:
//! `02 00 00 | 01 | 02 00 0A`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::base::limits::{MAX_KEY_BOUND_BYTES, MAX_NAME_BYTES};
use crate::base::wire::{Reader, put_bytes, put_varint};
use crate::version::segment_meta::{BlockHandle, SegmentMeta};
use crate::version::{MAX_LEVELS, Run, SegmentRef, Version};
use crate::{Error, Result};

/// Least bytes of a segment in the table and of a reference: what bounds their counts.
const LEAST_SEGMENT_BYTES: usize = 46;
const LEAST_REF_BYTES: usize = 3;

/// Appends `version`.
///
/// # Errors
/// Internal when a segment isn't durable yet, or stands twice under two names.
pub(super) fn put(out: &mut Vec<u8>, version: &Version) -> Result<()> {
    let mut table: HashMap<SegmentId, (usize, Arc<SegmentRef>)> = HashMap::new();
    let mut ordered = Vec::new();
    for (_, _, r) in version.refs() {
        let next = table.len();
        let (_, first) = table.entry(r.meta().id).or_insert_with(|| {
            ordered.push(Arc::clone(r));
            (next, Arc::clone(r))
        });
        if first.name() != r.name() || first.root() != r.root() {
            return Err(Error::internal(format!("segment {} has two names", r.meta().id)));
        }
    }
    put_varint(out, ordered.len() as u64);
    for r in &ordered {
        put_segment(out, r)?;
    }
    put_varint(out, version.levels().len() as u64);
    for runs in version.levels() {
        put_varint(out, runs.len() as u64);
        for run in runs {
            put_varint(out, run.refs().len() as u64);
            for r in run.refs() {
                put_varint(out, table.get(&r.meta().id).map_or(0, |(index, _)| *index as u64));
                put_range(out, r.clip());
            }
        }
    }
    Ok(())
}

fn put_segment(out: &mut Vec<u8>, r: &SegmentRef) -> Result<()> {
    let meta = r.meta();
    let name = r.name().ok_or_else(|| Error::internal(format!("segment {} isn't durable", meta.id)))?;
    out.extend_from_slice(&meta.id.0.to_le_bytes());
    put_varint(out, meta.length_bytes);
    out.extend_from_slice(&meta.hash.to_le_bytes());
    put_range(out, &meta.range);
    for count in [meta.entries, meta.deletes, meta.prefix_deletes, meta.merges, meta.sequences.0, meta.sequences.1] {
        put_varint(out, count);
    }
    out.extend_from_slice(&meta.expiries.0.to_le_bytes());
    out.extend_from_slice(&meta.expiries.1.to_le_bytes());
    put_varint(out, meta.data_bytes);
    put_varint(out, meta.top_index.offset);
    put_varint(out, u64::from(meta.top_index.length_bytes));
    put_varint(out, u64::from(r.root()));
    put_bytes(out, name.as_bytes());
    Ok(())
}

/// Appends a range.
pub(super) fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.start);
    out.push(u8::from(range.end.is_some()));
    if let Some(end) = &range.end {
        put_bytes(out, end);
    }
}

fn range(reader: &mut Reader<'_>) -> Result<KeyRange> {
    let start = reader.bytes(MAX_KEY_BOUND_BYTES)?.to_vec();
    let end = match reader.u8()? {
        0 => None,
        1 => Some(reader.bytes(MAX_KEY_BOUND_BYTES)?.to_vec()),
        other => return Err(reader.corrupt(&format!("end flag {other}"))),
    };
    Ok(KeyRange { start, end })
}

/// Reads what [`put`] wrote; `roots` is the length of the root table.
///
/// # Errors
/// Corruption, also when the tree breaks an invariant of versions.
pub(super) fn read(reader: &mut Reader<'_>, roots: usize) -> Result<Version> {
    let count = reader.bounded(reader.remaining() / LEAST_SEGMENT_BYTES)?;
    let mut table = Vec::with_capacity(count);
    for _ in 0..count {
        table.push(segment(reader, roots)?);
    }
    let mut levels = Vec::new();
    for _ in 0..reader.bounded(MAX_LEVELS)? {
        let mut runs = Vec::new();
        for _ in 0..reader.bounded(reader.remaining())? {
            let mut refs = Vec::new();
            for _ in 0..reader.bounded(reader.remaining() / LEAST_REF_BYTES)? {
                let index = reader.bounded(table.len())?;
                let clip = range(reader)?;
                let Some((meta, root, name)) = table.get(index) else {
                    return Err(reader.corrupt(&format!("segment {index} of a table of {}", table.len())));
                };
                refs.push(Arc::new(SegmentRef::new(Arc::clone(meta), *root, Some(Arc::clone(name)), clip)));
            }
            runs.push(Run::new(refs).map_err(|e| reader.corrupt(e.message()))?);
        }
        levels.push(runs);
    }
    Version::new(levels).map_err(|e| reader.corrupt(e.message()))
}

type Entry = (Arc<SegmentMeta>, u16, Arc<str>);

fn segment(reader: &mut Reader<'_>, roots: usize) -> Result<Entry> {
    let meta = SegmentMeta {
        id: SegmentId(reader.u64()?),
        length_bytes: reader.varint()?,
        hash: reader.u64()?,
        range: range(reader)?,
        entries: reader.varint()?,
        deletes: reader.varint()?,
        prefix_deletes: reader.varint()?,
        merges: reader.varint()?,
        sequences: (reader.varint()?, reader.varint()?),
        expiries: (reader.i64()?, reader.i64()?),
        data_bytes: reader.varint()?,
        top_index: BlockHandle {
            offset: reader.varint()?,
            length_bytes: u32::try_from(reader.varint()?).map_err(|_| reader.corrupt("length of the top index"))?,
        },
    };
    let index_end = meta.top_index.offset.checked_add(u64::from(meta.top_index.length_bytes));
    if index_end.is_none_or(|end| end > meta.length_bytes) {
        return Err(reader.corrupt("the top index lies outside its segment"));
    }
    let root = reader.bounded(roots.saturating_sub(1))?;
    let root = u16::try_from(root).map_err(|_| reader.corrupt("root index"))?;
    let name = reader.text(MAX_NAME_BYTES)?;
    Ok((Arc::new(meta), root, Arc::from(name)))
}
