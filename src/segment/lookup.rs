//! Point reads.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bytes::Bytes;

use crate::Result;
use crate::base::ids::Sequence;
use crate::base::key::prefix_end;
use crate::base::record::{ExpiryMs, Kind};
use crate::block::entry::Entry;
use crate::block::reader::Block;

use super::filter::{Filter, key_hash, prefix_delete_hash, prefix_hash};
use super::index::{self, Partition};
use super::reader::{Access, Segment, Stop, resident};

/// A record found by its key. The value shares the memory of the cached block, which it keeps alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// What it says; never [`Kind::PrefixDelete`].
    pub kind: Kind,
    /// Its sequence.
    pub sequence: Sequence,
    /// Its expiry.
    pub expiry: ExpiryMs,
    /// Its value.
    pub value: Bytes,
}

/// What a segment says of a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The record at the key.
    pub record: Option<FoundRecord>,
    /// Sequence of the prefix delete at the key's prefix, if a prefix was given.
    pub prefix_delete: Option<Sequence>,
}

/// Whether a segment may say something of a key, as far as memory knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayContain {
    /// It may: about one time in a hundred it doesn't.
    Yes,
    /// It doesn't.
    No,
    /// Knowing would take I/O.
    NotResident,
}

impl MayContain {
    fn of(answer: Result<bool, Stop>) -> Result<Self> {
        Ok(resident(answer)?.map_or(Self::NotResident, |may| if may { Self::Yes } else { Self::No }))
    }
}

/// Which record at a key is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Record,
    PrefixDelete,
}

impl Segment {
    /// What the segment says of `key`; with `prefix_len`, the length of its (group, state, key, namespace)
    /// prefix, also of that prefix. Blocks come from the cache or the source.
    ///
    /// # Errors
    /// Corruption and `Unsupported` that name file and offset; I/O errors.
    pub fn get(&self, key: &[u8], prefix_len: Option<usize>) -> Result<Found> {
        Ok(resident(self.look_up(key, prefix_len, Access::Fill))?.unwrap_or_default())
    }

    /// As [`Segment::get`] without I/O; `None` when that isn't possible.
    ///
    /// # Errors
    /// As [`Segment::get`], though no I/O errors.
    pub fn get_resident(&self, key: &[u8], prefix_len: Option<usize>) -> Result<Option<Found>> {
        resident(self.look_up(key, prefix_len, Access::Resident))
    }

    /// Sequence of the prefix delete at exactly `prefix`.
    ///
    /// # Errors
    /// As [`Segment::get`].
    pub fn prefix_delete(&self, prefix: &[u8]) -> Result<Option<Sequence>> {
        Ok(resident(self.find_prefix_delete(prefix, Access::Fill))?.flatten())
    }

    /// As [`Segment::prefix_delete`] without I/O; `None` when that isn't possible.
    ///
    /// # Errors
    /// As [`Segment::get_resident`].
    pub fn prefix_delete_resident(&self, prefix: &[u8]) -> Result<Option<Option<Sequence>>> {
        resident(self.find_prefix_delete(prefix, Access::Resident))
    }

    /// Whether a record other than a prefix delete may be at `key`. Does no I/O.
    ///
    /// # Errors
    /// As [`Segment::get_resident`].
    pub fn may_contain(&self, key: &[u8]) -> Result<MayContain> {
        MayContain::of(self.passes(key, key_hash(key), Access::Resident).map(|partition| partition.is_some()))
    }

    /// Whether anything, a prefix delete included, may be said under `prefix`, a (group, state, key,
    /// namespace) prefix that records were added with. Does no I/O.
    ///
    /// # Errors
    /// As [`Segment::get_resident`].
    pub fn may_contain_prefix(&self, prefix: &[u8]) -> Result<MayContain> {
        MayContain::of(self.passes_prefix(prefix, Access::Resident))
    }

    fn look_up(&self, key: &[u8], prefix_len: Option<usize>, access: Access) -> Result<Found, Stop> {
        let prefix = prefix_len.and_then(|len| key.get(..len));
        let prefix_delete = match prefix {
            Some(prefix) => self.find_prefix_delete(prefix, access)?,
            None => None,
        };
        let record = self.find(key, Wanted::Record, access)?.map(|(block, entry)| FoundRecord {
            kind: entry.kind,
            sequence: entry.sequence,
            expiry: entry.expiry,
            value: block.value(&entry),
        });
        Ok(Found { record, prefix_delete })
    }

    fn find_prefix_delete(&self, prefix: &[u8], access: Access) -> Result<Option<Sequence>, Stop> {
        if self.meta().prefix_deletes == 0 {
            return Ok(None);
        }
        Ok(self.find(prefix, Wanted::PrefixDelete, access)?.map(|(_, entry)| entry.sequence))
    }

    fn find(&self, key: &[u8], wanted: Wanted, access: Access) -> Result<Option<(Block, Entry)>, Stop> {
        let hash = if wanted == Wanted::Record { key_hash(key) } else { prefix_delete_hash(key) };
        let Some(partition) = self.passes(key, hash, access)? else { return Ok(None) };
        let index = self.block(partition.index, access)?;
        let Some(at) = index.floor(key).map_err(|e| self.at(e, partition.index))? else { return Ok(None) };
        let handle = index::decode_handle(index.value_bytes(&at)).map_err(|e| self.at(e, partition.index))?;
        let block = self.block(handle, access)?;
        let found = find_in(&block, key, wanted).map_err(|e| self.at(e, handle))?;
        Ok(found.map(|entry| (block, entry)))
    }

    /// The partition for `key` when its filter lets `hash` pass.
    fn passes(&self, key: &[u8], hash: u64, access: Access) -> Result<Option<Partition>, Stop> {
        if !self.meta().range.contains(key) {
            return Ok(None);
        }
        let Some(partition) = self.partition(key, access)? else { return Ok(None) };
        Ok(self.filter_passes(partition, hash, access)?.then_some(partition))
    }

    fn filter_passes(&self, partition: Partition, hash: u64, access: Access) -> Result<bool, Stop> {
        let bytes = self.load(partition.filter, access)?;
        let filter = Filter::parse(&bytes).map_err(|e| self.at(e, partition.filter))?;
        Ok(filter.may_contain(hash))
    }

    /// A prefix may begin in one partition and go on in the next ones; each has its hash.
    fn passes_prefix(&self, prefix: &[u8], access: Access) -> Result<bool, Stop> {
        let end = prefix_end(prefix);
        let range = &self.meta().range;
        let behind = range.end.as_ref().is_some_and(|last| last.as_slice() <= prefix);
        if behind || end.as_ref().is_some_and(|end| *end <= range.start) {
            return Ok(false);
        }
        let hash = prefix_hash(prefix);
        let mut passes = false;
        self.each_partition_from(prefix, access, |separator, partition| {
            if end.as_ref().is_some_and(|end| separator >= end.as_slice()) {
                return Ok(false);
            }
            passes = self.filter_passes(partition, hash, access)?;
            Ok(!passes)
        })?;
        Ok(passes)
    }
}

/// At one key a prefix delete stands first, then the other record.
fn find_in(block: &Block, key: &[u8], wanted: Wanted) -> Result<Option<Entry>> {
    let Some(first) = block.find(key)? else { return Ok(None) };
    match (first.kind == Kind::PrefixDelete, wanted) {
        (true, Wanted::PrefixDelete) | (false, Wanted::Record) => Ok(Some(first)),
        (true, Wanted::Record) => block.next_of_same_key(&first, key),
        (false, Wanted::PrefixDelete) => Ok(None),
    }
}
