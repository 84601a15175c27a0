//! Bounded encoding and decoding of plain fields.
//!
//! Integers are little-endian unless the name says otherwise; variable ones are LEB128. A [`Reader`]
//! never hands out bytes it doesn't have and never allocates for a length it hasn't bounded.

use crate::{Error, Result};

/// Appends `value` as LEB128: seven bits a byte, low first, at most ten bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "low seven bits are meant")]
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, then the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads fields from bytes that nobody has vouched for.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    what: &'a str,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`; errors will name `what`.
    #[must_use]
    pub fn new(bytes: &'a [u8], what: &'a str) -> Self {
        Self { bytes, position: 0, what }
    }

    /// Offset of the next byte.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// An error of corruption at the current offset.
    #[cold]
    #[must_use]
    pub fn corrupt(&self, problem: &str) -> Error {
        Error::corruption(format!("{} at byte {}: {problem}", self.what, self.position))
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// Corruption when fewer are left; so do all the readers below.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.position.checked_add(len).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.corrupt(&format!("{len} bytes expected, {} left", self.remaining())));
        };
        let Some(taken) = self.bytes.get(self.position..end) else {
            return Err(self.corrupt("range out of bounds"));
        };
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        <[u8; N]>::try_from(bytes).map_err(|_| self.corrupt("wrong width"))
    }

    /// One byte.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes, signed.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A LEB128 number.
    ///
    /// # Errors
    /// As [`Reader::take`], and when it is longer than 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.bytes.get(self.position) {
            Some(byte) if *byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.corrupt("number longer than 64 bits"))
    }

    /// A LEB128 number that counts or measures something of which at most `limit` can exist.
    ///
    /// # Errors
    /// As [`Reader::varint`], and when it is over `limit`.
    #[inline]
    pub fn bounded(&mut self, limit: usize) -> Result<usize> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(value) if value <= limit => Ok(value),
            _ => Err(self.corrupt(&format!("length {value} is over the limit of {limit}"))),
        }
    }

    /// A varint length of at most `limit`, then so many bytes.
    ///
    /// # Errors
    /// As [`Reader::bounded`] and [`Reader::take`].
    #[inline]
    pub fn bytes(&mut self, limit: usize) -> Result<&'a [u8]> {
        let len = self.bounded(limit)?;
        self.take(len)
    }

    /// As [`Reader::bytes`], UTF-8.
    ///
    /// # Errors
    /// As [`Reader::bytes`], and when the bytes aren't UTF-8.
    pub fn text(&mut self, limit: usize) -> Result<&'a str> {
        let bytes = self.bytes(limit)?;
        std::str::from_utf8(bytes).map_err(|_| self.corrupt("text is not UTF-8"))
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// Corruption when something is.
    pub fn finish(&self) -> Result<()> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.corrupt("trailing bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_refuse_overlong_ones() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out, "test");
            assert_eq!(reader.varint().unwrap(), value);
            reader.finish().unwrap();
        }
        assert!(Reader::new(&[0xff; 10], "test").varint().is_err());
        assert!(Reader::new(&[0x80], "test").varint().is_err());
    }

    #[test]
    fn a_length_beyond_the_end_is_corruption_that_says_where() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        let error = Reader::new(&out, "manifest").bytes(usize::MAX).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Corruption);
        assert!(error.to_string().contains("manifest at byte 10"), "{error}");
    }
}
