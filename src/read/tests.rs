use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::testing::*;
use super::*;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::record::{Kind, OwnedRecord, Record};
use crate::{ErrorKind, Result};

/// Key of group 0, state 7: prefix byte, then user key.
fn key(prefix: u8, user: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 7, prefix][..], user].concat()
}

fn merged(sources: &[Vec<OwnedRecord>], direction: Direction) -> MergeCursor<'static> {
    let boxed = sources.iter().map(|s| Box::new(VecCursor::new(s.clone(), direction)) as Box<dyn RecordCursor>);
    MergeCursor::new(boxed, direction)
}

fn resolver(now_ms: i64) -> Resolver {
    Resolver { now_ms, operators: commas(7) }
}

fn asking(sources: &[Vec<OwnedRecord>]) -> PrefixDeletes<'static> {
    let all: Vec<OwnedRecord> = sources.iter().flatten().filter(|r| r.kind == Kind::PrefixDelete).cloned().collect();
    PrefixDeletes::Ask(Box::new(move |key| {
        let prefix = &key[..7];
        Ok((7, all.iter().filter(|r| r.key == prefix).map(|r| r.sequence).max().unwrap_or(0)))
    }))
}

fn collect(mut cursor: VisibleCursor<'_>) -> crate::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut out = Vec::new();
    while let Some(entry) = cursor.entry() {
        out.push((entry.key.to_vec(), entry.value.to_vec()));
        cursor.advance()?;
    }
    cursor.status()?;
    Ok(out)
}

fn scan(sources: &[Vec<OwnedRecord>], direction: Direction, now_ms: i64) -> crate::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let prefixes = match direction {
        Direction::Forward => PrefixDeletes::OnTheWay,
        Direction::Backward => asking(sources),
    };
    collect(VisibleCursor::new(merged(sources, direction), direction, resolver(now_ms), prefixes))
}

fn check(sources: &[Vec<OwnedRecord>], now_ms: i64) {
    let expected: Vec<_> = model(&sources.concat(), now_ms).into_iter().collect();
    assert_eq!(scan(sources, Direction::Forward, now_ms).unwrap(), expected);
    let mut backward = scan(sources, Direction::Backward, now_ms).unwrap();
    backward.reverse();
    assert_eq!(backward, expected);
    let asked =
        VisibleCursor::new(merged(sources, Direction::Forward), Direction::Forward, resolver(now_ms), asking(sources));
    assert_eq!(collect(asked).unwrap(), expected);
}

#[test]
fn newest_wins_and_deletes_hide() {
    let (a, b) = (key(1, b"a"), key(1, b"b"));
    let sources = [vec![put(&a, 3, b"3"), bare(&b, 3, Kind::Delete)], vec![put(&a, 2, b"2"), put(&b, 1, b"1")]];
    assert_eq!(scan(&sources, Direction::Forward, 0).unwrap(), [(a, b"3".to_vec())]);
    check(&sources, 0);
}

#[test]
fn paimon_8880_an_empty_value_is_not_a_tombstone() {
    check(&[vec![put(&key(1, b""), 1, b"")]], 0);
    assert_eq!(scan(&[vec![put(&key(1, b""), 1, b"")]], Direction::Backward, 0).unwrap().len(), 1);
}

#[test]
fn paimon_8872_an_expired_value_hides_the_older_one() {
    let k = key(1, b"k");
    let sources = [vec![expiring(&k, 2, b"v2", 10)], vec![put(&k, 1, b"v1")]];
    assert_eq!(scan(&sources, Direction::Forward, 9).unwrap().len(), 1);
    assert_eq!(scan(&sources, Direction::Forward, 10).unwrap().len(), 0, "it expires at its expiry");
    check(&sources, 11);
}

#[test]
fn a_prefix_delete_hides_what_is_older_and_spares_its_own_generation() {
    let p = key(1, b"");
    let sources = [
        vec![bare(&p, 5, Kind::PrefixDelete), put(&key(1, b"x"), 5, b"new"), merge(&key(1, b"m"), 6, &[b"2"])],
        vec![put(&p, 4, b"self"), put(&key(1, b"y"), 4, b"old"), merge(&key(1, b"m"), 4, &[b"1"])],
        vec![put(&key(2, b"y"), 1, b"other"), bare(&p, 3, Kind::PrefixDelete)],
    ];
    let expected = [(key(1, b"m"), b"2".to_vec()), (key(1, b"x"), b"new".to_vec()), (key(2, b"y"), b"other".to_vec())];
    assert_eq!(scan(&sources, Direction::Forward, 0).unwrap(), expected);
    check(&sources, 0);
}

