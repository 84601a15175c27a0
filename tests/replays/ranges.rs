//! Ends of ranges: of prefixes, of key groups, of what a clipped restore may show.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use highwater::base::cursor::Direction;
use highwater::base::descriptor::{Layout, StateDescriptor};
use highwater::base::key::{KeyParts, KeyShape};
use highwater::base::key_group::KeyGroupRange;
use highwater::*;

use crate::common::{World, complete, subtasks, tiny};

const KEYS: [&[u8]; 12] = [
    &[],
    &[0],
    &[0, 161],
    &[0, 161, 1],
    &[3, 0xAA, 0xFE],
    &[3, 0xAA, 0xFF],
    &[3, 0xAA, 0xFF, 0],
    &[3, 0xAA, 0xFF, 0xFF],
    &[3, 0xAB, 0],
    &[0xFF],
    &[0xFF, 0],
    &[0xFF, 0xFF],
];

/// Every range between two of the keys, in both directions, from memory, from files and after a restore; then keys of
/// 0xFF whose maps are cleared leave their neighbours alone.
#[test]
fn muninndb_816_tidb_12598_lsm_tree_211_ranges_and_prefixes_of_0xff_are_exact_everywhere() {
    let mut world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &Operator::new("op", 1), 1);
    let b = &mut tasks[0];
    let map = b.map_state::<Vec<u8>, Vec<u8>, u8>("map").unwrap();
    for key in KEYS {
        for (i, user_key) in KEYS.iter().enumerate() {
            map.put(b, &key.to_vec(), *user_key, i as u8).unwrap();
        }
    }
    complete(&world, &mut coordinator, &mut tasks, 1);
    check_ranges(&mut tasks[0], map);
    drop((tasks, coordinator));
    world.crash();
    let (mut coordinator, mut tasks) = subtasks(&world, &Operator::new("op", 1), 1);
    let map = tasks[0].map_state::<Vec<u8>, Vec<u8>, u8>("map").unwrap();
    check_ranges(&mut tasks[0], map);
    for (cleared, key) in KEYS.iter().enumerate().step_by(2) {
        map.clear(&mut tasks[0], &key.to_vec()).unwrap();
        complete(&world, &mut coordinator, &mut tasks, cleared as u64 + 1);
        for (i, key) in KEYS.iter().enumerate() {
            let left = map.keys(&mut tasks[0], &key.to_vec()).unwrap().count();
            let expected = if i % 2 == 0 && i <= cleared { 0 } else { KEYS.len() };
            assert_eq!(left, expected, "entries of {key:02x?} after clearing up to {cleared}");
        }
    }
}

fn check_ranges(b: &mut Backend, map: MapState<Vec<u8>, Vec<u8>, u8>) {
    let key = vec![0xFF];
    for from in 0..KEYS.len() {
        for to in 0..=KEYS.len() {
            let end = KEYS.get(to).map_or(Unbounded, |key| Excluded(*key));
            let mut expected: Vec<u8> = (from..to.max(from)).map(|i| i as u8).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let found = map.range::<[u8]>(b, &key, (Included(KEYS[from]), end), direction).unwrap();
                let found: Vec<u8> = found.map(|entry| entry.unwrap().1).collect();
                assert_eq!(found, expected, "{from}..{to} {direction:?}");
                expected.reverse();
            }
        }
    }
}

fn raw(name: &str) -> StateDescriptor {
    StateDescriptor {
        name: name.into(),
        kind: "raw".into(),
        layout: Layout::Single,
        shape: KeyShape { key_width: None, namespace_width: Some(0) },
        codecs: Default::default(),
        ttl_ms: None,
        merge_operator: None,
    }
}

fn at(group: u16) -> KeyParts<'static> {
    KeyParts { group, key: b"k", namespace: &[], user_key: &[] }
}

