//! Codecs of strings and byte strings.

use super::{Codec, OrderedCodec, undecodable};
use crate::Result;

impl Codec for str {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        "string@1".into()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self.as_bytes());
        Ok(())
    }
}

impl Codec for String {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        str::id()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        self.as_str().encode(out)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        std::str::from_utf8(bytes).map(Into::into).map_err(|_| undecodable("string@1", bytes))
    }
}

impl Codec for [u8] {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        "bytes@1".into()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self);
        Ok(())
    }
}

impl Codec for Vec<u8> {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        <[u8]>::id()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(bytes.to_vec())
    }
}

impl<const N: usize> Codec for [u8; N] {
    #[expect(clippy::cast_possible_truncation, reason = "checked right before")]
    const FIXED_WIDTH: Option<u16> = if N <= u16::MAX as usize { Some(N as u16) } else { None };

    fn id() -> String {
        format!("bytes{N}@1")
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        bytes.try_into().map_err(|_| undecodable(&Self::id(), bytes))
    }
}

impl OrderedCodec for str {}
impl OrderedCodec for String {}
impl OrderedCodec for [u8] {}
impl OrderedCodec for Vec<u8> {}
impl<const N: usize> OrderedCodec for [u8; N] {}

#[cfg(test)]
mod tests {
    use super::super::tests::check_ordered;
    use super::*;

    #[test]
    fn byte_strings_are_stored_as_they_are() {
        check_ordered(&[vec![], vec![0], vec![0, 0], vec![0, 0xFF], vec![1], vec![0xFF], vec![0xFF; 2]]);
        check_ordered(&[String::new(), "a".into(), "a\0".into(), "ab".into(), "ü".into()]);
        check_ordered(&[[0_u8, 0], [0, 1], [1, 0], [0xFF, 0xFF]]);
    }

    #[test]
    fn borrowed_forms_write_the_same_bytes() {
        let (mut owned, mut borrowed) = (Vec::new(), Vec::new());
        String::from("carrier").encode(&mut owned).unwrap();
        "carrier".encode(&mut borrowed).unwrap();
        assert_eq!(owned, borrowed);
        assert_eq!(String::id(), str::id());
    }

    #[test]
    fn text_that_is_not_utf8_is_a_codec_error() {
        assert_eq!(String::decode(&[0xFF]).unwrap_err().kind(), crate::ErrorKind::Codec);
    }
}
