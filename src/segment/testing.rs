//! Segments in memory, with faults on demand.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::builder::{SegmentBuilder, SegmentOptions};
use super::reader::Segment;
use crate::base::compression::Compression;
use crate::base::ids::SegmentId;
use crate::base::record::OwnedRecord;
use crate::cache::block_cache::BlockCache;
use crate::io::files::{FileWriter, ReadAt};
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, ErrorKind, Result};

/// A file being written to memory.
#[derive(Clone, Default)]
pub(crate) struct MemoryWriter(pub Arc<Mutex<Vec<u8>>>);

impl FileWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, _: bool) -> Result<()> {
        Ok(())
    }
}

/// A file in memory that can be made to fail, to shrink, and to tell what was read.
#[derive(Debug, Default)]
pub(crate) struct MemoryFile {
    bytes: Mutex<Vec<u8>>,
    length: u64,
    pub failing: Mutex<BTreeSet<u64>>,
    pub reads: Mutex<Vec<(u64, usize)>>,
}

impl MemoryFile {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { length: bytes.len() as u64, bytes: Mutex::new(bytes), ..Self::default() })
    }

    /// Cuts the file behind the back of whoever has it open.
    pub(crate) fn truncate(&self, length: usize) {
        self.bytes.lock().truncate(length);
    }
}

impl ReadAt for MemoryFile {
    fn name(&self) -> &str {
        "memory.seg"
    }

    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reads.lock().push((offset, buffer.len()));
        let start = usize::try_from(offset).unwrap();
        let fails = |at: &u64| offset <= *at && *at < offset + buffer.len() as u64;
        if self.failing.lock().iter().any(fails) {
            return Err(Error::new(ErrorKind::Io, format!("memory.seg: injected fault at {offset}")));
        }
        let bytes = self.bytes.lock();
        match bytes.get(start..start + buffer.len()) {
            Some(found) => buffer.copy_from_slice(found),
            None => return Err(Error::corruption(format!("memory.seg ends before {}", start + buffer.len()))),
        }
        Ok(())
    }
}

/// Options with blocks of `block_bytes`.
pub(crate) fn options(block_bytes: usize) -> SegmentOptions {
    SegmentOptions { block_bytes, ..SegmentOptions::default() }
}

/// Options with compressed blocks of `block_bytes`.
pub(crate) fn compressed(block_bytes: usize) -> SegmentOptions {
    SegmentOptions { block_bytes, compression: Compression::Zstd, ..SegmentOptions::default() }
}

/// The file of a segment with `records`, each under a prefix of up to `prefix_len` bytes.
pub(crate) fn written(
    records: &[OwnedRecord],
    id: u64,
    options: SegmentOptions,
    prefix_len: Option<usize>,
) -> (SegmentMeta, Vec<u8>) {
    let writer = MemoryWriter::default();
    let mut builder = SegmentBuilder::new(Box::new(writer.clone()), SegmentId(id), options);
    for record in records {
        builder.add(&record.as_record(), prefix_len.map(|len| len.min(record.key.len()))).unwrap();
    }
    let meta = builder.finish().unwrap();
    let bytes = writer.0.lock().clone();
    (meta, bytes)
}

/// A cache that holds everything that tests read.
pub(crate) fn roomy() -> Arc<BlockCache> {
    Arc::new(BlockCache::new(64 << 20).unwrap())
}

/// A segment with `records`, open.
pub(crate) fn segment(records: &[OwnedRecord], options: SegmentOptions, prefix_len: Option<usize>) -> Arc<Segment> {
    let (meta, bytes) = written(records, 1, options, prefix_len);
    Segment::open(meta, MemoryFile::new(bytes), roomy())
}
