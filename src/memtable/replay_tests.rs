//! Failures that other stores shipped, as far as a memtable can show them, and this room's own promises.

use std::ops::Bound;
use std::sync::Arc;

use crate::ErrorKind;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::key::KeyRange;
use crate::base::merge_operator::MergeOperator;
use crate::base::operands;
use crate::base::record::{Kind, NEVER, Record};
use crate::cache::budget::{Budget, Purpose};

use super::{ALL_USER_KEYS, Below, Lookup, MemKey, Memtable, MemtableConfig, SealedEpoch};

fn memtable() -> Memtable {
    Memtable::new(MemtableConfig::new(Budget::new(256 << 20)))
}

fn value(lookup: &Lookup<'_>) -> Option<Vec<u8>> {
    match lookup {
        Lookup::Record(record) if record.kind == Kind::Put => Some(record.value.to_vec()),
        _ => None,
    }
}

fn keys(mut cursor: impl RecordCursor) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(record) = cursor.record() {
        out.push(record.key.to_vec());
        cursor.advance().unwrap();
    }
    out
}

struct Add;

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let number = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes).map_err(|_| "not 8 bytes");
        let mut sum = base.map_or(Ok(0), number)?;
        for operand in operands {
            sum += number(operand)?;
        }
        Ok(sum.to_le_bytes().to_vec())
    }
}

struct Panics;

impl MergeOperator for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    #[expect(clippy::panic, reason = "that is the case under test")]
    fn merge(&self, _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, String> {
        panic!("operator")
    }
}

/// What a version holds of one counter, as a flush would leave it.
fn flushed(epoch: &Arc<SealedEpoch>, key: &[u8], below: Option<u64>) -> Option<u64> {
    let mut sum = below;
    let records: Vec<Record<'_>> = epoch.get(key).collect();
    for record in records.iter().rev() {
        sum = match record.kind {
            Kind::Put => Some(u64::from_le_bytes(record.value.try_into().unwrap())),
            Kind::Merge => {
                let list = operands::decode(record.value).unwrap().list;
                let more: u64 = list.iter().map(|o| u64::from_le_bytes((*o).try_into().unwrap())).sum();
                Some(sum.unwrap_or(0) + more)
            }
            Kind::Delete | Kind::PrefixDelete => None,
        };
    }
    sum
}

#[test]
fn lsm_tree_211_a_needle_shorter_than_the_shared_prefix() {
    let mut memtable = memtable();
    let prefix = b"\0\0";
    for user_key in [&[161][..], &[161, 1]] {
        let key = [prefix, user_key].concat();
        memtable.put(MemKey::grouped(&key, 2), b"v", NEVER, Below::unknown).unwrap();
    }
    let scan = memtable.scan(prefix, (Bound::Included(&[0]), Bound::Unbounded), Direction::Forward);
    assert_eq!(scan.record().unwrap().key, [0, 0, 161]);
}

#[test]
fn rocksdb_6064_an_operand_counts_once_while_its_epoch_is_flushed() {
    let mut memtable = memtable();
    let key = MemKey::single(b"counter");
    let mut version = None;
    let mut waiting: Option<Arc<SealedEpoch>> = None;
    for done in 1..=10_000_u64 {
        memtable.merge(key, &1_u64.to_le_bytes(), Some(&Add), 0, Below::unknown).unwrap();
        if done % 617 == 0 {
            waiting = Some(memtable.freeze());
        }
        if done % 617 == 300
            && let Some(epoch) = waiting.take()
        {
            version = flushed(&epoch, key.bytes(), version);
            memtable.adopt(epoch.last_sequence());
        }
        if done % 1000 == 500 {
            while memtable.evict_step(1 << 20) > 0 {}
        }
        let below = version.map(u64::to_le_bytes);
        let sum = match memtable.lookup(key) {
            Lookup::Operands(chain) => chain.fold(Some(&Add), below.as_ref().map(<[u8; 8]>::as_slice), 0).unwrap(),
            Lookup::Unknown => below.unwrap().to_vec(),
            other => value(&other).unwrap(),
        };
        assert_eq!(u64::from_le_bytes(sum.try_into().unwrap()), done);
    }
}

