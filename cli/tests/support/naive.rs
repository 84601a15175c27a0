//! The right answer of a job, computed from a list of all records and without any of the job's code.

use std::collections::BTreeMap;

/// A well-formed record.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: Vec<u8>,
    /// Nanoseconds since 1970.
    pub time: i64,
    pub value: Option<i64>,
}

/// The rows of tumbling windows in order, and how many records were late.
pub fn windows(events: &[Event], size: i64, bound: i64) -> (Vec<String>, u64) {
    let mut kept: BTreeMap<(i64, &[u8]), Vec<Option<i64>>> = BTreeMap::new();
    let (mut late, mut top) = (0, None);
    for event in events {
        let start = event.time.div_euclid(size) * size;
        if top.is_some_and(|top| start + size <= top - bound) {
            late += 1;
        } else {
            kept.entry((start, &event.key)).or_default().push(event.value);
        }
        top = Some(top.map_or(event.time, |top: i64| top.max(event.time)));
    }
    let rows =
        kept.into_iter().map(|((start, key), values)| format!("{},{},{}\n", utc(start), text(key), aggregate(&values)));
    (rows.collect(), late)
}

/// The rows of sessions in order, and how many records were late.
pub fn sessions(events: &[Event], gap: i64, bound: i64) -> (Vec<String>, u64) {
    // A session is the list of its records; it is closed for good once the watermark has reached its last record plus the gap.
    type Session<'a> = Vec<&'a Event>;
    let first = |session: &Session<'_>| session.iter().map(|e| e.time).min().unwrap();
    let end = |session: &Session<'_>| session.iter().map(|e| e.time).max().unwrap() + gap;
    let mut open: BTreeMap<&[u8], Vec<Session<'_>>> = BTreeMap::new();
    let mut closed: Vec<Session<'_>> = Vec::new();
    let (mut late, mut top) = (0, None);
    for event in events {
        let watermark = top.map(|top: i64| top - bound);
        let passed = |time: i64| watermark.is_some_and(|watermark| time <= watermark);
        let sessions = open.entry(&event.key).or_default();
        closed.extend(sessions.extract_if(.., |session| passed(end(session))));
        let mut joined: Session<'_> = vec![event];
        for session in sessions.extract_if(.., |s| (first(s) - event.time <= gap) && (event.time <= end(s))) {
            joined.extend(session);
        }
        if passed(end(&joined)) {
            late += 1;
        } else {
            sessions.push(joined);
        }
        top = Some(top.map_or(event.time, |top: i64| top.max(event.time)));
    }
    closed.extend(open.into_values().flatten());
    closed.sort_by(|a, b| (end(a), &a[0].key).cmp(&(end(b), &b[0].key)));
    let rows = closed.iter().map(|session| {
        let values: Vec<_> = session.iter().map(|event| event.value).collect();
        format!("{},{},{},{}\n", utc(first(session)), utc(end(session)), text(&session[0].key), aggregate(&values))
    });
    (rows.collect(), late)
}

/// The events of a CSV whose times look like `2013-01-01T10:00:00Z` and whose values are integers, `NA` or empty.
#[allow(dead_code, reason = "the unit tests make up their events")]
pub fn read_csv(path: &std::path::Path, key: &str, time: &str, value: &str) -> Vec<Event> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let column = |name: &str, headers: &csv::ByteRecord| headers.iter().position(|h| h == name.as_bytes()).unwrap();
    let headers = reader.byte_headers().unwrap().clone();
    let (key, time, value) = (column(key, &headers), column(time, &headers), column(value, &headers));
    let rows = reader.into_byte_records().map(Result::unwrap);
    rows.map(|row| Event {
        key: row[key].to_vec(),
        time: nanos(std::str::from_utf8(&row[time]).unwrap()),
        value: std::str::from_utf8(&row[value]).unwrap().parse().ok(),
    })
    .collect()
}

fn aggregate(values: &[Option<i64>]) -> String {
    let numbers: Vec<i64> = values.iter().flatten().copied().collect();
    match (numbers.iter().min(), numbers.iter().max()) {
        (Some(min), Some(max)) => {
            format!("{},{},{},{min},{max}", values.len(), numbers.len(), numbers.iter().sum::<i64>())
        }
        _ => format!("{},0,,,", values.len()),
    }
}

fn text(key: &[u8]) -> &str {
    std::str::from_utf8(key).unwrap()
}

/// Days since 1970 of a date, counted year by year and month by month.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let years: i64 =
        if year >= 1970 { (1970..year).map(year_days).sum() } else { -(year..1970).map(year_days).sum::<i64>() };
    years + (1..month).map(|month| month_days(year, month)).sum::<i64>() + day - 1
}

fn year_days(year: i64) -> i64 {
    if leap(year) { 366 } else { 365 }
}

fn leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn nanos(text: &str) -> i64 {
    let part = |range: std::ops::Range<usize>| text[range].parse::<i64>().unwrap();
    let day = days(part(0..4), part(5..7), part(8..10));
    (((day * 24 + part(11..13)) * 60 + part(14..16)) * 60 + part(17..19)) * 1_000_000_000
}

fn utc(nanos: i64) -> String {
    let (seconds, fraction) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    let (mut day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let mut year = 1970;
    while day < 0 {
        year -= 1;
        day += year_days(year);
    }
    while day >= year_days(year) {
        day -= year_days(year);
        year += 1;
    }
    let mut month = 1;
    while day >= month_days(year, month) {
        day -= month_days(year, month);
        month += 1;
    }
    let fraction =
        if fraction == 0 { String::new() } else { format!(".{fraction:09}").trim_end_matches('0').to_owned() };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z", day + 1)
}
