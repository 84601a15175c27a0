//! The frame around claims, parts and log entries. Integers are little-endian; this layout stays for ever.
//!
//! ```text
//! 0   magic, 4 bytes
//! 4   version, u16
//! 6   flags, u16: bit 0 = the body is its length as u32, then zstd; others 0
//! 8   XXH3-64 of the body as stored, seeded with bytes 0..8 as u64
//! 16  body
//!
//! a claim of epoch 3, attempt 0x0102030405060708:
//! 48 57 43 4c  01 00  00 00  xx xx xx xx xx xx xx xx  03  08 07 06 05 04 03 02 01
//! ```

use crate::base::buffer::Buffer;
use crate::base::checksum;
use crate::base::compression::Compression;
use crate::base::wire::Reader;
use crate::{Error, ErrorKind, Result};

/// Bytes before the body. The checksum among them tells one body from another.
pub(super) const HEADER_BYTES: usize = 16;
const ZSTD: u16 = 1;
/// Bodies from this length on are compressed where that pays.
const COMPRESS_FROM_BYTES: usize = 4 << 10;
/// Longest body that is compressed, so that nothing small can claim to become huge.
const MAX_BODY_BYTES: usize = 256 << 20;

/// `body` under `magic` and `version`.
pub(super) fn seal(magic: [u8; 4], version: u16, body: &[u8]) -> Vec<u8> {
    let worth_it = (COMPRESS_FROM_BYTES..=MAX_BODY_BYTES).contains(&body.len());
    let packed = if worth_it { Compression::Zstd.compress(body) } else { None };
    let mut stored = Vec::new();
    let flags = match (packed, u32::try_from(body.len())) {
        (Some(packed), Ok(length)) => {
            stored.extend_from_slice(&length.to_le_bytes());
            stored.extend_from_slice(&packed);
            ZSTD
        }
        _ => {
            stored.extend_from_slice(body);
            0
        }
    };
    let mut sealed = Vec::with_capacity(HEADER_BYTES + stored.len());
    sealed.extend_from_slice(&magic);
    sealed.extend_from_slice(&version.to_le_bytes());
    sealed.extend_from_slice(&flags.to_le_bytes());
    let sum = checksum(&sealed, &stored);
    sealed.extend_from_slice(&sum.to_le_bytes());
    sealed.extend_from_slice(&stored);
    sealed
}

/// The body under `magic` and `version`; `what` names the bytes in errors.
pub(super) fn open(magic: [u8; 4], version: u16, bytes: &[u8], what: &str) -> Result<Buffer> {
    let mut reader = Reader::new(bytes, what);
    if reader.take(4)? != magic {
        return Err(Error::corruption(format!(
            "{what} at byte 0: magic {:?} expected",
            magic.escape_ascii().to_string()
        )));
    }
    let (found_version, flags, sum) = (reader.u16()?, reader.u16()?, reader.u64()?);
    let stored = reader.take(reader.remaining())?;
    let found_sum = checksum(bytes, stored);
    if sum != found_sum {
        return Err(Error::corruption(format!("{what}: checksum {sum:016x} expected, {found_sum:016x} found")));
    }
    if found_version != version || flags & !ZSTD != 0 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("{what}: format {found_version} (flags {flags:#x}), this version reads {version}"),
        ));
    }
    if flags & ZSTD == 0 {
        return Ok(stored.to_vec().into());
    }
    let mut packed = Reader::new(stored, what);
    let length = packed.u32()? as usize;
    if length > MAX_BODY_BYTES {
        return Err(packed.corrupt(&format!("body of {length} bytes is over the limit")));
    }
    Compression::Zstd.decompress(packed.take(packed.remaining())?, length).map_err(|e| e.context(what))
}

fn checksum(header: &[u8], stored: &[u8]) -> u64 {
    let mut seed = [0; 8];
    seed.iter_mut().zip(header).for_each(|(to, from)| *to = *from);
    checksum::hash64_seeded(stored, u64::from_le_bytes(seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 4] = *b"HWxx";

    #[test]
    fn every_flipped_bit_and_every_truncation_is_an_error_that_names_the_bytes() {
        let sealed = seal(MAGIC, 1, b"some body");
        assert_eq!(*open(MAGIC, 1, &sealed, "it").unwrap(), *b"some body");
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = open(MAGIC, 1, &bad, "the thing").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains("the thing"), "{error}");
        }
        for end in 0..sealed.len() {
            assert_eq!(open(MAGIC, 1, &sealed[..end], "it").unwrap_err().kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn long_bodies_are_compressed_and_newer_formats_unsupported() {
        let body = vec![7; 100_000];
        let sealed = seal(MAGIC, 1, &body);
        assert!(sealed.len() < 1000);
        assert_eq!(*open(MAGIC, 1, &sealed, "it").unwrap(), body);
        assert_eq!(open(MAGIC, 1, &seal(MAGIC, 2, b"x"), "it").unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
