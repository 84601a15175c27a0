//! What is kept of a window: how many records, and count, sum, min and max of those whose value is a number.
//!
//! Integers stay integers: sums are kept in 128 bits. The first decimal in a window (or a sum that outgrows 128 bits) turns the
//! window decimal: what it holds is converted to `f64` at that moment, and every later number is converted as it is added. So a decimal
//! sum is the `f64` sum of the values in the order in which the window saw them, the same at every parallelism and after every
//! restore, as all records of a key go through one reader and one subtask in input order.
//!
//! ```text
//! byte 0    format version, 1
//! byte 1    0 no number, 1 integers, 2 decimals
//! varint    rows
//! varint    count                          (2 and on only where byte 1 isn't 0)
//! integers  sum, min, max                  zigzag varints of up to 128 bits
//! decimals  sum, min, max                  the bits of an f64, little-endian
//!
//! 01 01 03 02 0a 02 08                     3 rows, 2 numbers, sum 5, min 1, max 4
//! ```

use std::io::Write;

use crate::exit::{Failure, Outcome};

const VERSION: u8 = 1;

/// A value that is a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Written without a point or exponent.
    Integer(i128),
    /// Anything else; always finite.
    Decimal(f64),
}

impl Number {
    #[expect(clippy::cast_precision_loss, reason = "a decimal window is documented to round to f64")]
    fn as_decimal(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Decimal(value) => value,
        }
    }
}

