//! Writes segments. The layout is drawn in [`super`].

use crate::base::buffer::LARGE_BYTES;
use crate::base::checksum::Hasher;
use crate::base::compression::Compression;
use crate::base::ids::SegmentId;
use crate::base::limits::MAX_ENCODED_KEY_BYTES;
use crate::base::record::{Kind, NEVER, OwnedRecord, Record};
use crate::block::builder::{self, BlockBuilder, DATA_INTERVAL, INDEX_INTERVAL, shared_len};
use crate::block::seal::{self, MAX_RECORD_VALUE_BYTES};
use crate::io::files::FileWriter;
use crate::version::segment_meta::{BlockHandle, SegmentMeta};
use crate::{Error, Result};

use super::footer::{FOOTER_BYTES, Footer};
use super::index;
use super::partition::{LONG_SEPARATOR_BYTES, Partitions, entry};
use super::stats::{Counter, SegmentStats};

/// How a segment is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Data blocks and index partitions end at about this size before compression. Smaller blocks make point
    /// reads from disk cheaper, larger ones scans and indexes; see `benches/block.rs`.
    pub block_bytes: usize,
    /// Compression of all blocks but filters.
    pub compression: Compression,
    /// Whether the finished file must survive a crash of the host.
    pub sync: bool,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { block_bytes: 4 << 10, compression: Compression::None, sync: false }
    }
}

/// Writes one segment.
pub struct SegmentBuilder {
    file: SealedWriter,
    options: SegmentOptions,
    block: BlockBuilder,
    /// Where the current block begins in the index.
    separator: Vec<u8>,
    partitions: Partitions,
    counter: Counter,
    /// The record added last, without its value.
    last: Option<OwnedRecord>,
    /// The outermost prefix delete whose range may not have ended.
    covering: Option<Vec<u8>>,
}

impl SegmentBuilder {
    /// Begins a segment in a new file. A builder that is dropped leaves a file that nobody can open.
    #[must_use]
    pub fn new(writer: Box<dyn FileWriter>, id: SegmentId, options: SegmentOptions) -> Self {
        Self {
            file: SealedWriter { writer, id, offset: 0, hasher: Hasher::new(), buffer: Vec::new() },
            options,
            block: BlockBuilder::new(DATA_INTERVAL),
            separator: Vec::new(),
            partitions: Partitions::new(options.block_bytes),
            counter: Counter::new(),
            last: None,
            covering: None,
        }
    }

    /// Appends the next record in [`Record::order`], at each key at most one prefix delete and one other.
    /// `prefix_len` is the length of the key's (group, state, key, namespace) prefix in states with grouped
    /// entries; `None` in others.
    ///
    /// # Errors
    /// Internal when records come out of order or make no sense, `InvalidArgument` when one is over the limits
    /// (nothing was added); I/O errors.
    pub fn add(&mut self, record: &Record<'_>, prefix_len: Option<usize>) -> Result<()> {
        self.check(record, prefix_len)?;
        let new_key = self.last.as_ref().is_none_or(|last| last.key != record.key);
        if new_key && self.block_ends_before(record) {
            self.end_block()?;
        }
        if self.block.is_empty() {
            self.separator = match &self.last {
                Some(last) => index::separator(&last.key, record.key),
                None => Vec::new(),
            };
        }
        self.partitions.add_record(record, prefix_len);
        self.counter.add(record);
        if self.block.is_empty() && record.value.len() >= LARGE_BYTES.max(self.options.block_bytes) {
            self.write_alone(record)?;
        } else {
            self.block.add(record);
        }
        if record.kind == Kind::PrefixDelete && self.may_cut_before(record.key) {
            self.covering = Some(record.key.to_vec());
        }
        let last = self.last.get_or_insert_with(|| OwnedRecord::from(Record { value: &[], ..*record }));
        last.key.clear();
        last.key.extend_from_slice(record.key);
        (last.sequence, last.kind, last.expiry) = (record.sequence, record.kind, record.expiry);
        Ok(())
    }

    fn check(&self, record: &Record<'_>, prefix_len: Option<usize>) -> Result<()> {
        let (key_len, value_len) = (record.key.len(), record.value.len());
        if key_len > MAX_ENCODED_KEY_BYTES || value_len > MAX_RECORD_VALUE_BYTES {
            return Err(Error::invalid(format!(
                "record with a key of {key_len} and a value of {value_len} bytes; \
                 the limits are {MAX_ENCODED_KEY_BYTES} and {MAX_RECORD_VALUE_BYTES}"
            )));
        }
        let bare = matches!(record.kind, Kind::Delete | Kind::PrefixDelete);
        if (bare && value_len > 0) || (record.kind != Kind::Put && record.expiry != NEVER) {
            return Err(Error::internal(format!("{:?} with a value or an expiry", record.kind)));
        }
        if prefix_len.is_some_and(|len| len > key_len) {
            return Err(Error::internal(format!("prefix of {prefix_len:?} bytes of a key of {key_len}")));
        }
        let Some(last) = &self.last else { return Ok(()) };
        let follows = last.as_record().order(record).is_lt();
        let pair = last.kind == Kind::PrefixDelete && record.kind != Kind::PrefixDelete;
        if !follows || (last.key == record.key && !pair) {
            return Err(Error::internal(format!(
                "segment {}: {:?} at {:02x?} can't follow {:?} at {:02x?}",
                self.file.id, record.kind, record.key, last.kind, last.key
            )));
        }
        Ok(())
    }

