//! Block compression: none, LZ4 or zstd, where it pays.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

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
    pub fn compress(self, raw: &[u8]) -> Option<Vec<u8>> {
        let packed = match self {
            Self::None => None,
            Self::Zstd => compress_zstd(raw),
            Self::Lz4 => Some(lz4_flex::block::compress(raw)),
        };
        packed.filter(|packed| packed.len() <= raw.len() - raw.len() / 8)
    }

    /// Undoes [`Compression::compress`]; the result is exactly `raw_len` bytes, a length the caller has bounded.
    ///
    /// # Errors
    /// Corruption when the bytes aren't of this method or give another length.
    pub fn decompress(self, packed: &[u8], raw_len: usize) -> Result<Vec<u8>> {
        let corrupt = |e| Error::with_source(ErrorKind::Corruption, format!("decompressing a {self} block"), e);
        let raw = match self {
            Self::None => packed.to_vec(),
            Self::Zstd => decompress_zstd(packed, raw_len).map_err(corrupt)?,
            Self::Lz4 => {
                let raw = lz4_flex::block::decompress(packed, raw_len);
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

fn compress_zstd(raw: &[u8]) -> Option<Vec<u8>> {
    let packed = COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        compressor.compress(raw)
    });
    packed.ok()
}

fn decompress_zstd(packed: &[u8], raw_len: usize) -> std::io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        decompressor.decompress(packed, raw_len)
    })
}