#[test]
fn a_merge_over_a_delete_starts_afresh_and_a_base_ends_the_search() {
    let k = key(1, b"k");
    check(&[vec![merge(&k, 3, &[b"c", b"d"])], vec![bare(&k, 2, Kind::Delete)], vec![put(&k, 1, b"a")]], 0);
    let mut based = merge(&k, 2, &[]);
    based.value = crate::base::operands::start(Some(b"base"));
    check(&[vec![merge(&k, 3, &[b"c"])], vec![based], vec![put(&k, 1, b"a")]], 0);
    let mut absent = merge(&k, 2, &[]);
    absent.value = crate::base::operands::start_absent();
    crate::base::operands::append(&mut absent.value, b"b");
    let sources = [vec![merge(&k, 3, &[b"c"])], vec![absent], vec![put(&k, 1, b"a")]];
    assert_eq!(scan(&sources, Direction::Forward, 0).unwrap(), [(k, b"b,c".to_vec())]);
    check(&sources, 0);
}

#[test]
fn a_failing_or_missing_operator_sticks() {
    let sources = [vec![put(&key(1, b"a"), 1, b"1"), merge(&key(1, b"b"), 1, &[b"bad"]), put(&key(1, b"c"), 1, b"2")]];
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor =
            VisibleCursor::new(merged(&sources, direction), direction, resolver(0), PrefixDeletes::Known(0));
        assert!(cursor.entry().is_some());
        for _ in 0..3 {
            assert_eq!(cursor.advance().unwrap_err().kind(), ErrorKind::Merge);
            assert!(cursor.entry().is_none());
        }
        let none = Resolver { now_ms: 0, operators: Arc::default() };
        let cursor = VisibleCursor::new(merged(&sources, direction), direction, none, PrefixDeletes::Known(0));
        assert_eq!(collect(cursor).unwrap_err().kind(), ErrorKind::Merge);
    }
}

#[test]
fn rocksdb_11782_an_error_in_any_child_at_any_record_sticks() {
    let sources: Vec<Vec<OwnedRecord>> =
        (0..3_u64).map(|s| (0..4).map(|i| put(&key(1, &[i * 3 + s as u8]), 9 - s, b"v")).collect()).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        for broken in 0..3 {
            for fail_at in 0..=4 {
                let cursors = sources.iter().enumerate().map(|(at, s)| {
                    let mut cursor = VecCursor::new(s.clone(), direction);
                    cursor.fail_at = (at == broken).then_some(fail_at);
                    Box::new(cursor) as Box<dyn RecordCursor>
                });
                let merged = MergeCursor::new(cursors, direction);
                let mut cursor = VisibleCursor::new(merged, direction, resolver(0), PrefixDeletes::Known(0));
                let mut seen = 0;
                while cursor.entry().is_some() {
                    seen += 1;
                    if cursor.advance().is_err() {
                        break;
                    }
                }
                assert!(seen < 12 || fail_at == 4, "source {broken} fails at {fail_at}, {seen} seen");
                for _ in 0..2 {
                    assert_eq!(cursor.status().unwrap_err().kind(), ErrorKind::Corruption);
                    assert!(cursor.advance().is_err() && cursor.entry().is_none());
                }
            }
        }
    }
}

fn record() -> impl Strategy<Value = (u8, u8, u8, u8)> {
    (0..3_u8, 0..4_u8, 0..12_u8, 0..20_u8)
}