    /// True when the block is as full as it should get, or at the edge of a key group and at least a quarter
    /// full.
    fn block_ends_before(&self, record: &Record<'_>) -> bool {
        if self.block.is_empty() {
            return false;
        }
        let (len, target) = (self.block.len(), self.options.block_bytes);
        let group = |key: &[u8]| key.first_chunk::<2>().copied();
        let Some(last) = &self.last else { return false };
        if len + record.key.len() + record.value.len() <= target {
            return group(&last.key) != group(record.key) && len >= target / 4;
        }
        // A cut between keys that share much would have a separator as long in the index, while here the shared part
        // costs nothing: such keys stay together for a while.
        let shared = shared_len(&last.key, record.key);
        let added = record.key.len() - shared + record.value.len();
        shared < LONG_SEPARATOR_BYTES || len + added > 4 * target + 3 * record.key.len()
    }

    fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let raw = self.block.finish();
        let handle = self.file.append_block(&raw, self.options.compression)?;
        self.partitions.add_block(&self.separator, handle);
        Ok(())
    }

    /// Writes a record whose large value fills a block of its own. It goes from where it lies to the file: it is copied
    /// only to be compressed.
    fn write_alone(&mut self, record: &Record<'_>) -> Result<()> {
        let (head, tail) = builder::around(record);
        let handle = self.file.append_parts(&[&head, record.value, &tail], self.options.compression)?;
        self.partitions.add_block(&self.separator, handle);
        Ok(())
    }

    /// True when the run that this segment is a part of may go on in another file with `next_key`: nothing
    /// here covers it.
    #[must_use]
    pub fn may_cut_before(&self, next_key: &[u8]) -> bool {
        let same = self.last.as_ref().is_some_and(|last| last.key == next_key);
        !same && !self.covering.as_ref().is_some_and(|prefix| next_key.starts_with(prefix))
    }

    /// Length that the file would have if it ended here, about.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        self.file.offset + (self.block.len() + self.partitions.estimated_bytes() + FOOTER_BYTES) as u64
    }

    /// Number of records added.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.counter.entries()
    }

    /// Writes what stands after the data blocks and ends the file.
    ///
    /// # Errors
    /// Internal when no record was added; I/O errors.
    pub fn finish(mut self) -> Result<SegmentMeta> {
        if self.last.is_none() {
            return Err(Error::internal(format!("segment {} without records", self.file.id)));
        }
        self.end_block()?;
        let Self { mut file, options, partitions, counter, .. } = self;
        let top_index = write_partitions(&mut file, partitions, options.compression)?;
        let stats = counter.finish();
        let stats_handle = file.append_block(&stats.encode(), options.compression)?;
        let length_bytes = file.offset + FOOTER_BYTES as u64;
        let footer = Footer { top_index, stats: stats_handle, id: file.id, length_bytes };
        file.append(&footer.encode())?;
        let hash = file.hasher.finish();
        file.writer.finish(options.sync)?;
        Ok(meta(&footer, stats, hash))
    }
}

/// What trees know of the segment with this footer and these statistics.
pub(super) fn meta(footer: &Footer, stats: SegmentStats, hash: u64) -> SegmentMeta {
    SegmentMeta {
        id: footer.id,
        length_bytes: footer.length_bytes,
        hash,
        range: stats.range,
        entries: stats.total.entries,
        deletes: stats.deletes,
        prefix_deletes: stats.prefix_deletes,
        merges: stats.merges,
        sequences: stats.sequences,
        expiries: stats.expiries,
        data_bytes: stats.total.bytes,
        top_index: footer.top_index,
    }
}

/// Filters first, then indexes, so that a reader of all indexes reads one stretch.
fn write_partitions(file: &mut SealedWriter, partitions: Partitions, compression: Compression) -> Result<BlockHandle> {
    let finished = partitions.finish();
    let mut filters = Vec::with_capacity(finished.len());
    for partition in &finished {
        filters.push(file.append_block(&partition.filter, Compression::None)?);
    }
    let mut top = BlockBuilder::new(INDEX_INTERVAL);
    for (partition, filter) in finished.iter().zip(filters) {
        let index = file.append_block(&partition.index, compression)?;
        let mut value = Vec::new();
        index::put_handle(&mut value, index);
        index::put_handle(&mut value, filter);
        top.add(&entry(&partition.separator, &value));
    }
    file.append_block(&top.finish(), compression)
}

/// Bytes of buffer kept from block to block.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// Appends sealed blocks and hashes what goes by.
struct SealedWriter {
    writer: Box<dyn FileWriter>,
    id: SegmentId,
    offset: u64,
    hasher: Hasher,
    buffer: Vec<u8>,
}

impl SealedWriter {
    fn append_block(&mut self, raw: &[u8], compression: Compression) -> Result<BlockHandle> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        seal::seal(raw, compression, seal::seed(self.id, self.offset), &mut buffer)?;
        let offset = self.offset;
        self.append(&buffer)?;
        buffer.shrink_to(KEPT_BUFFER_BYTES);
        self.buffer = buffer;
        self.handle_from(offset)
    }

    /// A block in parts, the value of its one record between what stands around it.
    fn append_parts(&mut self, parts: &[&[u8]], compression: Compression) -> Result<BlockHandle> {
        let offset = self.offset;
        let (packed, end) = seal::seal_parts(parts, compression, seal::seed(self.id, offset))?;
        match packed {
            Some(packed) => self.append(&packed)?,
            None => parts.iter().try_for_each(|part| self.append(part))?,
        }
        self.append(&end)?;
        self.handle_from(offset)
    }

    fn handle_from(&self, offset: u64) -> Result<BlockHandle> {
        let length_bytes = u32::try_from(self.offset - offset).map_err(|_| Error::internal("block over 4 GiB"))?;
        Ok(BlockHandle { offset, length_bytes })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.append(bytes)?;
        self.hasher.update(bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
