//! An open segment, and how it comes by its blocks.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::buffer::Buffer;
use crate::block::reader::Block;
use crate::block::seal::{self, MAX_BLOCK_BYTES, SEAL_BYTES};
use crate::cache::block_cache::{BlockCache, BlockKey};
use crate::io::files::ReadAt;
use crate::version::segment_meta::{BlockHandle, SegmentMeta};
use crate::{Error, ErrorKind, Result};

use super::footer::{FOOTER_BYTES, Footer};
use super::index::{self, Partition};
use super::readahead::Readahead;
use super::stats::SegmentStats;
use super::top::TopIndex;

/// Sealed blocks up to this length are read into a buffer that each thread keeps.
const SCRATCH_BYTES: usize = 16 << 10;

thread_local! {
    static SCRATCH: RefCell<Option<Box<[u8]>>> = const { RefCell::new(None) };
}

/// An immutable sorted file of records, open for reading from any thread.
#[derive(Debug)]
pub struct Segment {
    meta: SegmentMeta,
    source: Arc<dyn ReadAt>,
    cache: Arc<BlockCache>,
    number: u64,
    /// Once it has been read; `None` when the cache had no room for it then.
    top: OnceLock<Option<TopIndex>>,
}

/// How a read may come by blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// From the cache, else from the source, and then into the cache.
    Fill,
    /// From the cache, else from the source, leaving the cache as it is: for scans that won't come again.
    Bypass,
    /// From the cache or not at all.
    Resident,
    /// From the source, whatever the cache holds: for checking it.
    Source,
}

/// Why a read under an [`Access`] gave nothing.
pub(super) enum Stop {
    /// A block isn't in the cache, and fetching it wasn't allowed.
    NotResident,
    /// Something is wrong.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Makes `None` of a read that wasn't allowed to fetch.
pub(super) fn resident<T>(answer: Result<T, Stop>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Stop::NotResident) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

impl Segment {
    /// Opens the segment that `meta` describes and `source` holds. Reads nothing: a wrong source shows at the
    /// first block.
    #[must_use]
    pub fn open(meta: SegmentMeta, source: Arc<dyn ReadAt>, cache: Arc<BlockCache>) -> Arc<Self> {
        let number = cache.next_segment_number();
        Arc::new(Self { meta, source, cache, number, top: OnceLock::new() })
    }

    /// What is known of it without reading.
    #[must_use]
    pub fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    /// Its bytes.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn ReadAt> {
        &self.source
    }

    /// Its statistics, read from the source.
    ///
    /// # Errors
    /// Corruption and `Unsupported` that name the file; I/O errors.
    pub fn stats(&self) -> Result<SegmentStats> {
        let footer = self.footer()?;
        let bytes = self.fetch(footer.stats)?;
        SegmentStats::decode(&bytes).map_err(|e| self.at(e, footer.stats))
    }

    /// Its footer, read from the source and held against what is known.
    pub(super) fn footer(&self) -> Result<Footer> {
        let footer = read_footer(self.source.as_ref())?;
        let (known, found) = (&self.meta, &footer);
        if (known.id, known.length_bytes, known.top_index) != (found.id, found.length_bytes, found.top_index) {
            return Err(Error::corruption(format!(
                "segment `{}`: footer of id {}, {} bytes, index at {} expected; {}, {}, {} found",
                self.source.name(),
                known.id,
                known.length_bytes,
                known.top_index.offset,
                found.id,
                found.length_bytes,
                found.top_index.offset,
            )));
        }
        Ok(footer)
    }

    /// The raw bytes of a block.
    pub(super) fn load(&self, handle: BlockHandle, access: Access) -> Result<Bytes, Stop> {
        let key = BlockKey { segment_number: self.number, offset: handle.offset };
        match access {
            Access::Fill => Ok(self.cache.get_or_load(key, || self.fetch(handle))?),
            Access::Resident => self.cache.get(key).ok_or(Stop::NotResident),
            Access::Source => Ok(self.fetch(handle)?),
            Access::Bypass => match self.cache.get(key) {
                Some(bytes) => Ok(bytes),
                None => Ok(self.fetch(handle)?),
            },
        }
    }

    /// Takes a block that was fetched elsewhere into the cache.
    pub(super) fn admit_sealed(&self, handle: BlockHandle, sealed: &[u8]) -> Result<()> {
        self.check_place(handle)?;
        let key = BlockKey { segment_number: self.number, offset: handle.offset };
        let unseal = || seal::unseal_copy(sealed, self.seed(handle)).map_err(|e| self.at(e, handle));
        self.cache.get_or_load(key, unseal).map(drop)
    }

    /// A block of records or index entries.
    pub(super) fn block(&self, handle: BlockHandle, access: Access) -> Result<Block, Stop> {
        let bytes = self.load(handle, access)?;
        Ok(Block::parse(bytes).map_err(|e| self.at(e, handle))?)
    }

    /// The top-level index.
    pub(super) fn top(&self, access: Access) -> Result<Block, Stop> {
        self.block(self.meta.top_index, access)
    }

    /// The partitions that answer for `key`; `None` when it is before all keys.
    #[inline]
    pub(super) fn partition(&self, key: &[u8], access: Access) -> Result<Option<Partition>, Stop> {
        match self.top.get() {
            Some(Some(top)) if access != Access::Source => Ok(top.floor(key)),
            _ => self.partition_of_block(key, access),
        }
    }