/// The aggregate of one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accumulator {
    rows: u64,
    numbers: Numbers,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Numbers {
    #[default]
    None,
    Integers(u64, Stats<i128>),
    Decimals(u64, Stats<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Stats<T> {
    sum: T,
    min: T,
    max: T,
}

impl<T: Copy> Stats<T> {
    fn of(value: T) -> Self {
        Self { sum: value, min: value, max: value }
    }
}

impl Stats<i128> {
    /// `None` where the sum outgrows 128 bits.
    fn merge(self, later: Self) -> Option<Self> {
        Some(Self { sum: self.sum.checked_add(later.sum)?, min: self.min.min(later.min), max: self.max.max(later.max) })
    }

    fn to_decimal(self) -> Stats<f64> {
        Stats {
            sum: Number::Integer(self.sum).as_decimal(),
            min: Number::Integer(self.min).as_decimal(),
            max: Number::Integer(self.max).as_decimal(),
        }
    }
}

impl Stats<f64> {
    fn merge(self, later: Self) -> Self {
        // The total order, so that -0.0 comes before 0.0 whichever was seen first.
        let least = |a: f64, b: f64| if b.total_cmp(&a).is_lt() { b } else { a };
        let greatest = |a: f64, b: f64| if b.total_cmp(&a).is_gt() { b } else { a };
        Self { sum: self.sum + later.sum, min: least(self.min, later.min), max: greatest(self.max, later.max) }
    }
}

impl Numbers {
    fn merge(self, later: Self) -> Self {
        use Numbers::{Decimals, Integers, None};
        match (self, later) {
            (None, one) | (one, None) => one,
            (Integers(n, a), Integers(m, b)) => match a.merge(b) {
                Some(stats) => Integers(n + m, stats),
                Option::None => Decimals(n + m, a.to_decimal().merge(b.to_decimal())),
            },
            (Integers(n, a), Decimals(m, b)) => Decimals(n + m, a.to_decimal().merge(b)),
            (Decimals(n, a), Integers(m, b)) => Decimals(n + m, a.merge(b.to_decimal())),
            (Decimals(n, a), Decimals(m, b)) => Decimals(n + m, a.merge(b)),
        }
    }
}

impl Accumulator {
    /// Takes one record in.
    pub fn add(&mut self, value: Option<Number>) {
        self.rows += 1;
        let one = match value {
            None => return,
            Some(Number::Integer(value)) => Numbers::Integers(1, Stats::of(value)),
            Some(Number::Decimal(value)) => Numbers::Decimals(1, Stats::of(value)),
        };
        self.numbers = std::mem::take(&mut self.numbers).merge(one);
    }

    /// Takes in all of a window that lies later in time: this one's sum comes first.
    pub fn merge(&mut self, later: Self) {
        self.rows += later.rows;
        self.numbers = std::mem::take(&mut self.numbers).merge(later.numbers);
    }

    /// Records seen, those without a number included.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the sum is a number: values are, but the sum of decimals may outgrow the range of `f64`, and then no value brings it back.
    pub fn has_finite_sum(&self) -> bool {
        match &self.numbers {
            Numbers::Decimals(_, stats) => stats.sum.is_finite(),
            Numbers::None | Numbers::Integers(..) => true,
        }
    }

    /// Appends `rows,count,sum,min,max`; the last three are empty where there is no number.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        // Writing to a vector can't fail.
        let _ = match &self.numbers {
            Numbers::None => write!(out, "{},0,,,", self.rows),
            Numbers::Integers(count, s) => {
                write!(out, "{},{count},{},{},{}", self.rows, s.sum, s.min, s.max)
            }
            // `{:?}` is the shortest form that reads back the same, and keeps the point of `2.0`.
            Numbers::Decimals(count, s) => write!(out, "{},{count},{:?},{:?},{:?}", self.rows, s.sum, s.min, s.max),
        };
    }

    /// Appends the bytes that [`decode`](Self::decode) reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match &self.numbers {
            Numbers::None => {
                out.push(0);
                put_varint(out, self.rows.into());
            }
            Numbers::Integers(count, stats) => {
                out.push(1);
                put_varint(out, self.rows.into());
                put_varint(out, (*count).into());
                for value in [stats.sum, stats.min, stats.max] {
                    put_varint(out, zigzag(value));
                }
            }
            Numbers::Decimals(count, stats) => {
                out.push(2);
                put_varint(out, self.rows.into());
                put_varint(out, (*count).into());
                for value in [stats.sum, stats.min, stats.max] {
                    out.extend_from_slice(&value.to_bits().to_le_bytes());
                }
            }
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; all of `bytes` must be used.
    ///
    /// # Errors
    ///
    /// The bytes are of another format or damaged (exit code 3).
    pub fn decode(bytes: &[u8]) -> Outcome<Self> {
        let damaged = || Failure::checkpoint("a window's stored aggregate is damaged");
        let (&[version, tag], mut rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        if version != VERSION {
            return Err(Failure::checkpoint(format!(
                "a window's stored aggregate has format {version}; this version reads {VERSION}"
            )));
        }
        let read = read_numbers(tag, &mut rest).filter(|_| rest.is_empty());
        read.ok_or_else(damaged)
    }
}

fn read_numbers(tag: u8, rest: &mut &[u8]) -> Option<Accumulator> {
    let rows = u64::try_from(take_varint(rest)?).ok()?;
    let numbers = match tag {
        0 => Numbers::None,
        1 => {
            let count = u64::try_from(take_varint(rest)?).ok()?;
            let mut next = || take_varint(rest).map(unzigzag);
            let (sum, min, max) = (next()?, next()?, next()?);
            Numbers::Integers(count, Stats { sum, min, max })
        }
        2 => {
            let count = u64::try_from(take_varint(rest)?).ok()?;
            let mut next = || {
                let (bits, tail) = rest.split_first_chunk()?;
                *rest = tail;
                Some(f64::from_bits(u64::from_le_bytes(*bits)))
            };
            let (sum, min, max) = (next()?, next()?, next()?);
            Numbers::Decimals(count, Stats { sum, min, max })
        }
        _ => return None,
    };
    Some(Accumulator { rows, numbers })
}

fn zigzag(value: i128) -> u128 {
    ((value << 1) ^ (value >> 127)).cast_unsigned()
}

fn unzigzag(value: u128) -> i128 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn put_varint(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(rest: &mut &[u8]) -> Option<u128> {
    let mut value = 0;
    for shift in (0..128).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let part = u128::from(byte & 0x7f);
        if (part << shift) >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[Option<Number>]) -> Accumulator {
        let mut accumulator = Accumulator::default();
        values.iter().for_each(|value| accumulator.add(*value));
        accumulator
    }

    fn fields(accumulator: &Accumulator) -> String {
        let mut out = Vec::new();
        accumulator.write_fields(&mut out);
        String::from_utf8(out).unwrap()
    }

    const fn int(value: i128) -> Option<Number> {
        Some(Number::Integer(value))
    }

    const fn dec(value: f64) -> Option<Number> {
        Some(Number::Decimal(value))
    }

    #[test]
    fn rows_without_a_number_are_counted_and_leave_the_rest_empty() {
        assert_eq!(fields(&of(&[None, None])), "2,0,,,");
        assert_eq!(fields(&of(&[None, int(4), int(1)])), "3,2,5,1,4");
    }

    #[test]
    fn integers_stay_exact_beyond_53_bits() {
        assert_eq!(
            fields(&of(&[int(9_007_199_254_740_993), int(9_007_199_254_740_993)])),
            "2,2,18014398509481986,9007199254740993,9007199254740993"
        );
    }

    #[test]
    fn one_decimal_turns_the_whole_window_decimal_and_keeps_its_point() {
        assert_eq!(fields(&of(&[int(1), dec(1.0)])), "2,2,2.0,1.0,1.0");
        assert_eq!(fields(&of(&[dec(0.1), int(2), dec(0.2)])), "3,3,2.3000000000000003,0.1,2.0");
        assert_eq!(fields(&of(&[dec(-0.0)])), "1,1,-0.0,-0.0,-0.0");
        assert_eq!(fields(&of(&[dec(1e300)])), "1,1,1e300,1e300,1e300");
    }

    #[test]
    fn a_sum_that_outgrows_128_bits_turns_decimal_rather_than_wrap() {
        assert_eq!(
            fields(&of(&[int(i128::MAX), int(i128::MAX)])),
            "2,2,3.402823669209385e38,1.7014118346046923e38,1.7014118346046923e38"
        );
    }

    #[test]
    fn the_earlier_sum_comes_first_in_a_merge() {
        let mut early = of(&[dec(1e16), dec(1.0)]);
        early.merge(of(&[dec(-1e16), dec(1.0)]));
        // ((1e16 + 1) + (-1e16 + 1)), not the sum in one row.
        assert_eq!(fields(&early), format!("4,4,{:?},-1e16,1e16", (1e16 + 1.0) + (-1e16 + 1.0)));
    }

    #[test]
    fn the_bytes_are_those_of_the_layout() {
        let mut bytes = Vec::new();
        of(&[int(1), int(4), None]).encode(&mut bytes);
        assert_eq!(bytes, [1, 1, 3, 2, 10, 2, 8]);
    }

    #[test]
    fn damaged_bytes_are_errors() {
        for bytes in
            [&[][..], &[1], &[2, 0, 0], &[1, 3, 0], &[1, 0], &[1, 0, 1, 0], &[1, 1, 3, 2, 10], &[1, 2, 1, 1, 0]]
        {
            assert!(Accumulator::decode(bytes).is_err(), "{bytes:?}");
        }
        let endless = [&[1, 0][..], &[0xff; 30]].concat();
        assert!(Accumulator::decode(&endless).is_err());
    }

    fn number() -> impl Strategy<Value = Option<Number>> {
        prop_oneof![
            Just(None),
            any::<i128>().prop_map(int),
            (-1000i128..1000).prop_map(int),
            (-1e9..1e9f64).prop_map(dec),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(values in prop::collection::vec(number(), 0..8)) {
            let accumulator = of(&values);
            let mut bytes = Vec::new();
            accumulator.encode(&mut bytes);
            prop_assert_eq!(Accumulator::decode(&bytes), Ok(accumulator));
            for end in 0..bytes.len() {
                prop_assert!(Accumulator::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Accumulator::decode(&bytes);
        }

        #[test]
        fn a_split_of_integers_merges_to_the_whole(values in prop::collection::vec(prop::option::of(-1000i128..1000), 0..20), at in 0usize..20) {
            let values: Vec<_> = values.into_iter().map(|v| v.map(Number::Integer)).collect();
            let (a, b) = values.split_at(at.min(values.len()));
            let mut merged = of(a);
            merged.merge(of(b));
            prop_assert_eq!(merged, of(&values));
        }
    }
}
