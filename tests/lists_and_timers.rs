//! Lists and timers as embedders use them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::{World, complete, operator, single, subtasks, tiny};
use highwater::base::key_group::{key_group_of, subtask_of};
use highwater::*;

#[test]
fn a_list_keeps_its_order_across_checkpoints_restores_and_rescales() {
    let mut world = World::new(tiny());
    let mut parallelism = 1;
    let mut expected = Vec::new();
    for round in 0..6_u64 {
        let (mut coordinator, mut tasks) = subtasks(&world, &operator(), parallelism);
        let owner = subtask_of(key_group_of(b"k", 128), parallelism, 128) as usize;
        let b = &mut tasks[owner];
        let list = b.list_state::<String, u64>("list").unwrap();
        assert_eq!(list.get(b, "k").unwrap(), expected);
        for i in 0..3000 {
            list.add(b, "k", round * 10_000 + i).unwrap();
            expected.push(round * 10_000 + i);
            if i % 500 == 0 {
                drop(b.read_view().unwrap()); // begins a new sequence
            }
        }
        assert_eq!(list.get(b, "k").unwrap(), expected);
        complete(&world, &mut coordinator, &mut tasks, round + 1);
        drop((tasks, coordinator));
        world.crash();
        parallelism = [3, 1, 2, 5, 4, 1][round as usize];
    }
}

#[test]
fn lists_that_come_and_go_between_checkpoints_leave_nothing_behind_whatever_segments_hold() {
    let world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &operator(), 1);
    let list = tasks[0].list_state::<u64, u64>("list").unwrap();
    for key in 0..400 {
        list.add(&mut tasks[0], &(key * 2), key).unwrap();
    }
    complete(&world, &mut coordinator, &mut tasks, 1);
    tasks[0].poll().unwrap();
    let before = tasks[0].stats();
    assert!(before.segments > 0);
    for key in 0..400 {
        let b = &mut tasks[0];
        list.add(b, &(key * 2 + 1), 7).unwrap();
        list.add(b, &(key * 2 + 1), 8).unwrap();
        assert_eq!(list.take(b, &(key * 2 + 1)).unwrap(), [7, 8]);
        assert!(list.is_empty(b, &(key * 2 + 1)).unwrap());
    }
    // 64 that are known to be empty are remembered. A filter errs one time in a hundred; what it errs on keeps a delete, and
    // its group, until the next flush.
    let kept = tasks[0].stats().memory.groups.saturating_sub(before.memory.groups);
    assert!(kept < 100, "{kept} groups of 400 are kept");
}

#[test]
fn a_visit_shows_what_a_get_gives_and_ends_at_the_first_error() {
    let world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &operator(), 1);
    let list = tasks[0].list_state::<u64, Vec<u8>>("list").unwrap();
    let element = |n: usize| vec![n as u8; [0, 1, 127, 128, 300, 20_000][n % 6]];
    for round in 1..4 {
        for n in 0..60 {
            list.add(&mut tasks[0], &1, element(n)).unwrap();
        }
        complete(&world, &mut coordinator, &mut tasks, round);
    }
    let b = &mut tasks[0];
    let expected: Vec<Vec<u8>> = (0..180).map(|n| element(n % 60)).collect();
    assert_eq!(list.get(b, &1).unwrap(), expected);
    assert_eq!(list.iter(b, &1).unwrap().collect::<Result<Vec<_>>>().unwrap(), expected);
    let (mut visited, mut encoded) = (Vec::new(), Vec::new());
    list.visit(b, &1, |element| {
        visited.push(element);
        Ok(())
    })
    .unwrap();
    assert_eq!(visited, expected);
    list.visit_encoded(b, &1, |bytes| {
        encoded.push(Vec::<u8>::decode(bytes)?);
        if encoded.len() == 100 { Err(Error::new(ErrorKind::Codec, "enough")) } else { Ok(()) }
    })
    .unwrap_err();
    assert_eq!(encoded, expected[..100]);
    assert_eq!(list.take(b, &1).unwrap(), expected);
    assert!(list.is_empty(b, &1).unwrap());
    assert_eq!(list.take(b, &1).unwrap(), Vec::<Vec<u8>>::new());
    list.add(b, &1, vec![5]).unwrap();
    complete(&world, &mut coordinator, &mut tasks, 4);
    assert_eq!(list.take(&mut tasks[0], &1).unwrap(), [vec![5]]);
}

