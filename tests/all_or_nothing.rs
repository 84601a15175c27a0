//! Typed calls that write several records, refused at every moment at which memory can run full.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{World, cramped, single};
use highwater::*;

type Values = ValueState<String, Vec<u8>, u32>;
type Lists = ListState<String, u64, u32>;

const NAMESPACES: u32 = 12;

/// What the states hold under their one key.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Content {
    values: Vec<Option<Vec<u8>>>,
    lists: Vec<Vec<u64>>,
}

fn content(b: &mut Backend, values: Values, lists: Lists) -> Content {
    let key = "k".to_string();
    Content {
        values: (0..NAMESPACES).map(|n| values.get(b, (&key, &n)).unwrap()).collect(),
        lists: (0..NAMESPACES).map(|n| lists.get(b, (&key, &n)).unwrap()).collect(),
    }
}

/// Writes until `fill` kilobytes are written or memory is full, does `call`, and sees that it did all or nothing. Then
/// lets storage catch up, and the call succeeds. Returns whether it had been refused.
fn refused_or_done(fill: u32, call: impl Fn(&mut Backend, Values, Lists) -> Result<()>) -> bool {
    let world = World::new(cramped());
    let mut b = single(&world);
    let values: Values = b.state("values").namespace().value().unwrap();
    let lists: Lists = b.state("lists").namespace().list().unwrap();
    let filler = b.value_state::<u32, Vec<u8>>("filler").unwrap();
    let key = "k".to_string();
    for n in 0..NAMESPACES {
        values.put(&mut b, (&key, &n), vec![n as u8; 700]).unwrap();
        lists.add_all(&mut b, (&key, &n), 0..u64::from(n) * 40).unwrap();
        world.executor.run_until_idle();
        b.poll().unwrap();
    }
    let before = content(&mut b, values, lists);
    for n in 0..fill {
        if filler.put(&mut b, &n, vec![1; 1024]).is_err() {
            break;
        }
    }
    let outcome = call(&mut b, values, lists);
    let after = content(&mut b, values, lists);
    if let Err(error) = &outcome {
        assert_eq!(error.kind(), ErrorKind::Backpressure, "{error}");
        assert!(before == after, "half of a call was left after {fill} KiB");
        world.executor.run_until_idle();
        b.poll().unwrap();
        call(&mut b, values, lists).unwrap();
    }
    let done = content(&mut b, values, lists);
    assert!(done != before, "the call changes something");
    if outcome.is_ok() {
        assert!(done == after);
    }
    outcome.is_err()
}

fn all_or_nothing(call: impl Fn(&mut Backend, Values, Lists) -> Result<()>) {
    let refused = (0..72).step_by(6).filter(|fill| refused_or_done(*fill, &call)).count();
    assert!((1..12).contains(&refused), "refused {refused} times of 12");
}

#[test]
fn elements_appended_in_one_call_are_all_there_or_none() {
    all_or_nothing(|b, _, lists| lists.add_all(b, (&"k".to_string(), &3), 0..6000));
}

#[test]
fn a_list_that_is_replaced_is_the_old_one_or_the_new_one() {
    all_or_nothing(|b, _, lists| lists.update(b, (&"k".to_string(), &11), 0..6000));
}

#[test]
fn lists_of_namespaces_are_merged_or_as_they_were() {
    all_or_nothing(|b, _, lists| lists.merge_namespaces(b, "k", &0, &(1..NAMESPACES).chain([3]).collect::<Vec<_>>()));
}

#[test]
fn values_of_namespaces_are_merged_or_as_they_were() {
    all_or_nothing(|b, values, _| {
        values.merge_namespaces(b, "k", &0, &(1..NAMESPACES).collect::<Vec<_>>(), |a, b| [a, b].concat())
    });
}

#[test]
fn elements_over_the_limit_of_a_value_together_are_refused_and_nothing_is_written() {
    let world = World::new(common::tiny());
    let mut b = single(&world);
    let list = b.list_state::<String, Vec<u8>>("list").unwrap();
    let before = b.stats().memory;
    let error = list.add_all(&mut b, "k", std::iter::repeat_n(vec![7; 1 << 10], 3 << 10)).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains("2097152"), "{error}");
    assert_eq!(b.stats().memory, before);
}

#[test]
fn a_call_that_panics_takes_its_promise_back() {
    let world = World::new(cramped());
    let mut b = single(&world);
    let filler = b.value_state::<u32, Vec<u8>>("filler").unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        b.admitted(1, 1, |_| -> Result<()> { panic!("in the middle") })
    }));
    assert!(panicked.is_err());
    assert!((0..1000).any(|n| filler.put(&mut b, &n, vec![1; 1024]).is_err()), "writes are refused as before");
}
