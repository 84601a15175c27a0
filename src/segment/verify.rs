//! Checks whole files.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;

use bytes::Bytes;

use crate::base::checksum::Hasher;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::{Kind, OwnedRecord, Record};
use crate::block::reader::Block;
use crate::block::seal;
use crate::io::files::ReadAt;
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, Result};

use super::builder;
use super::filter::{Filter, key_hash, prefix_delete_hash};
use super::index::{self, Partition};
use super::reader::{Access, Segment, read_footer, resident};
use super::stats::{Counter, SegmentStats};

const CHUNK_BYTES: usize = 1 << 20;

impl Segment {
    /// Checks every byte at the source against the file's hash, every block against its seal, that records are in
    /// order and found by index and filter, and that the statistics are theirs.
    ///
    /// # Errors
    /// Corruption and `Unsupported` that name the file and what was expected and found; I/O errors.
    pub fn verify(self: &Arc<Self>) -> Result<()> {
        let (name, meta) = (self.source().name(), self.meta());
        if self.source().len() != meta.length_bytes {
            let (expected, found) = (meta.length_bytes, self.source().len());
            return Err(Error::corruption(format!("segment `{name}`: {expected} bytes expected, {found} found")));
        }
        let found = hash_file(self.source().as_ref())?;
        if found != meta.hash {
            let expected = meta.hash;
            return Err(Error::corruption(format!(
                "segment `{name}`: hash {expected:016x} expected, {found:016x} found"
            )));
        }
        let footer = self.footer()?;
        let stats = self.stats()?;
        let counted = self.count_records()?;
        if counted != stats || builder::meta(&footer, stats, found) != *meta {
            return Err(Error::corruption(format!("segment `{name}`: statistics differ from its records or metadata")));
        }
        Ok(())
    }

    fn count_records(self: &Arc<Self>) -> Result<SegmentStats> {
        let name = self.source().name();
        let mut counter = Counter::new();
        let mut filters = Filters { segment: self, top: None, current: None };
        let mut last: Option<OwnedRecord> = None;
        let mut cursor = self.cursor_with(&KeyRange::all(), Direction::Forward, Access::Source)?;
        while let Some(record) = cursor.record() {
            if last.as_ref().is_some_and(|last| last.as_record().order(&record).is_ge()) {
                let key = record.key;
                return Err(Error::corruption(format!("segment `{name}`: record at {key:02x?} is out of order")));
            }
            if !filters.pass(&record)? {
                let key = record.key;
                return Err(Error::corruption(format!("segment `{name}`: the filter misses the record at {key:02x?}")));
            }
            counter.add(&record);
            last = Some(OwnedRecord::from(Record { value: &[], ..record }));
            cursor.advance()?;
        }
        Ok(counter.finish())
    }
}

/// Looks keys up in the filters as a point read would, each filter fetched once.
struct Filters<'a> {
    segment: &'a Segment,
    top: Option<Block>,
    current: Option<(Partition, Bytes)>,
}

impl Filters<'_> {
    fn pass(&mut self, record: &Record<'_>) -> Result<bool> {
        let is_prefix = record.kind == Kind::PrefixDelete;
        let hash = if is_prefix { prefix_delete_hash(record.key) } else { key_hash(record.key) };
        let top = match self.top.take() {
            Some(top) => Some(top),
            None => resident(self.segment.top(Access::Source))?,
        };
        let entry = match &top {
            Some(top) => top.floor(record.key)?.map(|entry| top.value(&entry)),
            None => None,
        };
        self.top = top;
        let Some(value) = entry else { return Ok(false) };
        let partition = index::decode_partition(&value)?;
        if self.current.as_ref().is_none_or(|(current, _)| *current != partition) {
            let bytes = resident(self.segment.load(partition.filter, Access::Source))?;
            self.current = bytes.map(|bytes| (partition, bytes));
        }
        match &self.current {
            Some((_, bytes)) => Ok(Filter::parse(bytes)?.may_contain(hash)),
            None => Ok(false),
        }
    }
}

fn hash_file(source: &dyn ReadAt) -> Result<u64> {
    let (mut hasher, mut buffer) = (Hasher::new(), vec![0; CHUNK_BYTES]);
    let (mut offset, length) = (0, source.len());
    while offset < length {
        let wanted = usize::try_from(length - offset).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let Some(chunk) = buffer.get_mut(..wanted) else { break };
        source.read_at(offset, chunk)?;
        hasher.update(chunk);
        offset += wanted as u64;
    }
    Ok(hasher.finish())
}

/// Recovers from a file alone what a tree would know of it, reading all of it for its hash. Blocks other than the
/// statistics aren't checked: open the segment and [`Segment::verify`] it.
///
/// # Errors
/// Corruption and `Unsupported` that name the file; I/O errors.
pub fn recover_meta(source: &dyn ReadAt) -> Result<SegmentMeta> {
    let footer = read_footer(source)?;
    let name = |e: Error| e.context(format!("segment `{}`, statistics at {}", source.name(), footer.stats.offset));
    let end = footer.stats.offset.checked_add(u64::from(footer.stats.length_bytes));
    if end.is_none_or(|end| end > footer.length_bytes) {
        return Err(name(Error::corruption("they lie outside of the file")));
    }
    let mut sealed = vec![0; footer.stats.length_bytes as usize];
    source.read_at(footer.stats.offset, &mut sealed).map_err(name)?;
    let raw = seal::unseal(sealed, seal::seed(footer.id, footer.stats.offset)).map_err(name)?;
    let stats = SegmentStats::decode(&raw).map_err(name)?;
    Ok(builder::meta(&footer, stats, hash_file(source)?))
}
