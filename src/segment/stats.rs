//! What a segment holds, counted.
//!
//! ```text
//! first key: bytes | has end: u8 (0 or 1) | [end: bytes] | entries, deletes, prefix deletes, merges: varint
//!   | least and greatest sequence: varint | least and greatest expiry: i64 LE | data bytes: varint
//!   | states: varint count, then { id: u32 LE | entries: varint | bytes: varint }, by id
//!   | key groups: varint count, then { group: u16 LE | entries: varint | bytes: varint }, by group
//! ```
//! `bytes` is a varint length and so many bytes. Keys shorter than group and state id count in the totals
//! only. A newer minor version may append. Worked bytes: see `tests/golden/segment-v1.hex`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::BTreeMap;

use crate::Result;
use crate::base::ids::{Sequence, StateId};
use crate::base::key::{KeyRange, prefix_end, split_header};
use crate::base::key_group::KeyGroup;
use crate::base::limits::MAX_KEY_BOUND_BYTES;
use crate::base::record::{ExpiryMs, Kind, NEVER, Record};
use crate::base::wire::{self, Reader};

/// Entries and their bytes (key and value, before compression).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Records.
    pub entries: u64,
    /// Sum of key and value lengths.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// What a segment holds. See [`crate::version::segment_meta::SegmentMeta`] for the totals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentStats {
    /// Every key that a record is at or covers.
    pub range: KeyRange,
    /// Records, with the bytes of their keys and values.
    pub total: Tally,
    /// Records that are deletes.
    pub deletes: u64,
    /// Records that are prefix deletes.
    pub prefix_deletes: u64,
    /// Records that are merges.
    pub merges: u64,
    /// Least and greatest sequence.
    pub sequences: (Sequence, Sequence),
    /// Least and greatest expiry of its puts; both [`NEVER`] when it has none.
    pub expiries: (ExpiryMs, ExpiryMs),
    /// By state, in order of ids.
    pub states: Vec<(StateId, Tally)>,
    /// By key group, in order.
    pub groups: Vec<(KeyGroup, Tally)>,
}

impl SegmentStats {
    /// The statistics' bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        wire::put_bytes(&mut out, &self.range.start);
        out.push(u8::from(self.range.end.is_some()));
        if let Some(end) = &self.range.end {
            wire::put_bytes(&mut out, end);
        }
        for number in [self.total.entries, self.deletes, self.prefix_deletes, self.merges] {
            wire::put_varint(&mut out, number);
        }
        wire::put_varint(&mut out, self.sequences.0);
        wire::put_varint(&mut out, self.sequences.1);
        out.extend_from_slice(&self.expiries.0.to_le_bytes());
        out.extend_from_slice(&self.expiries.1.to_le_bytes());
        wire::put_varint(&mut out, self.total.bytes);
        wire::put_varint(&mut out, self.states.len() as u64);
        for (state, tally) in &self.states {
            out.extend_from_slice(&state.0.to_le_bytes());
            put_tally(&mut out, *tally);
        }
        wire::put_varint(&mut out, self.groups.len() as u64);
        for (group, tally) in &self.groups {
            out.extend_from_slice(&group.to_le_bytes());
            put_tally(&mut out, *tally);
        }
        out
    }

    /// Reads statistics.
    ///
    /// # Errors
    /// Corruption when a field leads outside of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "segment statistics");
        let start = reader.bytes(MAX_KEY_BOUND_BYTES)?.to_vec();
        let end = match reader.u8()? {
            0 => None,
            1 => Some(reader.bytes(MAX_KEY_BOUND_BYTES)?.to_vec()),
            other => return Err(reader.corrupt(&format!("end flag {other}"))),
        };
        let mut total = Tally { entries: reader.varint()?, bytes: 0 };
        let (deletes, prefix_deletes, merges) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let sequences = (reader.varint()?, reader.varint()?);
        let expiries = (reader.i64()?, reader.i64()?);
        total.bytes = reader.varint()?;
        let mut states = Vec::new();
        for _ in 0..reader.bounded(bytes.len())? {
            states.push((StateId(reader.u32()?), tally(&mut reader)?));
        }
        let mut groups = Vec::new();
        for _ in 0..reader.bounded(bytes.len())? {
            groups.push((reader.u16()?, tally(&mut reader)?));
        }
        let range = KeyRange { start, end };
        Ok(Self { range, total, deletes, prefix_deletes, merges, sequences, expiries, states, groups })
    }
}

fn put_tally(out: &mut Vec<u8>, tally: Tally) {
    wire::put_varint(out, tally.entries);
    wire::put_varint(out, tally.bytes);
}

fn tally(reader: &mut Reader<'_>) -> Result<Tally> {
    Ok(Tally { entries: reader.varint()?, bytes: reader.varint()? })
}

/// Counts records that come in order.
#[derive(Debug)]
pub(super) struct Counter {
    stats: SegmentStats,
    states: BTreeMap<StateId, Tally>,
    /// The group and state of the last record, whose tally isn't yet in `states` and `groups`.
    current: Option<(KeyGroup, StateId, Tally)>,
    /// True once a prefix delete covers everything above.
    endless: bool,
    last_key: Vec<u8>,
}

impl Counter {
    pub(super) fn new() -> Self {
        let stats = SegmentStats {
            range: KeyRange::default(),
            total: Tally::default(),
            deletes: 0,
            prefix_deletes: 0,
            merges: 0,
            sequences: (Sequence::MAX, Sequence::MIN),
            expiries: (NEVER, ExpiryMs::MIN),
            states: Vec::new(),
            groups: Vec::new(),
        };
        Self { stats, states: BTreeMap::new(), current: None, endless: false, last_key: Vec::new() }
    }