    #[cold]
    fn partition_of_block(&self, key: &[u8], access: Access) -> Result<Option<Partition>, Stop> {
        let (top, handle) = (self.top(access)?, self.meta.top_index);
        if access == Access::Fill && self.top.get().is_none() {
            let decoded = TopIndex::decode(top.clone(), &self.cache).map_err(|e| self.at(e, handle))?;
            // Another thread may have been first; both read the same bytes.
            let _ = self.top.set(decoded);
        }
        let Some(entry) = top.floor(key).map_err(|e| self.at(e, handle))? else { return Ok(None) };
        let found = index::decode_partition(top.value_bytes(&entry)).map_err(|e| self.at(e, handle))?;
        Ok(Some(found))
    }

    /// `error`, led by the file's name and the block's offset.
    #[cold]
    pub(super) fn at(&self, error: Error, handle: BlockHandle) -> Error {
        error.context(format!("segment `{}`, block at {}", self.source.name(), handle.offset))
    }

    /// As [`Segment::block`] of an access that leaves the cache as it is, reading ahead.
    pub(super) fn block_ahead(&self, handle: BlockHandle, access: Access, ahead: &mut Readahead) -> Result<Block> {
        let key = BlockKey { segment_number: self.number, offset: handle.offset };
        let cached = if access == Access::Bypass { self.cache.get(key) } else { None };
        let bytes = match cached {
            Some(bytes) => bytes,
            None => {
                self.check_place(handle)?;
                let sealed = ahead.read(self.source.as_ref(), handle).map_err(|e| self.at(e, handle))?;
                self.unseal(sealed, handle).or_else(|error| self.fetch_second(handle, error))?
            }
        };
        Block::parse(bytes).map_err(|e| self.at(e, handle))
    }

    fn fetch(&self, handle: BlockHandle) -> Result<Bytes> {
        self.check_place(handle)?;
        let length = handle.length_bytes as usize;
        let bytes = if length <= SCRATCH_BYTES {
            SCRATCH.with_borrow_mut(|scratch| {
                let sealed = scratch.get_or_insert_with(|| vec![0; SCRATCH_BYTES].into());
                let sealed = sealed.get_mut(..length).unwrap_or_default();
                self.source.read_at(handle.offset, sealed).map_err(|e| self.at(e, handle))?;
                seal::unseal_copy(sealed, self.seed(handle)).map_err(|e| self.at(e, handle))
            })
        } else {
            let mut sealed = Buffer::zeroed(length);
            self.source.read_at(handle.offset, &mut sealed).map_err(|e| self.at(e, handle))?;
            self.unseal(sealed, handle)
        };
        bytes.or_else(|error| self.fetch_second(handle, error))
    }

    fn seed(&self, handle: BlockHandle) -> u64 {
        seal::seed(self.meta.id, handle.offset)
    }

    /// A block that failed its checksum, from the source's second copy if it has one.
    #[cold]
    fn fetch_second(&self, handle: BlockHandle, why: Error) -> Result<Bytes> {
        let Some(copy) = self.source.second_copy().filter(|_| why.kind() == ErrorKind::Corruption) else {
            return Err(why);
        };
        let at = |e: Error| e.context(format!("segment `{}`, block at {}", copy.name(), handle.offset));
        let mut sealed = Buffer::zeroed(handle.length_bytes as usize);
        copy.read_at(handle.offset, &mut sealed).map_err(at)?;
        let bytes = seal::unseal(sealed, self.seed(handle)).map_err(at)?;
        self.source.distrust(&why);
        Ok(bytes)
    }

    fn unseal(&self, sealed: Buffer, handle: BlockHandle) -> Result<Bytes> {
        seal::unseal(sealed, self.seed(handle)).map_err(|e| self.at(e, handle))
    }

    /// Bounds a block by its file before anything is allocated for it.
    fn check_place(&self, handle: BlockHandle) -> Result<()> {
        let length = handle.length_bytes as usize;
        let end = handle.offset.checked_add(u64::from(handle.length_bytes));
        let within = end.is_some_and(|end| end <= self.meta.length_bytes && end <= self.source.len());
        if within && (SEAL_BYTES..=MAX_BLOCK_BYTES + SEAL_BYTES).contains(&length) {
            return Ok(());
        }
        let (expected, found) = (self.meta.length_bytes, self.source.len());
        let text = format!("{length} bytes expected in a file of {expected} bytes, which has {found}");
        Err(self.at(Error::corruption(text), handle))
    }
}

/// Reads the footer of a segment file.
///
/// # Errors
/// Corruption and `Unsupported` that name the file; I/O errors.
pub fn read_footer(source: &dyn ReadAt) -> Result<Footer> {
    let name = |e: Error| e.context(format!("segment `{}`", source.name()));
    let length = source.len();
    let Some(offset) = length.checked_sub(FOOTER_BYTES as u64) else {
        return Err(name(Error::corruption(format!("{FOOTER_BYTES} bytes of footer expected in {length} bytes"))));
    };
    let mut bytes = [0; FOOTER_BYTES];
    source.read_at(offset, &mut bytes).map_err(name)?;
    let footer = Footer::decode(&bytes).map_err(name)?;
    if footer.length_bytes != length {
        let text = format!("{} bytes expected, {length} found", footer.length_bytes);
        return Err(name(Error::corruption(text)));
    }
    Ok(footer)
}
