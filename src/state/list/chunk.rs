//! The bytes of a list's chunk.
//!
//! ```text
//! user key: sequence u64 BE | counter u32 BE
//! value:    [ written i64 LE ] | { length varint | bytes }*
//! ```
//! The sequence is the one in which the chunk was begun, the counter numbers the chunks begun in it, so
//! chunks sort by age. `written` (wall milliseconds) stands only where the state has a time to live, and
//! holds for all elements of the chunk. Worked bytes, second chunk of sequence 258, elements "ab" and "":
//! `00 00 00 00 00 00 01 02 | 00 00 00 01` and `02 61 62 00`.

use crate::base::wire::{self, Reader};
use crate::{Error, Result};

/// Codec id of chunks as user keys, with the version of the format above.
pub(crate) const CHUNK_CODEC: &str = "list-chunk@1";

/// Size at which a chunk is full; one larger element makes a chunk of its own.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;

/// Bytes of the time before the elements of a chunk.
pub(crate) const TIME_BYTES: usize = 8;

/// User key of the chunk `counter` of `sequence`.
pub(crate) fn chunk_key(sequence: u64, counter: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&sequence.to_be_bytes());
    key[8..].copy_from_slice(&counter.to_be_bytes());
    key
}

/// Undoes [`chunk_key`]'s counter.
///
/// # Errors
/// Corruption when `key` isn't a chunk's.
pub(crate) fn counter_of(key: &[u8]) -> Result<u32> {
    match key {
        [_, _, _, _, _, _, _, _, a, b, c, d] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Err(Error::corruption(format!("list chunk with a key of {} bytes", key.len()))),
    }
}

/// Appends an element to a chunk's value.
pub(crate) fn put_element(chunk: &mut Vec<u8>, element: &[u8]) {
    wire::put_bytes(chunk, element);
}

/// Sets the first byte to the length of the element that is the rest, as [`put_element`] would; false when it is too long
/// for one byte.
pub(crate) fn put_short_length(bytes: &mut [u8]) -> bool {
    match (bytes.len().checked_sub(1).and_then(|length| u8::try_from(length).ok()), bytes.first_mut()) {
        (Some(length), Some(first)) if length < 0x80 => {
            *first = length;
            true
        }
        _ => false,
    }
}

/// Splits a chunk's value into its time of writing, where it has one, and its elements.
///
/// # Errors
/// Corruption when it is too short.
pub(crate) fn split(value: &[u8], timed: bool) -> Result<(Option<i64>, &[u8])> {
    if !timed {
        return Ok((None, value));
    }
    let mut reader = Reader::new(value, "list chunk");
    let written_ms = reader.i64()?;
    Ok((Some(written_ms), &value[reader.position()..]))
}

/// Reads the elements of a chunk one by one.
#[derive(Debug, Clone)]
pub(crate) struct ElementReader<'a> {
    elements: &'a [u8],
    reader: Reader<'a>,
}

impl<'a> ElementReader<'a> {
    /// Starts at the first element of `elements`, the second part that [`split`] gave.
    pub(crate) fn new(elements: &'a [u8]) -> Self {
        Self { elements, reader: Reader::new(elements, "list chunk") }
    }

    /// The next element; `None` at the end.
    ///
    /// # Errors
    /// Corruption when a length leads outside the chunk.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>> {
        match self.reader.remaining() {
            0 => Ok(None),
            limit => self.reader.bytes(limit).map(Some),
        }
    }

    /// The elements not read yet, as bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.elements[self.reader.position()..]
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.reader.position()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_bytes() {
        assert_eq!(chunk_key(258, 1), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1]);
        assert_eq!(counter_of(&chunk_key(258, 7)).unwrap(), 7);
        let mut value = Vec::new();
        put_element(&mut value, b"ab");
        put_element(&mut value, b"");
        assert_eq!(value, [2, 0x61, 0x62, 0]);
        let mut elements = ElementReader::new(&value);
        assert_eq!(elements.next().unwrap(), Some(&b"ab"[..]));
        assert_eq!(elements.next().unwrap(), Some(&b""[..]));
        assert_eq!(elements.next().unwrap(), None);
    }

    #[test]
    fn a_short_length_is_what_a_put_element_writes() {
        for length in [0, 1, 64, 127, 128, 300] {
            let mut bytes = vec![7; length + 1];
            let mut expected = Vec::new();
            put_element(&mut expected, &bytes[1..]);
            assert_eq!(put_short_length(&mut bytes), length < 128);
            assert_eq!(bytes == expected, length < 128);
        }
    }

    #[test]
    fn broken_chunks_are_corruption() {
        assert!(ElementReader::new(&[5, 1]).next().is_err());
        assert!(split(&[0; 7], true).is_err());
        assert!(counter_of(&[0; 11]).is_err());
        assert_eq!(split(&[1, 0, 0, 0, 0, 0, 0, 0, 9], true).unwrap(), (Some(1), &[9][..]));
    }
}
