//! Durations and sizes as they are typed on a command line: `500ms 1s 30m 24h`, `64KiB 256MiB`.

use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, u64); 5] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Reads `500ms`, `1s`, `30m`, `24h` or `0`.
///
/// # Errors
///
/// Says which forms are understood, or that the duration does not fit in nanoseconds of 64 bits (about 292 years).
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (amount, unit) =
        split(text).ok_or_else(|| format!("`{text}` is not a duration such as 500ms, 1s, 30m or 24h"))?;
    if amount == 0 && unit.is_empty() {
        return Ok(Duration::ZERO);
    }
    let (_, millis) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| match unit {
        "" => format!("`{text}` has no unit: write {text}ms, {text}s, {text}m or {text}h"),
        _ => format!("`{unit}` is not a unit of time: use ms, s, m or h"),
    })?;
    let duration = amount.checked_mul(*millis).map(Duration::from_millis);
    duration
        .filter(|duration| i64::try_from(duration.as_nanos()).is_ok())
        .ok_or_else(|| format!("`{text}` is more than about 292 years"))
}

/// As [`parse_duration`], and refuses a duration of nothing.
///
/// # Errors
///
/// As [`parse_duration`].
pub fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// Writes a duration in its greatest whole unit, so that `60m` and `1h` read the same.
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let (unit, size) =
        DURATION_UNITS.iter().find(|(_, size)| millis.is_multiple_of(u128::from(*size))).unwrap_or(&("ms", 1));
    format!("{}{unit}", millis / u128::from(*size))
}

/// A duration in nanoseconds; [`parse_duration`] made sure that it fits.
pub fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Reads `64KiB`, `256MiB`, `1GiB` or a bare number of bytes.
///
/// # Errors
///
/// Says which forms are understood, or that the size does not fit in 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (amount, unit) = split(text).ok_or_else(|| format!("`{text}` is not a size such as 64KiB, 256MiB or 1GiB"))?;
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, bytes) = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| match unit {
        "KB" | "MB" | "GB" | "TB" | "K" | "M" | "G" | "T" => {
            format!("`{unit}` is ambiguous: use {}iB", &unit[..1])
        }
        _ => format!("`{unit}` is not a unit of size: use B, KiB, MiB, GiB or TiB"),
    })?;
    amount.checked_mul(*bytes).ok_or_else(|| format!("`{text}` does not fit in 64 bits"))
}

/// Writes a size for people, to one decimal of its greatest unit.
pub fn format_size(bytes: u64) -> String {
    let (unit, size) = SIZE_UNITS.iter().rev().find(|(_, size)| bytes >= *size).unwrap_or(&("B", 1));
    if *size == 1 {
        return format!("{bytes} B");
    }
    // Tenths, rounded, are enough for people, and need no floating point.
    let tenths = (u128::from(bytes) * 20 / u128::from(*size)).div_ceil(2);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Splits `24h` into 24 and `h`.
fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (amount, unit) = text.split_at(digits);
    Some((amount.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_of_the_contract_are_understood() {
        for (text, millis) in
            [("500ms", 500), ("1s", 1000), ("30m", 1_800_000), ("24h", 86_400_000), ("0", 0), ("0s", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn wrong_durations_say_what_would_be_right() {
        for (text, part) in [
            ("10", "10ms, 10s"),
            ("h", "not a duration"),
            ("-1s", "not a duration"),
            ("1.5h", "not a unit of time"),
            ("1d", "use ms, s, m or h"),
            ("1 s", "not a unit of time"),
            ("", "not a duration"),
            ("99999999999h", "292 years"),
            ("2562048h", "292 years"),
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse_positive_duration("0s").is_err());
    }

    #[test]
    fn sizes_are_binary_and_say_so() {
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("17"), Ok(17));
        assert!(parse_size("64MB").unwrap_err().contains("use MiB"));
        assert!(parse_size("x").is_err());
        assert!(parse_size("20000000TiB").is_err());
        assert_eq!(format_size(0), "0 B");
        assert_eq!(format_size(1536), "1.5 KiB");
        assert_eq!((format_size(1_665_407), format_size(1024)), ("1.6 MiB".to_owned(), "1.0 KiB".to_owned()));
    }

    proptest! {
        #[test]
        fn a_formatted_duration_reads_back(millis in 0u64..9_000_000_000_000) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,12}") {
            let _ = parse_duration(&text);
            let _ = parse_size(&text);
        }
    }
}
