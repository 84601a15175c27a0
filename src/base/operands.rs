//! The bytes of a [`Kind::Merge`](super::record::Kind::Merge) record.
//!
//! ```text
//! has_base: u8 (0 or 1) | base: len varint, bytes (when has_base is 1) | { len varint | bytes }*
//! ```
//! With a base, nothing older matters. Operands stand oldest first. Worked bytes: base "x", operands
//! "ab" and "": `01 01 78 02 61 62 00`.

use super::wire::{self, Reader};
use crate::Result;

/// A merge record's parts, borrowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operands<'a> {
    /// The value that the operands apply to, when it is known.
    pub base: Option<&'a [u8]>,
    /// Operands, oldest first.
    pub list: Vec<&'a [u8]>,
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
    let base = match reader.u8()? {
        0 => None,
        1 => Some(reader.bytes(bytes.len())?),
        other => return Err(reader.corrupt(&format!("base flag {other}"))),
    };
    let mut list = Vec::new();
    while reader.remaining() > 0 {
        list.push(reader.bytes(bytes.len())?);
    }
    Ok(Operands { base, list })
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
        assert_eq!(decode(&out).unwrap(), Operands { base: Some(b"x"), list: vec![b"ab", b""] });
        assert_eq!(decode(&start(None)).unwrap(), Operands::default());
        assert!(decode(&[2]).is_err());
        assert!(decode(&[0, 9, 1]).is_err());
    }
}
