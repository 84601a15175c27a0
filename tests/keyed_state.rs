//! Typed keyed state as embedders use it: registration, limits, bad input, values, maps, folds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{World, complete, single, subtasks, tiny};
use highwater::base::cursor::Direction;
use highwater::base::key_group::{KeyGroupRange, key_group_of, subtask_of};
use highwater::*;

#[test]
fn tokens_are_copies_that_any_thread_may_hold() {
    fn check<T: Copy + Send + Sync + std::fmt::Debug>(_: T) {}
    let world = World::new(tiny());
    let mut b = single(&world);
    check(b.value_state::<String, Vec<u8>>("value").unwrap());
    check(b.list_state::<String, Serde<Vec<String>>>("list").unwrap());
    check(b.map_state::<u64, String, f64>("map").unwrap());
    check(b.reducing_state::<String, u64>("sum", |a, b| a + b).unwrap());
}

#[test]
fn a_state_is_registered_under_one_name_kind_and_codec() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let hits = b.value_state::<String, u64>("hits").unwrap();
    hits.put(&mut b, "a", 1).unwrap();
    let again = b.value_state::<String, u64>("hits").unwrap();
    assert_eq!(again.get(&mut b, "a").unwrap(), Some(1));

    let refused = [
        b.list_state::<String, u64>("hits").map(|_| ()),
        b.value_state::<String, i64>("hits").map(|_| ()),
        b.value_state::<Vec<u8>, u64>("hits").map(|_| ()),
        b.state("hits").namespace::<u64>().value::<String, u64>().map(|_| ()),
        b.state("hits").ttl(Duration::from_secs(1)).value::<String, u64>().map(|_| ()),
    ];
    let named = [["value", "list"], ["u64@1", "i64@1"], ["string@1", "bytes@1"], ["unit@1", "u64@1"], ["hits", "hits"]];
    for (error, named) in refused.map(Result::unwrap_err).iter().zip(named) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(named.iter().all(|part| error.to_string().contains(part)), "{error} names {named:?}");
    }
    for name in [String::new(), "x".repeat(1025)] {
        assert_eq!(b.value_state::<String, u64>(&name).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn a_restored_state_keeps_its_kind_and_codec() {
    let mut world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &common::operator(), 1);
    let hits = tasks[0].value_state::<String, u64>("hits").unwrap();
    hits.put(&mut tasks[0], "a", 1).unwrap();
    complete(&world, &mut coordinator, &mut tasks, 1);
    drop((tasks, coordinator));
    world.crash();
    let (_coordinator, mut tasks) = subtasks(&world, &common::operator(), 1);
    let error = tasks[0].map_state::<String, u64, u64>("hits").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("map") && error.to_string().contains("value"), "{error}");
    let hits = tasks[0].value_state::<String, u64>("hits").unwrap();
    assert_eq!(hits.get(&mut tasks[0], "a").unwrap(), Some(1));
}

#[test]
fn empty_keys_and_values_are_valid_and_not_absent() {
    let mut world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &common::operator(), 1);
    let state = tasks[0].value_state::<Vec<u8>, Vec<u8>>("paimon 8880").unwrap();
    let map = tasks[0].map_state::<Vec<u8>, Vec<u8>, Vec<u8>>("map").unwrap();
    state.put(&mut tasks[0], &vec![], vec![]).unwrap();
    map.put(&mut tasks[0], &vec![], &vec![], vec![]).unwrap();
    for id in 1..3 {
        complete(&world, &mut coordinator, &mut tasks, id);
        drop((tasks, coordinator));
        world.crash();
        (coordinator, tasks) = subtasks(&world, &common::operator(), 1);
        let state = tasks[0].value_state::<Vec<u8>, Vec<u8>>("paimon 8880").unwrap();
        let map = tasks[0].map_state::<Vec<u8>, Vec<u8>, Vec<u8>>("map").unwrap();
        assert_eq!(state.get(&mut tasks[0], &vec![]).unwrap(), Some(vec![]));
        assert_eq!(state.get(&mut tasks[0], &vec![0]).unwrap(), None);
        assert!(map.contains(&mut tasks[0], &vec![], &vec![]).unwrap());
        assert!(!map.contains(&mut tasks[0], &vec![], &vec![0]).unwrap());
    }
}

