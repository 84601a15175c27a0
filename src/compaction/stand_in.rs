//! What stands in for the outputs of a compaction: its inputs, within each output's own keys.
//!
//! An output is made responsible for all keys up to the next output, so that what its inputs hold of dead records there
//! stays where a later compaction must take it along. Where inputs delete prefixes, an output's keys begin and end with a
//! prefix: a delete that is cut off from the records that it hides would let them come back.

use std::sync::Arc;

use super::plan::Plan;
use crate::Result;
use crate::base::key::{KeyRange, prefix_end};
use crate::version::segment_meta::SegmentMeta;
use crate::version::{SegmentRef, StandIns};

/// Length of the (group, state, key, namespace) prefix of a key whose state has grouped entries.
pub type PrefixLen<'a> = dyn Fn(&[u8]) -> Result<Option<usize>> + 'a;

/// References to the files that `plan` made, in key order, with what may stand in for them in the store.
///
/// # Errors
/// Of `prefix_len`.
pub fn outputs(plan: &Plan, created: &[Arc<SegmentMeta>], prefix_len: &PrefixLen<'_>) -> Result<Vec<Arc<SegmentRef>>> {
    let prefixes = plan.refs().any(SegmentRef::may_delete_prefixes);
    let mut extents = Vec::with_capacity(created.len());
    for meta in created {
        extents.push(if prefixes { by_prefix(&meta.range, prefix_len)? } else { meta.range.clone() });
    }
    let free = |between: &KeyRange| between.is_empty() || !plan.neighbours.iter().any(|n| overlap(n, between));
    let mut alone = vec![false; created.len()];
    for at in 0..created.len() {
        let (Some(meta), Some(extent)) = (created.get(at), extents.get(at)) else { continue };
        let before = KeyRange { start: extent.start.clone(), end: Some(meta.range.start.clone()) };
        let after = KeyRange { start: meta.range.end.clone().unwrap_or_default(), end: extent.end.clone() };
        let after_free = meta.range.end.is_none() || free(&after);
        let mut taken = !free(&before) || !after_free;
        if let (Some(end), Some(next)) = (&extent.end, extents.get(at + 1)) {
            // A prefix that is cut.
            if next.start < *end {
                taken = true;
                alone.get_mut(at + 1).into_iter().for_each(|alone| *alone = true);
            }
        }
        alone.get_mut(at).into_iter().for_each(|alone| *alone |= taken);
    }
    let runs = Arc::new(StandIns::new(plan.refs().cloned().collect()));
    let mut refs = Vec::with_capacity(created.len());
    for (at, meta) in created.iter().enumerate() {
        let plain = SegmentRef::local(Arc::clone(meta));
        let Some(mut extent) = extents.get(at).filter(|_| alone.get(at) == Some(&false)).cloned() else {
            refs.push(Arc::new(plain));
            continue;
        };
        let next = extents.get(at + 1).filter(|_| alone.get(at + 1) == Some(&false));
        if let (Some(end), Some(next)) = (&extent.end, next)
            && free(&KeyRange { start: end.clone(), end: Some(next.start.clone()) })
        {
            extent.end = Some(next.start.clone());
        }
        refs.push(Arc::new(plain.with_stand_ins(extent, Some(Arc::clone(&runs)))));
    }
    Ok(refs)
}

/// `range`, a segment's, with all keys of the prefixes at its ends.
fn by_prefix(range: &KeyRange, prefix_len: &PrefixLen<'_>) -> Result<KeyRange> {
    let start = match prefix_len(&range.start)? {
        Some(len) => range.start.get(..len).unwrap_or(&range.start).to_vec(),
        None => range.start.clone(),
    };
    // An end is the last key with a zero behind it, or the end of a prefix, which never ends with one.
    let last = range.end.as_deref().and_then(|end| end.strip_suffix(&[0]));
    let end = match last {
        Some(last) => match prefix_len(last)? {
            Some(len) => prefix_end(last.get(..len).unwrap_or(last)),
            None => range.end.clone(),
        },
        None => range.end.clone(),
    };
    Ok(KeyRange { start, end })
}

fn overlap(a: &KeyRange, b: &KeyRange) -> bool {
    !a.intersect(b).is_empty()
}
