//! The CSV file as a source of records.

use std::fs::File;
use std::path::PathBuf;

use crate::args::TimeUnit;
use crate::console;
use crate::exit::{Failure, Outcome};
use crate::input::{RowRead, RowReader, parse_time, parse_value};
use crate::position::{ContentHash, Position};
use crate::runtime::{Record, Source};

/// The greatest key that the state takes, refused here so that the row is named.
const MAX_KEY_BYTES: usize = highwater::base::limits::MAX_KEY_PART_BYTES;

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// The file.
    pub path: PathBuf,
    /// The column of the key.
    pub key: String,
    /// The column of the event time.
    pub time: String,
    /// The column of the value.
    pub value: String,
    /// The unit of times that are numbers.
    pub time_unit: TimeUnit,
    /// How far a window may reach from a record's time, in nanoseconds: such windows must have representable ends.
    pub reach: i64,
    /// Count malformed rows and go on.
    pub skip_bad_rows: bool,
}

/// Reads records from a CSV file with a header row.
pub struct CsvSource {
    options: CsvOptions,
    rows: RowReader<File>,
    names: Vec<String>,
    columns: Columns,
    records: u64,
    skipped: u64,
    ahead: Option<Ahead>,
    told: u32,
}

/// A record that was read before it was asked for.
struct Ahead {
    /// Where the source stood before.
    from: Position,
    /// `None` at the end of the input.
    next: Option<Record>,
}

/// The most characters of a reason, which may quote a field.
const TOLD_CHARACTERS: usize = 300;

/// Rows that took other rows' lines with them, of which people are told one by one.
const TOLD: u32 = 10;

#[derive(Clone, Copy)]
struct Columns {
    key: usize,
    time: usize,
    value: usize,
}

/// Why a row is malformed: the index of the column, and the reason.
type Malformed = (usize, String);

impl CsvSource {
    /// Opens the file and finds the columns in its header.
    ///
    /// # Errors
    ///
    /// The file can't be opened or has no header; a column is missing or named twice (exit code 2, with the header).
    pub fn open(options: CsvOptions) -> Outcome<Self> {
        let path = &options.path;
        let file = File::open(path).map_err(|error| Failure::io("open the input", path, &error))?;
        let mut rows = RowReader::new(path, file)?;
        match rows.read_row()? {
            RowRead::Row => {}
            RowRead::End => {
                return Err(Failure::usage(format!("{} is empty: a header row is needed", path.display())));
            }
            RowRead::Broken { column, why } => {
                let (path, line) = (path.display(), rows.row_line());
                return Err(Failure::usage(format!("{path}: line {line}, column {}: {why}", column + 1)));
            }
        }
        let names: Vec<String> =
            (0..rows.field_count()).map(|index| String::from_utf8_lossy(rows.field(index)).into_owned()).collect();
        let columns = Columns {
            key: find_column(&names, "--key", &options.key)?,
            time: find_column(&names, "--time", &options.time)?,
            value: find_column(&names, "--value", &options.value)?,
        };
        Ok(Self { options, rows, names, columns, records: 0, skipped: 0, ahead: None, told: 0 })
    }

    /// Opens the file and goes on at `position`, once the bytes before it have proved to be the same.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); the input is shorter than what was consumed, or differs from it (exit code 2, naming both hashes).
    pub fn resume(options: CsvOptions, position: &Position) -> Outcome<Self> {
        let mut source = Self::open(options)?;
        let changed = |what: String| {
            let path = source.options.path.display();
            Failure::usage(format!("{path} is not the input that this job was reading: {what}"))
        };
        // A header that now ends beyond the position can't be the one that was read.
        if source.rows.offset() > position.offset && position.offset > 0 {
            return Err(changed(differs(position, source.rows.hash())));
        }
        if !source.rows.skip_to(position.offset)? {
            let (had, has) = (position.offset, source.rows.offset());
            return Err(changed(format!("{had} bytes had been read, it holds {has}")));
        }
        if position.offset > 0 && source.rows.hash() != position.hash {
            return Err(changed(differs(position, source.rows.hash())));
        }
        source.records = position.records;
        source.skipped = position.skipped;
        Ok(source)
    }

