//! Nothing that happens to a file makes a wrong answer or a panic.

use std::sync::Arc;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::{Kind, OwnedRecord};
use crate::block::testing::{bare, put, walk};
use crate::segment::reader::{Segment, read_footer};
use crate::segment::testing::{MemoryFile, compressed, options, roomy, written};
use crate::segment::verify::recover_meta;
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, ErrorKind, Result};

fn records() -> Vec<OwnedRecord> {
    let mut records: Vec<_> =
        (0..60_u32).map(|n| put(&[0, 1, 0, 0, 0, (n / 20) as u8, n as u8], u64::from(n), &[n as u8; 9])).collect();
    records[7].expiry = 12;
    records.push(bare(&[0, 2, 0, 0, 0, 1], 3, Kind::PrefixDelete));
    records.push(put(&[0, 2, 0, 0, 0, 1, 5], 9, b""));
    records
}

fn assert_honest(error: &Error, at: usize) {
    assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "byte {at}: {error}");
    assert!(error.to_string().contains("memory.seg"), "byte {at}: {error}");
}

/// Reads everything in every way: what is answered is right, what isn't is an honest error.
fn probe(meta: &SegmentMeta, bytes: Vec<u8>, records: &[OwnedRecord], at: usize) {
    let segment = Segment::open(meta.clone(), MemoryFile::new(bytes), roomy());
    for record in records.iter().filter(|r| r.kind != Kind::PrefixDelete) {
        match segment.get(&record.key, Some(6)) {
            Ok(found) => {
                assert_eq!(found.record.unwrap().value, record.value, "byte {at}");
                assert_eq!(found.prefix_delete, (record.key[1] == 2).then_some(3), "byte {at}");
            }
            Err(error) => assert_honest(&error, at),
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut expected = records.to_vec();
        if direction == Direction::Backward {
            expected.reverse();
        }
        match scan(&segment, direction) {
            Ok(found) => assert_eq!(found, expected, "byte {at}"),
            Err(error) => assert_honest(&error, at),
        }
    }
    assert_honest(&segment.verify().unwrap_err(), at);
}

fn scan(segment: &Arc<Segment>, direction: Direction) -> Result<Vec<OwnedRecord>> {
    let mut cursor = segment.cursor(&KeyRange::all(), direction, true)?;
    walk(&mut cursor, RecordCursor::record, RecordCursor::advance)
}

#[test]
fn every_flipped_byte_is_detected() {
    let records = records();
    for options in [options(128), compressed(400)] {
        let (meta, bytes) = written(&records, 1, options, Some(6));
        for at in 0..bytes.len() {
            for mask in [0x01, 0x80] {
                let mut flipped = bytes.clone();
                flipped[at] ^= mask;
                if let Ok(recovered) = recover_meta(MemoryFile::new(flipped.clone()).as_ref()) {
                    assert_ne!(recovered, meta, "byte {at}");
                }
                probe(&meta, flipped, &records, at);
            }
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    let records = records();
    let (meta, bytes) = written(&records, 1, options(128), Some(6));
    for length in 0..bytes.len() {
        assert_honest(&recover_meta(MemoryFile::new(bytes[..length].to_vec()).as_ref()).unwrap_err(), length);
        probe(&meta, bytes[..length].to_vec(), &records, length);
    }
}

#[test]
fn a_stale_file_of_the_same_size_never_validates() {
    let records = records();
    let (meta, bytes) = written(&records, 1, options(128), Some(6));
    let (other_meta, other_bytes) = written(&records, 2, options(128), Some(6));
    assert_eq!(bytes.len(), other_bytes.len());
    for (meta, bytes) in [(&meta, &other_bytes), (&other_meta, &bytes)] {
        let segment = Segment::open(meta.clone(), MemoryFile::new(bytes.clone()), roomy());
        for record in &records {
            assert_honest(&segment.get(&record.key, Some(6)).unwrap_err(), 0);
        }
        assert_honest(&scan(&segment, Direction::Forward).unwrap_err(), 0);
        assert_honest(&segment.stats().unwrap_err(), 0);
        assert_honest(&segment.verify().unwrap_err(), 0);
    }
}

#[test]
fn blocks_that_changed_places_do_not_validate() {
    let records: Vec<_> = (0..40_u8).map(|n| put(&[n], 1, &[7; 20])).collect();
    let (meta, bytes) = written(&records, 1, options(64), None);
    let file = MemoryFile::new(bytes.clone());
    let segment = Segment::open(meta.clone(), file.clone(), roomy());
    scan(&segment, Direction::Forward).unwrap();
    let mut blocks: Vec<_> = file.reads.lock().clone();
    blocks.sort_unstable();
    let pair = blocks.windows(2).find(|pair| pair[0].1 == pair[1].1).unwrap();
    let (a, b, len) = (pair[0].0 as usize, pair[1].0 as usize, pair[0].1);
    let mut swapped = bytes.clone();
    swapped[a..a + len].copy_from_slice(&bytes[b..b + len]);
    swapped[b..b + len].copy_from_slice(&bytes[a..a + len]);
    let segment = Segment::open(meta, MemoryFile::new(swapped), roomy());
    assert_honest(&scan(&segment, Direction::Forward).unwrap_err(), a);
}

#[test]
fn foreign_and_newer_files_say_what_they_are() {
    let foreign = MemoryFile::new(vec![b'x'; 500]);
    let error = recover_meta(foreign.as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("magic"), "{error}");
    let (_, mut bytes) = written(&records(), 1, options(128), None);
    let major = bytes.len() - 12;
    bytes[major] = 2;
    let error = read_footer(MemoryFile::new(bytes).as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("2.0"), "{error}");
}
