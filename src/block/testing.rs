//! Arbitrary sorted records for tests of blocks and segments.

use proptest::prelude::*;

use crate::base::record::{Kind, NEVER, OwnedRecord, Record};

/// A put without expiry.
pub(crate) fn put(key: &[u8], sequence: u64, value: &[u8]) -> OwnedRecord {
    OwnedRecord { key: key.to_vec(), sequence, kind: Kind::Put, expiry: NEVER, value: value.to_vec() }
}

/// A record without value.
pub(crate) fn bare(key: &[u8], sequence: u64, kind: Kind) -> OwnedRecord {
    OwnedRecord { key: key.to_vec(), sequence, kind, expiry: NEVER, value: Vec::new() }
}

/// Keys over few byte values, so that prefixes, 0x00 and 0xFF meet.
pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(0xFE), Just(0xFF), any::<u8>()];
    prop_oneof![4 => prop::collection::vec(byte, 0..6), 1 => prop::collection::vec(any::<u8>(), 8..40)]
}

fn record() -> impl Strategy<Value = OwnedRecord> {
    let sequence = prop_oneof![0_u64..100, any::<u64>()];
    let expiry = prop_oneof![Just(NEVER), any::<i64>()];
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12),
        1 => (0_usize..3000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ];
    (key(), sequence, 0_u8..8, expiry, value).prop_map(|(key, sequence, kind, expiry, value)| match kind {
        0 => bare(&key, sequence, Kind::Delete),
        1 => bare(&key, sequence, Kind::PrefixDelete),
        2 => OwnedRecord { key, sequence, kind: Kind::Merge, expiry: NEVER, value },
        _ => OwnedRecord { key, sequence, kind: Kind::Put, expiry, value },
    })
}

/// A run of records: in order, at each key at most one prefix delete and one other.
pub(crate) fn run(most: usize) -> impl Strategy<Value = Vec<OwnedRecord>> {
    prop::collection::vec(record(), 1..most).prop_map(|mut records| {
        records.sort_by(|a, b| a.as_record().order(&b.as_record()));
        records.dedup_by_key(|r| (r.key.clone(), r.kind == Kind::PrefixDelete));
        records
    })
}

/// The records that a walk gives, through `record` and `advance` of whatever cursor.
pub(crate) fn walk<C>(
    cursor: &mut C,
    record: impl for<'a> Fn(&'a C) -> Option<Record<'a>>,
    advance: impl Fn(&mut C) -> crate::Result<()>,
) -> crate::Result<Vec<OwnedRecord>> {
    let mut found = Vec::new();
    while let Some(record) = record(cursor) {
        found.push(OwnedRecord::from(record));
        advance(cursor)?;
    }
    advance(cursor)?;
    Ok(found)
}