#[test]
fn a_long_list_streams_and_is_copied_by_a_cursor_while_it_is_written() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let list = b.list_state::<String, u64>("list").unwrap();
    list.add_all(&mut b, "long", 0..200_000).unwrap();
    let mut next = 0;
    for element in list.iter(&mut b, "long").unwrap() {
        assert_eq!(element.unwrap(), next);
        next += 1;
    }
    assert_eq!(next, 200_000);
    let mut cursor = list.cursor(&mut b, "long").unwrap();
    for expected in 0..200_000 {
        assert_eq!(cursor.next(&mut b).unwrap(), Some(expected));
        if expected % 1000 == 0 {
            list.add(&mut b, "long", u64::MAX).unwrap();
            list.add(&mut b, "copy", expected).unwrap();
        }
    }
    assert_eq!(cursor.next(&mut b).unwrap(), None);
    cursor.close(&mut b);
    assert_eq!(list.iter(&mut b, "long").unwrap().count(), 200_200);
    assert_eq!(list.get(&mut b, "copy").unwrap().len(), 200);
}

#[test]
fn elements_of_any_size_share_a_list() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let list = b.list_state::<String, Vec<u8>>("list").unwrap();
    let elements: Vec<Vec<u8>> =
        [0, 1, 16_383, 16_384, 16_385, 0, 100_000, 2, 0].iter().map(|size| vec![*size as u8; *size]).collect();
    list.add_all(&mut b, "all", &elements).unwrap();
    elements.iter().for_each(|element| list.add(&mut b, "one by one", element).unwrap());
    assert_eq!(list.get(&mut b, "all").unwrap(), elements);
    assert_eq!(list.get(&mut b, "one by one").unwrap(), elements);
    list.update(&mut b, "all", &elements[..2]).unwrap();
    assert_eq!(list.get(&mut b, "all").unwrap(), elements[..2]);
    list.update(&mut b, "all", &elements[..0]).unwrap();
    assert!(list.is_empty(&mut b, "all").unwrap());
}

#[test]
fn elements_expire_one_by_one_also_after_a_merge() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let list = b.state("list").namespace::<u8>().ttl(Duration::from_millis(10)).list::<String, u64>().unwrap();
    for ms in 0..8 {
        world.clock.set(ms);
        list.add(&mut b, ("k", &((ms % 2) as u8)), ms as u64).unwrap();
        list.add(&mut b, ("k", &((ms % 2) as u8)), 100 + ms as u64).unwrap();
    }
    list.merge_namespaces(&mut b, "k", &1, &[0]).unwrap();
    assert_eq!(list.get(&mut b, ("k", &0)).unwrap(), [0; 0]);
    let all = [1, 101, 3, 103, 5, 105, 7, 107, 0, 100, 2, 102, 4, 104, 6, 106];
    for now in 8..20 {
        world.clock.set(now);
        let live: Vec<u64> = all.iter().copied().filter(|element| (element % 100) + 10 > now as u64).collect();
        assert_eq!(list.get(&mut b, ("k", &1)).unwrap(), live, "at {now}");
        let view = b.read_view().unwrap();
        let mut seen = Vec::new();
        list.for_each(&view, b.key_groups(), now, |_, _, element| {
            seen.push(element);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, live);
    }
}

#[test]
fn lists_merge_in_the_order_of_their_namespaces() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let list = b.state("list").namespace::<String>().list::<String, u32>().unwrap();
    for (namespace, elements) in [("a", 0..3), ("b", 10..13), ("c", 20..23)] {
        list.add_all(&mut b, ("k", namespace), elements).unwrap();
    }
    let sources = ["c", "b", "b", "none"].map(String::from);
    list.merge_namespaces(&mut b, "k", &"b".to_string(), &sources).unwrap();
    assert_eq!(list.get(&mut b, ("k", "b")).unwrap(), [10, 11, 12, 20, 21, 22]);
    assert!(list.is_empty(&mut b, ("k", "c")).unwrap());
    list.add(&mut b, ("k", "b"), 99).unwrap();
    assert_eq!(list.get(&mut b, ("k", "b")).unwrap(), [10, 11, 12, 20, 21, 22, 99]);
    assert_eq!(list.get(&mut b, ("k", "a")).unwrap(), [0, 1, 2]);
}

