use std::sync::Arc;

use super::picker::{Options, pick};
use super::plan::{Action, Plan, Reason};
use crate::version::fixtures::{groups, local, meta};
use crate::version::segment_meta::SegmentMeta;
use crate::version::{Addition, Edit, Place, Run, SegmentRef, Version};

const MIB: u64 = 1 << 20;

fn tree(levels: &[&[&[Arc<SegmentRef>]]]) -> Version {
    let level = |runs: &&[&[Arc<SegmentRef>]]| runs.iter().map(|refs| Run::new(refs.to_vec()).unwrap()).collect();
    Version::new(levels.iter().map(level).collect()).unwrap()
}

fn ids(plan: &Plan) -> Vec<Vec<u64>> {
    plan.inputs.iter().map(|run| run.iter().map(|r| r.meta().id.0).collect()).collect()
}

fn level0(sizes_newest_first: &[u64]) -> Version {
    let count = sizes_newest_first.len() as u64;
    let run = |(at, size): (usize, &u64)| {
        let age = count - at as u64;
        Run::new(vec![local(age, 0, 127, (age, age), *size)]).unwrap()
    };
    Version::new(vec![sizes_newest_first.iter().enumerate().map(run).collect()]).unwrap()
}

/// A segment of which `change` has been made.
fn odd(id: u64, first: u16, last: u16, change: impl Fn(&mut SegmentMeta)) -> Arc<SegmentRef> {
    let mut meta = meta(id, first, last, (id, id), MIB);
    change(&mut meta);
    Arc::new(SegmentRef::local(Arc::new(meta)))
}

#[test]
fn level_0_merges_adjacent_runs_of_similar_size() {
    let table: [(&[u64], Option<&[u64]>); 7] = [
        (&[], None),
        (&[1, 1, 1], None),
        (&[1, 1, 1, 1], Some(&[4, 3, 2, 1])),
        (&[1, 1, 1, 4], None),
        (&[1, 1, 1, 1, 4], Some(&[5, 4, 3, 2])),
        (&[1, 4, 4, 4, 4, 9], Some(&[6, 5, 4, 3, 2])),
        (&[1, 1, 9, 1, 1], None),
    ];
    for (sizes, expected) in table {
        let sizes: Vec<u64> = sizes.iter().map(|s| s * MIB / 8).collect();
        let plan = pick(&level0(&sizes), &Options::default(), 0);
        let picked: Option<Vec<u64>> = plan.as_ref().map(|p| ids(p).concat());
        assert_eq!(picked.as_deref(), expected, "{sizes:?}");
        if let Some(plan) = plan {
            assert_eq!((plan.reason, plan.action), (Reason::Tier, Action::Rewrite(Place::Replaced)));
        }
    }
}

#[test]
fn runs_that_are_not_similar_merge_when_there_are_many() {
    let sizes: Vec<u64> = (0..10).map(|n| 3_u64.pow(n)).collect();
    assert!(pick(&level0(&sizes[1..]), &Options::default(), 0).is_none());
    assert_eq!(pick(&level0(&sizes), &Options::default(), 0).unwrap().reason, Reason::Tier);
}

#[test]
fn level_0_goes_down_as_a_whole_with_what_it_overlaps() {
    let below = [local(1, 0, 9, (1, 1), MIB), local(2, 20, 29, (1, 1), MIB), local(3, 30, 39, (1, 1), MIB)];
    let version = tree(&[&[&[local(9, 5, 6, (9, 9), MIB)], &[local(8, 8, 25, (8, 8), 16 * MIB)]], &[&below]]);
    let plan = pick(&version, &Options::default(), 0).unwrap();
    assert_eq!((plan.reason, plan.action), (Reason::Level0, Action::Rewrite(Place::Level(1))));
    assert_eq!(ids(&plan), [vec![9], vec![8], vec![1, 2]]);
    assert!(!plan.older_holds(&[0, 5]) && plan.older_holds(&[0, 30]), "untouched neighbours count, at no cost");
    let many = pick(&level0(&[1; 16]), &Options::default(), 0).unwrap();
    assert_eq!(many.reason, Reason::Level0, "sixteen runs go down whatever their size");
}

