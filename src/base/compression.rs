//! Block compression: none, LZ4 or zstd, where it pays.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use super::buffer::{Buffer, LARGE_BYTES};
use crate::{Error, ErrorKind, Result};

/// How a block's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    #[default]
    None = 0,
    /// zstd, level 1: smaller, and several times slower to undo than LZ4.
    Zstd = 1,
    /// LZ4 blocks: what is read often.
    Lz4 = 2,
}

impl Compression {
    /// The method with `tag`; `None` for an unknown one.
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            0 => Some(Self::None),
            1 => Some(Self::Zstd),
            2 => Some(Self::Lz4),
            _ => None,
        }
    }

    /// `raw` compressed, or `None` where that saves less than an eighth.
    #[must_use]
    pub fn compress(self, raw: &[u8]) -> Option<Buffer> {
        let most = raw.len() - raw.len() / 8;
        let packed = match self {
            Self::None => None,
            Self::Zstd => compress_zstd(raw, most),
            Self::Lz4 => compress_lz4(raw),
        };
        packed.filter(|packed| packed.len() <= most)
    }

    /// Undoes [`Compression::compress`]; the result is exactly `raw_len` bytes, a length the caller has bounded.
    ///
    /// # Errors
    /// Corruption when the bytes aren't of this method or give another length.
    pub fn decompress(self, packed: &[u8], raw_len: usize) -> Result<Buffer> {
        let corrupt = |e| Error::with_source(ErrorKind::Corruption, format!("decompressing a {self} block"), e);
        let raw = match self {
            Self::None => packed.to_vec().into(),
            Self::Zstd => decompress_zstd(packed, raw_len).map_err(corrupt)?,
            Self::Lz4 => {
                let raw = decompress_lz4(packed, raw_len);
                raw.map_err(|e| corrupt(std::io::Error::new(std::io::ErrorKind::InvalidData, e)))?
            }
        };
        if raw.len() != raw_len {
            return Err(Error::corruption(format!("{self} block: {raw_len} bytes expected, {} found", raw.len())));
        }
        Ok(raw)
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "raw",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        })
    }
}

const LEVEL: i32 = 1;

thread_local! {
    /// Making a context for each block showed in profiles of small blocks; each thread keeps its own.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compress_zstd(raw: &[u8], most: usize) -> Option<Buffer> {
    let packed = COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        // With no more room than the result may take, one that doesn't pay is given up on the way.
        if most >= LARGE_BYTES {
            let mut packed = Buffer::zeroed(most);
            let length = compressor.compress_to_buffer(raw, &mut *packed)?;
            packed.truncate(length);
            return Ok(packed);
        }
        let mut packed = Vec::with_capacity(most);
        compressor.compress_to_buffer(raw, &mut packed).map(|_| Buffer::from(packed))
    });
    packed.ok()
}

fn decompress_zstd(packed: &[u8], raw_len: usize) -> std::io::Result<Buffer> {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        if raw_len >= LARGE_BYTES {
            let mut raw = Buffer::zeroed(raw_len);
            let length = decompressor.decompress_to_buffer(packed, &mut *raw)?;
            raw.truncate(length);
            return Ok(raw);
        }
        decompressor.decompress(packed, raw_len).map(Buffer::from)
    })
}

fn compress_lz4(raw: &[u8]) -> Option<Buffer> {
    if raw.len() < LARGE_BYTES {
        return Some(lz4_flex::block::compress(raw).into());
    }
    let mut packed = Buffer::zeroed(lz4_flex::block::get_maximum_output_size(raw.len()));
    let length = lz4_flex::block::compress_into(raw, &mut packed).ok()?;
    packed.truncate(length);
    Some(packed)
}

fn decompress_lz4(packed: &[u8], raw_len: usize) -> Result<Buffer, lz4_flex::block::DecompressError> {
    if raw_len < LARGE_BYTES {
        return lz4_flex::block::decompress(packed, raw_len).map(Buffer::from);
    }
    let mut raw = Buffer::zeroed(raw_len);
    let length = lz4_flex::block::decompress_into(packed, &mut raw)?;
    raw.truncate(length);
    Ok(raw)
}