type Fired = Vec<(i64, String, i64)>;

fn pop_all(timers: &mut TimerService<String, i64>, b: &mut Backend, until: i64) -> Fired {
    let mut fired = Vec::new();
    while let Some(timer) = timers.pop_until(b, TimeDomain::Event, until).unwrap() {
        fired.push((timer.timestamp_ms, timer.key, timer.namespace));
    }
    fired
}

#[test]
fn restate_384_timers_pop_in_order_and_once_in_the_restored_history() {
    let mut world = World::new(tiny());
    let (mut coordinator, mut tasks) = subtasks(&world, &operator(), 1);
    let b = &mut tasks[0];
    let mut timers = b.timers::<String, i64>("timers").unwrap();
    let mut expected = Vec::new();
    for time in [i64::MAX, 0, -1, i64::MIN, 1, 0] {
        for key in ["b", "a", "a\0", ""] {
            for namespace in [5, -5] {
                timers.register(b, TimeDomain::Event, (key, &namespace), time).unwrap();
                expected.push((time, key_group_of(key.as_bytes(), 128), key.to_string(), namespace));
            }
        }
    }
    timers.register(b, TimeDomain::Processing, ("a", &0), 3).unwrap();
    expected.sort();
    expected.dedup();
    let expected: Fired = expected.into_iter().map(|(time, _, key, namespace)| (time, key, namespace)).collect();
    assert_eq!(timers.next_timestamp(b, TimeDomain::Event).unwrap(), Some(i64::MIN));

    // Pop half, register an earlier one meanwhile, and crash: the checkpoint is of the time before.
    complete(&world, &mut coordinator, &mut tasks, 1);
    let b = &mut tasks[0];
    assert_eq!(pop_all(&mut timers, b, -1), expected[..16]);
    timers.register(b, TimeDomain::Event, ("late", &0), -100).unwrap();
    assert_eq!(timers.pop_until(b, TimeDomain::Event, 0).unwrap().unwrap().timestamp_ms, -100);
    drop((tasks, coordinator));
    world.crash();

    // What had popped after the checkpoint pops again, what is popped before the next one never does.
    let (mut coordinator, mut tasks) = subtasks(&world, &operator(), 1);
    let b = &mut tasks[0];
    let mut timers = b.timers::<String, i64>("timers").unwrap();
    assert_eq!(pop_all(&mut timers, b, -1), expected[..16]);
    complete(&world, &mut coordinator, &mut tasks, 2);
    drop((tasks, coordinator));
    world.crash();
    let (_coordinator, mut tasks) = subtasks(&world, &operator(), 3);
    let mut fired = Vec::new();
    let mut processing = 0;
    for b in &mut tasks {
        let mut timers = b.timers::<String, i64>("timers").unwrap();
        fired.extend(pop_all(&mut timers, b, i64::MAX));
        processing += usize::from(timers.pop_until(b, TimeDomain::Processing, 3).unwrap().is_some());
        assert_eq!(timers.pop_until(b, TimeDomain::Processing, i64::MAX).unwrap(), None);
        assert_eq!(timers.next_timestamp(b, TimeDomain::Event).unwrap(), None);
    }
    let mut rest = expected[16..].to_vec();
    fired.sort();
    rest.sort();
    assert_eq!((fired, processing), (rest, 1));
}

