//! Block compression: none, or zstd where it pays.

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

/// `raw` compressed by zstd, or `None` where that saves less than an eighth.
#[must_use]
pub fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    let packed = zstd::bulk::compress(raw, LEVEL).ok()?;
    (packed.len() <= raw.len() - raw.len() / 8).then_some(packed)
}

/// Undoes [`compress`]; the result is exactly `raw_len` bytes, a length the caller has bounded.
///
/// # Errors
/// Corruption when the bytes aren't zstd or give another length.
pub fn decompress(packed: &[u8], raw_len: usize) -> Result<Vec<u8>> {
    let raw = zstd::bulk::decompress(packed, raw_len)
        .map_err(|e| Error::with_source(crate::ErrorKind::Corruption, "decompressing a zstd block", e))?;
    if raw.len() != raw_len {
        return Err(Error::corruption(format!("zstd block: {raw_len} bytes expected, {} found", raw.len())));
    }
    Ok(raw)
}