#[test]
fn paimon_8880_an_empty_value_is_no_tombstone() {
    let mut memtable = memtable();
    let key = MemKey::single(b"");
    memtable.put(key, b"", NEVER, Below::unknown).unwrap();
    assert_eq!(value(&memtable.lookup(key)), Some(vec![]));
    let epoch = memtable.freeze();
    assert_eq!(epoch.get(b"").next().unwrap().kind, Kind::Put);
    memtable.put(key, b"", NEVER, Below::unknown).unwrap();
    memtable.delete(key, Below::unknown).unwrap();
    assert!(matches!(memtable.lookup(key), Lookup::Record(record) if record.kind == Kind::Delete));
}

#[test]
fn muninndb_816_tidb_12598_prefixes_of_0xff() {
    let mut memtable = memtable();
    let prefixes: [&[u8]; 5] = [&[3, 0xAA, 0xFF], &[0xFF], &[0xFF, 0xFF], &[], &[3, 0xAB, 0]];
    for prefix in prefixes {
        for user_key in [&[][..], &[0xFF], &[0xFF, 0xFF]] {
            let key = [prefix, user_key].concat();
            memtable.put(MemKey::grouped(&key, prefix.len()), prefix, NEVER, Below::unknown).unwrap();
        }
    }
    for prefix in prefixes {
        let expected: Vec<_> = [&[][..], &[0xFF], &[0xFF, 0xFF]].map(|u| [prefix, u].concat()).into();
        assert_eq!(keys(memtable.scan(prefix, ALL_USER_KEYS, Direction::Forward)), expected);
    }
    let epoch = memtable.freeze();
    let found = keys(epoch.cursor(&KeyRange::prefix(&[3, 0xAA, 0xFF]), Direction::Backward));
    assert_eq!(found, [&[3, 0xAA, 0xFF, 0xFF, 0xFF][..], &[3, 0xAA, 0xFF, 0xFF], &[3, 0xAA, 0xFF]]);
}

#[test]
fn fjall_68_long_values_come_back_whole_or_are_refused() {
    let mut memtable = memtable();
    for len in [65_535, 65_536, 16 << 20] {
        let long: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
        memtable.put(MemKey::single(b"k"), &long, NEVER, Below::unknown).unwrap();
        assert_eq!(value(&memtable.lookup(MemKey::single(b"k"))).as_deref(), Some(&long[..]));
        let epoch = memtable.freeze();
        assert_eq!(epoch.get(b"k").next().unwrap().value, long);
    }
    let too_long = vec![0; (256 << 20) + 1];
    let error = memtable.put(MemKey::single(b"k"), &too_long, NEVER, Below::unknown).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(value(&memtable.lookup(MemKey::single(b"k"))).unwrap().len(), 16 << 20);
}

#[test]
fn restate_384_timers_pop_in_order_once_with_earlier_ones_registered_meanwhile() {
    let mut memtable = memtable();
    let prefix = b"\0\0timers";
    // The sign bit flipped, so that bytes are in order of time.
    let timer = |time: i64, id: u8| -> Vec<u8> {
        [prefix.as_slice(), &(time.cast_unsigned() ^ 1 << 63).to_be_bytes(), &[id]].concat()
    };
    for (id, time) in [1, i64::MAX, 0, i64::MIN, -1, 0].into_iter().enumerate() {
        let key = timer(time, u8::try_from(id).unwrap());
        memtable.put(MemKey::grouped(&key, prefix.len()), b"", NEVER, || Below::NothingAtPrefix).unwrap();
    }
    let mut popped = Vec::new();
    for round in 0..8 {
        if round == 2 {
            memtable.put(MemKey::grouped(&timer(-7, 9), prefix.len()), b"", NEVER, Below::unknown).unwrap();
            let epoch = memtable.freeze();
            memtable.adopt(epoch.last_sequence());
        }
        let scan = memtable.scan(prefix, ALL_USER_KEYS, Direction::Forward);
        let Some(first) = scan.record().map(|record| record.key.to_vec()) else { break };
        drop(scan);
        memtable.delete(MemKey::grouped(&first, prefix.len()), Below::unknown).unwrap();
        popped.push(first);
    }
    let order = [(i64::MIN, 3), (-1, 4), (-7, 9), (0, 2), (0, 5), (1, 0), (i64::MAX, 1)];
    assert_eq!(popped, order.map(|(time, id)| timer(time, id)));
}

