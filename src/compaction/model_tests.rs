use std::sync::Arc;

use proptest::prelude::*;

use super::picker::{Options, overlapped, pick};
use super::plan::{Action, Plan, Reason};
use super::world::{World, grouped, single};
use crate::ErrorKind;
use crate::base::key::KeyRange;
use crate::base::merge_operator::MergeOperators;
use crate::base::record::{Kind, OwnedRecord};
use crate::read::testing::{bare, expiring, merge, put};
use crate::version::fixtures::groups;
use crate::version::{MAX_LEVELS, Place, Version, merge_parents};

const LAST_GROUP: u16 = 5;

#[derive(Debug, Clone)]
enum Step {
    Flush(Vec<(u16, u8, u8, u8)>),
    Pick,
    /// A random valid plan.
    Plan(u8, u8, u8),
    /// A plan whose merges find no operator.
    PlanWithoutOperators(u8, u8, u8),
    /// A plan during which a read or an append fails.
    Broken(u8, u8, u8, u8),
    Time(u8),
    /// Split into so many parts, compact one step in each, merge again.
    Rescale(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let entry = (0..=LAST_GROUP, 0..3_u8, 0..16_u8, any::<u8>());
    prop_oneof![
        5 => proptest::collection::vec(entry, 1..14).prop_map(Step::Flush),
        2 => Just(Step::Pick),
        5 => (0..4_u8, any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| Step::Plan(a, b, c)),
        1 => (0..4_u8, any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| Step::PlanWithoutOperators(a, b, c)),
        1 => (0..4_u8, any::<u8>(), any::<u8>(), 0..12_u8).prop_map(|(a, b, c, d)| Step::Broken(a, b, c, d)),
        1 => (1..8_u8).prop_map(Step::Time),
        1 => (1..5_u8).prop_map(Step::Rescale),
    ]
}

/// Merges and values that expire have keys of their own: what operands over an expired value give depends on
/// when they were folded.
fn record((group, key, kind, extra): (u16, u8, u8, u8), now_ms: i64) -> OwnedRecord {
    let user = [&b""[..], &[1], &[2, 0], &[3]][usize::from(extra % 4)];
    let grouped_key = grouped(group, key, user);
    let value = vec![extra; usize::from(extra % 40)];
    match kind {
        0..=2 => put(&grouped_key, 0, &value),
        3..=4 => put(&single(group, key), 0, &value),
        5 => bare(&grouped_key, 0, Kind::Delete),
        6 => bare(&single(group, key), 0, Kind::Delete),
        7..=8 => bare(&grouped(group, key, b""), 0, Kind::PrefixDelete),
        9..=10 => merge(&grouped(group, key, &[9]), 0, &[&value]),
        11..=12 => merge(&single(group, 10 + key), 0, &[&value, b"x"]),
        13 => put(&single(group, 10 + key), 0, &value),
        14 => expiring(&grouped(group, key, &[8]), 0, &value, now_ms + i64::from(extra % 16)),
        _ => expiring(&single(group, 20 + key), 0, &value, now_ms + i64::from(extra % 16)),
    }
}

fn tiny() -> Options {
    Options { base_bytes: 2_000, ratio: 2, level0_runs: 6, clip_rewrite_sequences: 3, down_through: 0 }
}

/// Some plan that keeps the order of runs.
fn some_plan(version: &Version, kind: u8, b: u8, c: u8) -> Option<Plan> {
    let level0 = version.level(0);
    let runs = |range: std::ops::Range<usize>| level0[range].iter().map(|r| r.refs().to_vec()).collect::<Vec<_>>();
    let any = version.refs().nth(usize::from(b) % version.ref_count().max(1));
    match kind {
        0 if !level0.is_empty() => {
            let start = usize::from(b) % level0.len();
            let end = start + 1 + usize::from(c) % (level0.len() - start);
            Some(Plan::new(version, Reason::Tier, Action::Rewrite(Place::Replaced), runs(start..end)))
        }
        1 if !level0.is_empty() => {
            let mut inputs = runs(usize::from(b) % level0.len()..level0.len());
            inputs.push(overlapped(version, 1, inputs.iter().flatten()));
            Some(Plan::new(version, Reason::Level0, Action::Rewrite(Place::Level(1)), inputs))
        }
        2 => any.filter(|(level, ..)| (1..MAX_LEVELS - 1).contains(level)).map(|(level, _, r)| {
            let inputs = vec![vec![Arc::clone(r)], overlapped(version, level + 1, std::iter::once(r))];
            Plan::new(version, Reason::Overflow, Action::Rewrite(Place::Level(level + 1)), inputs)
        }),
        _ => any.map(|(level, _, r)| {
            let place = if level == 0 { Place::Replaced } else { Place::Level(level) };
            Plan::new(version, Reason::Clipped, Action::Rewrite(place), vec![vec![Arc::clone(r)]])
        }),
    }
}

fn rescale(world: &mut World, parts: u16) {
    let width = LAST_GROUP / parts + 1;
    let clips = (0..parts).map(|i| groups(i * width, ((i + 1) * width - 1).min(LAST_GROUP)));
    let mut parents = Vec::new();
    let whole = world.version().clone();
    for clip in clips.filter(|clip| !clip.is_empty()) {
        world.set_version(merge_parents(&[(whole.clone(), clip.clone())]).unwrap());
        world.check_tree(&world.tree, &clip);
        for kind in [1, 3] {
            let plan = some_plan(world.version(), kind, 0, 0);
            let operators = Arc::clone(&world.operators);
            plan.into_iter().for_each(|plan| world.compact(&plan, &operators).unwrap());
            world.check_tree(&world.tree, &clip);
        }
        parents.push((world.version().clone(), clip));
    }
    world.set_version(merge_parents(&parents).unwrap());
}

fn take(world: &mut World, step: Step) {
    let operators = Arc::clone(&world.operators);
    match step {
        Step::Flush(entries) => world.flush(entries.into_iter().map(|e| record(e, world.now_ms)).collect()),
        Step::Pick => {
            if let Some(plan) = pick(world.version(), &tiny(), world.now_ms) {
                world.compact(&plan, &operators).unwrap();
            }
        }
        Step::Plan(a, b, c) => {
            let plan = some_plan(world.version(), a, b, c);
            plan.into_iter().for_each(|plan| world.compact(&plan, &operators).unwrap());
        }
        Step::PlanWithoutOperators(a, b, c) => {
            let plan = some_plan(world.version(), a, b, c);
            plan.into_iter().for_each(|plan| world.compact(&plan, &MergeOperators::default()).unwrap());
        }
        Step::Broken(a, b, c, after) => {
            let Some(plan) = some_plan(world.version(), a, b, c) else { return };
            let which = if after % 2 == 0 { &world.disk.reads_left } else { &world.disk.appends_left };
            *which.lock() = Some(u64::from(after) / 2);
            let done = world.compact(&plan, &operators);
            *world.disk.reads_left.lock() = None;
            *world.disk.appends_left.lock() = None;
            if done.is_err() {
                world.check();
                world.compact(&plan, &operators).unwrap();
            }
        }
        Step::Time(ms) => world.now_ms += i64::from(ms),
        Step::Rescale(parts) => rescale(world, parts.into()),
    }
    world.check();
}

/// 96, or what PROPTEST_CASES says.
fn cases() -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_some() {
        ProptestConfig::default()
    } else {
        ProptestConfig::with_cases(96)
    }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn every_read_equals_the_model_at_every_step(
        steps in proptest::collection::vec(step(), 1..40),
        target_bytes in prop_oneof![Just(1_u64), Just(400), Just(1 << 20)],
        cache_bytes in prop_oneof![Just(1_u64), Just(1 << 20)],
    ) {
        let mut world = World::new(target_bytes, cache_bytes);
        for step in steps {
            take(&mut world, step);
        }
        // However it got there, the picker comes to rest, and nothing is lost on the way.
        let operators = Arc::clone(&world.operators);
        for round in 0.. {
            let Some(plan) = pick(world.version(), &tiny(), world.now_ms) else { break };
            prop_assert!(round < 400, "the picker never rests: {:?}", plan.reason);
            world.compact(&plan, &operators).unwrap();
        }
        world.check();
    }
}