#[test]
fn a_deleted_timer_never_pops_and_uncovers_the_next() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let mut timers = b.timers::<u64, ()>("timers").unwrap();
    for key in 0..20 {
        timers.register(&mut b, TimeDomain::Event, &key, 100 - key as i64).unwrap();
        timers.register(&mut b, TimeDomain::Event, &key, 200).unwrap();
    }
    assert_eq!(timers.next_timestamp(&mut b, TimeDomain::Event).unwrap(), Some(81));
    for key in 10..20 {
        timers.delete(&mut b, TimeDomain::Event, &key, 100 - key as i64).unwrap();
        timers.delete(&mut b, TimeDomain::Event, &key, 12_345).unwrap();
    }
    assert_eq!(timers.next_timestamp(&mut b, TimeDomain::Event).unwrap(), Some(91));
    let mut popped = 0;
    let mut last = i64::MIN;
    while let Some(timer) = timers.pop_until(&mut b, TimeDomain::Event, i64::MAX).unwrap() {
        assert!(timer.timestamp_ms >= last);
        last = timer.timestamp_ms;
        popped += 1;
        if popped == 3 {
            timers.register(&mut b, TimeDomain::Event, &7, 50).unwrap();
            last = 50;
        }
    }
    assert_eq!(popped, 10 + 20 + 1);
}

#[test]
fn many_timers_at_one_time_pop_in_order_when_memory_has_let_go_of_them() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let mut timers = b.timers::<u64, ()>("timers").unwrap();
    for key in 0..3000_u64 {
        timers.register(&mut b, TimeDomain::Event, &key, 5).unwrap();
        if key % 500 == 0 {
            world.executor.run_until_idle();
            b.poll().unwrap();
        }
    }
    let ticket = b.checkpoint(1, CheckpointKind::Incremental, b"").unwrap();
    world.executor.run_until_idle();
    ticket.wait(Duration::ZERO).unwrap();
    let mut popped = 0;
    while let Some(timer) = timers.pop_until(&mut b, TimeDomain::Event, 5).unwrap() {
        assert_eq!(timer.timestamp_ms, 5);
        popped += 1;
        // One before those that wait: it is next in its group, and the others aren't lost.
        if popped == 1000 {
            timers.register(&mut b, TimeDomain::Event, &0, 4).unwrap();
            let earlier = timers.pop_until(&mut b, TimeDomain::Event, 5).unwrap().unwrap();
            assert_eq!((earlier.timestamp_ms, earlier.key), (4, 0));
        }
    }
    assert_eq!(popped, 3000);
    assert_eq!(timers.next_timestamp(&mut b, TimeDomain::Event).unwrap(), None);
}

#[test]
fn popping_restored_timers_reads_the_state_once_in_a_batch_not_once_a_timer() {
    const TIMERS: u64 = 100_000;
    let mut world = World::new(Tuning::for_memory(16 << 20));
    let register = |b: &mut Backend, timers: &mut TimerService<u64, ()>, key: u64| {
        timers.register(b, TimeDomain::Event, &key, (key * 7919 % TIMERS).cast_signed()).unwrap();
    };
    let (mut coordinator, mut tasks) = subtasks(&world, &operator(), 1);
    let mut timers = tasks[0].timers::<u64, ()>("timers").unwrap();
    for key in 0..TIMERS {
        register(&mut tasks[0], &mut timers, key);
        if key % 4096 == 0 {
            drop(tasks[0].read_view().unwrap());
            world.executor.run_until_idle();
            tasks[0].poll().unwrap();
        }
    }
    complete(&world, &mut coordinator, &mut tasks, 1);
    drop((tasks, coordinator));
    world.crash();
    let (_coordinator, mut tasks) = subtasks(&world, &operator(), 1);
    let b = &mut tasks[0];
    let mut timers = b.timers::<u64, ()>("timers").unwrap();
    let looks = |world: &World| world.env().stats().cache_hits + world.env().stats().cache_misses;
    let before = looks(&world);
    for time in 0..TIMERS {
        let timer = timers.pop_until(b, TimeDomain::Event, i64::MAX).unwrap().unwrap();
        assert_eq!(timer.timestamp_ms.cast_unsigned(), time);
        if time % 4096 == 0 {
            world.executor.run_until_idle();
            b.poll().unwrap();
        }
    }
    assert_eq!(timers.pop_until(b, TimeDomain::Event, i64::MAX).unwrap(), None);
    // A delete asks filters whether there is something below it to delete; the rest is reading.
    let blocks = looks(&world) - before;
    assert!(blocks < 4 * TIMERS, "{blocks} blocks for {TIMERS} timers");
}