#[test]
fn state_that_dies_between_two_freezes_leaves_nothing() {
    let mut memtable = memtable();
    for id in 0..200_000_u64 {
        let key = id.to_be_bytes();
        assert!(matches!(memtable.lookup(MemKey::single(&key)), Lookup::Unknown));
        memtable.note_absent(MemKey::single(&key));
        memtable.put(MemKey::single(&key), b"window", NEVER, Below::unknown).unwrap();
        memtable.put(MemKey::single(&key), b"a window that no longer fits", NEVER, Below::unknown).unwrap();
        memtable.delete(MemKey::single(&key), Below::unknown).unwrap();
        let member = [b"map", &key[..], b"x"].concat();
        memtable.put(MemKey::grouped(&member, 11), b"1", NEVER, || Below::NothingAtPrefix).unwrap();
        memtable.delete_prefix(&member[..11], Below::unknown).unwrap();
    }
    let stats = memtable.stats();
    assert!(stats.dirty_bytes + stats.pooled_bytes <= 1 << 20, "{stats:?}");
    assert_eq!((stats.single_keys, stats.groups), (0, 0));
    assert!(memtable.freeze().is_empty());
}

#[test]
fn a_key_that_may_lie_below_leaves_a_tombstone() {
    let mut memtable = memtable();
    memtable.put(MemKey::single(b"k"), b"v", NEVER, Below::unknown).unwrap();
    memtable.delete(MemKey::single(b"k"), Below::unknown).unwrap();
    let epoch = memtable.freeze();
    assert_eq!(epoch.get(b"k").next().unwrap().kind, Kind::Delete);
    // In a later epoch the flag of an earlier one doesn't count.
    memtable.put(MemKey::single(b"n"), b"v", NEVER, || Below::NothingAtKey).unwrap();
    let _ = memtable.freeze();
    memtable.put(MemKey::single(b"n"), b"w", NEVER, || Below::NothingAtKey).unwrap();
    memtable.delete(MemKey::single(b"n"), || Below::NothingAtKey).unwrap();
    assert_eq!(memtable.freeze().get(b"n").next().unwrap().kind, Kind::Delete);
}

#[test]
fn an_operator_that_panics_or_is_missing_changes_nothing() {
    let mut memtable = memtable();
    let key = MemKey::single(b"k");
    memtable.put(key, b"v", NEVER, Below::unknown).unwrap();
    assert_eq!(memtable.merge(key, b"x", Some(&Panics), 0, Below::unknown).unwrap_err().kind(), ErrorKind::Merge);
    assert_eq!(memtable.merge(key, b"x", None, 0, Below::unknown).unwrap_err().kind(), ErrorKind::Merge);
    let other = MemKey::single(b"other");
    let refused = memtable.merge(other, b"x", Some(&Panics), 0, || Below::NothingAtKey).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Merge);
    assert_eq!(value(&memtable.lookup(key)).as_deref(), Some(&b"v"[..]));
    assert!(matches!(memtable.lookup(other), Lookup::Unknown));
}

#[test]
fn a_value_that_has_expired_is_no_base_for_an_operand() {
    let mut memtable = memtable();
    let key = MemKey::single(b"k");
    memtable.put(key, &5_u64.to_le_bytes(), 100, Below::unknown).unwrap();
    memtable.merge(key, &1_u64.to_le_bytes(), Some(&Add), 99, Below::unknown).unwrap();
    assert!(matches!(memtable.lookup(key), Lookup::Record(r) if r.value == 6_u64.to_le_bytes() && r.expiry == 100));
    memtable.merge(key, &1_u64.to_le_bytes(), Some(&Add), 100, Below::unknown).unwrap();
    assert!(matches!(memtable.lookup(key), Lookup::Record(r) if r.value == 1_u64.to_le_bytes() && r.expiry == NEVER));
}