fn all_of_level0(world: &World) -> Plan {
    some_plan(world.version(), 1, 0, 0).unwrap()
}

#[test]
fn lsm_tree_old_value_came_back_after_a_table_moved_behind_an_older_one() {
    let mut world = World::new(300, 1);
    let k = single(1, 1);
    for round in 0..24_u8 {
        let near = (0..4).map(|i| put(&single(u16::from((round + i) % 6), 1), 0, &[round, i]));
        world.flush(near.chain([put(&k, 0, &[round])]).collect());
        if let Some(plan) = pick(world.version(), &tiny(), 0) {
            world.compact(&plan, &MergeOperators::default()).unwrap();
        }
        assert_eq!(world.get(&k).unwrap(), Some(vec![round]));
        world.check();
    }
}

#[test]
fn slatedb_1367_one_key_over_many_segments_reads_newest_and_an_old_tree_stays() {
    let mut world = World::new(128, 1 << 20);
    let k = single(1, 1);
    let mut old = None;
    for round in 0..500_u16 {
        world.flush(vec![put(&k, 0, &round.to_be_bytes())]);
        if round == 100 {
            old = Some((world.tree.clone(), world.disk.ids()));
        }
        while let Some(plan) = pick(world.version(), &tiny(), 0) {
            world.compact(&plan, &MergeOperators::default()).unwrap();
        }
        assert_eq!(world.get(&k).unwrap(), Some(round.to_be_bytes().to_vec()));
    }
    let (tree, _) = old.unwrap();
    let found = tree.get(&k, None, crate::read::Lookup::default(), &world.resolver()).unwrap().unwrap();
    assert_eq!(found.value.as_ref(), 100_u16.to_be_bytes());
}

