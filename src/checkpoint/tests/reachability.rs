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
use crate::{Error, ErrorKind};

const EPOCH: u64 = 3;
const GRACE_MS: i64 = 100;
const NOW_MS: i64 = 1000;

/// A checkpoint: its epoch, the segments it reaches (numbers), and when it was condemned, if it was.
type Drawn = (u64, Vec<u8>, Option<i64>);

fn name(epoch: u64, number: u64, kind: ObjectKind) -> String {
    ObjectName::new("op", 0, epoch, number, number, kind).to_string()
}

/// Segment `number`, of an epoch that follows from the number.
fn segment(number: u8) -> String {
    name(1 + u64::from(number) % EPOCH, u64::from(number), ObjectKind::Segment)
}

fn completed(id: CheckpointId, manifest: ObjectRef) -> CompletedCheckpoint {
    let part = CheckpointPart {
        checkpoint: id,
        operator: "op".to_owned(),
        subtask: 0,
        parallelism: 1,
        max_parallelism: 1,
        key_groups: KeyGroupRange::of_subtask(0, 1, 1).unwrap(),
        manifest,
        self_contained: false,
        delta_bytes: 0,
        uploaded_bytes: 0,
        full_bytes: 0,
    };
    CompletedCheckpoint { id, completed_ms: 0, metadata: Vec::new(), parts: vec![part] }
}

proptest! {
    #[test]
    fn goes_exactly_what_nobody_reaches_or_may_come_to_reach(
        drawn in prop::collection::vec((1..=EPOCH, prop::collection::vec(0..12_u8, 0..5), prop::option::of(800..1000_i64)), 0..7),
        stored in prop::collection::btree_map(0..16_u8, 800..1000_i64, 0..16),
        lost_manifest in prop::option::of(0..7_usize),
        held_back in any::<bool>(),
    ) {
        let drawn: Vec<Drawn> = drawn;
        let mut state = LineageState::default();
        state.claim = Some(Claim { epoch: EPOCH, attempt: 1 });
        let mut objects: BTreeMap<String, i64> = stored.iter().map(|(n, ms)| (segment(*n), *ms)).collect();
        let mut trees = BTreeMap::new();
        let due = |at: &Option<i64>| !held_back && at.is_some_and(|at| at + GRACE_MS <= NOW_MS);
        for (number, (epoch, tree, condemned)) in drawn.iter().enumerate() {
            let id = CheckpointId { epoch: *epoch, id: number as u64 };
            let manifest = name(*epoch, 100 + number as u64, ObjectKind::Manifest);
            // Only a manifest that is due may be gone: an earlier run died after deleting it.
            if lost_manifest != Some(number) || !due(condemned) {
                objects.insert(manifest.clone(), 900);
                trees.insert(manifest.clone(), tree.iter().map(|n| segment(*n)).collect::<Vec<_>>());
            }
            let manifest = ObjectRef { name: manifest, length_bytes: 1, hash: 1 };
            match condemned {
                Some(at) => state.condemned.push(Condemned { id, condemned_ms: *at, manifests: vec![manifest] }),
                None => state.checkpoints.push(completed(id, manifest)),
            }
        }

        let mut expected = BTreeSet::new();
        for (object, modified_ms) in &objects {
            let reaches = |number: usize| {
                let manifest = name(drawn[number].0, 100 + number as u64, ObjectKind::Manifest);
                *object == manifest || trees.get(&manifest).is_some_and(|tree| tree.contains(object))
            };
            let reached: Vec<usize> = (0..drawn.len()).filter(|n| reaches(*n)).collect();
            let live = reached.iter().any(|n| !due(&drawn[*n].2));
            let orphaned = ObjectName::parse(object).unwrap().epoch < EPOCH && modified_ms + GRACE_MS <= NOW_MS;
            if !live && (!reached.is_empty() || orphaned) {
                expected.insert(object.clone());
            }
        }

        let listing: Vec<_> = objects
            .iter()
            .map(|(name, ms)| ObjectEntry { name: name.clone(), length_bytes: 1, modified_ms: *ms })
            .collect();
        let references = |manifest: &ObjectRef| {
            trees.get(&manifest.name).cloned().ok_or_else(|| Error::new(ErrorKind::NotFound, manifest.name.clone()))
        };
        let facts = Facts {
            state: &state, now_ms: NOW_MS, grace_ms: GRACE_MS, held_back, objects: &listing, leftovers: &[],
        };
        let plan = plan(&facts, &references).unwrap();
        let planned: BTreeSet<_> = plan.objects.iter().chain(&plan.manifests).cloned().collect();
        prop_assert_eq!(&planned, &expected);
        prop_assert_eq!(plan.bytes, expected.len() as u64);
        let forgotten = drawn.iter().filter(|d| due(&d.2)).count();
        prop_assert_eq!(plan.forget.len(), forgotten);
    }
}
