//! What the store may hold in place of a segment that it doesn't have.
//!
//! A compaction's output says the same as its inputs did, within the keys that are the output's. So where the store has
//! the inputs, they can stand in for the output in a manifest, and the output need not be uploaded. An input that isn't
//! stored either may have stand-ins of its own. All of this is plain data that hangs on references, so a tree, and with
//! it a checkpoint, owns what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::Run;
use super::segment_ref::SegmentRef;
use super::tree::Version;
use crate::Result;
use crate::base::key::KeyRange;

/// References that together say what a segment says, each cut to the segment's keys when it is used. Of two that overlap
/// the newer one comes first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StandIns(Vec<Arc<SegmentRef>>);

/// Whether a reference is taken as it is, where it could be replaced by its stand-ins.
pub type Itself<'a> = dyn Fn(&SegmentRef) -> bool + 'a;

impl StandIns {
    /// Stand-ins; of two that overlap the newer one comes first.
    #[must_use]
    pub fn new(refs: Vec<Arc<SegmentRef>>) -> Self {
        Self(refs)
    }

    /// The references, newer ones before those that they overlap.
    #[must_use]
    pub fn refs(&self) -> &[Arc<SegmentRef>] {
        &self.0
    }
}

impl SegmentRef {
    /// What says what this reference says, newer before older: itself, or its stand-ins where it has some and `itself` is
    /// false of it, and so on with each of those.
    #[must_use]
    pub fn resolved(self: &Arc<Self>, itself: &Itself<'_>) -> Vec<Arc<Self>> {
        let mut out = Vec::new();
        self.resolve(itself, &mut out);
        out
    }

    fn resolve(self: &Arc<Self>, itself: &Itself<'_>, out: &mut Vec<Arc<Self>>) {
        let Some(stand_ins) = self.stand_ins().filter(|_| !itself(self)) else {
            if self.says_something() {
                out.push(Arc::clone(self));
            }
            return;
        };
        for r in stand_ins.refs().iter().filter_map(|r| r.clipped(self.range())) {
            Arc::new(r).resolve(itself, out);
        }
    }

    /// The same reference with stand-ins that don't go further than need be: those of which `settled` says that they are
    /// or will be stored stay; where the others have stand-ins of their own, these take their place. `stored` ones need none.
    #[must_use]
    pub fn simplified(self: &Arc<Self>, settled: &Itself<'_>, stored: &Itself<'_>) -> Self {
        if self.stand_ins().is_none() {
            return (**self).clone();
        }
        let own = self.meta().id;
        let mut refs = self.resolved(&|r| r.meta().id != own && settled(r));
        for r in refs.iter_mut().filter(|r| r.stand_ins().is_some() && stored(r)) {
            *r = Arc::new(r.without_stand_ins());
        }
        let refs = pack(refs).into_iter().rev().flatten().collect();
        self.with_stand_ins(self.range().clone(), Some(Arc::new(StandIns::new(refs))))
    }

    /// False of a piece that lies beside all of the segment's own records.
    fn says_something(&self) -> bool {
        !self.meta().range.intersect(self.clip()).is_empty()
    }

    /// Visits this reference, and where `see` is true of it its stand-ins, and so on.
    pub fn visit(self: &Arc<Self>, see: &mut dyn FnMut(&Arc<Self>) -> bool) {
        if see(self) {
            self.stand_ins().into_iter().flat_map(StandIns::refs).for_each(|r| r.visit(see));
        }
    }

    /// True when it or a stand-in of it has prefix deletes.
    #[must_use]
    pub fn may_delete_prefixes(self: &Arc<Self>) -> bool {
        let mut any = false;
        self.visit(&mut |r| {
            any |= r.meta().prefix_deletes > 0;
            !any
        });
        any
    }
}