#[test]
fn rocksdb_6064_slatedb_1769_operands_apply_exactly_once_across_files() {
    let mut world = World::new(1, 1);
    let keys = [grouped(0, 1, b"a"), grouped(0, 1, b"b"), grouped(0, 1, b"c"), single(2, 1)];
    for round in 0..200_u32 {
        let text = round.to_string();
        world.flush(keys.iter().map(|k| merge(k, 0, &[text.as_bytes()])).collect());
        if let Some(plan) = pick(world.version(), &tiny(), 0) {
            let operators = if round % 3 == 0 { Arc::default() } else { Arc::clone(&world.operators) };
            world.compact(&plan, &operators).unwrap();
        }
        let expected = (0..=round).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        for k in &keys {
            assert_eq!(world.get(k).unwrap(), Some(expected.clone().into_bytes()));
        }
    }
    assert!(world.version().level(1).iter().any(|run| run.refs().len() > 1), "several output files");
}

#[test]
fn rocksdb_11782_the_first_block_of_the_second_file_fails_and_a_retry_gives_the_model() {
    let mut world = World::new(1, 1);
    world.flush((0..6).map(|g| put(&single(g, 1), 0, b"old")).collect());
    let plan = all_of_level0(&world);
    world.compact(&plan, &MergeOperators::default()).unwrap();
    assert_eq!(world.version().level(1)[0].refs().len(), 6);
    world.flush((0..6).map(|g| put(&single(g, 2), 0, b"new")).collect());
    let plan = all_of_level0(&world);
    let mut failures = 0;
    for reads in 0.. {
        *world.disk.reads_left.lock() = Some(reads);
        let scanned = world.scan_tree(&world.tree, &KeyRange::all(), crate::base::cursor::Direction::Forward, None);
        *world.disk.reads_left.lock() = Some(reads);
        let before = world.version().clone();
        let compacted = world.compact(&plan, &MergeOperators::default());
        *world.disk.reads_left.lock() = None;
        if let Err(error) = &scanned {
            assert_eq!(error.kind(), ErrorKind::Io);
        }
        if compacted.is_ok() {
            break;
        }
        failures += 1;
        assert_eq!(*world.version(), before, "inputs kept");
        world.check();
    }
    assert!(failures > 10);
    world.check();
}

#[test]
fn paimon_8872_dropping_an_expired_value_does_not_expose_the_older_one() {
    let mut world = World::new(1 << 20, 1);
    let k = single(0, 1);
    world.flush(vec![put(&k, 0, b"v1")]);
    let plan = all_of_level0(&world);
    world.compact(&plan, &MergeOperators::default()).unwrap();
    world.flush(vec![expiring(&k, 0, b"v2", 10)]);
    world.now_ms = 11;
    // A partial compaction that doesn't see the bottom.
    let plan = some_plan(world.version(), 0, 0, 0).unwrap();
    world.compact(&plan, &MergeOperators::default()).unwrap();
    assert_eq!(world.get(&k).unwrap(), None);
    let top = world.version().refs().next().unwrap().2.meta().deletes;
    assert_eq!(top, 1, "it became a delete");
    while let Some(plan) = pick(world.version(), &tiny(), world.now_ms) {
        world.compact(&plan, &MergeOperators::default()).unwrap();
        assert_eq!(world.get(&k).unwrap(), None);
    }
    assert!(world.version().is_empty(), "at the bottom both go");
}

