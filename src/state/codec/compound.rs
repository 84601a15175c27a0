//! Codecs of tuples and options.

use super::{Codec, OrderedCodec, undecodable};
use crate::base::key::{put_escaped, take_escaped};
use crate::{Error, ErrorKind, Result};

/// Appends a part that others follow: as it is when its width is fixed, else escaped and ended.
pub(crate) fn put_part<T: Codec + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    value.encode(out)?;
    if T::FIXED_WIDTH.is_none() {
        let part = out.split_off(start);
        put_escaped(out, &part);
    }
    Ok(())
}

/// Reads a part written by [`put_part`]; returns it and what follows.
pub(crate) fn take_part<T: Codec>(bytes: &[u8]) -> Result<(T, &[u8])> {
    if let Some(width) = T::FIXED_WIDTH {
        let (part, rest) = bytes.split_at_checked(width.into()).ok_or_else(|| undecodable(&T::id(), bytes))?;
        return Ok((T::decode(part)?, rest));
    }
    let mut part = Vec::new();
    let rest = take_escaped(bytes, &mut part)
        .map_err(|e| Error::with_source(ErrorKind::Codec, format!("no end to a part of codec `{}`", T::id()), e))?;
    Ok((T::decode(&part)?, rest))
}

const fn sum(a: Option<u16>, b: Option<u16>) -> Option<u16> {
    match (a, b) {
        (Some(a), Some(b)) => a.checked_add(b),
        _ => None,
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    const FIXED_WIDTH: Option<u16> = sum(A::FIXED_WIDTH, B::FIXED_WIDTH);

    fn id() -> String {
        format!("({},{})@1", A::id(), B::id())
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        put_part(&self.0, out)?;
        self.1.encode(out)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let (a, rest) = take_part(bytes)?;
        Ok((a, B::decode(rest)?))
    }
}

impl<A: Codec, B: Codec, C: Codec> Codec for (A, B, C) {
    const FIXED_WIDTH: Option<u16> = sum(A::FIXED_WIDTH, sum(B::FIXED_WIDTH, C::FIXED_WIDTH));

    fn id() -> String {
        format!("({},{},{})@1", A::id(), B::id(), C::id())
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        put_part(&self.0, out)?;
        put_part(&self.1, out)?;
        self.2.encode(out)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let (a, rest) = take_part(bytes)?;
        let (b, rest) = take_part(rest)?;
        Ok((a, b, C::decode(rest)?))
    }
}

impl<T: Codec> Codec for Option<T> {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        format!("option({})@1", T::id())
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.push(u8::from(self.is_some()));
        self.as_ref().map_or(Ok(()), |value| value.encode(out))
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [0] => Ok(None),
            [1, value @ ..] => T::decode(value).map(Some),
            _ => Err(undecodable(&Self::id(), bytes)),
        }
    }
}

impl<A: OrderedCodec, B: OrderedCodec> OrderedCodec for (A, B) {}
impl<A: OrderedCodec, B: OrderedCodec, C: OrderedCodec> OrderedCodec for (A, B, C) {}
impl<T: OrderedCodec> OrderedCodec for Option<T> {}

#[cfg(test)]
mod tests {
    use super::super::tests::check_ordered;
    use super::*;

    #[test]
    fn tuples_sort_by_their_parts_whatever_bytes_are_in_them() {
        let parts = ["", "\0", "\0\0", "\0\u{1}", "a", "a\0", "ab", "ü"].map(String::from);
        let mut pairs = Vec::new();
        let mut triples = Vec::new();
        for a in &parts {
            for b in &parts {
                pairs.push((a.clone(), b.clone()));
                triples.extend([-1_i64, 0, 7].map(|t| (a.clone(), t, b.clone())));
            }
        }
        pairs.sort();
        triples.sort();
        check_ordered(&pairs);
        check_ordered(&triples);
        check_ordered(&[(-1_i64, 5_u64), (0, 0), (0, 1), (1, 0)]);
    }

    #[test]
    fn absent_sorts_before_every_value() {
        check_ordered(&[None, Some(String::new()), Some("a".into())]);
        assert!(<Option<u8>>::decode(&[]).is_err());
        assert!(<Option<u8>>::decode(&[0, 1]).is_err());
        assert!(<Option<u8>>::decode(&[2, 1]).is_err());
    }

    #[test]
    fn ids_and_widths_follow_from_the_parts() {
        assert_eq!(<(i64, String)>::id(), "(i64@1,string@1)@1");
        assert_eq!(<(i64, u16)>::FIXED_WIDTH, Some(10));
        assert_eq!(<(i64, String)>::FIXED_WIDTH, None);
        assert!(<(String, u8)>::decode(b"no end").is_err());
    }
}
