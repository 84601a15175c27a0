use std::sync::Arc;

use super::fixtures::{groups, local};
use super::*;
use crate::base::key::KeyRange;

fn flushes(list: &[(u64, u16, u16)]) -> Version {
    let mut version = Version::default();
    for (id, first, last) in list {
        version = version.apply(&Edit::flush(vec![local(*id, *first, *last, (*id, *id), 100)])).unwrap();
    }
    version
}

fn ids(version: &Version) -> Vec<Vec<Vec<u64>>> {
    let run = |run: &Run| run.refs().iter().map(|r| r.meta().id.0).collect();
    version.levels().iter().map(|runs| runs.iter().map(run).collect()).collect()
}

fn removal(version: &Version, segments: &[u64]) -> Vec<RefId> {
    version.refs().filter(|(_, _, r)| segments.contains(&r.meta().id.0)).map(|(_, _, r)| r.id()).collect()
}

#[test]
fn flushes_stack_and_compactions_replace_in_place() {
    let version = flushes(&[(1, 0, 9), (2, 0, 9), (3, 0, 9), (4, 0, 9)]);
    assert_eq!(ids(&version), [[[4], [3], [2], [1]]]);
    let edit = Edit {
        added: vec![Addition { place: Place::Replaced, refs: vec![local(5, 0, 9, (2, 3), 150)] }],
        removed: removal(&version, &[2, 3]),
    };
    let merged = version.apply(&edit).unwrap();
    assert_eq!(ids(&merged), [[[4], [5], [1]]]);
    // A flush that came between plan and edit changes nothing.
    let later = version.apply(&Edit::flush(vec![local(6, 0, 9, (6, 6), 100)])).unwrap().apply(&edit).unwrap();
    assert_eq!(ids(&later), [[[6], [4], [5], [1]]]);
    assert!(later.apply(&edit).is_err(), "its inputs are gone");
    assert_eq!(ids(&version), [[[4], [3], [2], [1]]], "the old version is untouched");
}

#[test]
fn lsm_tree_moved_behind_an_older_overlapping_run_is_refused() {
    let version = flushes(&[(1, 0, 9), (2, 0, 9), (3, 0, 4)]);
    let down = |segments: &[u64], refs| Edit {
        added: vec![Addition { place: Place::Level(1), refs }],
        removed: removal(&version, segments),
    };
    let error = version.apply(&down(&[2], vec![local(7, 0, 9, (2, 2), 100)])).unwrap_err();
    assert!(error.to_string().contains("change sides"), "{error}");
    assert!(version.apply(&down(&[3, 1], vec![local(7, 0, 9, (1, 3), 100)])).is_err());
    let good = version.apply(&down(&[1, 2], vec![local(7, 0, 9, (1, 2), 100)])).unwrap();
    assert_eq!(ids(&good), [vec![vec![3]], vec![vec![7]]]);
    // A move of the segment itself is seen, too.
    let two = version.refs().find(|(_, _, r)| r.meta().id.0 == 2).unwrap().2.clone();
    assert!(version.apply(&down(&[2], vec![two])).is_err());
}

#[test]
fn overlap_within_a_run_and_old_flushes_are_refused() {
    assert!(Run::new(vec![local(1, 0, 5, (1, 1), 1), local(2, 5, 9, (1, 1), 1)]).is_err());
    let version = flushes(&[(5, 0, 9)]);
    let error = version.apply(&Edit::flush(vec![local(6, 3, 4, (5, 5), 1)])).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Internal);
    assert!(version.apply(&Edit::flush(vec![local(6, 10, 14, (1, 1), 1)])).is_ok(), "nothing overlaps");
}

#[test]
fn runs_find_keys_and_ranges() {
    let run = Run::new(vec![local(1, 0, 1, (1, 1), 1), local(2, 4, 5, (1, 1), 1), local(3, 6, 9, (1, 1), 1)]).unwrap();
    let found = |key: &[u8]| run.find(key).map(|r| r.meta().id.0);
    assert_eq!(found(&[0, 0, 9]), Some(1));
    assert_eq!(found(&[0, 2]), None);
    assert_eq!(found(&[0, 6]), Some(3));
    assert_eq!(found(&[0, 10]), None);
    assert_eq!(run.overlapping(&groups(2, 3)), 1..1);
    assert_eq!(run.overlapping(&groups(1, 6)), 0..3);
    assert_eq!(run.overlapping(&KeyRange::all()), 0..3);
    assert_eq!(run.overlapping(&KeyRange { start: vec![0, 5], end: Some(vec![0, 6]) }), 1..2);
    assert_eq!(run.overlapping(&KeyRange { start: vec![9], end: Some(vec![1]) }), 0..0);
}

