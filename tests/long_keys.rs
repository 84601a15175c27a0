//! Keys of the greatest length that there may be, of bytes that escaping doubles and others, in every kind of state.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{World, complete, operator, single, subtasks, tiny};
use highwater::base::cursor::Direction;
use highwater::base::key_group::{KeyGroupRange, key_group_of, subtask_of};
use highwater::*;

type Bytes = Vec<u8>;

const LONGEST: usize = 64 << 10;

/// Keys as long as they may be; escaping leaves some as they are and doubles others.
fn longest() -> Vec<Bytes> {
    let mut mixed = vec![0; LONGEST];
    mixed.iter_mut().step_by(2).for_each(|byte| *byte = 0xFF);
    vec![vec![b'x'; LONGEST], vec![0; LONGEST], mixed, vec![0; 33 << 10]]
}

struct States {
    values: ValueState<Bytes, u64, Bytes>,
    maps: MapState<Bytes, Bytes, u64, Bytes>,
    lists: ListState<Bytes, u64, Bytes>,
    timers: TimerService<Bytes, Bytes>,
}

impl States {
    fn of(b: &mut Backend) -> Self {
        Self {
            values: b.state("values").namespace::<Bytes>().value().unwrap(),
            maps: b.state("maps").namespace::<Bytes>().map().unwrap(),
            lists: b.state("lists").namespace::<Bytes>().list().unwrap(),
            timers: b.timers("timers").unwrap(),
        }
    }

    fn write(&mut self, b: &mut Backend, key: &Bytes, namespace: &Bytes, n: u64) -> Result<()> {
        self.values.put(b, (key, namespace), n)?;
        self.maps.put(b, (key, namespace), key, n)?;
        self.maps.put(b, (key, namespace), namespace, n + 1)?;
        self.lists.add(b, (key, namespace), n)?;
        self.timers.register(b, TimeDomain::Event, (key, namespace), n.cast_signed())
    }

    fn check(&self, b: &mut Backend, key: &Bytes, namespace: &Bytes, n: u64) {
        assert_eq!(self.values.get(b, (key, namespace)).unwrap(), Some(n));
        let entries: Vec<(Bytes, u64)> =
            self.maps.iter(b, (key, namespace), Direction::Forward).unwrap().map(Result::unwrap).collect();
        let mut expected = vec![(key.clone(), n), (namespace.clone(), n + 1)];
        expected.dedup_by(|later, first| {
            later.0 == first.0 && {
                first.1 = later.1;
                true
            }
        });
        expected.sort();
        assert!(entries == expected, "the map under a key of {} bytes", key.len());
        assert_eq!(self.lists.get(b, (key, namespace)).unwrap(), [n]);
    }
}

#[test]
fn keys_of_64_kib_and_of_nothing_but_nuls_have_timers_as_they_have_values() {
    let mut world = World::new(Tuning { segment_bytes: 1 << 20, level_base_bytes: 4 << 20, ..tiny() });
    let keys = longest();
    let pairs: Vec<(u64, &Bytes, &Bytes)> =
        keys.iter().flat_map(|key| keys.iter().map(move |n| (key, n))).zip(1..).map(|((k, n), i)| (i, k, n)).collect();
    for (round, parallelism) in [1, 3, 1].into_iter().enumerate() {
        let (mut coordinator, mut tasks) = subtasks(&world, &operator(), parallelism);
        let mut states: Vec<States> = tasks.iter_mut().map(States::of).collect();
        let owner = |key: &Bytes| subtask_of(key_group_of(key, 128), parallelism, 128) as usize;
        for (n, key, namespace) in &pairs {
            let at = owner(key);
            if round == 0 {
                states[at].write(&mut tasks[at], key, namespace, *n).unwrap();
                world.executor.run_until_idle();
            }
            states[at].check(&mut tasks[at], key, namespace, *n);
        }
        if round == 2 {
            let view = tasks[0].read_view().unwrap();
            let mut seen = 0;
            let all = KeyGroupRange::new(0, 127).unwrap();
            states[0]
                .timers
                .for_each(&view, all, |_, timer| {
                    seen += 1;
                    let (n, key, namespace) = pairs[usize::try_from(timer.timestamp_ms).unwrap() - 1];
                    assert!(
                        n == timer.timestamp_ms.cast_unsigned() && *key == timer.key && *namespace == timer.namespace
                    );
                    Ok(())
                })
                .unwrap();
            assert_eq!(seen, pairs.len());
            for (n, key, namespace) in &pairs {
                let timer = states[0].timers.pop_until(&mut tasks[0], TimeDomain::Event, i64::MAX).unwrap().unwrap();
                assert!(timer.timestamp_ms == n.cast_signed() && timer.key == **key && timer.namespace == **namespace);
            }
            assert_eq!(states[0].timers.pop_until(&mut tasks[0], TimeDomain::Event, i64::MAX).unwrap(), None);
        }
        complete(&world, &mut coordinator, &mut tasks, round as u64 + 1);
        drop((tasks, coordinator));
        world.crash();
    }
}

#[test]
fn a_segment_that_ends_with_the_longest_key_can_be_restored() {
    let mut world = World::new(tiny());
    let longest = vec![0; LONGEST];
    for round in 1..3 {
        let (mut coordinator, mut tasks) = subtasks(&world, &operator(), 1);
        let b = &mut tasks[0];
        let map = b.state("maps").namespace::<Bytes>().map::<Bytes, Bytes, u64>().unwrap();
        if round == 1 {
            map.put(b, (&longest, &longest), &longest, 1).unwrap();
        }
        assert_eq!(map.get(b, (&longest, &longest), &longest).unwrap(), Some(1));
        complete(&world, &mut coordinator, &mut tasks, round);
        drop((tasks, coordinator));
        world.crash();
    }
}

#[test]
fn a_byte_more_than_64_kib_is_refused_by_every_state_and_nothing_is_written() {
    let world = World::new(tiny());
    let mut b = single(&world);
    let mut states = States::of(&mut b);
    let (longest, too_long) = (vec![0; LONGEST], vec![0; LONGEST + 1]);
    let before = b.stats().memory;
    for (key, namespace, what) in [(&too_long, &longest, "key"), (&longest, &too_long, "namespace")] {
        let at = (key, namespace);
        let refused = [
            states.values.put(&mut b, at, 1),
            states.maps.put(&mut b, at, &longest, 1),
            states.lists.add(&mut b, at, 1),
            states.timers.register(&mut b, TimeDomain::Event, at, 1),
            states.timers.delete(&mut b, TimeDomain::Event, at, 1),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(&format!("{what} of 65537 bytes")), "{error}");
        }
    }
    let error = states.maps.put(&mut b, (&longest, &longest), &too_long, 1).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains("user key"), "{error}");
    assert_eq!(b.stats().memory, before);
}
