//! Decoded blocks of all segments, kept by weight.
//!
//! Eviction is quick_cache's S3-FIFO with ghosts: a scan passes through without washing out what is read
//! again and again. A block is found by (segment number, offset); numbers are given out once in a cache's
//! life, so a file that takes another's name never meets its blocks.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::{Error, Result};

/// What a cached block costs beyond its bytes: key, slot in slab and table, the shared header of its bytes
/// (24 + 8 + 32 + 16 + 32 bytes, rounded up).
pub const ENTRY_OVERHEAD_BYTES: u64 = 128;

/// Locks that threads spread over. A block heavier than its share of the capacity isn't kept.
const SHARDS: usize = 8;

/// Part of the capacity that may be pinned: one in so many.
const PINNED_PART: u64 = 4;

/// Typical block, to size shards and ghost lists.
const TYPICAL_BLOCK_BYTES: u64 = 4 << 10;

/// Where a block comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// The number that [`BlockCache::next_segment_number`] gave to the opened segment.
    pub segment_number: u64,
    /// Offset of the block in its file.
    pub offset: u64,
}

/// Mixes the two words of a [`BlockKey`]; both come from us, so nobody can aim at collisions.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
        let folded = (product as u64) ^ ((product >> 64) as u64);
        self.0 = folded;
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<BlockKey, Bytes> for Weight {
    fn weight(&self, _: &BlockKey, block: &Bytes) -> u64 {
        block.len() as u64 + ENTRY_OVERHEAD_BYTES
    }
}

type Inner = Cache<BlockKey, Bytes, Weight, BuildHasherDefault<KeyHasher>>;

/// Blocks shared by all segments of a process. See the module.
pub struct BlockCache {
    inner: Inner,
    segments: AtomicU64,
    capacity_bytes: u64,
    /// What of the capacity is held by others than the cache itself.
    pinned_bytes: Mutex<u64>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a cache has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Lookups answered from memory.
    pub hits: u64,
    /// Lookups that weren't.
    pub misses: u64,
    /// Blocks held.
    pub blocks: u64,
    /// Bytes held, overhead included.
    pub weight_bytes: u64,
}

impl BlockCache {
    /// A cache that keeps at most `capacity_bytes`, the overhead of each block included. One byte is a capacity
    /// too: then nothing is kept, and everything still works.
    ///
    /// # Errors
    /// Internal, when quick_cache refuses its options.
    pub fn new(capacity_bytes: u64) -> Result<Self> {
        let items = usize::try_from(capacity_bytes / TYPICAL_BLOCK_BYTES).unwrap_or(usize::MAX).max(1);
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(items)
            .weight_capacity(capacity_bytes)
            .build()
            .map_err(|e| Error::internal(format!("block cache options: {e}")))?;
        let inner = Inner::with_options(options, Weight, BuildHasherDefault::default(), DefaultLifecycle::default());
        Ok(Self {
            inner,
            segments: AtomicU64::new(0),
            capacity_bytes,
            pinned_bytes: Mutex::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        })
    }

    /// A number for a segment that is being opened; never given twice.
    #[must_use]
    pub fn next_segment_number(&self) -> u64 {
        self.segments.fetch_add(1, Ordering::Relaxed)
    }

    /// The block, if it is here. Never waits for I/O.
    #[inline]
    #[must_use]
    pub fn get(&self, key: BlockKey) -> Option<Bytes> {
        let found = self.inner.get(&key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// The block from here, or from `load`, which then is kept. Callers that miss the same block at one time
    /// wait for one load.
    ///
    /// # Errors
    /// What `load` fails with; nothing is kept, and the next caller loads again.
    #[inline]
    pub fn get_or_load(&self, key: BlockKey, load: impl FnOnce() -> Result<Bytes>) -> Result<Bytes> {
        let mut missed = false;
        let found = self.inner.get_or_insert_with(&key, || {
            missed = true;
            load()
        });
        let counter = if missed { &self.misses } else { &self.hits };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Takes so much of the capacity for what its holder keeps in memory at any rate, evicting blocks that no longer fit.
    /// False, and nothing taken, when that would be over a quarter of the capacity in all.
    pub fn pin(&self, bytes: u64) -> bool {
        let mut pinned = self.pinned_bytes.lock();
        let fits = *pinned + bytes <= self.capacity_bytes / PINNED_PART;
        if fits {
            *pinned += bytes;
            self.inner.set_capacity(self.capacity_bytes - *pinned);
        }
        fits
    }

    /// Gives back what [`BlockCache::pin`] took.
    pub fn unpin(&self, bytes: u64) {
        let mut pinned = self.pinned_bytes.lock();
        *pinned = pinned.saturating_sub(bytes);
        self.inner.set_capacity(self.capacity_bytes - *pinned);
    }

    /// What it keeps at most, what is pinned included.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// What of the capacity is pinned.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        *self.pinned_bytes.lock()
    }

    /// What the cache has done and holds.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            blocks: self.inner.len() as u64,
            weight_bytes: self.inner.weight(),
        }
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("counts", &self.counts()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64) -> BlockKey {
        BlockKey { segment_number: 7, offset }
    }

    #[test]
    fn a_cache_of_one_byte_keeps_nothing_and_still_answers() {
        let cache = BlockCache::new(1).unwrap();
        for _ in 0..3 {
            let block = cache.get_or_load(key(0), || Ok(Bytes::from_static(b"block"))).unwrap();
            assert_eq!(&block[..], b"block");
        }
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses, counts.blocks), (0, 3, 0));
    }

    #[test]
    fn weight_stays_within_the_capacity_and_makes_room_for_what_is_pinned() {
        let cache = BlockCache::new(1 << 20).unwrap();
        for offset in 0..1000 {
            cache.get_or_load(key(offset), || Ok(Bytes::from(vec![0; 4096]))).unwrap();
            assert!(cache.counts().weight_bytes <= 1 << 20);
        }
        assert!(cache.counts().blocks > 100);
        assert!(cache.pin(200 << 10) && !cache.pin(100 << 10), "a quarter at most");
        assert!(cache.counts().weight_bytes <= (1 << 20) - (200 << 10));
        cache.unpin(200 << 10);
        assert!(cache.pin(256 << 10));
    }

    #[test]
    fn a_failed_load_is_not_kept() {
        let cache = BlockCache::new(1 << 20).unwrap();
        assert!(cache.get_or_load(key(1), || Err(Error::corruption("bad"))).is_err());
        assert!(cache.get(key(1)).is_none());
        assert_eq!(cache.get_or_load(key(1), || Ok(Bytes::from_static(b"x"))).unwrap(), "x");
        assert_eq!(cache.get(key(1)).unwrap(), "x");
    }

    #[test]
    fn what_is_read_often_survives_a_scan() {
        let cache = BlockCache::new(1 << 20).unwrap();
        for _ in 0..10 {
            for hot in 0..20 {
                cache.get_or_load(key(hot), || Ok(Bytes::from(vec![1; 4096]))).unwrap();
            }
        }
        for offset in 1000..5000 {
            cache.get_or_load(key(offset), || Ok(Bytes::from(vec![0; 4096]))).unwrap();
        }
        let left = (0..20).filter(|hot| cache.get(key(*hot)).is_some()).count();
        assert!(left >= 15, "{left} of 20 left");
    }
}
