//! One row of the output: RFC 4180 with LF, times in UTC, keys as they stand in the input.

use jiff::Timestamp;

use crate::aggregate::Accumulator;
use crate::exit::{Failure, Outcome};

/// The first line of an output of tumbling windows.
pub fn window_header() -> &'static [u8] {
    b"window_start,key,rows,count,sum,min,max\n"
}

/// The first line of an output of sessions.
pub fn session_header() -> &'static [u8] {
    b"session_start,session_end,key,rows,count,sum,min,max\n"
}

/// Appends the row of a tumbling window.
///
/// # Errors
///
/// The sum is out of range (exit code 2): an infinity would read back as no number.
pub fn write_window(start: i64, key: &[u8], aggregate: &Accumulator, out: &mut Vec<u8>) -> Outcome<()> {
    check_sum(start, key, aggregate)?;
    out.extend_from_slice(format_time(start).as_bytes());
    write_key_and_aggregate(key, aggregate, out);
    Ok(())
}

/// Appends the row of a session.
///
/// # Errors
///
/// As [`write_window`].
pub fn write_session(start: i64, end: i64, key: &[u8], aggregate: &Accumulator, out: &mut Vec<u8>) -> Outcome<()> {
    check_sum(start, key, aggregate)?;
    out.extend_from_slice(format_time(start).as_bytes());
    out.push(b',');
    out.extend_from_slice(format_time(end).as_bytes());
    write_key_and_aggregate(key, aggregate, out);
    Ok(())
}

fn check_sum(start: i64, key: &[u8], aggregate: &Accumulator) -> Outcome<()> {
    if aggregate.has_finite_sum() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the sum of key `{}` in the window that begins at {} is out of range: decimals go up to {:e}",
        key.escape_ascii(),
        format_time(start),
        f64::MAX
    )))
}

/// A time in nanoseconds since 1970 as RFC 3339 in UTC, with a fraction only when there is one.
pub fn format_time(nanos: i64) -> String {
    // Every 64-bit count of nanoseconds lies within the years that jiff knows.
    Timestamp::from_nanosecond(nanos.into()).unwrap_or_default().to_string()
}

fn write_key_and_aggregate(key: &[u8], aggregate: &Accumulator, out: &mut Vec<u8>) {
    out.push(b',');
    write_field(key, out);
    out.push(b',');
    aggregate.write_fields(out);
    out.push(b'\n');
}

fn write_field(field: &[u8], out: &mut Vec<u8>) {
    if !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n')) {
        out.extend_from_slice(field);
        return;
    }
    out.push(b'"');
    for byte in field {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Number;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn times_have_fractions_only_when_there_are_any() {
        for (nanos, text) in [
            (1_357_034_400 * S, "2013-01-01T10:00:00Z"),
            (S / 2, "1970-01-01T00:00:00.5Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!(format_time(nanos), text);
        }
    }

    #[test]
    fn rows_are_those_of_the_contract() {
        let mut aggregate = Accumulator::default();
        aggregate.add(Some(Number::Integer(2)));
        aggregate.add(None);
        let mut out = Vec::new();
        write_window(0, b"UA", &aggregate, &mut out).unwrap();
        write_session(0, S, b"a,\"b\"\n", &aggregate, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "1970-01-01T00:00:00Z,UA,2,1,2,2,2\n1970-01-01T00:00:00Z,1970-01-01T00:00:01Z,\"a,\"\"b\"\"\n\",2,1,2,2,2\n"
        );
    }

    #[test]
    fn a_sum_that_outgrows_decimals_is_an_error_that_names_its_window_and_never_inf() {
        let mut aggregate = Accumulator::default();
        for value in [1e308, 1e308, -1e308] {
            aggregate.add(Some(Number::Decimal(value)));
        }
        let mut out = Vec::new();
        let tumbling = write_window(S, b"a\xff", &aggregate, &mut out).unwrap_err();
        let session = write_session(S, S, b"a\xff", &aggregate, &mut out).unwrap_err();
        for failure in [tumbling, session] {
            assert_eq!(failure.code, crate::exit::Code::Usage);
            assert!(
                failure.message.contains("`a\\xff` in the window that begins at 1970-01-01T00:00:01Z"),
                "{failure}"
            );
        }
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn any_key_reads_back_as_it_stood(key in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut out = Vec::new();
            write_window(0, &key, &Accumulator::default(), &mut out).unwrap();
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(&out[..]);
            let record = reader.byte_records().next().unwrap().unwrap();
            prop_assert_eq!(record.len(), 7);
            prop_assert_eq!(&record[1], &key[..]);
        }
    }
}
