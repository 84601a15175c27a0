//! What the builder promises about files: limits, order, cuts, blocks at key groups, sizes.

use std::sync::Arc;

use crate::ErrorKind;
use crate::base::buffer::LARGE_BYTES;
use crate::base::checksum::hash64;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::base::key_group::KeyGroupRange;
use crate::base::limits::MAX_ENCODED_KEY_BYTES;
use crate::base::record::{Kind, OwnedRecord};
use crate::block::testing::{bare, put, walk};
use crate::cache::block_cache::BlockCache;
use crate::segment::builder::SegmentBuilder;
use crate::segment::lookup::MayContain;
use crate::segment::reader::Segment;
use crate::segment::testing::{MemoryFile, MemoryWriter, compressed, options, roomy, segment, written};

fn builder() -> SegmentBuilder {
    SegmentBuilder::new(Box::new(MemoryWriter::default()), SegmentId(1), options(4096))
}

fn grouped(group: u16, n: u32, value: &[u8]) -> OwnedRecord {
    put(&[&group.to_be_bytes()[..], &[0, 0, 0, 9], &n.to_be_bytes()].concat(), 1, value)
}

#[test]
fn records_out_of_order_are_refused() {
    let refused = |first: OwnedRecord, second: OwnedRecord| {
        let mut builder = builder();
        builder.add(&first.as_record(), None).unwrap();
        builder.add(&second.as_record(), None).unwrap_err().kind()
    };
    let prefix = |sequence| bare(b"b", sequence, Kind::PrefixDelete);
    assert_eq!(refused(put(b"b", 1, b""), put(b"a", 1, b"")), ErrorKind::Internal);
    assert_eq!(refused(put(b"b", 2, b""), put(b"b", 1, b"")), ErrorKind::Internal, "two records at one key");
    assert_eq!(refused(put(b"b", 1, b""), prefix(9)), ErrorKind::Internal, "a prefix delete stands first");
    assert_eq!(refused(prefix(9), prefix(3)), ErrorKind::Internal);
    assert_eq!(builder().finish().unwrap_err().kind(), ErrorKind::Internal, "no records");
}