#[test]
fn out_of_memory_is_backpressure_and_changes_nothing() {
    let budget = Budget::new(2 << 20);
    let mut memtable = Memtable::new(MemtableConfig::new(budget.clone()));
    let mut written = 0_u64;
    let error = loop {
        match memtable.put(MemKey::single(&written.to_be_bytes()), &[7; 100], NEVER, Below::unknown) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Backpressure);
    assert!(matches!(memtable.lookup(MemKey::single(&written.to_be_bytes())), Lookup::Unknown));
    // Indexes are never refused: between two pages they may have taken a piece more.
    assert!(budget.total() <= budget.limit() + (256 << 10));
    // What fits in place still goes, and a freeze is always admitted.
    memtable.put(MemKey::single(&0_u64.to_be_bytes()), &[8; 100], NEVER, Below::unknown).unwrap();
    let epoch = memtable.freeze();
    memtable.adopt(epoch.last_sequence());
    drop(epoch);
    while memtable.evict_step(64 << 10) > 0 {}
    memtable.put(MemKey::single(&written.to_be_bytes()), &[7; 100], NEVER, Below::unknown).unwrap();
    drop(memtable);
    assert_eq!(budget.used(Purpose::Memtable), 0);
}

#[test]
fn records_read_since_outlive_an_eviction_and_the_others_dont() {
    let mut memtable = memtable();
    for id in 0..1000_u64 {
        memtable.put(MemKey::single(&id.to_be_bytes()), b"v", NEVER, Below::unknown).unwrap();
    }
    let epoch = memtable.freeze();
    memtable.adopt(epoch.last_sequence());
    drop(epoch);
    for id in 0..10_u64 {
        let _ = memtable.lookup(MemKey::single(&id.to_be_bytes()));
    }
    assert!(memtable.evict_step(4096) >= 4096);
    assert!(memtable.stats().single_keys < 1000, "steps are bounded, and do something");
    memtable.evict_step(1 << 20);
    let stays = |id: u64| value(&memtable.lookup(MemKey::single(&id.to_be_bytes()))).is_some();
    assert_eq!((0..1000).filter(|id| stays(*id)).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
}

#[test]
fn deletes_among_values_that_die_keep_no_pages_in_memory() {
    let mut memtable = memtable();
    for id in 0..30_000_u64 {
        let key = [b"stays", &id.to_be_bytes()[..]].concat();
        memtable.put(MemKey::single(&key), &[1; 100], NEVER, Below::unknown).unwrap();
    }
    let before = memtable.stats().dirty_bytes;
    for id in 0..100_000_u64 {
        let key = id.to_be_bytes();
        memtable.put(MemKey::single(&key), &[7; 200], NEVER, || Below::NothingAtKey).unwrap();
        memtable.delete(MemKey::single(&key), Below::unknown).unwrap();
        if id % 500 == 0 {
            let key = [b"below", &key[..]].concat();
            memtable.delete(MemKey::single(&key), Below::unknown).unwrap();
        }
    }
    let grown = memtable.stats().dirty_bytes - before;
    assert!(grown <= 1 << 20, "{grown} bytes for 200 deletes");
    assert_eq!(memtable.freeze().record_count(), 30_200);
}

#[test]
fn deletes_need_no_memory_where_there_is_none() {
    let config = MemtableConfig { page_bytes: 4096, ..MemtableConfig::new(Budget::new(256 << 10)) };
    let mut memtable = Memtable::new(config);
    let mut written = 0_u64;
    while memtable.put(MemKey::single(&written.to_be_bytes()), &[7; 100], NEVER, Below::unknown).is_ok() {
        written += 1;
    }
    assert!(memtable.stats().dirty_bytes > 16 * 4096);
    for id in 0..written {
        memtable.delete(MemKey::single(&id.to_be_bytes()), Below::unknown).unwrap();
    }
    let epoch = memtable.freeze();
    assert_eq!(epoch.record_count(), written);
    assert!((0..written).all(|id| epoch.get(&id.to_be_bytes()).next().unwrap().kind == Kind::Delete));
}

#[test]
fn what_is_rewritten_gives_its_memory_back_before_memory_is_short_and_nothing_is_forgotten() {
    let mut memtable = memtable();
    let single = |id: u64| id.to_be_bytes();
    let member = |id: u64| [b"grp", &id.to_be_bytes()[..]].concat();
    let mut most = 0;
    for epoch in 0..40_u8 {
        // A tenth is written once and never touched again.
        for id in (0..20_000_u64).filter(|id| epoch == 0 || id % 10 > 0) {
            memtable.put(MemKey::single(&single(id)), &[epoch; 100], NEVER, Below::unknown).unwrap();
            memtable.put(MemKey::grouped(&member(id), 3), &[epoch; 100], NEVER, Below::unknown).unwrap();
        }
        let sealed = memtable.freeze();
        memtable.adopt(sealed.last_sequence());
        drop(sealed);
        while memtable.is_untidy() && memtable.tidy_step(64 << 10) > 0 {}
        let clean = memtable.stats().clean_bytes;
        most = clean.max(most);
    }
    let alive = 40_000 * 150;
    assert!(most <= 3 * alive, "{most} bytes held for {alive}");
    for id in 0..20_000_u64 {
        let expected = if id % 10 == 0 { [0; 100] } else { [39; 100] };
        assert_eq!(value(&memtable.lookup(MemKey::single(&single(id)))).as_deref(), Some(&expected[..]));
        assert_eq!(value(&memtable.lookup(MemKey::grouped(&member(id), 3))).as_deref(), Some(&expected[..]));
    }
}

#[test]
fn a_stale_read_is_not_promoted() {
    let mut memtable = memtable();
    let read_at = memtable.adopted_sequence();
    let record = Record { key: b"k", sequence: 1, kind: Kind::Put, expiry: NEVER, value: b"old" };
    memtable.put(MemKey::single(b"k"), b"new", NEVER, Below::unknown).unwrap();
    assert!(!memtable.promote(MemKey::single(b"k"), &record, read_at));
    let epoch = memtable.freeze();
    memtable.adopt(epoch.last_sequence());
    drop(epoch);
    while memtable.evict_step(1 << 20) > 0 {}
    assert!(matches!(memtable.lookup(MemKey::single(b"k")), Lookup::Unknown));
    assert!(!memtable.promote(MemKey::single(b"k"), &record, read_at));
}

#[test]
fn a_prefix_delete_of_a_large_group_leaves_its_tree_to_a_worker() {
    let mut memtable = memtable();
    for id in 0..100_000_u32 {
        let key = [b"p", &id.to_be_bytes()[..]].concat();
        memtable.put(MemKey::grouped(&key, 1), b"", NEVER, Below::unknown).unwrap();
    }
    memtable.delete_prefix(b"p", Below::unknown).unwrap();
    assert_eq!(memtable.group_info(b"p").map(|info| (info.complete, info.members)), Some((true, 0)));
    memtable.put(MemKey::grouped(b"pnew", 1), b"", NEVER, Below::unknown).unwrap();
    assert!(!memtable.take_trash().is_empty());
    let epoch = memtable.freeze();
    assert_eq!(keys(epoch.cursor(&KeyRange::all(), Direction::Forward)), [&b"p"[..], b"pnew"]);
    assert!(epoch.prefix_delete(b"p").unwrap() <= epoch.get(b"pnew").next().unwrap().sequence);
}

#[test]
fn epochs_can_be_read_and_dropped_on_other_threads() {
    fn is_send_sync<T: Send + Sync>(_: &T) {}
    fn is_send<T: Send>(_: &T) {}
    let mut memtable = memtable();
    is_send_sync(&memtable.freeze());
    is_send(&memtable.take_trash());
    is_send(&memtable);
}