#[test]
fn keys_and_values_over_the_limit_are_refused_before_anything_is_written() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let state = b.value_state::<Vec<u8>, Vec<u8>>("values").unwrap();
    let list = b.list_state::<Vec<u8>, Vec<u8>>("lists").unwrap();
    let map = b.map_state::<Vec<u8>, Vec<u8>, Vec<u8>>("maps").unwrap();
    let (longest, too_long) = (vec![0_u8; 64 << 10], vec![0_u8; (64 << 10) + 1]);
    let (largest, too_large) = (vec![7_u8; 65_536], vec![7_u8; (2 << 20) + 1]); // an eighth of 16 MiB is 2 MiB
    state.put(&mut b, &longest, &largest).unwrap();
    map.put(&mut b, &longest, &longest, &largest).unwrap();
    let refused = [
        state.put(&mut b, &too_long, vec![]),
        state.put(&mut b, &longest, &too_large),
        map.put(&mut b, &longest, &too_long, vec![]),
        list.add(&mut b, &longest, &too_large),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!(state.get(&mut b, &longest).unwrap().as_ref(), Some(&largest));
    assert_eq!(map.keys(&mut b, &longest).unwrap().count(), 1);
    assert!(list.is_empty(&mut b, &longest).unwrap());
}

#[test]
fn fjall_68_values_of_65535_and_more_bytes_come_back_whole() {
    let mut world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &common::operator(), 1);
    let state = tasks[0].value_state::<u32, Vec<u8>>("values").unwrap();
    let sizes = [0_u32, 1, 65_535, 65_536, 65_537, 2 << 20];
    let value = |size: u32| (0..size).map(|i| (i % 251) as u8).collect::<Vec<u8>>();
    sizes.iter().for_each(|size| state.put(&mut tasks[0], size, value(*size)).unwrap());
    complete(&world, &mut coordinator, &mut tasks, 1);
    drop((tasks, coordinator));
    world.crash();
    let (_coordinator, mut tasks) = subtasks(&world, &common::operator(), 1);
    let state = tasks[0].value_state::<u32, Vec<u8>>("values").unwrap();
    for size in sizes {
        assert_eq!(state.get(&mut tasks[0], &size).unwrap(), Some(value(size)));
    }
}

#[test]
fn a_key_of_another_subtask_is_refused_by_group_and_range() {
    let world = World::new(tiny());
    let (_coordinator, mut tasks) = subtasks(&world, &common::operator(), 2);
    let group = key_group_of(b"a", 128);
    let owner = subtask_of(group, 2, 128) as usize;
    let range = KeyGroupRange::of_subtask(1 - owner as u32, 2, 128).unwrap();
    let b = &mut tasks[1 - owner];
    let hits = b.value_state::<String, u64>("hits").unwrap();
    let mut timers = b.timers::<String, ()>("timers").unwrap();
    let refused = [
        hits.put(b, "a", 1),
        hits.get(b, "a").map(|_| ()),
        hits.clear(b, "a"),
        timers.register(b, TimeDomain::Event, "a", 0),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains(&group.to_string()) && text.contains(&range.to_string()), "{text}");
    }
}

#[test]
fn a_range_that_ends_before_it_starts_is_empty_on_every_path() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let map = b.map_state::<String, u32, u32>("map").unwrap();
    (0..10).for_each(|i| map.put(&mut b, "k", &i, i).unwrap());
    for direction in [Direction::Forward, Direction::Backward] {
        for (from, to) in [(7, 3), (u32::MAX, 0), (5, 5)] {
            assert_eq!(map.range(&mut b, "k", from..to, direction).unwrap().count(), 0);
            let mut cursor = map.range_cursor(&mut b, "k", from..to, direction).unwrap();
            assert_eq!(cursor.next(&mut b).unwrap(), None);
            cursor.close(&mut b);
        }
        assert_eq!(map.range(&mut b, "k", 5..=5, direction).unwrap().count(), 1);
    }
}

