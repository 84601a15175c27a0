//! What backends will need first when they are restored, fetched together with the requests that claim the root: the
//! manifests of the newest checkpoint beside the claim, the ends of its segments beside the look whether the claim counts.
//!
//! Everything here is a copy of what can be read again, bounded, and checked as if it had just been read. What doesn't come
//! or doesn't check out is fetched again by whoever needs it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use crate::base::ids::SegmentId;
use crate::checkpoint::log::{Companion, LineageState};
use crate::checkpoint::manifests::check_part;
use crate::checkpoint::part::CheckpointPart;
use crate::io::store::Request;
use crate::manifest::Manifest;
use crate::segment::tail::tail_range;
use crate::{Error, Result};

/// Share of the memory budget that manifests may take, and ends of segments likewise: both within that of background
/// work.
const MEMORY_SHARE: u64 = 32;

/// Ends of segments that are fetched at most.
const MOST_TAILS: usize = 256;

/// What was fetched ahead.
#[derive(Debug, Default)]
pub(super) struct Prefetched {
    manifests: HashMap<String, Manifest>,
    tails: HashMap<SegmentId, (u64, Bytes)>,
}

impl Prefetched {
    /// The manifest of `part`, if it is here.
    pub fn manifest(&self, part: &CheckpointPart) -> Option<Manifest> {
        self.manifests.get(&part.manifest.name).cloned()
    }

    /// The end of a segment's file and where it begins, if it is here.
    pub fn tail(&self, segment: SegmentId) -> Option<(u64, Bytes)> {
        self.tails.get(&segment).cloned()
    }
}

/// Fetches them.
#[derive(Debug)]
pub(super) struct Prefetch {
    most_bytes: u64,
    parts: Vec<CheckpointPart>,
    tails: Vec<(SegmentId, Range<u64>)>,
    found: Prefetched,
}

impl Prefetch {
    /// For an environment with so much memory.
    pub fn within(memory_bytes: u64) -> Self {
        let (parts, tails, found) = Default::default();
        Self { most_bytes: memory_bytes / MEMORY_SHARE, parts, tails, found }
    }

    /// What was found.
    pub fn found(self) -> Prefetched {
        self.found
    }
}

impl Companion for Prefetch {
    fn with_put(&mut self, state: &LineageState) -> Vec<Request> {
        self.found = Prefetched::default();
        let mut left = self.most_bytes;
        let parts = state.latest().map_or(&[][..], |newest| newest.parts());
        let fits = |part: &&CheckpointPart| take(&mut left, part.manifest.length_bytes);
        self.parts = parts.iter().take_while(fits).cloned().collect();
        self.parts.iter().map(|part| Request::Get(part.manifest.name.clone())).collect()
    }

    fn with_look(&mut self, answers: Vec<Result<Bytes>>) -> Vec<Request> {
        for (part, answer) in self.parts.iter().zip(answers) {
            match answer.and_then(|bytes| check_part(&bytes, part)) {
                Ok(manifest) => drop(self.found.manifests.insert(part.manifest.name.clone(), manifest)),
                Err(error) => skipped(&part.manifest.name, &error),
            }
        }
        // The top levels are read first, whatever is read.
        let mut refs: Vec<_> = self.found.manifests.values().flat_map(|manifest| manifest.version.refs()).collect();
        refs.sort_by_key(|(level, rank, _)| (*level, *rank));
        let (mut left, mut seen) = (self.most_bytes, HashSet::new());
        let mut requests = Vec::new();
        self.tails.clear();
        for (_, _, r) in refs {
            let (meta, Some(name)) = (r.meta(), r.name()) else { continue };
            let range = tail_range(meta);
            if r.root() != 0 || range.is_empty() || seen.contains(&meta.id) || self.tails.len() == MOST_TAILS {
                continue;
            }
            if take(&mut left, range.end - range.start) {
                seen.insert(meta.id);
                self.tails.push((meta.id, range.clone()));
                requests.push(Request::GetRange(name.to_string(), range));
            }
        }
        requests
    }

    fn end(&mut self, answers: Vec<Result<Bytes>>) {
        for ((segment, range), answer) in self.tails.iter().zip(answers) {
            match answer {
                Ok(bytes) => drop(self.found.tails.insert(*segment, (range.start, bytes))),
                Err(error) => skipped(&format!("the end of segment {segment}"), &error),
            }
        }
    }
}

/// Takes `wanted` of what is left, if it is enough.
fn take(left: &mut u64, wanted: u64) -> bool {
    let enough = wanted <= *left;
    *left -= if enough { wanted } else { 0 };
    enough
}

fn skipped(what: &str, error: &Error) {
    tracing::debug!(%error, what, "not fetched ahead, to be read when it is needed");
}
