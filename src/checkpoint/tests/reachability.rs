//! The decision what to delete, against a naive model of who can reach what.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::base::ids::CheckpointId;
use crate::base::key_group::KeyGroupRange;
use crate::checkpoint::claim::Claim;
use crate::checkpoint::completed::CompletedCheckpoint;
use crate::checkpoint::gc::{Facts, plan};
use crate::checkpoint::log::{Condemned, LineageState};
use crate::checkpoint::object_name::{ObjectKind, ObjectName};
use crate::checkpoint::part::{CheckpointPart, ObjectRef};
use crate::io::store::ObjectEntry;

const EPOCH: u64 = 3;
const GRACE_MS: i64 = 100;
const NOW_MS: i64 = 1000;

/// What became of a checkpoint.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Retained,
    Condemned(i64),
    /// Given up, or not done yet.
    Open,
}

#[derive(Debug, Clone)]
struct Drawn {
    epoch: u64,
    fate: Fate,
    self_contained: bool,
    /// Segments that it reaches, by number.
    tree: Vec<u8>,
    /// Counters from 0 to here are settled by it.
    settled: u64,
    written_ms: i64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let fate = prop_oneof![Just(Fate::Retained), (800..1000_i64).prop_map(Fate::Condemned), Just(Fate::Open)];
    let tree = prop::collection::vec(0..12_u8, 0..5);
    (1..=EPOCH, fate, any::<bool>(), tree, 0..16_u64, 800..1000_i64).prop_map(
        |(epoch, fate, self_contained, tree, settled, written_ms)| Drawn {
            epoch,
            fate,
            self_contained,
            tree,
            settled,
            written_ms,
        },
    )
}

fn name(epoch: u64, counter: u64, checkpoint: Option<u64>, kind: ObjectKind) -> String {
    ObjectName { folder: "op".to_owned(), subtask: 0, epoch, counter, hash: counter, checkpoint, kind }.to_string()
}

/// Segment `number`, of an epoch that follows from the number.
fn segment(number: u8) -> String {
    name(1 + u64::from(number) % EPOCH, u64::from(number), None, ObjectKind::Segment)
}

fn completed(id: CheckpointId, manifest: String, drawn: &Drawn) -> CompletedCheckpoint {
    let part = CheckpointPart {
        checkpoint: id,
        operator: "op".to_owned(),
        subtask: 0,
        parallelism: 1,
        max_parallelism: 1,
        key_groups: KeyGroupRange::of_subtask(0, 1, 1).unwrap(),
        manifest: ObjectRef { name: manifest, length_bytes: 1, hash: 1 },
        self_contained: drawn.self_contained,
        settled: 0..drawn.settled,
        delta_bytes: 0,
        uploaded_bytes: 0,
        full_bytes: 0,
    };
    CompletedCheckpoint { id, completed_ms: 0, metadata: Vec::new(), parts: vec![part] }
}

/// What the log says of the checkpoints that were drawn; those that are condemned in one span when they are `joined`.
fn lineage(drawn: &[Drawn], ids: &[CheckpointId], manifest: impl Fn(usize) -> String, joined: bool) -> LineageState {
    let mut state = LineageState::default();
    state.claim = Some(Claim { epoch: EPOCH, attempt: 1 });
    for (at, one) in drawn.iter().enumerate() {
        match one.fate {
            Fate::Retained => state.checkpoints.push(completed(ids[at], manifest(at), one)),
            Fate::Condemned(ms) => {
                state.condemned.push(Condemned { first: ids[at], last: ids[at], since_ms: ms, condemned_ms: ms });
            }
            Fate::Open => {}
        }
    }
    if joined && !state.condemned.is_empty() {
        let (first, last) = (state.condemned[0].first, state.condemned.last().unwrap().last);
        let condemned_ms = state.condemned.iter().map(|c| c.condemned_ms).max().unwrap();
        state.condemned = vec![Condemned { first, last, since_ms: 0, condemned_ms }];
    }
    state
}

proptest! {
    #[test]
    fn goes_exactly_what_nobody_reaches_or_may_come_to_reach(
        drawn in prop::collection::vec(drawn(), 0..8),
        stored in prop::collection::btree_map(0..16_u8, 800..1000_i64, 0..16),
        held_back in any::<bool>(),
        joined in any::<bool>(),
    ) {
        let mut drawn = drawn;
        drawn.sort_by_key(|d| d.epoch);
        let ids: Vec<_> = (0_u64..).zip(&drawn).map(|(id, d)| CheckpointId { epoch: d.epoch, id }).collect();
        let manifest = |at: usize| name(ids[at].epoch, 100 + ids[at].id, Some(ids[at].id), ObjectKind::Manifest);
        let state = lineage(&drawn, &ids, manifest, joined);
        let mut objects: BTreeMap<String, i64> = stored.iter().map(|(n, ms)| (segment(*n), *ms)).collect();
        objects.extend(drawn.iter().enumerate().map(|(at, one)| (manifest(at), one.written_ms)));

        // Who reaches what, and until when: each checkpoint lives, goes, or isn't ours to judge.
        let old = |ms: i64| ms + GRACE_MS <= NOW_MS;
        let newest = (0..drawn.len()).rev().find(|at| matches!(drawn[*at].fate, Fate::Retained));
        let base = (0..drawn.len())
            .rev()
            .find(|at| matches!(drawn[*at].fate, Fate::Retained) && !drawn[*at].self_contained);
        let condemned_ms = |at: usize| state.condemned.iter().filter(|c| c.contains(ids[at])).map(|c| c.condemned_ms).max();
        let lives = |at: usize| match (drawn[at].fate, condemned_ms(at)) {
            (Fate::Retained, _) => true,
            (_, Some(ms)) => held_back || !old(ms),
            _ => false,
        };
        let mut expected = BTreeSet::new();
        for at in (0..drawn.len()).filter(|at| !lives(*at)) {
            let given_up = ids[at].epoch < EPOCH || (!held_back && newest.is_some_and(|newest| at < newest));
            if condemned_ms(at).is_some() || (given_up && old(drawn[at].written_ms)) {
                expected.insert(manifest(at));
            }
        }
        for (number, ms) in &stored {
            let live = (0..drawn.len()).any(|at| lives(at) && drawn[at].tree.contains(number));
            let epoch = 1 + u64::from(*number) % EPOCH;
            let settled = base.is_some_and(|at| ids[at].epoch == EPOCH && u64::from(*number) < drawn[at].settled);
            if !live && old(*ms) && (epoch < EPOCH || (settled && !held_back)) {
                expected.insert(segment(*number));
            }
        }

        let listing: Vec<_> = objects
            .iter()
            .map(|(name, ms)| ObjectEntry { name: name.clone(), length_bytes: 1, modified_ms: *ms })
            .collect();
        let references = |object: &ObjectRef| {
            let at = (0..drawn.len()).find(|at| manifest(*at) == object.name).unwrap();
            assert!(lives(at), "what goes needn't be read");
            Ok(drawn[at].tree.iter().map(|n| segment(*n)).collect())
        };
        let facts = Facts {
            state: &state, now_ms: NOW_MS, grace_ms: GRACE_MS, held_back, objects: &listing, leftovers: &[],
        };
        let plan = plan(&facts, &references).unwrap();
        let planned: BTreeSet<_> = plan.all().map(|doomed| doomed.name.clone()).collect();
        prop_assert_eq!(&planned, &expected);
        prop_assert_eq!(plan.bytes, expected.len() as u64);
        let due = state.condemned.iter().filter(|c| !held_back && old(c.condemned_ms)).count();
        prop_assert_eq!(plan.forget.len(), due);
    }
}