/// Sources, newest first, whose sequences rise from the oldest on; at most one record a key (and one prefix
/// delete a prefix) in each.
fn sources(raw: &[Vec<(u8, u8, u8, u8)>]) -> Vec<Vec<OwnedRecord>> {
    let mut out = Vec::new();
    for (age, list) in raw.iter().rev().enumerate() {
        let mut records: BTreeMap<(Vec<u8>, bool), OwnedRecord> = BTreeMap::new();
        for (prefix, user, kind, extra) in list {
            let sequence = age as u64 * 2 + 1 + u64::from(*extra % 2);
            let k = if *user == 0 { key(*prefix, b"") } else { key(*prefix, &[*user]) };
            let value = [*extra, *kind];
            let record = match kind {
                0..=3 => put(&k, sequence, &value),
                4 => expiring(&k, sequence, &value, i64::from(*extra)),
                5..=6 => bare(&k, sequence, Kind::Delete),
                7 => bare(&key(*prefix, b""), sequence, Kind::PrefixDelete),
                _ => merge(&k, sequence, &[&value]),
            };
            records.insert((record.key.clone(), record.kind == Kind::PrefixDelete), record);
        }
        out.insert(0, records.into_values().collect());
    }
    out
}

proptest! {
    #[test]
    fn scans_in_both_directions_equal_the_model(
        raw in proptest::collection::vec(proptest::collection::vec(record(), 0..12), 0..6),
        now in 0..20_i64,
    ) {
        check(&sources(&raw), now);
    }
}

#[test]
fn trees_and_their_cursors_may_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Tree>();
    shared::<Resolver>();
    sent::<RunCursor>();
}

/// Counts the bytes of values that it and its like hold.
struct Counted<'a> {
    records: std::vec::IntoIter<OwnedRecord>,
    current: Option<OwnedRecord>,
    let_go: Option<Vec<u8>>,
    held: &'a Cell<(usize, usize)>,
}

impl<'a> Counted<'a> {
    fn new(records: Vec<OwnedRecord>, held: &'a Cell<(usize, usize)>) -> Self {
        let mut cursor = Self { records: records.into_iter(), current: None, let_go: None, held };
        cursor.advance().unwrap();
        cursor
    }

    fn count(&self, more: usize, less: usize) {
        let (now, most) = self.held.get();
        self.held.set((now + more - less, most.max(now + more - less)));
    }

    fn value_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |r| r.value.len())
    }
}

impl RecordCursor for Counted<'_> {
    fn record(&self) -> Option<Record<'_>> {
        self.current.as_ref().map(OwnedRecord::as_record)
    }

    fn advance(&mut self) -> Result<()> {
        assert!(self.let_go.is_none(), "it moved on without its value");
        self.count(0, self.value_bytes());
        self.current = self.records.next();
        self.count(self.value_bytes(), 0);
        Ok(())
    }

    fn let_go(&mut self) {
        self.count(0, self.value_bytes());
        self.let_go = self.current.as_mut().map(|r| std::mem::take(&mut r.value));
    }

    fn load(&mut self) -> Result<()> {
        let value = self.let_go.take();
        if let (Some(record), Some(value)) = (&mut self.current, value) {
            record.value = value;
            self.count(self.value_bytes(), 0);
        }
        Ok(())
    }
}

#[test]
fn a_merge_of_many_runs_of_large_values_holds_few_of_them_at_a_time() {
    const MIB: usize = 1 << 20;
    for direction in [Direction::Forward, Direction::Backward] {
        let held = Cell::new((0, 0));
        let record =
            |n: usize| put(&key(0, &[n as u8]), 1, &vec![n as u8; if n.is_multiple_of(5) { 10 } else { 2 * MIB }]);
        let runs = (0..20).map(|run| {
            let mut records: Vec<_> = (0..4).map(|n| record(n * 20 + (run * 7) % 20)).collect();
            if direction == Direction::Backward {
                records.reverse();
            }
            Box::new(Counted::new(records, &held)) as Box<dyn RecordCursor>
        });
        let mut merged = MergeCursor::new(runs, direction);
        for n in 0..80 {
            let n = if direction == Direction::Forward { n } else { 79 - n };
            assert_eq!(merged.record().map(OwnedRecord::from), Some(record(n)));
            merged.advance().unwrap();
        }
        assert!(merged.record().is_none() && merged.status().is_ok());
        let (left, most) = held.get();
        // What may wait, the current one, and two that come before it is looked at again. All first ones are 32 MiB.
        assert!(left == 0 && most <= 10 * MIB, "{} MiB of values at the height", most / MIB);
    }
}