    /// Records so far.
    pub(super) fn entries(&self) -> u64 {
        self.stats.total.entries
    }

    pub(super) fn add(&mut self, record: &Record<'_>) {
        let stats = &mut self.stats;
        if stats.total.entries == 0 {
            stats.range.start = record.key.to_vec();
        }
        let one = Tally { entries: 1, bytes: (record.key.len() + record.value.len()) as u64 };
        stats.total.add(one);
        stats.sequences = (stats.sequences.0.min(record.sequence), stats.sequences.1.max(record.sequence));
        match record.kind {
            Kind::Put => {
                stats.expiries = (stats.expiries.0.min(record.expiry), stats.expiries.1.max(record.expiry));
            }
            Kind::Delete => stats.deletes += 1,
            Kind::Merge => stats.merges += 1,
            Kind::PrefixDelete => {
                stats.prefix_deletes += 1;
                match prefix_end(record.key) {
                    Some(end) => stats.range.end = stats.range.end.take().max(Some(end)),
                    None => self.endless = true,
                }
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(record.key);
        let Ok((group, state, _)) = split_header(record.key) else { return };
        match &mut self.current {
            Some((g, s, tally)) if (*g, *s) == (group, state) => tally.add(one),
            _ => {
                self.settle();
                self.current = Some((group, state, one));
            }
        }
    }

    fn settle(&mut self) {
        let Some((group, state, tally)) = self.current.take() else { return };
        self.states.entry(state).or_default().add(tally);
        match self.stats.groups.last_mut() {
            Some((last, sum)) if *last == group => sum.add(tally),
            _ => self.stats.groups.push((group, tally)),
        }
    }

    pub(super) fn finish(mut self) -> SegmentStats {
        self.settle();
        self.last_key.push(0);
        let end = self.stats.range.end.take().max(Some(self.last_key));
        self.stats.range.end = end.filter(|_| !self.endless);
        self.stats.states = self.states.into_iter().collect();
        if self.stats.expiries.1 == ExpiryMs::MIN && self.stats.expiries.0 == NEVER {
            self.stats.expiries = (NEVER, NEVER);
        }
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::testing::{bare, put};

    fn counted(records: &[crate::base::record::OwnedRecord]) -> SegmentStats {
        let mut counter = Counter::new();
        for record in records {
            counter.add(&record.as_record());
        }
        let stats = counter.finish();
        assert_eq!(SegmentStats::decode(&stats.encode()).unwrap(), stats);
        stats
    }

    #[test]
    fn counts_by_state_and_group() {
        let mut first = put(&[0, 1, 0, 0, 0, 9, b'a'], 5, b"xyz");
        first.expiry = 70;
        let stats = counted(&[
            put(&[0], 2, b""),
            first,
            bare(&[0, 1, 0, 0, 0, 9, b'b'], 9, Kind::Delete),
            put(&[0, 1, 0, 0, 0, 10, b'a'], 5, b""),
            bare(&[0, 2, 0, 0, 0, 9, 0xFF], 5, Kind::PrefixDelete),
            bare(&[0, 2, 0, 0, 0, 9, 0xFF, 0], 5, Kind::Merge),
        ]);
        let tally = |entries, bytes| Tally { entries, bytes };
        assert_eq!(stats.states, [(StateId(9), tally(4, 10 + 7 + 7 + 8)), (StateId(10), tally(1, 7))]);
        assert_eq!(stats.groups, [(1, tally(3, 24)), (2, tally(2, 15))]);
        assert_eq!((stats.total, stats.deletes, stats.prefix_deletes, stats.merges), (tally(6, 40), 1, 1, 1));
        assert_eq!((stats.sequences, stats.expiries), ((2, 9), (70, NEVER)));
        assert_eq!(stats.range, KeyRange { start: vec![0], end: Some(vec![0, 2, 0, 0, 0, 10]) });
    }

    #[test]
    fn the_range_covers_what_prefix_deletes_cover() {
        let range = |records: &[_]| counted(records).range;
        let some = |start: &[u8], end: &[u8]| KeyRange { start: start.to_vec(), end: Some(end.to_vec()) };
        assert_eq!(range(&[put(b"a", 1, b"")]), some(b"a", b"a\0"));
        assert_eq!(range(&[bare(b"a", 1, Kind::PrefixDelete), put(b"ax", 1, b"")]), some(b"a", b"b"));
        assert_eq!(range(&[bare(b"a", 1, Kind::PrefixDelete), put(b"bx", 1, b"")]), some(b"a", b"bx\0"));
        let endless = range(&[bare(&[0xFF], 1, Kind::PrefixDelete), put(&[0xFF, 1], 1, b"")]);
        assert_eq!(endless, KeyRange { start: vec![0xFF], end: None });
        assert_eq!(range(&[bare(b"", 1, Kind::PrefixDelete), bare(b"a", 1, Kind::PrefixDelete)]).end, None);
    }

    #[test]
    fn segments_without_puts_never_expire() {
        assert_eq!(counted(&[bare(b"a", 1, Kind::Delete)]).expiries, (NEVER, NEVER));
        let mut early = put(b"a", 1, b"");
        early.expiry = i64::MIN;
        assert_eq!(counted(&[early]).expiries, (i64::MIN, i64::MIN));
    }

    #[test]
    fn cut_statistics_are_corruption() {
        let mut counter = Counter::new();
        counter.add(&put(&[0, 1, 0, 0, 0, 9, b'a'], 5, b"xyz").as_record());
        let bytes = counter.finish().encode();
        for cut in 0..bytes.len() {
            assert!(SegmentStats::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