/// Every key group has a row; ranges that end at 127, 128, 255 and 32,767 hold exactly theirs.
#[test]
fn flink_28010_an_end_group_of_128_was_wrapped_in_one_byte() {
    for max_parallelism in [127, 128, 129, 256, 32_768_u32] {
        let mut world = World::new(tiny());
        let operator = Operator::new("op", max_parallelism);
        let (mut coordinator, mut tasks) = subtasks(&world, &operator, 1);
        let state = tasks[0].register(raw("rows"), None).unwrap();
        let edges = [0, 1, 63, 126, 127, 128, 129, 254, 255, 256, 257, 16_383, 16_384, 32_766, 32_767];
        let groups: Vec<u16> = edges.into_iter().filter(|group| u32::from(*group) < max_parallelism).collect();
        for group in &groups {
            tasks[0].put(state, at(*group), &group.to_le_bytes()).unwrap();
        }
        let beyond = KeyParts { group: max_parallelism.min(65_535) as u16, ..at(0) };
        assert_eq!(tasks[0].put(state, beyond, b"").unwrap_err().kind(), ErrorKind::InvalidArgument);
        complete(&world, &mut coordinator, &mut tasks, 1);
        let parallelisms: Vec<u32> = [2, 3, 127, 1].into_iter().filter(|p| *p <= max_parallelism).collect();
        for (round, parallelism) in parallelisms.into_iter().enumerate() {
            drop((std::mem::take(&mut tasks), coordinator));
            world.crash();
            (coordinator, tasks) = subtasks(&world, &operator, parallelism);
            let mut seen = BTreeMap::new();
            for (index, b) in tasks.iter_mut().enumerate() {
                let range = KeyGroupRange::of_subtask(index as u32, parallelism, max_parallelism).unwrap();
                assert_eq!(b.key_groups(), range);
                let state = b.register(raw("rows"), None).unwrap();
                let view = b.read_view().unwrap();
                for group in &groups {
                    let mine = range.contains(*group);
                    let found = view.get(state, at(*group)).unwrap();
                    assert_eq!(found.is_some(), mine, "group {group} in {range} of {max_parallelism}");
                    if let Some(value) = found {
                        assert_eq!(value, group.to_le_bytes());
                        assert_eq!(seen.insert(*group, index), None);
                    }
                }
            }
            assert_eq!(seen.len(), groups.len());
            complete(&world, &mut coordinator, &mut tasks, round as u64 + 1);
        }
    }
}

/// Rows that were still in memory at the checkpoint, one subtask to 128 to 3, with merges on the way: each key once,
/// none where it doesn't belong.
#[test]
fn slatedb_1984_a_projected_clone_leaked_rows_outside_its_range() {
    let mut world = World::new(tiny());
    let operator = Operator::new("op", 128);
    let mut expected = BTreeMap::new();
    for (round, parallelism) in [1, 128, 3, 2].into_iter().enumerate() {
        let (mut coordinator, mut tasks) = subtasks(&world, &operator, parallelism);
        let states: Vec<_> = tasks.iter_mut().map(|b| b.value_state::<u32, u32>("rows").unwrap()).collect();
        let mut found = BTreeMap::new();
        for (b, state) in tasks.iter_mut().zip(&states) {
            let view = b.read_view().unwrap();
            let everywhere = KeyGroupRange::new(0, 127).unwrap();
            state
                .for_each(&view, everywhere, |k, (), v| {
                    assert!(b.key_groups().contains(b.key_group_of(&k.to_be_bytes())), "{k} leaked");
                    assert_eq!(found.insert(k, v), None, "{k} twice");
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(found, expected, "after restoring at {parallelism}");
        for key in 0..600_u32 {
            if key % 4 == round as u32 || round == 0 {
                let group = highwater::base::key_group::key_group_of(&key.to_be_bytes(), 128);
                let owner = highwater::base::key_group::subtask_of(group, parallelism, 128) as usize;
                states[owner].put(&mut tasks[owner], &key, key * 10 + round as u32).unwrap();
                expected.insert(key, key * 10 + round as u32);
            }
        }
        complete(&world, &mut coordinator, &mut tasks, 1);
        drop((tasks, coordinator));
        world.crash();
    }
}
