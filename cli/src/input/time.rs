//! The time column: RFC 3339, or seconds or milliseconds since 1970.

use jiff::Timestamp;

use crate::args::TimeUnit;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

/// Where `auto` takes a number for milliseconds: as seconds it would lie beyond the year 5138.
const AUTO_MILLIS_FROM: i128 = 100_000_000_000;

/// Reads a time as nanoseconds since 1970.
///
/// # Errors
///
/// Says why the text is not a time, or that it is out of the range of 64-bit nanoseconds (the years 1677 to 2262).
pub fn parse_time(text: &[u8], unit: TimeUnit) -> Result<i64, String> {
    let nanos = match parse_epoch(text, unit) {
        Some(nanos) => nanos,
        None => parse_rfc3339(text)?,
    };
    nanos
        .and_then(|nanos| i64::try_from(nanos).ok())
        .ok_or_else(|| format!("`{}` is out of range: times go from 1677 to 2262", text.escape_ascii()))
}

/// A number of seconds or milliseconds, with a fraction of up to nanoseconds; the outer `None` where the text is no number,
/// the inner where it is out of range.
#[expect(clippy::option_option, reason = "no number and out of range end differently")]
fn parse_epoch(text: &[u8], unit: TimeUnit) -> Option<Option<i128>> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut parts = unsigned.splitn(2, |byte| *byte == b'.');
    let (whole, fraction) = (parts.next().unwrap_or_default(), parts.next());
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    if !digits(whole) || !fraction.is_none_or(digits) {
        return None;
    }
    let Some(whole) =
        whole.iter().try_fold(0i128, |sum, digit| sum.checked_mul(10)?.checked_add(i128::from(digit - b'0')))
    else {
        return Some(None);
    };
    let scale = match unit {
        TimeUnit::S => NANOS_PER_SECOND,
        TimeUnit::Ms => NANOS_PER_MILLI,
        TimeUnit::Auto if whole >= AUTO_MILLIS_FROM => NANOS_PER_MILLI,
        TimeUnit::Auto => NANOS_PER_SECOND,
    };
    // Digits below a nanosecond are cut off.
    let mut part = scale;
    let below = fraction.unwrap_or_default().iter().fold(0, |sum, digit| {
        part /= 10;
        sum + part * i128::from(digit - b'0')
    });
    let nanos = whole.checked_mul(scale).and_then(|nanos| nanos.checked_add(below));
    Some(nanos.map(|nanos| if negative { -nanos } else { nanos }))
}

fn parse_rfc3339(text: &[u8]) -> Result<Option<i128>, String> {
    let wrong = || {
        format!(
            "`{}` is not a time: RFC 3339 such as 2013-01-01T10:00:00Z, or a number since 1970",
            text.escape_ascii()
        )
    };
    // jiff reads more than RFC 3339 (bracketed zones, week dates, times without seconds): hold it to the fixed part of the grammar.
    let fixed: &[u8] = b"0000-00-00T00:00:00";
    let head = text.get(..fixed.len()).ok_or_else(wrong)?;
    let fits = fixed.iter().zip(head).all(|(want, byte)| match want {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        other => other == byte,
    });
    let tail = text.get(fixed.len()..).unwrap_or_default();
    let tail = match tail.split_first() {
        Some((b'.', rest)) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            rest.get(digits..).filter(|_| digits > 0).unwrap_or_default()
        }
        _ => tail,
    };
    let offset = matches!(tail, [b'Z' | b'z'] | [b'+' | b'-', _, _, b':', _, _]);
    let text = std::str::from_utf8(text).ok().filter(|_| fits && offset).ok_or_else(wrong)?;
    // Beyond the years that jiff knows nothing fits in 64 bits of nanoseconds either.
    let timestamp: Timestamp = text.parse().map_err(|_| wrong())?;
    Ok(Some(timestamp.as_nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    fn auto(text: &str) -> Result<i64, String> {
        parse_time(text.as_bytes(), TimeUnit::Auto)
    }

    #[test]
    fn rfc_3339_is_read_with_any_offset_and_fraction() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2013-01-01T10:00:00Z", 1_357_034_400 * S),
            ("2013-01-01t10:00:00z", 1_357_034_400 * S),
            ("2013-01-01 10:00:00Z", 1_357_034_400 * S),
            ("2013-01-01T10:00:00.5Z", 1_357_034_400 * S + S / 2),
            ("2013-01-01T15:30:00+05:30", 1_357_034_400 * S),
            ("1969-12-31T23:59:59.999999999Z", -1),
            ("2012-02-29T00:00:00Z", 1_330_473_600 * S),
        ] {
            assert_eq!(auto(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_leap_second_counts_as_the_second_before() {
        for (leap, second) in [
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("2016-12-31T23:59:60.5Z", "2016-12-31T23:59:59.5Z"),
            ("2017-01-01T05:29:60+05:30", "2016-12-31T23:59:59Z"),
        ] {
            assert_eq!(auto(leap), auto(second), "{leap}");
        }
        assert!(auto("2016-12-31T23:59:61Z").unwrap_err().contains("not a time"));
    }

    #[test]
    fn epochs_are_read_by_unit_and_auto_goes_by_magnitude() {
        for (text, unit, want) in [
            ("1357034400", TimeUnit::Auto, 1_357_034_400 * S),
            ("1357034400000", TimeUnit::Auto, 1_357_034_400 * S),
            ("-1357034400000", TimeUnit::Auto, -1_357_034_400 * S),
            ("1357034400.25", TimeUnit::Auto, 1_357_034_400 * S + S / 4),
            ("1357034400000", TimeUnit::Ms, 1_357_034_400 * S),
            ("5", TimeUnit::Ms, 5_000_000),
            ("1.5", TimeUnit::Ms, 1_500_000),
            ("-0.5", TimeUnit::S, -S / 2),
            ("0", TimeUnit::S, 0),
            ("99999999999", TimeUnit::Ms, 99_999_999_999_000_000),
            ("100000000000", TimeUnit::Auto, 100_000_000_000_000_000),
        ] {
            assert_eq!(parse_time(text.as_bytes(), unit), Ok(want), "{text} {unit:?}");
        }
    }

    #[test]
    fn out_of_range_and_malformed_times_are_told_apart() {
        for text in [
            "1600-01-01T00:00:00Z",
            "2300-01-01T00:00:00Z",
            "99999999999",
            "99999999999999999999999999999999999999999999",
        ] {
            assert!(auto(text).unwrap_err().contains("out of range"), "{text}");
        }
        for text in [
            "",
            "NA",
            "abc",
            "-",
            ".",
            "1.",
            "2013-01-01",
            "2013-01-01T10:00:00",
            "2013-13-01T10:00:00Z",
            "2013-01-01T10:00Z",
            "2013-W01-1T10:00:00Z",
            "2013-01-01T10:00:00Z[UTC]",
            "2013-01-01T10:00:00.Z",
            "1e9",
            " 5",
        ] {
            assert!(auto(text).unwrap_err().contains("not a time"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_written_time_reads_back(nanos in any::<i64>()) {
            let text = crate::output::format_time(nanos);
            prop_assert_eq!(auto(&text), Ok(nanos));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..32)) {
            let _ = parse_time(&text, TimeUnit::Auto);
        }
    }
}