#[test]
fn lsm_tree_211_muninndb_816_ranges_land_where_they_should() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let map = b.map_state::<String, Vec<u8>, u8>("map").unwrap();
    let keys: [&[u8]; 9] = [
        &[],
        &[0, 161],
        &[0, 161, 1],
        &[3, 0xAA, 0xFE],
        &[3, 0xAA, 0xFF],
        &[3, 0xAA, 0xFF, 0],
        &[3, 0xAB, 0],
        &[0xFF],
        &[0xFF; 2],
    ];
    for (i, key) in keys.iter().enumerate() {
        map.put(&mut b, "k", *key, i as u8).unwrap();
    }
    let mut found = |from: &[u8], to: Option<&[u8]>| -> Vec<u8> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let range = (Included(from), to.map_or(Unbounded, Excluded));
        map.range::<[u8]>(&mut b, "k", range, Direction::Forward).unwrap().map(|entry| entry.unwrap().1).collect()
    };
    assert_eq!(found(&[0], None)[0], 1);
    assert_eq!(found(&[3, 0xAA, 0xFF], Some(&[3, 0xAB])), [4, 5]);
    assert_eq!(found(&[0xFF], None), [7, 8]);
    assert_eq!(found(&[0xFF, 0xFF], None), [8]);
    assert_eq!(found(&[], None), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_cursor_shows_the_map_as_it_was_while_it_is_written() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let map = b.map_state::<String, u32, String>("map").unwrap();
    (0..100).for_each(|i| map.put(&mut b, "k", &i, format!("old {i}")).unwrap());
    let mut forward = map.cursor(&mut b, "k", Direction::Forward).unwrap();
    let mut backward = map.cursor(&mut b, "k", Direction::Backward).unwrap();
    for i in 0..100 {
        assert_eq!(forward.next(&mut b).unwrap(), Some((i, format!("old {i}"))));
        assert_eq!(backward.next(&mut b).unwrap(), Some((99 - i, format!("old {}", 99 - i))));
        map.remove(&mut b, "k", &i).unwrap();
        map.put(&mut b, "k", &(100 + i), "new".to_string()).unwrap();
        world.executor.run_until_idle();
        b.poll().unwrap();
    }
    assert_eq!(forward.next(&mut b).unwrap(), None);
    assert_eq!(backward.next(&mut b).unwrap(), None);
    forward.close(&mut b);
    backward.close(&mut b);
    let keys: Result<Vec<u32>> = map.keys(&mut b, "k").unwrap().collect();
    assert_eq!(keys.unwrap(), (100..200).collect::<Vec<_>>());
    map.clear(&mut b, "k").unwrap();
    assert!(map.is_empty(&mut b, "k").unwrap());
    map.put(&mut b, "k", &1, "after".to_string()).unwrap();
    assert_eq!(map.iter(&mut b, "k", Direction::Forward).unwrap().count(), 1);
}

#[test]
fn namespaces_are_apart_and_merge_in_order() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let text = b.state("text").namespace::<i64>().value::<String, String>().unwrap();
    for (namespace, value) in [(1, "a"), (2, "b"), (4, "d")] {
        text.put(&mut b, ("k", &namespace), value.to_string()).unwrap();
    }
    text.put(&mut b, ("other", &2), "x".to_string()).unwrap();
    text.merge_namespaces(&mut b, "k", &1, &[4, 1, 3, 2, 4], |a, b| a + &b).unwrap();
    let found = [1, 2, 3, 4].map(|namespace| text.get(&mut b, ("k", &namespace)).unwrap());
    assert_eq!(found, [Some("adb".to_string()), None, None, None]);
    assert_eq!(text.get(&mut b, ("other", &2)).unwrap().as_deref(), Some("x"));
    // Into a namespace that holds nothing; then nothing into something.
    text.merge_namespaces(&mut b, "k", &9, &[1], |a, b| a + &b).unwrap();
    text.merge_namespaces(&mut b, "k", &9, &[1, 2], |a, b| a + &b).unwrap();
    assert_eq!(text.get(&mut b, ("k", &9)).unwrap().as_deref(), Some("adb"));
}