#[test]
fn paimon_8880_an_empty_value_survives_compaction_and_rescaling() {
    let mut world = World::new(1 << 20, 1);
    world.flush(vec![put(&single(3, 1), 0, b"")]);
    let plan = all_of_level0(&world);
    world.compact(&plan, &MergeOperators::default()).unwrap();
    rescale(&mut world, 3);
    assert_eq!(world.get(&single(3, 1)).unwrap(), Some(Vec::new()));
}

#[test]
fn slatedb_1984_clips_do_not_leak_when_one_becomes_many_and_three() {
    let mut world = World::new(1 << 20, 1);
    world.flush((0..6).flat_map(|g| [put(&single(g, 1), 0, b"1"), put(&grouped(g, 1, b"x"), 0, b"2")]).collect());
    world.flush((0..6).map(|g| bare(&grouped(g, 1, b""), 0, Kind::PrefixDelete)).collect());
    for parts in [1, 6, 3, 2] {
        rescale(&mut world, parts);
        world.check();
    }
    let part = merge_parents(&[(world.version().clone(), groups(2, 3))]).unwrap();
    world.set_version(part);
    let plan = all_of_level0(&world);
    world.compact(&plan, &MergeOperators::default()).unwrap();
    world.check_tree(&world.tree, &groups(2, 3));
}

#[test]
fn a_failing_operator_carries_operands_and_the_error_shows_at_the_read() {
    let mut world = World::new(1 << 20, 1);
    let (k, deleted) = (single(0, 1), single(0, 2));
    world.flush(vec![put(&k, 0, b"a"), put(&deleted, 0, b"a")]);
    let plan = all_of_level0(&world);
    world.compact(&plan, &MergeOperators::default()).unwrap();
    world.flush(vec![bare(&deleted, 0, Kind::Delete)]);
    world.flush(vec![merge(&k, 0, &[b"bad"]), merge(&deleted, 0, &[b"fine"])]);
    let operators = Arc::clone(&world.operators);
    // Without an operator, "deleted before" is remembered though the delete itself is merged away.
    let plan = some_plan(world.version(), 0, 0, 1).unwrap();
    assert_eq!(plan.inputs.len(), 2);
    world.compact(&plan, &MergeOperators::default()).unwrap();
    assert_eq!(world.get(&deleted).unwrap(), Some(b"fine".to_vec()));
    let plan = all_of_level0(&world);
    world.compact(&plan, &operators).unwrap();
    assert_eq!(world.version().refs().map(|(_, _, r)| r.meta().merges).sum::<u64>(), 1);
    assert_eq!(world.get(&k).unwrap_err().kind(), ErrorKind::Merge);
    assert_eq!(world.get(&deleted).unwrap(), Some(b"fine".to_vec()));
}

#[test]
fn dropped_states_are_left_out_and_cancelling_leaves_nothing_behind() {
    let mut world = World::new(1 << 20, 1);
    world.flush(
        (0..200).map(|i| put(&single(0, i), 0, &[7; 2_000])).chain([put(&grouped(0, 1, b""), 0, b"g")]).collect(),
    );
    let plan = all_of_level0(&world);
    let before = world.disk.ids();
    let dropped = [crate::base::ids::StateId(super::world::SINGLE)].into_iter().collect();
    let rules = super::rewrite::Rules {
        now_ms: 0,
        operators: &MergeOperators::default(),
        shapes: &world.shapes,
        dropped: &std::collections::HashSet::new(),
    };
    let mut outputs = super::world::NewFiles(Arc::clone(&world.disk));
    let mut calls = 0;
    let mut pace = |bytes: u64| {
        calls += 1;
        assert!((65_536..70_000).contains(&bytes));
        if calls == 3 { Err(super::rewrite::cancelled()) } else { Ok(()) }
    };
    let error = super::executor::run(&plan, &world.tree, rules, world.options, &mut outputs, &mut pace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!(world.disk.ids(), before);
    world.dropped = dropped;
    world.compact(&plan, &MergeOperators::default()).unwrap();
    assert_eq!(world.version().refs().map(|(_, _, r)| r.meta().entries).sum::<u64>(), 1);
}
