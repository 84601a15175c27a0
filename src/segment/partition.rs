//! Collects index and filter partitions while data blocks are written.

use crate::base::record::{Kind, NEVER, Record};
use crate::block::builder::{BlockBuilder, INDEX_INTERVAL};
use crate::version::segment_meta::BlockHandle;

use super::{filter, index};

/// Hashes after which a partition ends: a filter of 10 KiB, so that one probe of a cold segment doesn't fetch
/// much more than a data block.
const MAX_HASHES: usize = 8192;

/// Entries below which a partition of long separators doesn't end for its size, so that they don't make the top-level
/// index as long as what it leads to.
const LEAST_ENTRIES: usize = 8;

/// Separators from this length on are long.
pub(super) const LONG_SEPARATOR_BYTES: usize = 256;

/// A partition to be written: index and filter for the same keys, and where they begin.
pub(super) struct Finished {
    pub separator: Vec<u8>,
    pub index: Vec<u8>,
    pub filter: Vec<u8>,
}

/// Collects them. Data blocks end in order; hashes come before the end of their block.
pub(super) struct Partitions {
    target_bytes: usize,
    index: BlockBuilder,
    index_entries: usize,
    separator: Vec<u8>,
    hashes: Vec<u64>,
    last_prefix: Option<u64>,
    finished: Vec<Finished>,
    finished_bytes: usize,
}

/// An index entry.
pub(super) fn entry<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    Record { key, sequence: 0, kind: Kind::Put, expiry: NEVER, value }
}

impl Partitions {
    /// Index partitions end at about `target_bytes`.
    pub(super) fn new(target_bytes: usize) -> Self {
        Self {
            target_bytes,
            index: BlockBuilder::new(INDEX_INTERVAL),
            index_entries: 0,
            separator: Vec::new(),
            hashes: Vec::new(),
            last_prefix: None,
            finished: Vec::new(),
            finished_bytes: 0,
        }
    }

    /// Puts the record's hashes into the filter of the current partition.
    pub(super) fn add_record(&mut self, record: &Record<'_>, prefix_len: Option<usize>) {
        if record.kind == Kind::PrefixDelete {
            self.hashes.push(filter::prefix_delete_hash(record.key));
            self.add_prefix(record.key);
        } else {
            self.hashes.push(filter::key_hash(record.key));
        }
        if let Some(prefix) = prefix_len.and_then(|len| record.key.get(..len)) {
            self.add_prefix(prefix);
        }
    }

    fn add_prefix(&mut self, prefix: &[u8]) {
        let hash = filter::prefix_hash(prefix);
        if self.last_prefix != Some(hash) {
            self.hashes.push(hash);
            self.last_prefix = Some(hash);
        }
    }

    /// A data block ended; `separator` is where it began.
    pub(super) fn add_block(&mut self, separator: &[u8], handle: BlockHandle) {
        if self.index.is_empty() {
            self.separator = separator.to_vec();
        }
        let mut value = Vec::new();
        index::put_handle(&mut value, handle);
        self.index.add(&entry(separator, &value));
        self.index_entries += 1;
        let long = self.index.len() > self.index_entries * LONG_SEPARATOR_BYTES;
        let full = self.index.len() >= self.target_bytes && (self.index_entries >= LEAST_ENTRIES || !long);
        if full || self.hashes.len() >= MAX_HASHES {
            self.end_partition();
        }
    }

    fn end_partition(&mut self) {
        let finished = Finished {
            separator: std::mem::take(&mut self.separator),
            index: self.index.finish(),
            filter: filter::build(&self.hashes),
        };
        self.hashes.clear();
        self.index_entries = 0;
        self.last_prefix = None;
        self.finished_bytes += finished.index.len() + finished.filter.len();
        self.finished.push(finished);
    }

    /// Bytes that they will take in the file, about.
    pub(super) fn estimated_bytes(&self) -> usize {
        self.finished_bytes + self.index.len() + filter::filter_bytes(self.hashes.len())
    }

    /// All partitions, in order.
    pub(super) fn finish(mut self) -> Vec<Finished> {
        if !self.index.is_empty() {
            self.end_partition();
        }
        self.finished
    }
}
