//! The last 64 bytes of a segment file.
//!
//! ```text
//! checksum u64 | top-level index: offset u64, length u32 | statistics: offset u64, length u32
//!   | segment id u64 | file length u64 | features u32 | major u16 | minor u16 | magic "HWSEG\r\n\x1a"
//! ```
//! All little-endian. The checksum is the XXH3-64 of the 56 bytes after it. A reader refuses other majors
//! and any feature bit; a newer minor only adds what an older reader may ignore. Worked bytes: see the end of
//! `tests/golden/segment-v1.hex`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::base::checksum;
use crate::base::ids::SegmentId;
use crate::base::wire::Reader;
use crate::version::segment_meta::BlockHandle;
use crate::{Error, ErrorKind, Result};

/// Length of a footer.
pub const FOOTER_BYTES: usize = 64;

/// Marks a segment file; the line ends show transfers that change them.
pub const MAGIC: [u8; 8] = *b"HWSEG\r\n\x1a";

/// Format version that this code writes: major, minor.
pub const VERSION: (u16, u16) = (1, 0);

/// A footer, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The top-level index.
    pub top_index: BlockHandle,
    /// The statistics block.
    pub stats: BlockHandle,
    /// Seeds the file's checksums.
    pub id: SegmentId,
    /// Length of the file, footer included.
    pub length_bytes: u64,
}

impl Footer {
    /// The footer's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(FOOTER_BYTES);
        for handle in [self.top_index, self.stats] {
            fields.extend_from_slice(&handle.offset.to_le_bytes());
            fields.extend_from_slice(&handle.length_bytes.to_le_bytes());
        }
        fields.extend_from_slice(&self.id.0.to_le_bytes());
        fields.extend_from_slice(&self.length_bytes.to_le_bytes());
        fields.extend_from_slice(&0_u32.to_le_bytes());
        fields.extend_from_slice(&VERSION.0.to_le_bytes());
        fields.extend_from_slice(&VERSION.1.to_le_bytes());
        fields.extend_from_slice(&MAGIC);
        let mut out = checksum::hash64(&fields).to_le_bytes().to_vec();
        out.append(&mut fields);
        out
    }

    /// Reads a footer.
    ///
    /// # Errors
    /// Corruption when magic or checksum are wrong, saying what was found; `Unsupported` for other majors and
    /// features.
    pub fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "segment footer");
        let expected = reader.u64()?;
        let handle = |reader: &mut Reader<'_>| -> Result<BlockHandle> {
            Ok(BlockHandle { offset: reader.u64()?, length_bytes: reader.u32()? })
        };
        let (top_index, stats) = (handle(&mut reader)?, handle(&mut reader)?);
        let (id, length_bytes) = (SegmentId(reader.u64()?), reader.u64()?);
        let features = reader.u32()?;
        let (major, minor) = (reader.u16()?, reader.u16()?);
        let magic = reader.take(MAGIC.len())?;
        if magic != MAGIC {
            return Err(Error::corruption(format!("segment footer: magic {MAGIC:02x?} expected, {magic:02x?} found")));
        }
        if major != VERSION.0 {
            let text = format!("segment format {major}.{minor}; this version reads {}", VERSION.0);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let found = checksum::hash64(bytes.get(8..).unwrap_or_default());
        if expected != found {
            let text = format!("segment footer: checksum {expected:016x} expected, {found:016x} found");
            return Err(Error::corruption(text));
        }
        if features != 0 {
            return Err(Error::new(ErrorKind::Unsupported, format!("segment features {features:#x}")));
        }
        Ok(Self { top_index, stats, id, length_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOOTER: Footer = Footer {
        top_index: BlockHandle { offset: 1000, length_bytes: 50 },
        stats: BlockHandle { offset: 1050, length_bytes: 70 },
        id: SegmentId(9),
        length_bytes: 1184,
    };

    fn resealed(change: impl Fn(&mut [u8])) -> [u8; FOOTER_BYTES] {
        let mut bytes: [u8; FOOTER_BYTES] = FOOTER.encode().try_into().unwrap();
        change(&mut bytes);
        let sum = checksum::hash64(&bytes[8..]).to_le_bytes();
        bytes[..8].copy_from_slice(&sum);
        bytes
    }

    #[test]
    fn round_trips_and_ignores_a_newer_minor() {
        assert_eq!(Footer::decode(&resealed(|_| ())).unwrap(), FOOTER);
        assert_eq!(Footer::decode(&resealed(|b| b[54] = 3)).unwrap(), FOOTER);
    }

    #[test]
    fn foreign_newer_and_broken_footers_are_told_apart() {
        let kind = |bytes| Footer::decode(&bytes).unwrap_err().kind();
        assert_eq!(kind([0; FOOTER_BYTES]), ErrorKind::Corruption);
        assert_eq!(kind(resealed(|b| b[52] = 2)), ErrorKind::Unsupported);
        assert_eq!(kind(resealed(|b| b[48] = 1)), ErrorKind::Unsupported);
        let good = resealed(|_| ());
        for at in 0..FOOTER_BYTES {
            let mut bytes = good;
            bytes[at] ^= 1;
            assert!(Footer::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
