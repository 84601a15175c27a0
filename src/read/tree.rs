//! A version with its segments open: what lies below the memtable.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::fold::Pending;
use super::run_cursor::{OpenRun, RunCursor};
use super::shapes::Shapes;
use super::visible::{PrefixDeletes, Resolver};
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::{SegmentId, Sequence};
use crate::base::key::KeyRange;
use crate::base::record::{ExpiryMs, Kind, NEVER};
use crate::segment::lookup::{Found, MayContain};
use crate::segment::reader::Segment;
use crate::version::{Run, SegmentRef, Version};
use crate::{Error, Result};

/// A value as a user sees it. A plain put's bytes are those of the cached block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// Value.
    pub value: Bytes,
    /// When it stops being visible. A value made by operands has the expiry of the put below them.
    pub expiry: ExpiryMs,
}

/// What the sources above a tree have said of a key, none of which settled it.
#[derive(Debug, Clone, Default)]
pub struct Lookup {
    /// Operands that still await what they apply to.
    pub pending: Pending,
    /// Greatest sequence of a prefix delete over the key; 0 for none.
    pub prefix_delete: Sequence,
}

/// Answer of a read that does no I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resident {
    /// The answer.
    Known(Option<Visible>),
    /// Knowing it would take I/O.
    NotResident,
}

/// An immutable version with its segments open. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    version: Version,
    runs: Arc<Vec<OpenRun>>,
    segments: Arc<HashMap<SegmentId, Arc<Segment>>>,
    /// Some of them lay in a store, and not here, when it was built.
    stored: bool,
}

impl Tree {
    /// `version` with its segments open: those of `previous` are kept, `open` opens the others.
    ///
    /// # Errors
    /// What `open` fails with.
    pub fn new(
        version: Version,
        previous: &Self,
        mut open: impl FnMut(&SegmentRef) -> Result<Arc<Segment>>,
    ) -> Result<Self> {
        let mut segments: HashMap<SegmentId, Arc<Segment>> = HashMap::new();
        let mut runs = Vec::new();
        for (_, run) in version.runs() {
            let mut opened = Vec::with_capacity(run.refs().len());
            for r in run.refs() {
                let id = r.meta().id;
                let segment = match segments.get(&id).or_else(|| previous.segments.get(&id)) {
                    Some(segment) => Arc::clone(segment),
                    None => open(r)?,
                };
                segments.insert(id, Arc::clone(&segment));
                opened.push(segment);
            }
            runs.push(OpenRun { run: run.clone(), segments: opened.into() });
        }
        let stored = segments.values().any(|segment| segment.source().object().is_some());
        Ok(Self { version, runs: Arc::new(runs), segments: Arc::new(segments), stored })
    }

    pub(super) fn runs(&self) -> &[OpenRun] {
        &self.runs
    }

