//! Blocks against a plain sorted vector.

use bytes::Bytes;
use proptest::prelude::*;

use super::backward::Backward;
use super::builder::{BlockBuilder, DATA_INTERVAL, INDEX_INTERVAL, MAX_INTERVAL};
use super::entry::Entry;
use super::forward::Forward;
use super::reader::Block;
use super::testing::{key, put, run, walk};
use crate::base::record::{Kind, OwnedRecord};
use crate::{ErrorKind, Result};

fn block_of(records: &[OwnedRecord], interval: usize) -> Block {
    let mut builder = BlockBuilder::new(interval);
    for record in records {
        builder.add(&record.as_record());
    }
    Block::parse(Bytes::from(builder.finish())).unwrap()
}

fn forward(mut cursor: Forward) -> Result<Vec<OwnedRecord>> {
    walk(&mut cursor, Forward::record, Forward::advance)
}

fn backward(mut cursor: Backward) -> Result<Vec<OwnedRecord>> {
    walk(&mut cursor, Backward::record, Backward::advance)
}

fn reversed(records: &[OwnedRecord]) -> Vec<OwnedRecord> {
    records.iter().rev().cloned().collect()
}

fn same(block: &Block, entry: Option<Entry>, expected: Option<&OwnedRecord>) -> bool {
    match (entry, expected) {
        (None, None) => true,
        (Some(entry), Some(expected)) => {
            entry.key_len() == expected.key.len()
                && entry.sequence == expected.sequence
                && entry.kind == expected.kind
                && block.value(&entry) == expected.value
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn finds_and_walks_like_a_sorted_vector(
        records in run(80),
        interval in prop_oneof![Just(1), Just(2), Just(INDEX_INTERVAL), Just(DATA_INTERVAL), Just(MAX_INTERVAL)],
        targets in prop::collection::vec(key(), 1..20),
    ) {
        let block = block_of(&records, interval);
        prop_assert_eq!(&forward(Forward::first(block.clone()).unwrap()).unwrap(), &records);
        prop_assert_eq!(backward(Backward::last(block.clone()).unwrap()).unwrap(), reversed(&records));
        let known = records.iter().map(|r| r.key.clone());
        for target in targets.into_iter().chain(known) {
            let at = records.partition_point(|r| r.key < target);
            let after = records.partition_point(|r| r.key <= target);
            let exact = records[at..after].first();
            prop_assert!(same(&block, block.find(&target).unwrap(), exact));
            prop_assert!(same(&block, block.lower_bound(&target).unwrap(), records.get(at)));
            if let Some(entry) = block.find(&target).unwrap() {
                let next = block.next_of_same_key(&entry, &target).unwrap();
                prop_assert!(same(&block, next, records[at..after].get(1)));
            }
            let from = forward(Forward::seek(block.clone(), &target).unwrap()).unwrap();
            prop_assert_eq!(&from, &records[at..]);
            let below = backward(Backward::before(block.clone(), &target).unwrap()).unwrap();
            prop_assert_eq!(below, reversed(&records[..at]));
            if records[..after].windows(2).all(|pair| pair[0].key != pair[1].key) {
                prop_assert!(same(&block, block.floor(&target).unwrap(), records[..after].last()));
                let floor = forward(Forward::floor(block.clone(), &target).unwrap()).unwrap();
                prop_assert_eq!(&floor, &records[after.saturating_sub(1)..]);
            }
        }
    }

    #[test]
    fn bytes_that_nobody_vouched_for_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), target in key()) {
        probe(bytes, &target);
    }

    #[test]
    fn a_changed_block_never_panics(records in run(20), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = block_of(&records, 4).bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        for record in &records {
            probe(bytes.clone(), &record.key);
        }
    }
}

/// Calls everything; any answer but a panic or an endless walk will do.
fn probe(bytes: Vec<u8>, target: &[u8]) {
    let Ok(block) = Block::parse(Bytes::from(bytes)) else { return };
    let _ = block.find(target);
    let _ = block.floor(target);
    let _ = Forward::first(block.clone()).and_then(forward);
    let _ = Forward::seek(block.clone(), target).and_then(forward);
    let _ = Forward::floor(block.clone(), target).and_then(forward);
    let _ = Backward::last(block.clone()).and_then(backward);
    let _ = Backward::before(block, target).and_then(backward);
}

#[test]
fn lsm_tree_211_needle_shorter_than_the_shared_prefix() {
    let records = [put(&[0, 161], 1, b"a"), put(&[0, 161, 1], 1, b"b")];
    let block = block_of(&records, DATA_INTERVAL);
    let cursor = Forward::seek(block.clone(), &[0]).unwrap();
    assert_eq!(cursor.record().unwrap().key, [0, 161]);
    assert!(block.find(&[0]).unwrap().is_none());
    assert!(block.find(&[0, 161, 0]).unwrap().is_none());
    assert_eq!(block.value(&block.find(&[0, 161]).unwrap().unwrap()), "a");
}

#[test]
fn frames_that_do_not_fit_are_corruption() {
    for bytes in [vec![], vec![0; 4], vec![0; 12], vec![0xFF; 40], [vec![0; 20], vec![9, 0, 0, 0]].concat()] {
        assert_eq!(Block::parse(Bytes::from(bytes)).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn a_range_tombstone_of_the_future_is_unsupported() {
    let mut bytes = block_of(&[put(b"a", 1, b"")], 1).bytes().to_vec();
    assert_eq!(bytes[11], Kind::Put as u8);
    bytes[11] = 5;
    let block = Block::parse(Bytes::from(bytes)).unwrap();
    assert_eq!(block.find(b"a").unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Forward::first(block.clone()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Backward::last(block).unwrap_err().kind(), ErrorKind::Unsupported);
}
