//! The top-level index of an open segment, decoded once: every read goes through it.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;

use crate::Result;
use crate::block::forward::Forward;
use crate::block::reader::Block;
use crate::cache::block_cache::BlockCache;

use super::index::{self, Partition};

/// Bytes of keys up to which an index is decoded: keys that share most of what they have grow by that.
const MOST_KEY_BYTES: usize = 1 << 20;

/// Where partitions begin, and the partitions. Its bytes come out of the cache's capacity for as long as it lives.
#[derive(Debug)]
pub(super) struct TopIndex {
    /// The separators, one after another.
    keys: Box<[u8]>,
    /// Where each of them ends.
    ends: Box<[u32]>,
    partitions: Box<[Partition]>,
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl TopIndex {
    /// The index in `block`; `None` when the cache has no room to spare for it.
    ///
    /// # Errors
    /// Corruption when the block or an entry can't be read.
    pub fn decode(block: Block, cache: &Arc<BlockCache>) -> Result<Option<Self>> {
        let (mut keys, mut ends, mut partitions) = (Vec::new(), Vec::new(), Vec::new());
        let mut entries = Forward::first(block)?;
        while let Some(entry) = entries.record() {
            if keys.len() + entry.key.len() > MOST_KEY_BYTES {
                return Ok(None);
            }
            keys.extend_from_slice(entry.key);
            #[expect(clippy::cast_possible_truncation, reason = "bounded just above")]
            ends.push(keys.len() as u32);
            partitions.push(index::decode_partition(entry.value)?);
            entries.advance()?;
        }
        let bytes = (keys.len() + ends.len() * (4 + size_of::<Partition>()) + size_of::<Self>()) as u64;
        if !cache.pin(bytes) {
            return Ok(None);
        }
        let (keys, ends, partitions) = (keys.into(), ends.into(), partitions.into());
        Ok(Some(Self { keys, ends, partitions, cache: Arc::clone(cache), bytes }))
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        let end = self.ends.get(at).map_or(start, |end| *end as usize);
        self.keys.get(start..end).unwrap_or_default()
    }

    /// The partition that answers for `key`; `None` when it is before all keys.
    #[inline]
    pub fn floor(&self, key: &[u8]) -> Option<Partition> {
        self.at_or_below(key).checked_sub(1).and_then(|at| self.partitions.get(at)).copied()
    }

    /// How many separators are at or below `key`.
    #[inline]
    fn at_or_below(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.partitions.len());
        // Separators before `low` are at or below the key, those from `high` on above it.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The partitions that hold keys of `from` and above, with where each begins.
    #[inline]
    pub fn partitions_from(&self, from: &[u8]) -> impl Iterator<Item = (&[u8], Partition)> {
        let first = self.at_or_below(from).saturating_sub(1);
        (first..self.partitions.len()).filter_map(|at| Some((self.key(at), *self.partitions.get(at)?)))
    }
}

impl Drop for TopIndex {
    fn drop(&mut self) {
        self.cache.unpin(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::{Kind, NEVER, Record};
    use crate::block::builder::{BlockBuilder, INDEX_INTERVAL};
    use crate::version::segment_meta::BlockHandle;

    fn block(keys: impl Iterator<Item = Vec<u8>>) -> Block {
        let mut builder = BlockBuilder::new(INDEX_INTERVAL);
        for (n, key) in keys.enumerate() {
            let mut value = Vec::new();
            let handle = BlockHandle { offset: n as u64, length_bytes: 1 };
            index::put_handle(&mut value, handle);
            index::put_handle(&mut value, handle);
            builder.add(&Record { key: &key, sequence: 0, kind: Kind::Put, expiry: NEVER, value: &value });
        }
        Block::parse(builder.finish().into()).unwrap()
    }

    #[test]
    fn it_finds_what_the_block_finds() {
        let cache = Arc::new(BlockCache::new(1 << 20).unwrap());
        let block = block((0..100_u16).map(|n| (n * 7 + 5).to_be_bytes().to_vec()));
        let top = TopIndex::decode(block.clone(), &cache).unwrap().unwrap();
        for key in 0..800_u16 {
            let key = key.to_be_bytes();
            let expected = block.floor(&key).unwrap().map(|e| index::decode_partition(block.value_bytes(&e)).unwrap());
            assert_eq!(top.floor(&key), expected, "{key:?}");
            let from: Vec<Partition> = top.partitions_from(&key).map(|(_, partition)| partition).collect();
            assert_eq!(from.len(), 100 - usize::from(u16::from_be_bytes(key).saturating_sub(5) / 7).min(99), "{key:?}");
            assert!(expected.is_none_or(|first| from[0] == first), "{key:?}");
        }
        assert_eq!(top.floor(&[]), None);
    }

    #[test]
    fn what_it_takes_comes_out_of_the_cache_and_goes_back() {
        let cache = Arc::new(BlockCache::new(64 << 10).unwrap());
        let some = || TopIndex::decode(block((0..100_u16).map(|n| n.to_be_bytes().to_vec())), &cache).unwrap();
        let tops: Vec<_> = std::iter::from_fn(some).collect();
        assert!(!tops.is_empty() && cache.pinned_bytes() <= 16 << 10, "{} pinned", cache.pinned_bytes());
        drop(tops);
        assert_eq!(cache.pinned_bytes(), 0);
        let long = (0..60_u8).map(|n| [&[7; 40_000][..], &[n]].concat());
        assert!(TopIndex::decode(block(long), &cache).unwrap().is_none(), "keys that share what they have");
    }
}
