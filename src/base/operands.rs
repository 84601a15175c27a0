//! The bytes of a [`Kind::Merge`](super::record::Kind::Merge) record.
//!
//! ```text
//! has_base: u8 (0, 1 or 2) | base: len varint, bytes (when has_base is 1) | { len varint | bytes }*
//! ```
//! 0: the base is whatever is older; 1: the base is here; 2: the key is known to have been absent. With 1 and
//! 2, nothing older matters. Operands stand oldest first. Worked bytes: base "x", operands
//! "ab" and "": `01 01 78 02 61 62 00`.

use super::wire::{self, Reader};
use crate::Result;

/// A merge record's parts, borrowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operands<'a> {
    /// The value that the operands apply to, when it is known.
    pub base: Option<&'a [u8]>,
    /// True when the key is known to have been absent before them.
    pub absent: bool,
    /// Operands, oldest first.
    pub list: Vec<&'a [u8]>,
}

impl Operands<'_> {
    /// True when nothing older matters.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.absent || self.base.is_some()
    }
}

/// Starts a merge record with or without a base value.
#[must_use]
pub fn start(base: Option<&[u8]>) -> Vec<u8> {
    let mut out = vec![u8::from(base.is_some())];
    if let Some(base) = base {
        wire::put_bytes(&mut out, base);
    }
    out
}

/// Starts a merge record whose operands apply to an absent key, whatever is older.
#[must_use]
pub fn start_absent() -> Vec<u8> {
    vec![2]
}

/// Appends one operand to a record begun by [`start`].
pub fn append(out: &mut Vec<u8>, operand: &[u8]) {
    wire::put_bytes(out, operand);
}

/// Reads a merge record.
///
/// # Errors
/// Corruption when a length leads outside the bytes.
pub fn decode(bytes: &[u8]) -> Result<Operands<'_>> {
    let mut reader = Reader::new(bytes, "merge operands");
    let (base, absent) = match reader.u8()? {
        0 => (None, false),
        1 => (Some(reader.bytes(bytes.len())?), false),
        2 => (None, true),
        other => return Err(reader.corrupt(&format!("base flag {other}"))),
    };
    let mut list = Vec::new();
    while reader.remaining() > 0 {
        list.push(reader.bytes(bytes.len())?);
    }
    Ok(Operands { base, absent, list })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_bytes() {
        let mut out = start(Some(b"x"));
        append(&mut out, b"ab");
        append(&mut out, b"");
        assert_eq!(out, [1, 1, 0x78, 2, 0x61, 0x62, 0]);
        assert_eq!(decode(&out).unwrap(), Operands { base: Some(b"x"), absent: false, list: vec![b"ab", b""] });
        assert_eq!(decode(&start(None)).unwrap(), Operands::default());
        assert!(decode(&start_absent()).unwrap().is_complete());
        assert!(decode(&[3]).is_err());
        assert!(decode(&[0, 9, 1]).is_err());
    }
}