    /// Reads the next record before it is asked for, so that what is wrong with it shows while nothing has been touched.
    ///
    /// # Errors
    ///
    /// As [`next`](Source::next).
    pub fn read_ahead(&mut self) -> Outcome<()> {
        let from = self.position();
        let next = self.read()?;
        self.ahead = Some(Ahead { from, next });
        Ok(())
    }

    fn read(&mut self) -> Outcome<Option<Record>> {
        loop {
            let malformed = match self.rows.read_row()? {
                RowRead::End => return Ok(None),
                RowRead::Broken { column, why } => (column, why.to_owned()),
                RowRead::Row => match self.parse() {
                    Ok(record) => {
                        self.records += 1;
                        return Ok(Some(record));
                    }
                    Err(malformed) => malformed,
                },
            };
            if !self.options.skip_bad_rows {
                return Err(self.malformed(&malformed));
            }
            self.skip(&malformed);
        }
    }

    /// Counts a malformed row, by its lines: a stray quote makes one row of many.
    fn skip(&mut self, malformed: &Malformed) {
        let lines = self.rows.row_lines();
        self.skipped += lines;
        self.told += u32::from(lines > 1);
        if lines > 1 && self.told <= TOLD {
            let more = if self.told == TOLD { "; more such rows are counted alone" } else { "" };
            console::warn(format_args!(
                "{}; up to line {} all is one row, whose {lines} lines were skipped{more}",
                self.malformed(malformed),
                self.rows.row_line() + lines - 1
            ));
        }
    }

    fn parse(&self) -> Result<Record, Malformed> {
        let Columns { key, time, value } = self.columns;
        let (count, want) = (self.rows.field_count(), self.names.len());
        if count != want {
            return Err((count.min(want), format!("the row has {count} fields, the header {want}")));
        }
        let key_bytes = self.rows.field(key);
        if key_bytes.len() > MAX_KEY_BYTES {
            return Err((key, format!("a key of {} bytes is over the limit of 64 KiB", key_bytes.len())));
        }
        let text = self.rows.field(time);
        let nanos = parse_time(text, self.options.time_unit).map_err(|why| (time, why))?;
        let reach = self.options.reach;
        if nanos.checked_add(reach).is_none() || nanos.checked_sub(reach).is_none() {
            return Err((
                time,
                format!("`{}` is out of range: its window would reach beyond the times there are", text.escape_ascii()),
            ));
        }
        let number = parse_value(self.rows.field(value)).map_err(|why| (value, why))?;
        Ok(Record { stream: 0, key: key_bytes.into(), time: nanos, value: number, watermark: i64::MIN })
    }

    fn malformed(&self, (column, why): &Malformed) -> Failure {
        let name = self.names.get(*column).map_or(String::new(), |name| format!(" ({name})"));
        // A field that a stray quote made may be as long as the rest of the file.
        let why = match why.char_indices().nth(TOLD_CHARACTERS) {
            Some((end, _)) => &format!("{}...", &why[..end]),
            None => why,
        };
        Failure::usage(format!(
            "{}: line {}, column {}{name}: {why}",
            self.options.path.display(),
            self.rows.row_line(),
            column + 1,
        ))
    }
}

impl Source for CsvSource {
    fn next(&mut self, records: &mut Vec<Record>) -> Outcome<Option<i64>> {
        let next = match self.ahead.take() {
            Some(ahead) => ahead.next,
            None => self.read()?,
        };
        let time = next.as_ref().map(|record| record.time);
        records.extend(next);
        Ok(time)
    }

    fn position(&self) -> Position {
        if let Some(ahead) = &self.ahead {
            return ahead.from.clone();
        }
        Position {
            offset: self.rows.offset(),
            line: self.rows.lines(),
            hash: self.rows.hash(),
            records: self.records,
            skipped: self.skipped,
            ..Position::start()
        }
    }
}

fn differs(position: &Position, now: ContentHash) -> String {
    format!("the first {} bytes had the hash {}, now {now}", position.offset, position.hash)
}

