//! The value column: a decimal number, `NA` or empty.

use crate::aggregate::Number;

/// Reads a value; `NA` and the empty field are records without a number.
///
/// # Errors
///
/// Says why the text is not a number: `NaN`, `inf`, blanks and units are none, nor are numbers out of range.
pub fn parse_value(text: &[u8]) -> Result<Option<Number>, String> {
    if text.is_empty() || text == b"NA" {
        return Ok(None);
    }
    let not_a_number = || format!("`{}` is not a decimal number, NA or empty", text.escape_ascii());
    let text_utf8 = std::str::from_utf8(text).map_err(|_| not_a_number())?;
    let out_of_range = || format!("`{text_utf8}` is out of range");
    match shape(text).ok_or_else(not_a_number)? {
        Shape::Integer => text_utf8.parse().map(|value| Some(Number::Integer(value))).map_err(|_| out_of_range()),
        Shape::Decimal => match text_utf8.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Some(Number::Decimal(value))),
            _ => Err(out_of_range()),
        },
    }
}

enum Shape {
    Integer,
    Decimal,
}

/// `[+-] digits [. digits] [e [+-] digits]`, with a digit on at least one side of the point. `f64`'s own parser also takes `inf` and `NaN`.
fn shape(text: &[u8]) -> Option<Shape> {
    let unsigned = skip_sign(text);
    let (whole, rest) = split_digits(unsigned);
    let (fraction, rest, point) = match rest.strip_prefix(b".") {
        Some(rest) => {
            let (fraction, rest) = split_digits(rest);
            (fraction, rest, true)
        }
        None => (0, rest, false),
    };
    if whole + fraction == 0 {
        return None;
    }
    match rest {
        [] if !point => Some(Shape::Integer),
        [] => Some(Shape::Decimal),
        [b'e' | b'E', exponent @ ..] => {
            let (digits, rest) = split_digits(skip_sign(exponent));
            (digits > 0 && rest.is_empty()).then_some(Shape::Decimal)
        }
        _ => None,
    }
}

fn skip_sign(text: &[u8]) -> &[u8] {
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    }
}

fn split_digits(text: &[u8]) -> (usize, &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits, text.get(digits..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_decimals_and_nothing_are_told_apart() {
        for (text, want) in [
            ("", None),
            ("NA", None),
            ("5", Some(Number::Integer(5))),
            ("-5", Some(Number::Integer(-5))),
            ("+5", Some(Number::Integer(5))),
            ("007", Some(Number::Integer(7))),
            ("-0", Some(Number::Integer(0))),
            ("2.0", Some(Number::Decimal(2.0))),
            ("2.", Some(Number::Decimal(2.0))),
            (".5", Some(Number::Decimal(0.5))),
            ("1e3", Some(Number::Decimal(1000.0))),
            ("-1.5E-2", Some(Number::Decimal(-0.015))),
            ("170141183460469231731687303715884105727", Some(Number::Integer(i128::MAX))),
        ] {
            assert_eq!(parse_value(text.as_bytes()), Ok(want), "{text}");
        }
    }

    #[test]
    fn anything_else_is_malformed_and_quoted_in_the_error() {
        for text in [
            "NaN", "nan", "inf", "-inf", "infinity", "abc", "1,5", "0x10", " 5", "5 ", "-", ".", "+.", "1e", "1e+",
            "e3", "1.2.3", "--1", "na", "\u{661}",
        ] {
            let error = parse_value(text.as_bytes()).unwrap_err();
            assert!(error.contains("is not a decimal number"), "{text}: {error}");
        }
        for text in ["1e999", "170141183460469231731687303715884105728"] {
            assert!(parse_value(text.as_bytes()).unwrap_err().contains("out of range"), "{text}");
        }
        assert!(parse_value(b"\xff1").unwrap_err().contains("\\xff"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = parse_value(&text);
        }

        #[test]
        fn every_written_number_reads_back(integer in any::<i128>(), decimal in prop::num::f64::NORMAL) {
            prop_assert_eq!(parse_value(integer.to_string().as_bytes()), Ok(Some(Number::Integer(integer))));
            prop_assert_eq!(parse_value(format!("{decimal:?}").as_bytes()), Ok(Some(Number::Decimal(decimal))));
        }
    }
}