#[test]
fn records_over_the_limits_are_refused_before_anything_is_written() {
    let mut builder = builder();
    let error = builder.add(&put(&vec![1; MAX_ENCODED_KEY_BYTES + 1], 1, b"").as_record(), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let mut dated = bare(b"a", 1, Kind::Delete);
    dated.expiry = 5;
    assert!(builder.add(&dated.as_record(), None).is_err());
    assert!(builder.add(&put(b"a", 1, b"").as_record(), Some(2)).is_err());
    builder.add(&put(&vec![0; MAX_ENCODED_KEY_BYTES], 1, b"").as_record(), None).unwrap();
    assert_eq!(builder.finish().unwrap().entries, 1);
}

/// Records of 40 keys of 24,000 bytes that differ early, 12 namespaces each.
fn long_keys() -> Vec<OwnedRecord> {
    let key = |n: u16| (0..6000_u32).flat_map(move |i| hash64(&(u32::from(n) * 6000 + i).to_le_bytes()).to_le_bytes());
    let mut keys: Vec<Vec<u8>> = (0..40).map(|n| key(n).take(24_000).collect()).collect();
    keys.sort();
    let namespaces = |key: &Vec<u8>| (0..12_u8).map(|n| put(&[&key[..], &[n]].concat(), 1, b"v")).collect::<Vec<_>>();
    keys.iter().flat_map(namespaces).collect()
}

#[test]
fn long_keys_that_share_most_do_not_make_an_index_as_long_as_the_data() {
    let records = long_keys();
    let (meta, bytes) = written(&records, 1, options(4096), Some(24_000));
    let distinct = 40 * 24_000;
    assert!(meta.length_bytes < distinct * 5 / 4, "{} bytes of file for {distinct} of keys", meta.length_bytes);
    assert!(meta.top_index.length_bytes < 4096, "{} bytes of top index", meta.top_index.length_bytes);
    let segment = Segment::open(meta, MemoryFile::new(bytes), roomy());
    for record in records.iter().step_by(7) {
        assert!(segment.get(&record.key, None).unwrap().record.is_some());
    }
}

#[test]
fn a_top_index_that_no_cache_has_room_for_is_decoded_once_and_still_answers() {
    let records: Vec<_> = (0..2000_u32).map(|n| put(&n.to_be_bytes(), 1, b"value")).collect();
    let (meta, bytes) = written(&records, 1, options(64), None);
    let segment = Segment::open(meta, MemoryFile::new(bytes), Arc::new(BlockCache::new(1).unwrap()));
    for record in records.iter().step_by(97) {
        assert_eq!(segment.get(&record.key, None).unwrap().record.unwrap().value, "value");
    }
}

#[test]
fn a_run_is_not_cut_within_what_a_prefix_delete_covers() {
    let mut builder = builder();
    assert!(builder.may_cut_before(b"a"));
    builder.add(&put(b"a", 1, b"").as_record(), None).unwrap();
    assert!(!builder.may_cut_before(b"a"), "one key stays in one file");
    assert!(builder.may_cut_before(b"b"));
    builder.add(&bare(b"b", 9, Kind::PrefixDelete).as_record(), None).unwrap();
    assert!(!builder.may_cut_before(b"b") && !builder.may_cut_before(b"bx"));
    builder.add(&bare(b"bc", 9, Kind::PrefixDelete).as_record(), None).unwrap();
    assert!(!builder.may_cut_before(b"bd"), "the outer prefix goes on");
    assert!(builder.may_cut_before(b"c"));
    builder.add(&bare(b"c", 9, Kind::PrefixDelete).as_record(), None).unwrap();
    assert!(!builder.may_cut_before(b"c1") && builder.may_cut_before(b"d"));
}

#[test]
fn a_clip_at_key_groups_reads_only_its_blocks() {
    let records: Vec<_> = (0..8_u16).flat_map(|g| (0..50).map(move |n| grouped(g, n, &[7; 50]))).collect();
    let (meta, bytes) = written(&records, 1, options(1024), None);
    for (first, last) in [(0, 7), (2, 3), (5, 5), (7, 7), (8, 9)] {
        for direction in [Direction::Forward, Direction::Backward] {
            let file = MemoryFile::new(bytes.clone());
            let segment = Segment::open(meta.clone(), file.clone(), roomy());
            let clip = KeyRange::groups(KeyGroupRange::new(first, last).unwrap());
            let mut cursor = segment.cursor(&clip, direction, true).unwrap();
            let found = walk(&mut cursor, RecordCursor::record, RecordCursor::advance).unwrap();
            let groups = usize::from(8_u16.min(last + 1).saturating_sub(first));
            assert_eq!(found.len(), groups * 50);
            // 50 records of 60 bytes and more make 4 blocks a group; then the indexes.
            let reads = file.reads.lock().len();
            assert!(reads <= groups * 4 + 2, "{reads} reads for {groups} groups {direction:?}");
        }
    }
}

#[test]
fn groups_with_little_in_them_share_blocks() {
    let records: Vec<_> = (0..1000_u16).map(|g| grouped(g, 0, &[7; 8])).collect();
    let segment = segment(&records, options(4096), None);
    assert!(segment.meta().length_bytes < 32 * 1000, "{}", segment.meta().length_bytes);
    segment.verify().unwrap();
}

#[test]
fn prefixes_are_found_in_every_partition_they_reach_into() {
    // Prefixes of two bytes with 3 to 200 entries, in blocks and partitions of 64 bytes.
    let mut records = Vec::new();
    for (prefix, entries) in [(1_u8, 3_u16), (2, 200), (3, 1), (4, 60), (6, 2)] {
        records.push(bare(&[9, prefix], 5, Kind::PrefixDelete));
        records.extend((0..entries).map(|n| put(&[&[9, prefix][..], &n.to_be_bytes()].concat(), 6, b"value")));
    }
    let segment = segment(&records, options(64), Some(2));
    let mut cursor = segment.cursor(&KeyRange::all(), Direction::Forward, true).unwrap();
    while cursor.record().is_some() {
        cursor.advance().unwrap();
    }
    for record in &records {
        segment.get(&record.key, Some(2)).unwrap();
    }
    for prefix in [1, 2, 3, 4, 6] {
        assert_eq!(segment.may_contain_prefix(&[9, prefix]).unwrap(), MayContain::Yes);
        let key = [9, prefix, 0, 0];
        let found = segment.get(&key, Some(2)).unwrap();
        assert_eq!((found.record.unwrap().sequence, found.prefix_delete), (6, Some(5)));
    }
    let no = [0, 5, 7, 200].map(|prefix| segment.may_contain_prefix(&[9, prefix]).unwrap());
    assert!(no.iter().filter(|answer| **answer == MayContain::No).count() >= 3, "{no:?}");
}

#[test]
fn the_estimate_is_close_to_the_file() {
    for (count, value) in [(1, 1), (1000, 8), (20_000, 8), (2000, 300), (10, 100_000)] {
        let writer = MemoryWriter::default();
        let mut builder = SegmentBuilder::new(Box::new(writer.clone()), SegmentId(1), options(4096));
        for n in 0..count {
            builder.add(&grouped((n / 500) as u16, n, &vec![7; value]).as_record(), None).unwrap();
        }
        let (estimate, real) = (builder.estimated_bytes(), builder.finish().unwrap().length_bytes);
        assert_eq!(real, writer.0.lock().len() as u64);
        assert!(estimate <= real + 64 && real <= estimate + estimate / 10 + 400, "{estimate} for {real}");
    }
}

#[test]
fn a_large_segment_works_under_a_small_cache() {
    let records: Vec<_> = (0..50_000_u32).map(|n| grouped((n / 5000) as u16, n, &[7; 20])).collect();
    let (meta, bytes) = written(&records, 1, options(4096), None);
    let cache = Arc::new(BlockCache::new(64 << 10).unwrap());
    let segment = Segment::open(meta, MemoryFile::new(bytes), cache.clone());
    for record in records.iter().step_by(487) {
        assert_eq!(segment.get(&record.key, None).unwrap().record.unwrap().value, record.value);
    }
    assert!(cache.counts().weight_bytes <= 64 << 10);
    assert!(cache.counts().hits > 0);
}

#[test]
fn a_large_value_is_written_as_a_block_of_its_own_and_read_back() {
    let value =
        |n: u8| (0..LARGE_BYTES as u32 + u32::from(n)).map(|i| (i.wrapping_mul(i) >> n) as u8).collect::<Vec<u8>>();
    let mut records = vec![grouped(1, 1, b"small"), grouped(1, 2, &value(1))];
    records.push(bare(&grouped(1, 3, b"").key, 9, Kind::PrefixDelete));
    records.extend([grouped(1, 3, &value(2)), grouped(1, 4, &[7; LARGE_BYTES]), grouped(1, 5, b"small")]);
    for options in [options(4096), compressed(4096), options(LARGE_BYTES * 2)] {
        let segment = segment(&records, options, Some(7));
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = segment.cursor(&KeyRange::all(), direction, false).unwrap();
            let mut found = walk(&mut cursor, RecordCursor::record, RecordCursor::advance).unwrap();
            if direction == Direction::Backward {
                found.reverse();
            }
            assert!(found == records);
        }
        for record in records.iter().filter(|r| r.kind == Kind::Put) {
            assert!(segment.get(&record.key, Some(7)).unwrap().record.unwrap().value == record.value);
        }
        segment.verify().unwrap();
    }
}