fn find_column(names: &[String], option: &str, name: &str) -> Outcome<usize> {
    let mut found = names.iter().enumerate().filter(|(_, column)| *column == name);
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Ok(index),
        (Some(_), Some(_)) => Err(Failure::usage(format!("{option}: the header names the column `{name}` twice"))),
        (None, _) => {
            Err(Failure::usage(format!("{option}: there is no column `{name}`; the header is: {}", names.join(","))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::Number;
    use std::io::Write;

    struct Input(tempfile::TempDir);

    impl Input {
        fn of(text: &[u8]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            File::create(dir.path().join("in.csv")).unwrap().write_all(text).unwrap();
            Self(dir)
        }

        fn options(&self) -> CsvOptions {
            CsvOptions {
                path: self.0.path().join("in.csv"),
                key: "k".into(),
                time: "t".into(),
                value: "v".into(),
                time_unit: TimeUnit::Auto,
                reach: 1_000_000_000,
                skip_bad_rows: false,
            }
        }

        fn skipping(&self) -> CsvOptions {
            CsvOptions { skip_bad_rows: true, ..self.options() }
        }
    }

    fn all(mut source: CsvSource) -> Outcome<(Vec<Record>, Position)> {
        let mut records = Vec::new();
        while source.next(&mut records)?.is_some() {}
        Ok((records, source.position()))
    }

    #[test]
    fn records_hold_the_key_bytes_as_they_stand() {
        let input = Input::of(b"x,k,v,t\n-,\" a \",1,5\n-,\xff\xfe,NA,6\n-,,2.5,7\n");
        let (records, position) = all(CsvSource::open(input.options()).unwrap()).unwrap();
        let keys: Vec<&[u8]> = records.iter().map(|r| &r.key[..]).collect();
        assert_eq!(keys, [&b" a "[..], b"\xff\xfe", b""]);
        let values: Vec<_> = records.iter().map(|r| r.value).collect();
        assert_eq!(values, [Some(Number::Integer(1)), None, Some(Number::Decimal(2.5))]);
        assert_eq!((position.records, position.skipped), (3, 0));
    }

    #[test]
    fn a_malformed_row_names_its_line_and_column() {
        for (row, part) in [
            ("a,5,abc", "line 3, column 3 (v): `abc` is not a decimal number"),
            ("a,x,1", "line 3, column 2 (t): `x` is not a time"),
            (&*format!("a,5,{}", "\u{661}".repeat(500)), "..."),
            ("a,5", "line 3, column 3 (v): the row has 2 fields, the header 3"),
            ("a,5,1,9", "line 3, column 4: the row has 4 fields, the header 3"),
            ("a,2262-04-11T23:47:16Z,1", "line 3, column 2 (t): `2262-04-11T23:47:16Z` is out of range"),
            ("a,5,NaN", "column 3 (v)"),
        ] {
            let input = Input::of(format!("k,t,v\na,1,1\n{row}\na,2,2\n").as_bytes());
            let error = all(CsvSource::open(input.options()).unwrap()).unwrap_err();
            assert!(error.message.contains(part), "{row}: {error}");
            assert_eq!(error.code, crate::exit::Code::Usage);
            let (records, position) = all(CsvSource::open(input.skipping()).unwrap()).unwrap();
            assert_eq!((records.len(), position.records, position.skipped), (2, 2, 1), "{row}");
        }
    }

    #[test]
    fn a_stray_quote_is_named_by_line_and_column_and_every_line_it_took_is_counted() {
        let never_closed = b"k,t,v\na,1,1\nb,2,\"2\nc,3,3\nd,4,4\n";
        let error = all(CsvSource::open(Input::of(never_closed).options()).unwrap()).unwrap_err();
        assert!(error.message.contains("line 3, column 3 (v): a quote is never closed"), "{error}");
        let closed_by_another = b"k,t,v\na,1,1\nb,2,\"2\nc,3,3\nd,4,\"4\ne,5,5\n";
        for (text, records, skipped) in [(&never_closed[..], 1, 3), (closed_by_another, 2, 3)] {
            let input = Input::of(text);
            let (_, end) = all(CsvSource::open(input.skipping()).unwrap()).unwrap();
            assert_eq!((end.records, end.skipped, end.offset), (records, skipped, text.len() as u64));
        }
        let error = CsvSource::open(Input::of(b"k,\"t,v\na,1,1\n").options()).err().unwrap();
        assert!(error.message.contains("line 1, column 2: a quote is never closed"), "{error}");
    }

    #[test]
    fn a_key_over_the_limit_of_the_state_is_a_malformed_row() {
        let input = Input::of(format!("k,t,v\n{},1,1\n", "x".repeat(MAX_KEY_BYTES + 1)).as_bytes());
        let error = all(CsvSource::open(input.options()).unwrap()).unwrap_err();
        assert!(error.message.contains("line 2, column 1 (k)") && error.message.contains("64 KiB"), "{error}");
    }

    #[test]
    fn a_missing_column_is_named_with_the_header() {
        let input = Input::of(b"k,time,v\n");
        let error = CsvSource::open(input.options()).err().unwrap();
        assert!(error.message.contains("--time: there is no column `t`; the header is: k,time,v"), "{error}");
        let input = Input::of(b"k,t,v,k\n");
        assert!(CsvSource::open(input.options()).err().unwrap().message.contains("twice"));
        let input = Input::of(b"");
        assert!(CsvSource::open(input.options()).err().unwrap().message.contains("header"));
        let options = CsvOptions { path: "/nowhere/in.csv".into(), ..input.options() };
        assert_eq!(CsvSource::open(options).err().unwrap().code, crate::exit::Code::Usage);
    }

    #[test]
    fn a_resume_at_every_record_reads_the_same_rest_and_the_same_lines() {
        let text = b"\xef\xbb\xbfk,t,v\r\na,1,1\r\n\r\n\"b\nb\",2,x\r\nc,3,3\r\n\"d\"\"\",4,4";
        let input = Input::of(text);
        let (whole, end) = all(CsvSource::open(input.skipping()).unwrap()).unwrap();
        let mut source = CsvSource::open(input.skipping()).unwrap();
        let mut before = Vec::new();
        loop {
            let position = source.position();
            let mut resumed = CsvSource::resume(input.skipping(), &position).unwrap();
            // What was read ahead hasn't been read as far as a checkpoint is concerned.
            resumed.read_ahead().unwrap();
            assert_eq!(resumed.position(), position);
            let (rest, resumed_end) = all(resumed).unwrap();
            assert_eq!([&before[..], &rest[..]].concat(), whole);
            assert_eq!(resumed_end, end);
            if source.next(&mut before).unwrap().is_none() {
                break;
            }
        }
        // The malformed row has two lines.
        assert_eq!((end.offset, end.records, end.skipped, end.line), (text.len() as u64, 3, 2, 6));
    }

    #[test]
    fn another_input_is_refused_naming_both_hashes() {
        let input = Input::of(b"k,t,v\na,1,1\na,2,2\n");
        let mut source = CsvSource::open(input.options()).unwrap();
        source.next(&mut Vec::new()).unwrap();
        let position = source.position();
        let other = Input::of(b"k,t,v\na,1,3\na,2,2\n");
        let error = CsvSource::resume(other.options(), &position).err().unwrap();
        let now = ContentHash(xxhash_rust::xxh3::xxh3_64(b"k,t,v\na,1,3\n"));
        assert!(
            error.message.contains(&position.hash.to_string()) && error.message.contains(&now.to_string()),
            "{error}"
        );
        for shorter in [&b"k,t,v\na,1"[..], b"k,t,v\n"] {
            let error = CsvSource::resume(Input::of(shorter).options(), &position).err().unwrap();
            assert!(error.message.contains("12 bytes had been read"), "{error}");
        }
        let longer_header = Input::of(b"k,t,v,and,so,on\n");
        assert!(CsvSource::resume(longer_header.options(), &position).is_err());
        // What follows the position may change: it hasn't been read.
        assert!(CsvSource::resume(Input::of(b"k,t,v\na,1,1\nb,7,7\nb,8,8\n").options(), &position).is_ok());
    }
}
