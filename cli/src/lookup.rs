//! `highwater checkpoints get`: what a checkpoint holds under one key; in words for what `run` keeps, in hex for other jobs.

use std::fmt::Write;

use highwater::inspect::{self, KeyEntries, StoredEntry};
use highwater::io::other_roots::OtherRoots;
use highwater::{Codec, CompletedCheckpoint};
use serde::Serialize;
use serde_json::Value;

use crate::aggregate::Accumulator;
use crate::args::GetArgs;
use crate::backend::{Context, KEYED, Peek, clock};
use crate::console;
use crate::exit::{Failure, Outcome};
use crate::output::format_time;
use crate::runtime::JobMetadata;
use crate::units::{nanos, parse_duration};
use crate::window::stored_session;

/// What `get` prints.
#[derive(Debug, Serialize)]
struct GetReport {
    checkpoint: String,
    state: String,
    key: String,
    found: bool,
    /// Where the key lies, in the operators that have such a state.
    places: Vec<PlaceReport>,
    entries: Vec<EntryReport>,
}

#[derive(Debug, Serialize)]
struct PlaceReport {
    operator: String,
    subtask: u32,
    key_group: u16,
}

/// An entry: a window of `run`, or raw bytes.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum EntryReport {
    Window { start: String, end: Option<String>, rows: Value, count: Value, sum: Value, min: Value, max: Value },
    Raw { namespace: String, user_key: String, value: String, expires_ms: Option<i64> },
}

/// Reads one key. That nothing is there is an answer, not a failure.
///
/// # Errors
///
/// No such checkpoint, or it can't be read (3); no such state, or no key that it could have (2).
pub fn get(args: &GetArgs) -> Outcome<()> {
    let key = if args.hex { from_hex(&args.key)? } else { args.key.clone().into_bytes() };
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let checkpoint = state.named(&args.id).outcome()?;
    let (clock, now_ms) = (clock(), clock().now_ms());
    let found = inspect::get(store, &OtherRoots::new(clock), checkpoint, &args.state, &key, now_ms).outcome()?;
    let windows = Windows::of(checkpoint);
    let (mut entries, mut places) = (Vec::new(), Vec::new());
    for of in &found {
        places.push(PlaceReport { operator: of.operator.clone(), subtask: of.subtask, key_group: of.group });
        for entry in &of.entries {
            entries.push(windows.report(of, entry)?);
        }
    }
    let report = GetReport {
        checkpoint: checkpoint.id().to_string(),
        state: args.state.clone(),
        key: args.key.clone(),
        found: !entries.is_empty(),
        places,
        entries,
    };
    if args.json { console::json_line(&report) } else { console::table(&text(&report)) }
}

/// How windows of the job are read.
struct Windows {
    /// `run` made the checkpoint, with these options.
    options: Option<std::collections::BTreeMap<String, String>>,
}

impl Windows {
    fn of(checkpoint: &CompletedCheckpoint) -> Self {
        Self { options: JobMetadata::decode(checkpoint.metadata()).ok().map(|metadata| metadata.config) }
    }

    fn report(&self, of: &KeyEntries, entry: &StoredEntry) -> Outcome<EntryReport> {
        let options = self.options.as_ref().filter(|_| of.operator == KEYED && of.state.kind == "map");
        let start = || i64::decode(&entry.user_key).outcome();
        let (start, end, aggregate) = match options.map(|options| (options.get("window"), options.get("gap"))) {
            Some((Some(size), _)) => {
                let (start, size) = (start()?, parse_duration(size).map(nanos).ok());
                (start, size.and_then(|size| start.checked_add(size)), Accumulator::decode(&entry.value)?)
            }
            Some((None, Some(_))) => {
                let (end, aggregate) = stored_session(&entry.value)?;
                (start()?, Some(end), aggregate)
            }
            _ => {
                return Ok(EntryReport::Raw {
                    namespace: hex(&entry.namespace),
                    user_key: hex(&entry.user_key),
                    value: hex(&entry.value),
                    expires_ms: entry.expires_ms,
                });
            }
        };
        let mut fields = Vec::new();
        aggregate.write_fields(&mut fields);
        let fields = String::from_utf8_lossy(&fields).into_owned();
        let mut fields = fields.split(',').map(number);
        let mut next = || fields.next().unwrap_or(Value::Null);
        Ok(EntryReport::Window {
            start: format_time(start),
            end: end.map(format_time),
            rows: next(),
            count: next(),
            sum: next(),
            min: next(),
            max: next(),
        })
    }
}

/// As JSON where that is exact, else as text; nothing is null.
fn number(field: &str) -> Value {
    match (field.parse::<i64>(), serde_json::from_str::<Value>(field)) {
        _ if field.is_empty() => Value::Null,
        (Ok(integer), _) => integer.into(),
        (_, Ok(number)) if field.contains(['.', 'e']) => number,
        _ => field.into(),
    }
}

fn text(report: &GetReport) -> String {
    let mut text = String::new();
    let GetReport { checkpoint, state, key, .. } = report;
    // Writing to a string can't fail.
    for place in &report.places {
        let PlaceReport { operator, subtask, key_group } = place;
        let _ = writeln!(
            text,
            "checkpoint {checkpoint}, `{state}` of `{operator}`: key `{key}` belongs to key group {key_group} of subtask {subtask}"
        );
    }
    for entry in &report.entries {
        let _ = match entry {
            EntryReport::Window { start, end, rows, count, sum, min, max } => {
                let end = end.as_ref().map_or_else(String::new, |end| format!(" to {end}"));
                let numbers = if count == &Value::from(0) {
                    "none of them with a number".to_owned()
                } else {
                    format!("{count} of them with a number: sum {}, min {}, max {}", plain(sum), plain(min), plain(max))
                };
                writeln!(text, "from {start}{end}: {rows} rows, {numbers}")
            }
            EntryReport::Raw { namespace, user_key, value, expires_ms } => {
                let expires = expires_ms.map_or_else(String::new, |ms| format!(", expires at {ms} ms"));
                writeln!(text, "namespace {namespace:?}, user key {user_key:?}: {value}{expires}")
            }
        };
    }
    if !report.found {
        let _ = writeln!(text, "not found: nothing is kept under that key");
    }
    text
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Outcome<Vec<u8>> {
    let bad = || Failure::usage(format!("--key `{text}` is not hex"));
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || text.len() % 2 == 1 {
        return Err(bad());
    }
    let pair = |at| u8::from_str_radix(text.get(at..at + 2).unwrap_or_default(), 16).map_err(|_| bad());
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_reads_back_and_other_text_is_refused() {
        for bytes in [&[][..], &[0, 0xff, 0x1a]] {
            assert_eq!(from_hex(&hex(bytes)).unwrap(), bytes);
        }
        for bad in ["a", "zz", "ü", "+1"] {
            assert!(from_hex(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_json_only_where_that_is_exact() {
        assert_eq!(number(""), Value::Null);
        assert_eq!(number("-5"), Value::from(-5));
        assert_eq!(number("2.0"), serde_json::json!(2.0));
        assert_eq!(number("170141183460469231731687303715884105727"), "170141183460469231731687303715884105727");
    }
}
