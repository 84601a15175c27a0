//! The format, byte for byte: `tests/golden/segment-v1.hex`.

use std::fmt::Write;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::operands;
use crate::base::record::{Kind, NEVER, OwnedRecord};
use crate::block::testing::{bare, put, walk};
use crate::segment::reader::Segment;
use crate::segment::testing::{MemoryFile, options, roomy, written};
use crate::segment::verify::recover_meta;

const GOLDEN: &str = include_str!("../../../tests/golden/segment-v1.hex");

/// Every kind, an expiry, an empty value, a grouped prefix, two key groups, three blocks.
fn records() -> Vec<OwnedRecord> {
    let key = |group: u8, rest: &[u8]| [&[0, group, 0, 0, 0, 42][..], rest].concat();
    let mut expiring = put(&key(1, b"beta"), 6, b"two");
    expiring.expiry = 1_700_000_000_000;
    let mut merge = operands::start(None);
    operands::append(&mut merge, b"+1");
    vec![
        put(&key(1, b"alpha"), 5, b"one"),
        expiring,
        bare(&key(1, b"gamma"), 7, Kind::Delete),
        bare(&key(2, b"map/"), 8, Kind::PrefixDelete),
        put(&key(2, b"map/"), 9, b""),
        put(&key(2, b"map/a"), 4, &[b'v'; 40]),
        OwnedRecord { key: key(2, b"sum"), sequence: 3, kind: Kind::Merge, expiry: NEVER, value: merge },
    ]
}

fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (n, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<_> = line.iter().map(|b| format!("{b:02x}")).collect();
        let text: String = line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        writeln!(out, "{:06x}  {:<47}  {text}", n * 16, hex.join(" ")).unwrap();
    }
    out
}

fn undump(text: &str) -> Vec<u8> {
    let bytes = |line: &str| -> Vec<u8> {
        let hex = line.get(8..55).unwrap_or_default();
        hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()).collect()
    };
    text.lines().filter(|line| !line.starts_with('#')).flat_map(bytes).collect()
}

#[test]
fn segment_v1_is_written_byte_for_byte() {
    let (_, bytes) = written(&records(), 0x0123_4567_89ab_cdef, options(128), Some(10));
    let golden: String = GOLDEN.lines().filter(|l| !l.starts_with('#')).map(|l| format!("{l}\n")).collect();
    assert!(dump(&bytes) == golden, "the format changed; if it is meant to:\n{}", dump(&bytes));
}

#[test]
fn segment_v1_stays_readable() {
    let file = MemoryFile::new(undump(GOLDEN));
    let meta = recover_meta(file.as_ref()).unwrap();
    let segment = Segment::open(meta, file, roomy());
    segment.verify().unwrap();
    let mut cursor = segment.cursor(&KeyRange::all(), Direction::Forward, true).unwrap();
    assert_eq!(walk(&mut cursor, RecordCursor::record, RecordCursor::advance).unwrap(), records());
}
