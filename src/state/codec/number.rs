//! Codecs of numbers, truth values and the unit.

use super::{Codec, OrderedCodec, undecodable};
use crate::Result;

macro_rules! unsigned {
    ($($type:ident),*) => {$(
        impl Codec for $type {
            const FIXED_WIDTH: Option<u16> = Some(size_of::<$type>() as u16);

            fn id() -> String {
                concat!(stringify!($type), "@1").into()
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
                out.extend_from_slice(&self.to_be_bytes());
                Ok(())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<Self> {
                let array = bytes.try_into().map_err(|_| undecodable(concat!(stringify!($type), "@1"), bytes))?;
                Ok(Self::from_be_bytes(array))
            }
        }

        impl OrderedCodec for $type {}
    )*};
}

unsigned!(u8, u16, u32, u64, u128);

/// Types that are stored as an unsigned number of the same width which sorts as they do.
macro_rules! mapped {
    ($($type:ident as $unsigned:ident, $to:expr, $from:expr;)*) => {$(
        impl Codec for $type {
            const FIXED_WIDTH: Option<u16> = Some(size_of::<$type>() as u16);

            fn id() -> String {
                concat!(stringify!($type), "@1").into()
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
                let to: fn($type) -> $unsigned = $to;
                out.extend_from_slice(&to(*self).to_be_bytes());
                Ok(())
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Result<Self> {
                let from: fn($unsigned) -> $type = $from;
                let array = bytes.try_into().map_err(|_| undecodable(concat!(stringify!($type), "@1"), bytes))?;
                Ok(from(<$unsigned>::from_be_bytes(array)))
            }
        }

        impl OrderedCodec for $type {}
    )*};
}

const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

mapped! {
    i8 as u8, |v| v.cast_unsigned() ^ (1 << 7), |b| (b ^ (1 << 7)).cast_signed();
    i16 as u16, |v| v.cast_unsigned() ^ (1 << 15), |b| (b ^ (1 << 15)).cast_signed();
    i32 as u32, |v| v.cast_unsigned() ^ SIGN_32, |b| (b ^ SIGN_32).cast_signed();
    i64 as u64, |v| v.cast_unsigned() ^ SIGN_64, |b| (b ^ SIGN_64).cast_signed();
    i128 as u128, |v| v.cast_unsigned() ^ (1 << 127), |b| (b ^ (1 << 127)).cast_signed();
    f32 as u32,
        |v| if v.to_bits() & SIGN_32 == 0 { v.to_bits() ^ SIGN_32 } else { !v.to_bits() },
        |b| f32::from_bits(if b & SIGN_32 == 0 { !b } else { b ^ SIGN_32 });
    f64 as u64,
        |v| if v.to_bits() & SIGN_64 == 0 { v.to_bits() ^ SIGN_64 } else { !v.to_bits() },
        |b| f64::from_bits(if b & SIGN_64 == 0 { !b } else { b ^ SIGN_64 });
}

impl Codec for bool {
    const FIXED_WIDTH: Option<u16> = Some(1);

    fn id() -> String {
        "bool@1".into()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.push(u8::from(*self));
        Ok(())
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(undecodable("bool@1", bytes)),
        }
    }
}

impl OrderedCodec for bool {}

impl Codec for () {
    const FIXED_WIDTH: Option<u16> = Some(0);

    fn id() -> String {
        "unit@1".into()
    }

    #[inline]
    fn encode(&self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() { Ok(()) } else { Err(undecodable("unit@1", bytes)) }
    }
}

impl OrderedCodec for () {}

#[cfg(test)]
mod tests {
    use super::super::tests::check_ordered;
    use super::*;

    #[test]
    fn numbers_sort_as_their_bytes() {
        check_ordered(&[0_u8, 1, 0x7F, 0x80, 0xFF]);
        check_ordered(&[0_u16, 255, 256, u16::MAX]);
        check_ordered(&[0_u64, 255, 256, u64::MAX]);
        check_ordered(&[0_u128, u128::from(u64::MAX), u128::MAX]);
        check_ordered(&[i8::MIN, -1, 0, 1, i8::MAX]);
        check_ordered(&[i16::MIN, -1, 0, 1, i16::MAX]);
        check_ordered(&[i32::MIN, -256, -255, -1, 0, 1, 255, 256, i32::MAX]);
        check_ordered(&[i64::MIN, -1, 0, 1, i64::MAX]);
        check_ordered(&[i128::MIN, -1, 0, 1, i128::MAX]);
        check_ordered(&[f64::NEG_INFINITY, f64::MIN, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY]);
        check_ordered(&[f32::NEG_INFINITY, -1.5, -0.0, 0.0, f32::MIN_POSITIVE, 2.0, f32::INFINITY]);
        check_ordered(&[false, true]);
        check_ordered(&[()]);
    }

    #[test]
    fn negative_zero_and_nan_keep_their_bits() {
        for value in [-0.0_f64, f64::NAN, -f64::NAN] {
            let mut bytes = Vec::new();
            value.encode(&mut bytes).unwrap();
            assert_eq!(f64::decode(&bytes).unwrap().to_bits(), value.to_bits());
        }
    }

    #[test]
    fn wrong_bytes_are_a_codec_error_that_names_the_codec() {
        let error = u64::decode(&[1, 2, 3]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Codec);
        assert!(error.to_string().contains("u64@1"), "{error}");
        assert!(bool::decode(&[2]).is_err());
    }
}
