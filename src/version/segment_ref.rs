//! A reference to a segment from a tree.

use std::sync::Arc;

use super::segment_meta::SegmentMeta;
use super::stand_ins::StandIns;
use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;

/// Tells the references of one tree apart: a tree may list one segment twice, with two clips.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RefId {
    /// The segment.
    pub segment: SegmentId,
    /// First key of the clip.
    pub clip_start: Vec<u8>,
}

/// A segment, where it is durable, and which of its keys count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRef {
    meta: Arc<SegmentMeta>,
    root: u16,
    name: Option<Arc<str>>,
    clip: KeyRange,
    range: KeyRange,
    /// Of a segment that a compaction made here.
    stand_ins: Option<Arc<StandIns>>,
}

impl SegmentRef {
    /// A reference to all of a new segment of our own root that isn't durable yet.
    #[must_use]
    pub fn local(meta: Arc<SegmentMeta>) -> Self {
        Self::new(meta, 0, None, KeyRange::all())
    }

    /// A reference to the keys of `meta` within `clip`; `root` indexes the manifest's root table, `name` is the
    /// object's name below that root once it is durable. A clip that cuts nothing away is stored as the whole
    /// key space, so that references met on different ways are equal.
    #[must_use]
    pub fn new(meta: Arc<SegmentMeta>, root: u16, name: Option<Arc<str>>, clip: KeyRange) -> Self {
        let range = meta.range.intersect(&clip);
        let clip = if range == meta.range { KeyRange::all() } else { clip };
        Self { meta, root, name, clip, range, stand_ins: None }
    }

    /// The segment.
    #[must_use]
    pub fn meta(&self) -> &Arc<SegmentMeta> {
        &self.meta
    }

    /// Index of its root in the root table; 0 is our own.
    #[must_use]
    pub fn root(&self) -> u16 {
        self.root
    }

    /// Name of the durable object below its root; `None` while it exists only locally.
    #[must_use]
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// Keys that count.
    #[must_use]
    pub fn clip(&self) -> &KeyRange {
        &self.clip
    }

    /// Keys of the tree that are its: the segment's own range within the clip, or more where it was given more
    /// ([`SegmentRef::with_stand_ins`]).
    #[must_use]
    pub fn range(&self) -> &KeyRange {
        &self.range
    }

    /// Its identity within a tree.
    #[must_use]
    pub fn id(&self) -> RefId {
        RefId { segment: self.meta.id, clip_start: self.clip.start.clone() }
    }

    /// The same segment under `name` in `root`.
    #[must_use]
    pub fn named(&self, root: u16, name: Arc<str>) -> Self {
        Self { root, name: Some(name), ..self.clone() }
    }

    /// What may stand in for it in the store.
    #[must_use]
    pub fn stand_ins(&self) -> Option<&StandIns> {
        self.stand_ins.as_deref()
    }

    /// The same segment, responsible for all keys of `extent`, with `stand_ins` that say the same as it within them.
    #[must_use]
    pub fn with_stand_ins(&self, extent: KeyRange, stand_ins: Option<Arc<StandIns>>) -> Self {
        Self { range: extent, stand_ins, ..self.clone() }
    }

    /// The same keys of the segment that count, and no stand-ins.
    #[must_use]
    pub fn without_stand_ins(&self) -> Self {
        Self::new(Arc::clone(&self.meta), self.root, self.name.clone(), self.clip.clone())
    }

    /// The same segment with its clip narrowed to `clip`; `None` when no key is left.
    #[must_use]
    pub fn clipped(&self, clip: &KeyRange) -> Option<Self> {
        let range = self.range.intersect(clip);
        if range.is_empty() {
            return None;
        }
        let whole = range == self.meta.range || (range == self.range && self.clip == KeyRange::all());
        let clip = if whole { KeyRange::all() } else { self.clip.intersect(clip) };
        Some(Self { clip, range, ..self.clone() })
    }

    /// One reference for this one and `next`, when they are pieces of one segment that meet.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        let meet = self.meta.id == next.meta.id && self.clip.end.as_ref() == Some(&next.clip.start);
        let plain = self.stand_ins.is_none() && next.stand_ins.is_none();
        let clip = KeyRange { start: self.clip.start.clone(), end: next.clip.end.clone() };
        let name = self.name.as_ref().or(next.name.as_ref()).cloned();
        (meet && plain).then(|| Self::new(Arc::clone(&self.meta), self.root, name, clip))
    }

    /// True when a key is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        ranges_overlap(&self.range, &other.range)
    }

    /// A guess at the share of the segment's bytes within the clip, in 0..=1, from how many of its key groups
    /// the clip leaves.
    #[must_use]
    pub fn live_share(&self) -> f64 {
        if self.clip == KeyRange::all() {
            return 1.0;
        }
        let (live, all) = (group_span(&self.range), group_span(&self.meta.range));
        (f64::from(live) / f64::from(all)).min(1.0)
    }

    /// A guess at the bytes within the clip.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a guess")]
    pub fn live_bytes(&self) -> u64 {
        (self.meta.length_bytes as f64 * self.live_share()) as u64
    }
}

/// True when some key is in both ranges.
pub(super) fn ranges_overlap(a: &KeyRange, b: &KeyRange) -> bool {
    let starts_before_end = |x: &KeyRange, y: &KeyRange| y.end.as_ref().is_none_or(|end| x.start < *end);
    starts_before_end(a, b) && starts_before_end(b, a) && !a.is_empty() && !b.is_empty()
}

fn group_span(range: &KeyRange) -> u32 {
    let group = |key: &[u8]| match key {
        [high, low, ..] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        [] => 0,
    };
    let first = group(&range.start);
    let last = match range.end.as_deref() {
        None => u32::from(u16::MAX),
        // An end of two bytes or fewer, or one followed by nothing, excludes its own group.
        Some(end) if end.len() <= 2 => group(end).saturating_sub(1),
        Some(end) => group(end),
    };
    last.saturating_sub(first) + 1
}
