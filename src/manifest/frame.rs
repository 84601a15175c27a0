//! The frame of a manifest: header, sections, checksum.
//!
//! ```text
//! magic "HWMANIF\n" | major u16 | minor u16 | header check u32 | section* | checksum u64
//! section: tag u16 | length u32 | bytes
//! ```
//! The header check is the low half of the XXH3-64 of the 12 bytes before it, so that a newer major version is
//! told from a damaged one; header and its check are fixed for ever. The checksum is the XXH3-64, seeded with
//! the magic as a little-endian number, of everything before it. Sections ascend by tag, each at most once.
//!
//! | Tag | Section |
//! |---|---|
//! | 1 | identity |
//! | 2 | roots |
//! | 3 | states |
//! | 4 | dropped states |
//! | 5 | caller metadata |
//! | 6 | tree |
//! | 7 | lineage |
//! | 8 | reserved: inline segments |
//! | 9 | reserved: range tombstones |
//! | 10 | reserved: nothing yet (inputs that stand in for a compaction's outputs are plain references of the tree) |
//! | 11 | reserved: operator state |
//!
//! A reserved or unknown tag reads as `Unsupported`: what a newer writer found worth saying is never dropped.
//!
//! Worked bytes of a frame with the one section 4, holding the byte 00:
//! `48 57 4D 41 4E 49 46 0A | 01 00 | 00 00 | check | 04 00 | 01 00 00 00 | 00 | checksum`.

use crate::base::checksum::{hash64, hash64_seeded};
use crate::base::wire::Reader;
use crate::{Error, ErrorKind, Result};

/// Major version that this crate writes; it reads this and older ones.
pub const MAJOR: u16 = 1;
/// Minor version that this crate writes.
pub const MINOR: u16 = 0;

const MAGIC: [u8; 8] = *b"HWMANIF\n";
const SEED: u64 = u64::from_le_bytes(MAGIC);
const CHECKSUM_BYTES: usize = 8;

/// Known sections, in the order in which they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Tag {
    Identity = 1,
    Roots = 2,
    States = 3,
    Dropped = 4,
    Metadata = 5,
    Tree = 6,
    Lineage = 7,
}

/// Number of known sections, all of which a manifest has.
pub(super) const SECTIONS: usize = 7;

#[expect(clippy::cast_possible_truncation, reason = "the check is the low half by definition")]
fn header_check(header: &[u8]) -> u32 {
    hash64(header) as u32
}

/// Starts a manifest.
pub(super) fn start() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&MAJOR.to_le_bytes());
    out.extend_from_slice(&MINOR.to_le_bytes());
    let check = header_check(&out);
    out.extend_from_slice(&check.to_le_bytes());
    out
}

/// Appends a section.
///
/// # Errors
/// `InvalidArgument` when it is longer than 4 GiB.
pub(super) fn put_section(out: &mut Vec<u8>, tag: Tag, bytes: &[u8]) -> Result<()> {
    let len = u32::try_from(bytes.len())
        .map_err(|_| Error::invalid(format!("section {tag:?} of a manifest has {} bytes", bytes.len())))?;
    out.extend_from_slice(&(tag as u16).to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

/// Appends the checksum.
pub(super) fn finish(mut out: Vec<u8>) -> Vec<u8> {
    let checksum = hash64_seeded(&out, SEED);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// The bytes of each section of the manifest that `what` describes, once everything checks out.
///
/// # Errors
/// `Corruption` or `Unsupported`, naming it.
pub(super) fn open<'a>(bytes: &'a [u8], what: &'a str) -> Result<[&'a [u8]; SECTIONS]> {
    check_header(bytes, what)?;
    let body_len = bytes.len().checked_sub(CHECKSUM_BYTES);
    let (body, checksum) = body_len
        .and_then(|len| bytes.split_at_checked(len))
        .ok_or_else(|| Error::corruption(format!("{what} of {} bytes is too short", bytes.len())))?;
    let stored = Reader::new(checksum, what).u64()?;
    let found = hash64_seeded(body, SEED);
    if stored != found {
        return Err(Error::corruption(format!(
            "{what}: checksum at byte {} is {stored:016x}, its bytes give {found:016x}",
            body.len()
        )));
    }
    let mut reader = Reader::new(body, what);
    reader.take(MAGIC.len() + 8)?;
    let mut sections: [Option<&[u8]>; SECTIONS] = [None; SECTIONS];
    let mut previous = 0;
    while reader.remaining() > 0 {
        let tag = reader.u16()?;
        let len = reader.u32()?;
        if tag <= previous {
            return Err(reader.corrupt(&format!("section {tag} after section {previous}")));
        }
        previous = tag;
        let Some(slot) = sections.get_mut(usize::from(tag) - 1) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{what} has a section {tag} that this version doesn't know"),
            ));
        };
        let len = usize::try_from(len).map_err(|_| reader.corrupt("section length"))?;
        *slot = Some(reader.take(len)?);
    }
    let mut out: [&[u8]; SECTIONS] = [&[]; SECTIONS];
    for (tag, (slot, section)) in out.iter_mut().zip(sections).enumerate() {
        *slot = section.ok_or_else(|| Error::corruption(format!("{what} has no section {}", tag + 1)))?;
    }
    Ok(out)
}

fn check_header(bytes: &[u8], what: &str) -> Result<()> {
    let mut reader = Reader::new(bytes, what);
    if reader.take(MAGIC.len())? != MAGIC.as_slice() {
        return Err(Error::corruption(format!("{what} doesn't begin as a manifest does")));
    }
    let (major, minor) = (reader.u16()?, reader.u16()?);
    let header = bytes.get(..reader.position()).unwrap_or_default();
    let (stored, found) = (reader.u32()?, header_check(header));
    if stored != found {
        return Err(Error::corruption(format!("{what}: header check is {stored:08x}, its bytes give {found:08x}")));
    }
    if major > MAJOR || major == 0 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("{what} has format {major}.{minor}, this version reads up to {MAJOR}.x"),
        ));
    }
    Ok(())
}
