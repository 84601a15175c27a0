//! Failures that other systems shipped.

use std::sync::Arc;

use crate::ErrorKind;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::{Kind, OwnedRecord};
use crate::block::testing::{bare, put, walk};
use crate::segment::reader::Segment;
use crate::segment::testing::{MemoryFile, compressed, options, roomy, segment, written};

fn keys(segment: &Arc<Segment>, range: &KeyRange) -> Vec<Vec<u8>> {
    let mut cursor = segment.cursor(range, Direction::Forward, true).unwrap();
    let found = walk(&mut cursor, RecordCursor::record, RecordCursor::advance).unwrap();
    found.into_iter().map(|r| r.key).collect()
}

#[test]
fn lsm_tree_211_needle_shorter_than_the_shared_block_prefix() {
    let segment = segment(&[put(&[0, 161], 1, b"a"), put(&[0, 161, 1], 1, b"b")], options(4096), None);
    let from = KeyRange { start: vec![0], end: None };
    let cursor = segment.cursor(&from, Direction::Forward, true).unwrap();
    assert_eq!(cursor.record().unwrap().key, [0, 161]);
    assert!(segment.get(&[0], None).unwrap().record.is_none());
    assert_eq!(segment.get(&[0, 161], None).unwrap().record.unwrap().value, "a");
}

#[test]
fn rocksdb_11782_a_failing_block_makes_a_sticky_error() {
    let records: Vec<_> = (0..100_u8).map(|n| put(&[n], 1, &[n; 20])).collect();
    let (meta, bytes) = written(&records, 1, options(128), None);
    let file = MemoryFile::new(bytes);
    let segment = Segment::open(meta, file.clone(), roomy());
    for direction in [Direction::Forward, Direction::Backward] {
        file.failing.lock().insert(1000);
        let mut cursor = segment.cursor(&KeyRange::all(), direction, false).unwrap();
        let mut seen = 0;
        let first = loop {
            assert!(cursor.record().is_some(), "the walk must not end before the fault");
            seen += 1;
            if let Err(error) = cursor.advance() {
                break error;
            }
        };
        assert!(seen < 100);
        assert_eq!(first.kind(), ErrorKind::Io);
        assert!(first.to_string().contains("memory.seg"), "{first}");
        for _ in 0..3 {
            assert!(cursor.record().is_none());
            assert_eq!(cursor.advance().unwrap_err().to_string(), first.to_string());
        }
        file.failing.lock().clear();
        assert!(cursor.advance().is_err(), "an error sticks though the cause is gone");
        let mut retry = segment.cursor(&KeyRange::all(), direction, false).unwrap();
        let found = walk(&mut retry, RecordCursor::record, RecordCursor::advance).unwrap();
        assert_eq!(found.len(), 100, "a retry gives the model");
    }
}

#[test]
fn rocksdb_11782_every_block_that_fails_is_noticed() {
    let records: Vec<_> = (0..100_u8).map(|n| put(&[n], 1, &[n; 20])).collect();
    let (meta, bytes) = written(&records, 1, options(128), None);
    let file = MemoryFile::new(bytes);
    let scan = |direction| {
        let segment = Segment::open(meta.clone(), file.clone(), roomy());
        let mut cursor = segment.cursor(&KeyRange::all(), direction, true)?;
        walk(&mut cursor, RecordCursor::record, RecordCursor::advance)
    };
    assert_eq!(scan(Direction::Forward).unwrap().len(), 100);
    let mut read: Vec<_> = file.reads.lock().iter().map(|(offset, _)| *offset).collect();
    read.dedup();
    assert!(read.len() > 20);
    for offset in read {
        *file.failing.lock() = [offset].into();
        assert_eq!(scan(Direction::Forward).unwrap_err().kind(), ErrorKind::Io, "{offset}");
        assert_eq!(scan(Direction::Backward).unwrap_err().kind(), ErrorKind::Io, "{offset}");
    }
}

#[test]
fn paimon_8880_an_empty_value_is_not_a_tombstone() {
    let records = [put(b"empty", 1, b""), bare(b"gone", 1, Kind::Delete), put(b"", 1, b"")];
    let mut records = records.to_vec();
    records.sort_by(|a, b| a.key.cmp(&b.key));
    for options in [options(4096), compressed(64)] {
        let segment = segment(&records, options, None);
        for key in [&b"empty"[..], b""] {
            let found = segment.get(key, None).unwrap().record.unwrap();
            assert_eq!((found.kind, found.value.len()), (Kind::Put, 0));
        }
        assert_eq!(segment.get(b"gone", None).unwrap().record.unwrap().kind, Kind::Delete);
        assert_eq!(segment.get(b"other", None).unwrap().record, None);
    }
}

#[test]
fn muninndb_816_tidb_12598_prefixes_of_0xff() {
    let all: Vec<Vec<u8>> = vec![
        vec![],
        vec![3, 0xAA],
        vec![3, 0xAA, 0xFE, 0xFF],
        vec![3, 0xAA, 0xFF],
        vec![3, 0xAA, 0xFF, 0],
        vec![3, 0xAA, 0xFF, 0xFF, 0xFF],
        vec![3, 0xAB, 0],
        vec![0xFE, 0xFF],
        vec![0xFF],
        vec![0xFF, 0],
        vec![0xFF, 0xFF],
        vec![0xFF, 0xFF, 0],
        vec![0xFF, 0xFF, 0xFF],
    ];
    let records: Vec<_> = all.iter().map(|key| put(key, 1, b"v")).collect();
    for block_bytes in [1, 64, 4096] {
        let segment = segment(&records, options(block_bytes), None);
        for prefix in [&[3, 0xAA, 0xFF][..], &[0xFF], &[0xFF, 0xFF], &[], &[3, 0xAB, 0], &[4]] {
            let expected: Vec<_> = all.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
            assert_eq!(keys(&segment, &KeyRange::prefix(prefix)), expected, "{prefix:02x?}");
        }
    }
}

#[test]
fn fjall_68_values_longer_than_16_bits() {
    let lengths = [0, 1, 65_535, 65_536, 65_537, 16 << 20];
    let records: Vec<OwnedRecord> = lengths
        .iter()
        .enumerate()
        .map(|(n, len)| put(&[u8::try_from(n).unwrap()], 1, &vec![u8::try_from(n).unwrap(); *len]))
        .collect();
    for options in [options(4096), compressed(4096)] {
        let segment = segment(&records, options, None);
        for record in &records {
            assert_eq!(segment.get(&record.key, None).unwrap().record.unwrap().value, record.value);
        }
        segment.verify().unwrap();
    }
}

#[test]
fn leveldb_150_rocksdb_15011_a_file_truncated_while_open_is_corruption() {
    let records: Vec<_> = (0..100_u8).map(|n| put(&[n], 1, &[n; 20])).collect();
    let (meta, bytes) = written(&records, 1, options(128), None);
    let file = MemoryFile::new(bytes);
    let segment = Segment::open(meta, file.clone(), roomy());
    let mut cursor = segment.cursor(&KeyRange::all(), Direction::Forward, false).unwrap();
    for _ in 0..30 {
        cursor.advance().unwrap();
    }
    file.truncate(1500);
    let error = loop {
        if let Err(error) = cursor.advance() {
            break error;
        }
        assert!(cursor.record().is_some(), "the walk must not end early in silence");
    };
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("memory.seg"), "{error}");
    assert!(segment.get(&[99], None).is_err());
    assert!(segment.verify().is_err());
}