    pub(super) fn has_stored(&self) -> bool {
        self.stored
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Number of segments.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The open segment of `id`.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<&Arc<Segment>> {
        self.segments.get(&id)
    }

    /// The value of `key` below what `newer` says of it. `prefix_len` is the length of its (group, state, key,
    /// namespace) prefix in states with grouped entries. Goes from the newest run down and ends at the first put
    /// or delete; runs that a prefix delete hides whole aren't looked into.
    ///
    /// # Errors
    /// Corruption and I/O errors of segments; [`crate::ErrorKind::Merge`] when operands don't fold.
    pub fn get(
        &self,
        key: &[u8],
        prefix_len: Option<usize>,
        newer: Lookup,
        resolver: &Resolver,
    ) -> Result<Option<Visible>> {
        let look = |run, folding, segment: &Segment| {
            if self.stored && segment.source().object().is_some() {
                self.fetch_for_key(run, key, prefix_len, folding);
            }
            segment.get(key, prefix_len).map(Some)
        };
        match self.find(key, newer, resolver, look)? {
            Resident::Known(found) => Ok(found),
            Resident::NotResident => Err(Error::internal("a read with I/O gave no answer")),
        }
    }

    /// As [`Tree::get`] without I/O.
    ///
    /// # Errors
    /// As [`Tree::get`], though no I/O errors.
    pub fn get_resident(
        &self,
        key: &[u8],
        prefix_len: Option<usize>,
        newer: Lookup,
        resolver: &Resolver,
    ) -> Result<Resident> {
        self.find(key, newer, resolver, |_, _, segment| segment.get_resident(key, prefix_len))
    }

    /// `look` is given the number of the run, whether operands have been found above it, and the segment.
    fn find(
        &self,
        key: &[u8],
        newer: Lookup,
        resolver: &Resolver,
        look: impl Fn(usize, bool, &Segment) -> Result<Option<Found>>,
    ) -> Result<Resident> {
        let Lookup { mut pending, prefix_delete: mut deleted } = newer;
        let mut base = None;
        for (run, open) in self.runs.iter().enumerate() {
            if pending.is_complete() {
                break;
            }
            let Some(at) = open.run.index_of(key) else { continue };
            let Some(segment) = open.segments.get(at).filter(|s| s.meta().sequences.1 >= deleted) else { continue };
            let Some(found) = look(run, !pending.is_empty(), segment)? else { return Ok(Resident::NotResident) };
            deleted = deleted.max(found.prefix_delete.unwrap_or(0));
            let Some(record) = found.record.filter(|r| r.sequence >= deleted) else { continue };
            match record.kind {
                Kind::Merge => pending.push_older(record.value)?,
                Kind::Put if record.expiry > resolver.now_ms => {
                    base = Some(Visible { value: record.value, expiry: record.expiry });
                    break;
                }
                Kind::Put | Kind::Delete | Kind::PrefixDelete => break,
            }
        }
        if pending.is_empty() {
            return Ok(Resident::Known(base));
        }
        let older = base.as_ref().map(|b| b.value.as_ref());
        let value = Bytes::from(pending.fold(key, older, &resolver.operators)?);
        Ok(Resident::Known(Some(Visible { value, expiry: base.map_or(NEVER, |b| b.expiry) })))
    }

    /// True when it is certain, without I/O, that no run has a record at `key`. Prefix deletes don't count: they
    /// say nothing of what isn't there.
    ///
    /// # Errors
    /// Corruption of a resident block.
    pub fn nothing_at(&self, key: &[u8]) -> Result<bool> {
        for open in self.runs.iter() {
            let Some(segment) = open.run.index_of(key).and_then(|at| open.segments.get(at)) else { continue };
            if segment.may_contain(key)? != MayContain::No {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True when it is certain, without I/O, that no run says anything under `prefix`, a (group, state, key,
    /// namespace) prefix.
    ///
    /// # Errors
    /// Corruption of a resident block.
    pub fn nothing_below(&self, prefix: &[u8]) -> Result<bool> {
        for segment in self.overlapping(&KeyRange::prefix(prefix)) {
            if segment.may_contain_prefix(prefix)? != MayContain::No {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Greatest sequence of a prefix delete at exactly `prefix` in any run; 0 for none.
    ///
    /// # Errors
    /// Corruption and I/O errors of segments.
    pub fn prefix_delete(&self, prefix: &[u8]) -> Result<Sequence> {
        let mut greatest = 0;
        for open in self.runs.iter() {
            let Some(segment) = open.run.index_of(prefix).and_then(|at| open.segments.get(at)) else { continue };
            if segment.meta().prefix_deletes > 0 && segment.meta().sequences.1 > greatest {
                greatest = greatest.max(segment.prefix_delete(prefix)?.unwrap_or(0));
            }
        }
        Ok(greatest)
    }

    /// How a scan of `range` of this tree, in `direction`, learns of prefix deletes; `newer` gives the greatest
    /// sequence of one at a prefix in the sources above the tree (0 for none). `within` is the (group, state,
    /// key, namespace) prefix that the range stays within, if it does.
    ///
    /// # Errors
    /// Corruption and I/O errors of segments.
    pub fn prefix_deletes<'a>(
        &'a self,
        within: Option<&[u8]>,
        direction: Direction,
        shapes: &'a Shapes,
        mut newer: impl FnMut(&[u8]) -> Result<Sequence> + 'a,
    ) -> Result<PrefixDeletes<'a>> {
        if let Some(prefix) = within {
            return Ok(PrefixDeletes::Known(self.prefix_delete(prefix)?.max(newer(prefix)?)));
        }
        if direction == Direction::Forward {
            return Ok(PrefixDeletes::OnTheWay);
        }
        Ok(PrefixDeletes::Ask(Box::new(move |key| {
            let Some(len) = shapes.prefix_len(key)? else { return Ok((key.len(), 0)) };
            let prefix = key.get(..len).unwrap_or(key);
            Ok((len, self.prefix_delete(prefix)?.max(newer(prefix)?)))
        })))
    }

    /// A cursor over the records of each run in `range`, newest run first: what a
    /// [`MergeCursor`](super::MergeCursor) takes behind the cursors of newer sources. Each is opened when it is taken.
    /// They own what they read from, so they outlive the tree. With `fill`, the blocks read enter the cache. An error on the way to a first record sticks in its cursor.
    pub fn cursors<'a>(
        &self,
        range: &KeyRange,
        direction: Direction,
        fill: bool,
    ) -> impl Iterator<Item = Box<dyn RecordCursor + 'a>> + use<'a> {
        let (runs, range) = (Arc::clone(&self.runs), range.clone());
        (0..runs.len()).filter_map(move |at| {
            let open = runs.get(at).filter(|open| open.run.overlaps(&range))?;
            let cursor = RunCursor::new(open.clone(), range.clone(), direction, fill);
            Some(Box::new(cursor) as Box<dyn RecordCursor + 'a>)
        })
    }

    /// Cursors over all records of some of this tree's references, which form these runs. The blocks read leave the
    /// cache as it is. As with [`Tree::cursors`], each is opened when it is taken.
    ///
    /// # Errors
    /// Internal when they form none, or aren't this tree's.
    pub fn run_cursors<'a>(
        &self,
        runs: &[Vec<Arc<SegmentRef>>],
        direction: Direction,
    ) -> Result<impl Iterator<Item = Box<dyn RecordCursor + 'a>> + use<'a>> {
        let open = |r: &Arc<SegmentRef>| {
            let segment = self.segments.get(&r.meta().id).cloned();
            segment.ok_or_else(|| Error::internal(format!("segment {} isn't open", r.meta().id)))
        };
        let mut opened = Vec::with_capacity(runs.len());
        for refs in runs {
            let run = Run::new(refs.clone())?;
            let segments = run.refs().iter().map(open).collect::<Result<Vec<_>>>()?;
            opened.push(OpenRun { run, segments: segments.into() });
        }
        let cursor = move |open| Box::new(RunCursor::new(open, KeyRange::all(), direction, false)) as Box<_>;
        Ok(opened.into_iter().map(cursor))
    }

    fn overlapping<'a>(&'a self, range: &KeyRange) -> impl Iterator<Item = &'a Arc<Segment>> + use<'a> {
        let range = range.clone();
        self.runs.iter().flat_map(move |open| open.segments.get(open.run.overlapping(&range)).unwrap_or_default())
    }
}
