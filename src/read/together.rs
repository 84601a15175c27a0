//! Reading segments that lie in a store: what several of them are needed for is asked for at once.
//!
//! A read goes through the runs one after the other, and in each from the top-level index to a block: in a store, where a
//! request takes as long as thousands of reads from memory, most of that would be waiting. So what a read is going to
//! need is worked out first for all runs, without I/O, and fetched together: the ends of files that say where blocks lie,
//! then the blocks. The read itself then finds it in the cache, and fetches what isn't there, or didn't check out.

use std::collections::HashSet;

use super::run_cursor::OpenRun;
use super::tree::Tree;
use crate::Result;
use crate::base::cursor::Direction;
use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::io::stored_object::read_together;
use crate::segment::reader::Segment;
use crate::segment::tail::{Needs, Piece};

/// From knowing nothing of a segment: its end, an index partition that the end doesn't hold, a block.
const MOST_ROUNDS: usize = 3;

/// Pieces that are fetched at most beyond what a segment needs that likely has the record.
const IN_CASE_IT_ERRS: usize = 8;

/// Segments of a run that a scan begins in: its first keys may lie at the end of one.
const WALK_SEGMENTS: usize = 2;

/// Those that a scan of one group begins in: it is likely to go through all of them, and a restored run may have pieces of
/// several that are small.
const GROUP_SEGMENTS: usize = 4;

impl Tree {
    /// Fetches what a point read of `key` needs from the run numbered `from` on. With `all`, the older runs count even
    /// below one that almost certainly has a record.
    pub(super) fn fetch_for_key(&self, from: usize, key: &[u8], prefix_len: Option<usize>, all: bool) {
        self.fetch(all, |visit| {
            for open in self.runs().iter().skip(from) {
                let segment = open.run.index_of(key).and_then(|at| open.segments.get(at));
                if segment.is_some_and(|segment| visit(segment, segment.needs(key, prefix_len))) {
                    break;
                }
            }
        });
    }

    /// Fetches what the first steps of a scan of `range` need, within `prefix` if it has one. Does nothing where no
    /// segment lies in a store.
    pub fn fetch_for_scan(&self, range: &KeyRange, prefix: Option<&[u8]>, direction: Direction) {
        if !self.has_stored() {
            return;
        }
        let most = if prefix.is_some() { GROUP_SEGMENTS } else { WALK_SEGMENTS };
        let begin = |open: &OpenRun| -> Vec<usize> {
            let overlapping = open.run.overlapping(range);
            match direction {
                Direction::Forward => overlapping.take(most).collect(),
                Direction::Backward => overlapping.rev().take(most).collect(),
            }
        };
        self.fetch(true, |visit| {
            for open in self.runs() {
                for at in begin(open) {
                    if let (Some(segment), Some(r)) = (open.segments.get(at), open.run.refs().get(at)) {
                        visit(segment, segment.needs_of_walk(&range.intersect(r.range()), direction, prefix));
                    }
                }
            }
        });
    }

    /// `look` shows its visitor the segments with their needs, until that says that the rest is hardly needed. A filter errs
    /// for one key in a hundred, and in a tree of many runs that is often: so what a second segment needs that likely has
    /// the record is asked for beside what the first one needs, and that of some in between of which nothing is known.
    fn fetch<'a>(&'a self, all: bool, look: impl Fn(&mut dyn FnMut(&'a Segment, Result<Needs>) -> bool)) {
        let mut asked: HashSet<(SegmentId, Piece)> = HashSet::new();
        for _ in 0..MOST_ROUNDS {
            let mut wanted: Vec<(&Segment, Piece)> = Vec::new();
            let (mut found, mut before) = (0, 0);
            look(&mut |segment, needs| {
                if segment.source().object().is_none() {
                    return false;
                }
                // What is bad says so when it is read.
                let Ok(needs) = needs else { return false };
                let (likely, here) = (needs.likely, needs.pieces.is_empty());
                let new = needs.pieces.into_iter().filter(|piece| asked.insert((segment.meta().id, piece.clone())));
                wanted.extend(new.map(|piece| (segment, piece)));
                found += usize::from(likely);
                if found == 0 {
                    before = wanted.len();
                }
                !all && ((likely && (here || found > 1)) || (found > 0 && wanted.len() > before + IN_CASE_IT_ERRS))
            });
            // A file may have arrived meanwhile.
            let objects =
                wanted.iter().filter_map(|(segment, piece)| Some((segment.source().object()?, segment, piece)));
            let objects: Vec<_> = objects.collect();
            if objects.is_empty() {
                return;
            }
            let ranges: Vec<_> = objects.iter().map(|(object, _, piece)| (*object, piece.range())).collect();
            for ((_, segment, piece), bytes) in objects.iter().zip(read_together(&ranges)) {
                if let Ok(bytes) = bytes {
                    segment.admit(piece, &bytes);
                }
            }
        }
    }
}