#[test]
fn rescaling_two_three_one_four_joins_the_pieces_again() {
    let a = flushes(&[(1, 0, 63), (2, 0, 63)]);
    let b = flushes(&[(11, 64, 127), (12, 64, 127), (13, 64, 100)]);
    let three: Vec<Version> = [groups(0, 42), groups(43, 85), groups(86, 127)]
        .iter()
        .map(|mine| {
            let parents = [(a.clone(), mine.intersect(&groups(0, 63))), (b.clone(), mine.intersect(&groups(64, 127)))];
            let alive: Vec<_> = parents.into_iter().filter(|(_, clip)| !clip.is_empty()).collect();
            merge_parents(&alive).unwrap()
        })
        .collect();
    assert_eq!(ids(&three[0]), [[[2], [1]]]);
    assert_eq!(ids(&three[1]), [vec![vec![13], vec![2, 12], vec![1, 11]]]);
    // The middle one goes on writing.
    let middle = three[1].apply(&Edit::flush(vec![local(20, 43, 85, (20, 20), 100)])).unwrap();
    let parents = [(three[0].clone(), groups(0, 42)), (middle, groups(43, 85)), (three[2].clone(), groups(86, 127))];
    let one = merge_parents(&parents).unwrap();
    assert_eq!(ids(&one), [vec![vec![20], vec![13], vec![2, 12], vec![1, 11]]]);
    assert!(one.refs().all(|(_, _, r)| *r.clip() == KeyRange::all()), "whole again");
    assert_eq!(one.total_bytes(), 600);
    let mut refs = 0;
    for (first, last) in [(0, 31), (32, 63), (64, 95), (96, 127)] {
        let part = merge_parents(&[(one.clone(), groups(first, last))]).unwrap();
        assert!(part.refs().all(|(_, _, r)| groups(first, last).intersect(r.range()) == *r.range()));
        refs += part.ref_count();
    }
    assert_eq!(refs, 2 + 3 + 4 + 3);
}

#[test]
fn rescaling_for_ever_keeps_the_tree_small() {
    let mut version = flushes(&[(1, 0, 127), (2, 0, 127), (3, 5, 90), (4, 0, 127)]);
    let to_level_one = Edit {
        added: vec![Addition { place: Place::Level(1), refs: vec![local(9, 0, 127, (1, 2), 100)] }],
        removed: removal(&version, &[1, 2]),
    };
    version = version.apply(&to_level_one).unwrap();
    for parts in [2_u32, 3, 7, 5, 128, 3] {
        let clips: Vec<_> = (0..parts)
            .map(|i| KeyRange::groups(crate::base::key_group::KeyGroupRange::of_subtask(i, parts, 128).unwrap()))
            .collect();
        let split: Vec<_> = clips
            .iter()
            .map(|clip| (merge_parents(&[(version.clone(), clip.clone())]).unwrap(), clip.clone()))
            .collect();
        version = merge_parents(&split).unwrap();
        assert_eq!(ids(&version), [vec![vec![4], vec![3]], vec![vec![9]]]);
    }
}

#[test]
fn overlapping_or_crooked_clips_are_refused() {
    let version = flushes(&[(1, 0, 9)]);
    assert!(merge_parents(&[(version.clone(), groups(0, 5)), (version.clone(), groups(5, 9))]).is_err());
    let inside = KeyRange { start: vec![0; 7], end: None };
    assert!(merge_parents(&[(version, inside)]).is_err());
    assert!(merge_parents(&[]).unwrap().is_empty());
}

#[test]
fn names_come_and_the_unnamed_are_listed() {
    let version = flushes(&[(1, 0, 9), (2, 0, 9)]);
    assert_eq!(version.unnamed().len(), 2);
    let names = [(crate::base::ids::SegmentId(1), (0, Arc::from("3/1-ab")))].into_iter().collect();
    let named = version.with_names(&names).unwrap();
    assert_eq!(named.names(), [(0, Arc::from("3/1-ab"))]);
    assert_eq!(named.unnamed().len(), 1);
    assert_eq!(named.map_roots(|root| root + 2).unwrap().names(), [(2, Arc::from("3/1-ab"))]);
}

#[test]
fn live_share_follows_the_key_groups() {
    let whole = local(1, 0, 9, (1, 1), 1000);
    let half = whole.clipped(&groups(0, 4)).unwrap();
    assert!((half.live_share() - 0.5).abs() < 1e-9);
    assert_eq!(half.live_bytes(), 500);
    assert!(whole.clipped(&groups(10, 20)).is_none());
    assert_eq!(*whole.clipped(&groups(0, 20)).unwrap().clip(), KeyRange::all());
}
