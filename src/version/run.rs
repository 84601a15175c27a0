//! A run: references that are sorted and disjoint.

use std::sync::Arc;

use super::segment_ref::{RefId, SegmentRef, ranges_overlap};
use crate::base::key::KeyRange;
use crate::{Error, Result};

/// Sorted references of which no two overlap. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run(Arc<Vec<Arc<SegmentRef>>>);

impl Run {
    /// A run of `refs`, which need not be sorted.
    ///
    /// # Errors
    /// Internal when two of them overlap or one is empty.
    pub fn new(mut refs: Vec<Arc<SegmentRef>>) -> Result<Self> {
        refs.sort_by(|a, b| a.range().start.cmp(&b.range().start));
        for pair in refs.windows(2) {
            if let [a, b] = pair
                && a.overlaps(b)
            {
                return Err(Error::internal(format!(
                    "segments {} and {} overlap within one run",
                    a.meta().id,
                    b.meta().id
                )));
            }
        }
        if let Some(empty) = refs.iter().find(|r| r.range().is_empty()) {
            return Err(Error::internal(format!("the clip of segment {} leaves no key", empty.meta().id)));
        }
        Ok(Self(Arc::new(refs)))
    }

    /// Its references in key order.
    #[must_use]
    pub fn refs(&self) -> &[Arc<SegmentRef>] {
        &self.0
    }

    /// True when it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one reference that may hold `key`.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<SegmentRef>> {
        self.index_of(key).and_then(|at| self.0.get(at))
    }

    /// Index in [`Run::refs`] of the one reference that may hold `key`.
    #[must_use]
    pub fn index_of(&self, key: &[u8]) -> Option<usize> {
        let after = self.0.partition_point(|r| r.range().start.as_slice() <= key);
        let at = after.checked_sub(1)?;
        self.0.get(at).filter(|r| r.range().contains(key)).map(|_| at)
    }

    /// Indexes of the references that overlap `range`.
    #[must_use]
    pub fn overlapping(&self, range: &KeyRange) -> std::ops::Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let start = self.0.partition_point(|r| r.range().end.as_ref().is_some_and(|end| *end <= range.start));
        let end = match &range.end {
            Some(end) => self.0.partition_point(|r| r.range().start < *end),
            None => self.0.len(),
        };
        start..end.max(start)
    }

    /// True when some reference overlaps `range`.
    #[must_use]
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        !self.overlapping(range).is_empty()
    }

    /// True when a reference of one overlaps a reference of the other.
    #[must_use]
    pub fn overlaps_run(&self, other: &Self) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if ranges_overlap(x.range(), y.range()) {
                return true;
            }
            if x.range().start < y.range().start {
                a.next();
            } else {
                b.next();
            }
        }
        false
    }

    /// Bytes of its segments, what clips cut away included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|r| r.meta().length_bytes).sum()
    }

    /// A guess at the bytes within clips.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.0.iter().map(|r| r.live_bytes()).sum()
    }

    /// The run without the references in `removed`; itself when none of them is.
    pub(crate) fn without(&self, removed: &std::collections::HashSet<RefId>) -> Self {
        if self.0.iter().any(|r| removed.contains(&r.id())) {
            Self(Arc::new(self.0.iter().filter(|r| !removed.contains(&r.id())).cloned().collect()))
        } else {
            self.clone()
        }
    }
}