/// Runs that hold `refs`, of which the newer come before those that they overlap: each as deep as those allow that it
/// overlaps and that are older. The deepest run comes first. Pieces of one segment that meet become one.
#[must_use]
pub fn pack(refs: Vec<Arc<SegmentRef>>) -> Vec<Vec<Arc<SegmentRef>>> {
    // By first key.
    let mut runs: Vec<BTreeMap<Vec<u8>, Arc<SegmentRef>>> = Vec::new();
    for r in refs.into_iter().rev() {
        let over = |run: &BTreeMap<Vec<u8>, Arc<SegmentRef>>| overlaps(run, r.range());
        let at = runs.iter().rposition(over).map_or(0, |at| at + 1);
        if at == runs.len() {
            runs.push(BTreeMap::new());
        }
        if let Some(run) = runs.get_mut(at) {
            run.insert(r.range().start.clone(), r);
        }
    }
    let joined = |run: BTreeMap<Vec<u8>, Arc<SegmentRef>>| -> Vec<Arc<SegmentRef>> {
        let mut out: Vec<Arc<SegmentRef>> = Vec::with_capacity(run.len());
        for r in run.into_values() {
            match out.last_mut().and_then(|last| Some((last.joined(&r)?, last))) {
                Some((both, last)) => *last = Arc::new(both),
                None => out.push(r),
            }
        }
        out
    };
    runs.into_iter().map(joined).collect()
}

fn overlaps(run: &BTreeMap<Vec<u8>, Arc<SegmentRef>>, range: &KeyRange) -> bool {
    let last = match &range.end {
        Some(end) => {
            run.range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(end.as_slice()))).next_back()
        }
        None => run.iter().next_back(),
    };
    last.is_some_and(|(_, r)| r.range().end.as_ref().is_none_or(|end| *end > range.start))
}

impl Version {
    /// The tree that says what this one says, made of those references of which `itself` is true and the stand-ins of
    /// the others. What nothing older lies under is on the deepest level, all else in level 0.
    ///
    /// # Errors
    /// None in a tree that upholds its invariants.
    pub fn stored(&self, itself: &Itself<'_>) -> Result<Self> {
        let mut refs = Vec::new();
        let mut all = true;
        for (_, _, r) in self.refs() {
            all &= r.stand_ins().is_none() || itself(r);
            r.resolve(itself, &mut refs);
        }
        if all {
            // The tree as it is.
            let plain = |run: &Run| {
                let refs = run.refs().iter().filter(|r| r.says_something());
                Run::new(refs.map(|r| Arc::new(r.without_stand_ins())).collect())
            };
            let level = |runs: &Vec<Run>| runs.iter().map(plain).collect::<Result<Vec<_>>>();
            return Self::new(self.levels().iter().map(level).collect::<Result<Vec<_>>>()?);
        }
        let refs = refs.into_iter().map(|r| Arc::new(r.without_stand_ins())).collect();
        let mut runs = pack(refs).into_iter();
        let mut levels = vec![Vec::new()];
        if self.levels().len() > 1 {
            levels.resize(self.levels().len() - 1, Vec::new());
            levels.push(runs.next().map(Run::new).transpose()?.into_iter().collect());
        }
        if let Some(top) = levels.first_mut() {
            *top = runs.rev().map(Run::new).collect::<Result<Vec<_>>>()?;
        }
        Self::new(levels)
    }

    /// The same tree without stand-ins where `lost` is true of one.
    ///
    /// # Errors
    /// None in a tree that upholds its invariants.
    pub fn without_stand_ins(&self, lost: &Itself<'_>) -> Result<Self> {
        self.map(|r| {
            let mut any = false;
            r.visit(&mut |other| {
                any |= other.meta().id != r.meta().id && lost(other);
                !any
            });
            if any { Arc::new(r.with_stand_ins(r.range().clone(), None)) } else { Arc::clone(r) }
        })
    }

    /// Visits every reference, and where `see` is true of one its stand-ins, and so on.
    pub fn visit(&self, see: &mut dyn FnMut(&Arc<SegmentRef>) -> bool) {
        self.refs().for_each(|(_, _, r)| r.visit(see));
    }
}
