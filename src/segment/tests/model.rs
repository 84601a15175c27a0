//! A segment answers like the sorted vector that it was built from.

use std::sync::Arc;

use proptest::prelude::*;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::record::{Kind, OwnedRecord};
use crate::block::testing::{key, run, walk};
use crate::cache::block_cache::BlockCache;
use crate::segment::builder::SegmentOptions;
use crate::segment::cursor::SegmentCursor;
use crate::segment::lookup::MayContain;
use crate::segment::reader::Segment;
use crate::segment::testing::{MemoryFile, compressed, options, roomy, written};
use crate::segment::verify::recover_meta;

fn range() -> impl Strategy<Value = KeyRange> {
    let bound = || prop_oneof![3 => key(), 1 => Just(Vec::new())];
    prop_oneof![
        4 => (bound(), prop::option::of(bound())).prop_map(|(start, end)| KeyRange { start, end }),
        1 => key().prop_map(|prefix| KeyRange::prefix(&prefix)),
        1 => Just(KeyRange::all()),
    ]
}

fn any_options() -> impl Strategy<Value = SegmentOptions> {
    prop_oneof![Just(options(1)), Just(options(64)), Just(options(4096)), Just(compressed(64)), Just(compressed(4096))]
}

fn caches() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1_u64), Just(2000), Just(64 << 20)]
}

fn scan(segment: &Arc<Segment>, range: &KeyRange, direction: Direction, fill: bool) -> Vec<OwnedRecord> {
    let cursor = || segment.cursor(range, direction, fill).unwrap();
    let found = walk(&mut cursor(), RecordCursor::record, RecordCursor::advance).unwrap();
    // A walk that lets each value go in between gives the same.
    let let_go_and_advance = |cursor: &mut SegmentCursor| {
        let owned = |cursor: &SegmentCursor| cursor.record().map(OwnedRecord::from);
        let before = owned(cursor);
        cursor.let_go();
        let parked = before.clone().map(|r| OwnedRecord { value: Vec::new(), ..r });
        assert_eq!(owned(cursor), parked);
        cursor.load()?;
        assert_eq!(owned(cursor), before);
        cursor.advance()
    };
    assert_eq!(walk(&mut cursor(), RecordCursor::record, let_go_and_advance).unwrap(), found);
    found
}

fn check_point_reads(segment: &Segment, records: &[OwnedRecord], key: &[u8], prefix_len: Option<usize>) {
    let prefix = prefix_len.map(|len| &key[..len.min(key.len())]);
    let found = segment.get(key, prefix.map(<[u8]>::len)).unwrap();
    let record = records.iter().find(|r| r.key == key && r.kind != Kind::PrefixDelete);
    let deleted =
        |prefix: &[u8]| records.iter().find(|r| r.key == prefix && r.kind == Kind::PrefixDelete).map(|r| r.sequence);
    match (&found.record, record) {
        (None, None) => {}
        (Some(found), Some(record)) => {
            assert_eq!((found.kind, found.sequence, found.expiry), (record.kind, record.sequence, record.expiry));
            assert_eq!(found.value, record.value);
        }
        (found, record) => panic!("{found:?} found for {record:?} at {key:02x?}"),
    }
    assert_eq!(found.prefix_delete, prefix.and_then(deleted));
    assert_eq!(segment.prefix_delete(key).unwrap(), deleted(key));
    if let Some(resident) = segment.get_resident(key, prefix.map(<[u8]>::len)).unwrap() {
        assert_eq!(resident, found);
    }
    if record.is_some() {
        assert_ne!(segment.may_contain(key).unwrap(), MayContain::No);
    }
    if let Some(prefix) = prefix {
        let under = |r: &&OwnedRecord| {
            r.key.starts_with(prefix) && (r.key.len() == prefix.len() || prefix_len == Some(prefix.len()))
        };
        if records.iter().find(under).is_some() {
            assert_ne!(segment.may_contain_prefix(prefix).unwrap(), MayContain::No);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn answers_like_a_sorted_vector(
        records in run(120),
        options in any_options(),
        cache_bytes in caches(),
        prefix_len in prop::option::of(0_usize..5),
        ranges in prop::collection::vec(range(), 1..8),
        keys in prop::collection::vec(key(), 0..12),
        fill in any::<bool>(),
    ) {
        let (meta, bytes) = written(&records, 1, options, prefix_len);
        prop_assert_eq!(meta.entries, records.len() as u64);
        prop_assert_eq!(meta.length_bytes, bytes.len() as u64);
        let file = MemoryFile::new(bytes);
        prop_assert_eq!(&recover_meta(file.as_ref()).unwrap(), &meta);
        let segment = Segment::open(meta, file, Arc::new(BlockCache::new(cache_bytes).unwrap()));
        for range in ranges.iter().chain([&KeyRange::all()]) {
            let mut expected: Vec<_> = records.iter().filter(|r| range.contains(&r.key)).cloned().collect();
            prop_assert_eq!(&scan(&segment, range, Direction::Forward, fill), &expected);
            expected.reverse();
            prop_assert_eq!(&scan(&segment, range, Direction::Backward, fill), &expected);
        }
        for key in keys.iter().chain(records.iter().map(|r| &r.key)) {
            check_point_reads(&segment, &records, key, prefix_len);
        }
        segment.verify().unwrap();
        prop_assert_eq!(segment.stats().unwrap().total.entries, records.len() as u64);
    }
}

#[test]
fn reads_without_io_answer_only_from_the_cache() {
    let records: Vec<_> = (0..2000_u32).map(|n| crate::block::testing::put(&n.to_be_bytes(), 1, &[7; 40])).collect();
    let (meta, bytes) = written(&records, 1, options(512), None);
    let file = MemoryFile::new(bytes);
    let segment = Segment::open(meta, file.clone(), roomy());
    let key = 1234_u32.to_be_bytes();
    assert_eq!(segment.may_contain(&key).unwrap(), MayContain::NotResident);
    assert_eq!(segment.get_resident(&key, None).unwrap(), None);
    assert!(file.reads.lock().is_empty(), "opening and resident reads do no I/O");
    assert!(segment.get(&key, None).unwrap().record.is_some());
    assert_eq!(file.reads.lock().len(), 4, "top-level index, filter, index, data");
    file.reads.lock().clear();
    assert_eq!(segment.may_contain(&key).unwrap(), MayContain::Yes);
    assert!(segment.get_resident(&key, None).unwrap().unwrap().record.is_some());
    let absent = [1234_u32.to_be_bytes().as_slice(), b"x"].concat();
    assert_eq!(segment.may_contain(&absent).unwrap(), MayContain::No);
    assert_eq!(segment.get_resident(&absent, None).unwrap(), Some(Default::default()));
    assert_eq!(segment.may_contain(&[0xFF; 4]).unwrap(), MayContain::No, "outside of the range");
    assert_eq!(segment.get_resident(&0_u32.to_be_bytes(), None).unwrap(), None);
    assert!(file.reads.lock().is_empty());
    for direction in [Direction::Forward, Direction::Backward] {
        scan(&segment, &KeyRange::all(), direction, false);
    }
    assert_eq!(segment.get_resident(&0_u32.to_be_bytes(), None).unwrap(), None, "scans may leave the cache alone");
    scan(&segment, &KeyRange::all(), Direction::Forward, true);
    file.reads.lock().clear();
    scan(&segment, &KeyRange::all(), Direction::Backward, true);
    assert!(file.reads.lock().is_empty(), "or fill it");
}
