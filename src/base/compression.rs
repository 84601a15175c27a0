//! Block compression: none, or zstd where it pays.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::{Error, Result};

/// How a block's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    #[default]
    None = 0,
    /// zstd, level 1.
    Zstd = 1,
}

impl Compression {
    /// The method with `tag`; `None` for an unknown one.
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            0 => Some(Self::None),
            1 => Some(Self::Zstd),
            _ => None,
        }
    }
}

const LEVEL: i32 = 1;

thread_local! {
    /// Making a context for each block showed in profiles of small blocks; each thread keeps its own.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// `raw` compressed by zstd, or `None` where that saves less than an eighth.
#[must_use]
pub fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    let packed = COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        compressor.compress(raw)
    });
    let packed = packed.ok()?;
    (packed.len() <= raw.len() - raw.len() / 8).then_some(packed)
}

/// Undoes [`compress`]; the result is exactly `raw_len` bytes, a length the caller has bounded.
///
/// # Errors
/// Corruption when the bytes aren't zstd or give another length.
pub fn decompress(packed: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let raw = DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        decompressor.decompress(packed, raw_len)
    });
    let raw = raw.map_err(|e| Error::with_source(crate::ErrorKind::Corruption, "decompressing a zstd block", e))?;
    if raw.len() != raw_len {
        return Err(Error::corruption(format!("zstd block: {raw_len} bytes expected, {} found", raw.len())));
    }
    Ok(raw)
}