#[test]
fn a_level_over_its_target_sends_down_what_drags_least_along() {
    let options = Options { base_bytes: 2 * MIB, ..Options::default() };
    let one = [local(1, 0, 9, (5, 5), MIB), local(2, 10, 19, (5, 5), MIB), local(3, 20, 29, (5, 5), MIB)];
    let two = [local(4, 0, 5, (1, 1), 3 * MIB), local(5, 12, 13, (1, 1), MIB), local(6, 20, 29, (1, 1), 2 * MIB)];
    let version = tree(&[&[], &[&one], &[&two]]);
    let plan = pick(&version, &options, 0).unwrap();
    assert_eq!((plan.reason, plan.action), (Reason::Overflow, Action::Rewrite(Place::Level(2))));
    assert_eq!(ids(&plan), [[2], [5]]);
    // With nothing in its way it moves.
    let version = tree(&[&[], &[&one], &[&two[..1]]]);
    let plan = pick(&version, &options, 0).unwrap();
    assert_eq!(plan.action, Action::Move(Place::Level(2)));
    let moved = version.apply(&plan.immediate_edit().unwrap()).unwrap();
    assert_eq!(moved.level(1)[0].refs().len(), 2);
    assert_eq!(pick(&moved, &options, 0).unwrap().reason, Reason::Overflow, "until it has a tenth of what lies below");
    let below =
        [local(4, 0, 9, (1, 1), 9 * MIB), local(5, 10, 19, (1, 1), 9 * MIB), local(6, 20, 29, (1, 1), 12 * MIB)];
    assert_eq!(pick(&tree(&[&[], &[&one], &[&below]]), &options, 0), None);
}

#[test]
fn the_wholly_expired_go_only_when_they_uncover_nothing() {
    let dying = |id, first, last| odd(id, first, last, |m| m.expiries = (5, 10));
    let version = tree(&[&[&[dying(9, 0, 9)]], &[&[dying(2, 0, 4), local(3, 20, 29, (1, 1), MIB)]]]);
    assert_eq!(pick(&version, &Options::default(), 9), None, "not yet");
    let plan = pick(&version, &Options::default(), 10).unwrap();
    assert_eq!((plan.reason, plan.action), (Reason::Expired, Action::Drop));
    assert_eq!(ids(&plan), [[9], [2]], "what lies below goes in the same edit");
    let left = version.apply(&plan.immediate_edit().unwrap()).unwrap();
    assert_eq!(left.ref_count(), 1);
    // Over a living segment: never dropped as a whole, merged with what it hides instead.
    let version = tree(&[&[], &[&[dying(9, 0, 9)]], &[&[local(1, 9, 12, (1, 1), MIB)]]]);
    let plan = pick(&version, &Options::default(), 10).unwrap();
    assert_eq!((plan.reason, plan.action), (Reason::Dead, Action::Rewrite(Place::Level(2))));
    assert_eq!(ids(&plan), [[9], [1]]);
    // With a delete or a merge in it, it isn't all expired values.
    for change in [|m: &mut SegmentMeta| m.deletes = 1, |m: &mut SegmentMeta| m.merges = 1] {
        let segment = odd(9, 0, 9, |m| {
            m.expiries = (5, 10);
            change(m);
        });
        assert_eq!(pick(&tree(&[&[&[segment]]]), &Options::default(), 10), None);
    }
}

#[test]
fn tombstones_are_picked_eventually() {
    let grave = odd(9, 0, 9, |m| m.deletes = m.entries * 2 / 3);
    let version = tree(&[&[], &[&[Arc::clone(&grave)]], &[], &[&[local(1, 0, 30, (1, 1), MIB)]]]);
    let plan = pick(&version, &Options::default(), 0).unwrap();
    assert_eq!((plan.reason, plan.action), (Reason::Dead, Action::Move(Place::Level(2))));
    let version = version.apply(&plan.immediate_edit().unwrap()).unwrap();
    let plan = pick(&version, &Options::default(), 0).unwrap();
    assert_eq!((plan.action, ids(&plan)), (Action::Rewrite(Place::Level(3)), vec![vec![9], vec![1]]));
    let alone = tree(&[&[], &[&[grave]]]);
    assert_eq!(pick(&alone, &Options::default(), 0).unwrap().action, Action::Rewrite(Place::Level(1)));
}

#[test]
fn what_clips_cut_away_is_rewritten_once_the_restore_has_settled() {
    let cut = Arc::new(local(1, 0, 99, (3, 3), MIB).clipped(&groups(0, 9)).unwrap());
    let mut version = tree(&[&[], &[&[Arc::clone(&cut)]]]);
    assert_eq!(pick(&version, &Options::default(), 0), None);
    version = version
        .apply(&Edit {
            added: vec![Addition { place: Place::Newest, refs: vec![local(2, 50, 51, (300, 300), MIB)] }],
            removed: vec![],
        })
        .unwrap();
    let plan = pick(&version, &Options::default(), 0).unwrap();
    assert_eq!((plan.reason, plan.action), (Reason::Clipped, Action::Rewrite(Place::Level(1))));
    assert_eq!(ids(&plan), [[1]]);
}
