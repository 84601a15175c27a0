//! Rows of CSV by their bytes: which file bytes each one took, their hash, and the line it began on.
//!
//! Works on csv-core, not csv, as a position has to name the exact byte after a record, which a buffered reader doesn't know.

use std::io::Read;
use std::path::{Path, PathBuf};

use csv_core::ReadRecordResult;
use xxhash_rust::xxh3::Xxh3;

use crate::exit::{Failure, Outcome};
use crate::position::ContentHash;

const BUFFER_BYTES: usize = 256 << 10;

/// The greatest row that is kept. A quote that was left open takes what follows for one field, perhaps the rest of the file.
const MAX_ROW_BYTES: usize = 16 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What [`RowReader::read_row`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRead {
    /// The end of the input.
    End,
    /// A row.
    Row,
    /// A row that can't be had, consumed to its end.
    Broken {
        /// The index of the field in which it broke.
        column: usize,
        /// The reason.
        why: &'static str,
    },
}

/// Splits a file into rows of fields.
pub struct RowReader<R> {
    path: PathBuf,
    input: R,
    buffer: Vec<u8>,
    /// The unread part of `buffer`.
    unread: std::ops::Range<usize>,
    at_end: bool,
    parser: csv_core::Reader,
    hasher: Xxh3,
    offset: u64,
    lines: u64,
    fields: Vec<u8>,
    ends: Vec<usize>,
    field_count: usize,
    row_line: u64,
    last_byte: u8,
}

impl<R: Read> RowReader<R> {
    /// Begins at the first byte of `input`, past a byte order mark.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn new(path: &Path, input: R) -> Outcome<Self> {
        let mut parser = csv_core::Reader::new();
        // csv-core takes a byte order mark away from the first bytes it ever sees. Show it a line feed first, so that a row
        // that begins with these bytes reads the same after a resume as it would have before.
        let _ = parser.read_record(b"\n", &mut [0], &mut [0]);
        let mut reader = Self {
            path: path.to_owned(),
            input,
            buffer: vec![0; BUFFER_BYTES],
            unread: 0..0,
            at_end: false,
            parser,
            hasher: Xxh3::new(),
            offset: 0,
            lines: 0,
            fields: vec![0; 1024],
            ends: vec![0; 64],
            field_count: 0,
            row_line: 1,
            last_byte: b'\n',
        };
        reader.fill()?;
        if reader.pending().starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        Ok(reader)
    }

    /// Reads the next row. Empty lines are no rows. One over the limit of size, or that ends within quotes, is broken.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn read_row(&mut self) -> Outcome<RowRead> {
        self.field_count = 0;
        if !self.skip_line_ends()? {
            return Ok(RowRead::End);
        }
        self.row_line = self.lines + 1;
        let (mut written, mut ended) = (0, 0);
        // Once the row is too long: where that was. The rest of it is only passed over.
        let mut too_long = None;
        loop {
            if self.unread.is_empty() && !self.at_end {
                self.fill()?;
            }
            // A line feed stands for the end of the input: only within quotes it doesn't end the row.
            let virtual_end = self.unread.is_empty();
            let pending = if virtual_end { b"\n" } else { &self.buffer[self.unread.clone()] };
            let (fields, all_ends) = (&mut self.fields[written..], &mut self.ends[ended..]);
            let (result, read, wrote, ends) = self.parser.read_record(pending, fields, all_ends);
            if !virtual_end {
                self.consume(read);
            }
            written += wrote;
            ended += ends;
            match result {
                ReadRecordResult::InputEmpty if virtual_end => {
                    return Ok(RowRead::Broken { column: too_long.unwrap_or(ended), why: "a quote is never closed" });
                }
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if self.fields.len() >= MAX_ROW_BYTES => {
                    too_long.get_or_insert(ended);
                    written = 0;
                }
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull if too_long.is_some() => ended = 0,
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record => {
                    if let Some(column) = too_long {
                        return Ok(RowRead::Broken { column, why: "the row is over 16 MiB; is a quote left open?" });
                    }
                    self.field_count = ended;
                    return Ok(RowRead::Row);
                }
                ReadRecordResult::End => return Ok(RowRead::End),
            }
        }
    }

    /// The number of fields of the last row.
    pub fn field_count(&self) -> usize {
        self.field_count
    }

    /// A field of the last row, without its quotes; empty where there is none.
    pub fn field(&self, index: usize) -> &[u8] {
        if index >= self.field_count {
            return &[];
        }
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.fields[start..self.ends[index]]
    }

    /// The line that the last row began on, from 1.
    pub fn row_line(&self) -> u64 {
        self.row_line
    }

    /// How many lines the last row took.
    pub fn row_lines(&self) -> u64 {
        self.lines + 1 - self.row_line + u64::from(self.last_byte != b'\n')
    }

    /// Bytes consumed.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Line feeds consumed.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The hash of all bytes consumed.
    pub fn hash(&self) -> ContentHash {
        ContentHash(self.hasher.digest())
    }

    /// Consumes bytes up to `offset` without looking at rows; false where the input is shorter.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn skip_to(&mut self, offset: u64) -> Outcome<bool> {
        while self.offset < offset {
            if self.unread.is_empty() && !self.fill()? {
                return Ok(false);
            }
            let wanted = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            self.consume(wanted.min(self.unread.len()));
        }
        Ok(true)
    }

    fn skip_line_ends(&mut self) -> Outcome<bool> {
        loop {
            let blank = self.pending().iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.consume(blank);
            if !self.unread.is_empty() {
                return Ok(true);
            }
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.unread.clone()]
    }

    fn consume(&mut self, count: usize) {
        let taken = &self.buffer[self.unread.start..self.unread.start + count];
        self.hasher.update(taken);
        self.last_byte = taken.last().copied().unwrap_or(self.last_byte);
        self.lines += taken.iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
        self.offset += count as u64;
        self.unread.start += count;
    }

    /// Refills the empty buffer; false at the end of the input.
    fn fill(&mut self) -> Outcome<bool> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            match self.input.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.at_end = true;
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::io("read", &self.path, &error)),
            }
        }
        self.unread = 0..filled;
        Ok(filled > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives a few bytes at a time, as a pipe may.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn rows(text: &[u8]) -> Outcome<Vec<(u64, Vec<Vec<u8>>)>> {
        let mut reader = RowReader::new(Path::new("in.csv"), Trickle(text, 7))?;
        let mut rows = Vec::new();
        while reader.read_row()? == RowRead::Row {
            rows.push((reader.row_line(), (0..reader.field_count()).map(|i| reader.field(i).to_vec()).collect()));
        }
        assert_eq!(reader.offset(), text.len() as u64);
        assert_eq!(reader.hash().0, xxhash_rust::xxh3::xxh3_64(text));
        Ok(rows)
    }

    fn texts(text: &str) -> Vec<(u64, Vec<String>)> {
        let rows = rows(text.as_bytes()).unwrap();
        rows.into_iter()
            .map(|(line, row)| (line, row.into_iter().map(|f| String::from_utf8(f).unwrap()).collect()))
            .collect()
    }

    fn row(line: u64, fields: &[&str]) -> (u64, Vec<String>) {
        (line, fields.iter().map(ToString::to_string).collect())
    }

    fn row_of<R: Read>(reader: &RowReader<R>) -> Vec<Vec<u8>> {
        (0..reader.field_count()).map(|index| reader.field(index).to_vec()).collect()
    }

    #[test]
    fn quotes_line_ends_and_blank_lines() {
        assert_eq!(texts("a,b\r\n1,2\r\n"), [row(1, &["a", "b"]), row(2, &["1", "2"])]);
        assert_eq!(texts("a,b\n\n\n1,2"), [row(1, &["a", "b"]), row(4, &["1", "2"])]);
        assert_eq!(texts("a\n\"x\ny\"\"z\"\nb\n"), [row(1, &["a"]), row(2, &["x\ny\"z"]), row(4, &["b"])]);
        assert_eq!(texts("a,,\n"), [row(1, &["a", "", ""])]);
        assert_eq!(texts("a,\"\""), [row(1, &["a", ""])]);
        assert_eq!(texts(""), []);
        assert_eq!(texts("\n\r\n"), []);
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_and_nowhere_else() {
        assert_eq!(texts("\u{feff}a\n\u{feff}b\n"), [row(1, &["a"]), row(2, &["\u{feff}b"])]);
    }

    #[test]
    fn a_row_with_an_open_quote_is_broken_and_consumed_with_all_its_lines() {
        let long = vec![b'x'; MAX_ROW_BYTES + 10];
        for (text, column, why, lines) in [
            (b"a,b\n1,\"2\n3,4\n".to_vec(), 1, "never closed", 2),
            (b"a,b\n1,\"2\n3,4".to_vec(), 1, "never closed", 2),
            (b"a,b\n\"".to_vec(), 0, "never closed", 1),
            ([b"a,b\n1,\"", &long[..]].concat(), 1, "never closed", 1),
            ([b"a,b\n1,\"\n", &long[..], b"\"\n3,4\n"].concat(), 1, "16 MiB", 2),
            (
                [b"a,b\n".to_vec(), b",".repeat(MAX_ROW_BYTES / 2), long.clone(), b"\n3,4\n".to_vec()].concat(),
                MAX_ROW_BYTES / 2,
                "16 MiB",
                1,
            ),
        ] {
            let mut reader = RowReader::new(Path::new("in.csv"), &text[..]).unwrap();
            assert_eq!(reader.read_row().unwrap(), RowRead::Row);
            let RowRead::Broken { column: at, why: reason } = reader.read_row().unwrap() else { panic!() };
            assert!(at == column && reason.contains(why), "{at} {reason}");
            assert_eq!((reader.row_line(), reader.row_lines(), reader.field_count()), (2, lines, 0));
            if why == "16 MiB" {
                assert_eq!(reader.read_row().unwrap(), RowRead::Row);
                assert_eq!(row_of(&reader), [b"3", b"4"]);
            }
            assert_eq!(reader.read_row().unwrap(), RowRead::End);
            assert_eq!(reader.offset(), text.len() as u64);
        }
    }

    proptest! {
        #[test]
        fn rows_are_those_of_the_csv_crate_and_a_reader_goes_on_at_any_of_them(
            text in prop::collection::vec(prop::sample::select(b"ab,\"\r\n\xef\xbb\xbf".to_vec()), 0..60),
        ) {
            let text = [b"h\n".to_vec(), text].concat();
            let mut reader = RowReader::new(Path::new("x"), Trickle(&text, 3)).unwrap();
            let mut want = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&text[..]).into_byte_records();
            let (mut rows, mut places) = (Vec::new(), Vec::new());
            while let Ok(RowRead::Row) = reader.read_row() {
                let row = row_of(&reader);
                prop_assert_eq!(&row, &want.next().unwrap().unwrap().iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
                rows.push((reader.row_line(), row));
                places.push((reader.offset(), reader.lines(), reader.hash()));
            }
            for (index, (offset, lines, hash)) in places.into_iter().enumerate() {
                let mut resumed = RowReader::new(Path::new("x"), &text[..]).unwrap();
                prop_assert!(resumed.skip_to(offset).unwrap());
                prop_assert_eq!((resumed.lines(), resumed.hash()), (lines, hash));
                for want in &rows[index + 1..] {
                    prop_assert_eq!(resumed.read_row().unwrap(), RowRead::Row);
                    prop_assert_eq!(&(resumed.row_line(), row_of(&resumed)), want);
                }
            }
        }
    }
}