#[test]
fn a_value_expires_on_time_whatever_the_clock_does() {
    let world = World::new(tiny());
    let mut b = single(&world);
    world.clock.set(1000);
    let state = b.state("brief").ttl(Duration::from_millis(10)).value::<String, u64>().unwrap();
    let forever = b.state("forever").ttl(Duration::MAX).value::<String, u64>().unwrap();
    state.put(&mut b, "a", 1).unwrap();
    forever.put(&mut b, "a", 1).unwrap();
    world.clock.set(1009);
    assert_eq!(state.get(&mut b, "a").unwrap(), Some(1));
    world.clock.set(1010);
    assert_eq!(state.get(&mut b, "a").unwrap(), None);
    world.clock.set(0);
    assert_eq!(state.get(&mut b, "a").unwrap(), None, "time doesn't run backwards");
    state.put(&mut b, "a", 2).unwrap();
    world.clock.set(1019);
    assert_eq!(state.get(&mut b, "a").unwrap(), Some(2), "nothing expires early");
    world.clock.set(i64::MAX - 1);
    assert_eq!(state.get(&mut b, "a").unwrap(), None);
    assert_eq!(forever.get(&mut b, "a").unwrap(), Some(1));
}

#[test]
fn a_time_to_live_under_a_millisecond_is_refused() {
    let world = World::new(tiny());
    let mut b = single(&world);
    for ttl in [Duration::ZERO, Duration::from_micros(999)] {
        let error = b.state("brief").ttl(ttl).value::<String, u64>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("brief"), "{error}");
    }
    assert!(b.state("timers").ttl(Duration::from_secs(1)).timers::<String>().is_err());
}

/// A codec that refuses some values.
#[derive(Debug, PartialEq)]
struct Picky(u8);

impl Codec for Picky {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        "picky@1".into()
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        if self.0 == 13 {
            return Err(Error::new(ErrorKind::Codec, "13"));
        }
        out.push(self.0);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [7] | [] => Err(Error::new(ErrorKind::Codec, "7")),
            [byte, ..] => Ok(Self(*byte)),
        }
    }
}

#[test]
fn a_codec_that_fails_changes_nothing() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let state = b.value_state::<String, Picky>("picky").unwrap();
    let list = b.list_state::<String, Picky>("picky list").unwrap();
    state.put(&mut b, "a", Picky(1)).unwrap();
    assert_eq!(state.put(&mut b, "a", Picky(13)).unwrap_err().kind(), ErrorKind::Codec);
    assert_eq!(state.get(&mut b, "a").unwrap(), Some(Picky(1)));
    state.put(&mut b, "a", Picky(7)).unwrap();
    assert_eq!(state.get(&mut b, "a").unwrap_err().kind(), ErrorKind::Codec);
    list.add_all(&mut b, "a", [Picky(1), Picky(7), Picky(2)]).unwrap();
    let elements: Vec<_> = list.iter(&mut b, "a").unwrap().collect();
    assert_eq!(elements.len(), 2, "an iterator ends after its error");
    assert!(elements[1].is_err());
}

#[test]
fn flink_28010_every_key_group_is_restored_once_at_any_max_parallelism() {
    for max_parallelism in [127, 128, 129, 256, 32_768] {
        let mut world = World::new(tiny());
        let operator = Operator::new("op", max_parallelism);
        let (mut coordinator, mut tasks) = subtasks(&world, &operator, 2);
        let register = |tasks: &mut [Backend]| -> Vec<_> {
            tasks.iter_mut().map(|b| b.value_state::<u32, u32>("groups").unwrap()).collect()
        };
        let mut states = register(&mut tasks);
        for key in 0..2000_u32 {
            let owner = subtask_of(key_group_of(&key.to_be_bytes(), max_parallelism), 2, max_parallelism) as usize;
            states[owner].put(&mut tasks[owner], &key, key).unwrap();
        }
        complete(&world, &mut coordinator, &mut tasks, 1);
        for (id, parallelism) in [(2, 3), (3, 1), (4, 5)] {
            drop((tasks, coordinator));
            world.crash();
            (coordinator, tasks) = subtasks(&world, &operator, parallelism);
            states = register(&mut tasks);
            let mut found = Vec::new();
            for (b, state) in tasks.iter_mut().zip(&states) {
                let (view, groups) = (b.read_view().unwrap(), b.key_groups());
                let visit = |key, (), value| {
                    assert_eq!(key, value);
                    found.push(key);
                    Ok(())
                };
                state.for_each(&view, groups, visit).unwrap();
            }
            found.sort_unstable();
            assert_eq!(found, (0..2000).collect::<Vec<_>>(), "max parallelism {max_parallelism} at {parallelism}");
            complete(&world, &mut coordinator, &mut tasks, id);
        }
    }
}
