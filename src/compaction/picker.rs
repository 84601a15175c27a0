//! Which compaction to make next: a function of plain data.
//!
//! Level 0 is tiered: adjacent runs of similar size merge within it, so a record is rewritten once for each
//! fourfold growth, and most of level 0 goes down when it has grown against level 1; all of it where level 1 is
//! the deepest, since what is merged into there is nearly all state. Further levels are leveled, each `ratio` times the one
//! above. Only adjacent runs ever merge, and what goes down is the oldest of its level wherever it overlaps others,
//! so no run is moved behind an older one that it overlaps (replay 1).

use std::collections::HashSet;
use std::sync::Arc;

use super::plan::{Action, Plan, Reason};
use crate::base::ids::Sequence;
use crate::base::key::KeyRange;
use crate::base::record::ExpiryMs;
use crate::version::{MAX_LEVELS, Place, RefId, Run, SegmentRef, Version};

/// Sizes that steer the picker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Target size of level 1 in bytes. Larger: fewer rewrites, more runs to read.
    pub base_bytes: u64,
    /// How many times larger each further level is.
    pub ratio: u64,
    /// Level 0 goes down when it has so many runs.
    pub level0_runs: usize,
    /// A reference that its clip mostly cuts away is rewritten when so many sequences have been given out since
    /// its newest record: not at once, since the first checkpoint after a rescale would upload it all.
    pub clip_rewrite_sequences: u64,
    /// Level 0 goes down when it has records of this sequence or older and level 1 holds all the rest: the store is nearly
    /// full of what such a merge would release.
    pub down_through: Sequence,
}

impl Default for Options {
    fn default() -> Self {
        Self { base_bytes: 64 << 20, ratio: 10, level0_runs: 16, clip_rewrite_sequences: 256, down_through: 0 }
    }
}

/// Fewest runs that merge within level 0.
const TIER_RUNS: usize = 4;

/// The largest run of a merge within level 0 holds at most this share of its bytes.
const TIER_LARGEST_SHARE: f64 = 0.35;

/// With so many runs in level 0, runs merge whether or not they are similar.
const TIER_ANYWAY_RUNS: usize = 10;

/// How many times its nominal size the deepest level may have.
const DEEPEST_TIMES: u64 = 3;

/// From this share of dead records on, a segment is worth a rewrite of its own.
const DEAD_SHARE: f64 = 0.5;

/// Below this share of bytes within the clip, a reference is worth a rewrite of its own.
const LIVE_SHARE: f64 = 0.5;

/// The most useful compaction of `version` at `now_ms` (the greater of clock and time high-water mark), if any.
#[must_use]
pub fn pick(version: &Version, options: &Options, now_ms: i64) -> Option<Plan> {
    expired(version, now_ms)
        .or_else(|| level0_down(version, options, now_ms))
        .or_else(|| tier(version))
        .or_else(|| overflow(version, options, now_ms))
        .or_else(|| dead(version, now_ms))
        .or_else(|| clipped(version, options))
}

fn level_bytes(version: &Version, level: usize) -> u64 {
    version.level(level).iter().map(Run::live_bytes).sum()
}

/// Bytes that a level should have: the deepest one as many as there are, up to some times its nominal size, where a
/// deeper one begins; the others in proportion to it, so that nearly all state lies in the deepest and little of it is
/// there twice.
fn target(version: &Version, options: &Options, level: usize) -> u64 {
    let nominal = |level: usize| {
        let power = u32::try_from(level.saturating_sub(1)).unwrap_or(u32::MAX);
        options.base_bytes.saturating_mul(options.ratio.saturating_pow(power))
    };
    let deepest = version.levels().len().saturating_sub(1);
    if level >= deepest {
        return nominal(level).saturating_mul(DEEPEST_TIMES);
    }
    let power = u32::try_from(deepest - level).unwrap_or(u32::MAX);
    (level_bytes(version, deepest) / options.ratio.saturating_pow(power).max(1)).max(options.base_bytes / 4)
}

fn level0_limit(version: &Version, options: &Options) -> u64 {
    (options.base_bytes / 4).max(level_bytes(version, 1) / 2)
}

fn wholly_expired(r: &SegmentRef, now_ms: ExpiryMs) -> bool {
    let meta = r.meta();
    meta.deletes == 0 && meta.prefix_deletes == 0 && meta.merges == 0 && meta.expiries.1 <= now_ms
}

/// Records of a reference that hide something and show nothing.
fn dead_entries(r: &SegmentRef, now_ms: i64) -> u64 {
    let meta = r.meta();
    if wholly_expired(r, now_ms) { meta.entries } else { meta.deletes + meta.prefix_deletes }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn mostly_dead(r: &SegmentRef, now_ms: i64) -> bool {
    share(dead_entries(r, now_ms), r.meta().entries) >= DEAD_SHARE
}

/// Segments that go as they are, from the oldest up: all expired, and whatever lies below goes with them.
fn expired(version: &Version, now_ms: i64) -> Option<Plan> {
    let runs: Vec<&Run> = version.runs().map(|(_, run)| run).collect();
    let mut going: HashSet<RefId> = HashSet::new();
    let mut inputs = Vec::new();
    for (rank, run) in runs.iter().enumerate().rev() {
        let older = runs.get(rank + 1..).unwrap_or_default();
        let uncovers = |r: &SegmentRef| {
            let below = older.iter().flat_map(|o| o.refs().get(o.overlapping(r.range())).unwrap_or_default());
            below.into_iter().any(|o| !going.contains(&o.id()))
        };
        let found: Vec<_> = run.refs().iter().filter(|r| wholly_expired(r, now_ms) && !uncovers(r)).cloned().collect();
        going.extend(found.iter().map(|r| r.id()));
        inputs.push(found);
    }
    inputs.reverse();
    (!going.is_empty()).then(|| Plan::new(version, Reason::Expired, Action::Drop, inputs))
}

/// The oldest runs of level 0, into level 1. Up to two fifths of it stay while there are deeper levels, and it may be half as
/// long again: once they have been merged among themselves, they have a chance to be uploaded in place of what they were
/// merged from.
fn level0_down(version: &Version, options: &Options, now_ms: i64) -> Option<Plan> {
    let level0 = version.level(0);
    let bytes: u64 = level0.iter().map(Run::live_bytes).sum();
    let dead: u64 = level0.iter().flat_map(Run::refs).map(|r| dead_entries(r, now_ms)).sum();
    let below: u64 = version.level(1).iter().flat_map(Run::refs).map(|r| r.meta().entries).sum();
    // Tombstones go down early only when they pay for the rewrite of level 1.
    let others = level0.iter().flat_map(Run::refs).map(|r| r.meta().entries).sum::<u64>() + below - dead;
    let dead_pays = dead > 0
        && (share(dead, others) >= DEAD_SHARE || (level0.len() >= TIER_RUNS && share(dead, below) >= DEAD_SHARE));
    let deepest = version.levels().len() <= 2;
    let oldest = level0.iter().flat_map(Run::refs).map(|r| r.meta().sequences.0).min();
    let wanted = deepest && oldest.is_some_and(|oldest| oldest <= options.down_through);
    let limit = level0_limit(version, options);
    let limit = if deepest { limit } else { limit * 3 / 2 };
    let many = level0.len() >= options.level0_runs || bytes >= limit;
    if level0.is_empty() || !(many || dead_pays || wanted) {
        return None;
    }
    let mut from = if deepest || dead_pays { 0 } else { level0.len() };
    let mut going = 0;
    while from > 0 && going < bytes * 3 / 5 {
        from -= 1;
        going += level0.get(from).map_or(0, Run::live_bytes);
    }
    let level0 = level0.get(from..).unwrap_or_default();
    let mut inputs: Vec<Vec<Arc<SegmentRef>>> = level0.iter().map(|run| run.refs().to_vec()).collect();
    inputs.push(overlapped(version, 1, inputs.iter().flatten()));
    Some(Plan::new(version, Reason::Level0, Action::Rewrite(Place::Level(1)), inputs))
}

/// References of `level` that overlap any of `inputs`.
pub(super) fn overlapped<'a>(
    version: &Version,
    level: usize,
    inputs: impl Iterator<Item = &'a Arc<SegmentRef>>,
) -> Vec<Arc<SegmentRef>> {
    let Some(run) = version.level(level).first() else { return Vec::new() };
    let mut found: Vec<usize> = inputs.flat_map(|r| run.overlapping(r.range())).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().filter_map(|at| run.refs().get(at)).cloned().collect()
}

/// Adjacent runs of level 0, those that reduce the number of runs most for the bytes rewritten.
fn tier(version: &Version) -> Option<Plan> {
    let level0 = version.level(0);
    let sizes: Vec<u64> = level0.iter().map(|run| run.live_bytes().max(1)).collect();
    let mut best: Option<(f64, usize, usize)> = None;
    for start in 0..sizes.len() {
        for end in start + TIER_RUNS..=sizes.len() {
            let window = sizes.get(start..end).unwrap_or_default();
            let (total, largest) = (window.iter().sum::<u64>(), window.iter().max().copied().unwrap_or(0));
            if share(largest, total) > TIER_LARGEST_SHARE && sizes.len() < TIER_ANYWAY_RUNS {
                continue;
            }
            let saved = share(u64::try_from(end - start - 1).unwrap_or(0), total);
            if best.is_none_or(|(most, ..)| saved > most) {
                best = Some((saved, start, end));
            }
        }
    }
    let (_, start, end) = best?;
    let inputs = level0.get(start..end)?.iter().map(|run| run.refs().to_vec()).collect();
    Some(Plan::new(version, Reason::Tier, Action::Rewrite(Place::Replaced), inputs))
}

/// A segment of the level that is most over its target, into the next one.
fn overflow(version: &Version, options: &Options, now_ms: i64) -> Option<Plan> {
    let levels = 1..version.levels().len().min(MAX_LEVELS - 1);
    let fullest = levels.map(|n| (n, share(level_bytes(version, n), target(version, options, n))));
    let (level, fullness) = fullest.max_by(|a, b| a.1.total_cmp(&b.1))?;
    if fullness <= 1.0 {
        return None;
    }
    // Dead ones first, then those that drag the fewest bytes along, then the oldest.
    let cost = |r: &Arc<SegmentRef>| {
        let dragged: u64 = overlapped(version, level + 1, std::iter::once(r)).iter().map(|o| o.live_bytes()).sum();
        (!mostly_dead(r, now_ms), share(dragged, r.live_bytes().max(1)))
    };
    let candidates = version.level(level).iter().flat_map(Run::refs).map(|r| (cost(r), r));
    let (_, picked) = candidates.min_by(|((dead_a, cost_a), a), ((dead_b, cost_b), b)| {
        dead_a
            .cmp(dead_b)
            .then(cost_a.total_cmp(cost_b))
            .then(a.meta().sequences.cmp(&b.meta().sequences))
            .then(a.range().start.cmp(&b.range().start))
    })?;
    Some(down(version, Reason::Overflow, level, picked))
}

/// A segment into the next level. Where nothing lies in its way it moves as it is, unless that would carry
/// tombstones to where they hide nothing.
fn down(version: &Version, reason: Reason, level: usize, picked: &Arc<SegmentRef>) -> Plan {
    let below = overlapped(version, level + 1, std::iter::once(picked));
    let place = Place::Level(level + 1);
    let clean = picked.meta().deletes + picked.meta().prefix_deletes == 0;
    let action = if below.is_empty() && (clean || deeper_overlaps(version, level, picked.range())) {
        Action::Move(place)
    } else {
        Action::Rewrite(place)
    };
    Plan::new(version, reason, action, vec![vec![Arc::clone(picked)], below])
}

fn deeper_overlaps(version: &Version, level: usize, range: &KeyRange) -> bool {
    version.runs().any(|(at, run)| at > level && run.overlaps(range))
}

/// A segment below level 0 of which most is dead: down to what it hides, or rewritten where it stands.
fn dead(version: &Version, now_ms: i64) -> Option<Plan> {
    let candidates = version.refs().filter(|(level, _, r)| *level > 0 && mostly_dead(r, now_ms));
    let (level, _, picked) = candidates.min_by_key(|(level, _, r)| (*level, r.meta().sequences))?;
    if level + 1 < MAX_LEVELS && deeper_overlaps(version, level, picked.range()) {
        return Some(down(version, Reason::Dead, level, picked));
    }
    let action = Action::Rewrite(Place::Level(level));
    Some(Plan::new(version, Reason::Dead, action, vec![vec![Arc::clone(picked)]]))
}

/// A reference whose clip leaves little of it, rewritten where it stands.
fn clipped(version: &Version, options: &Options) -> Option<Plan> {
    let newest = version.max_sequence();
    let settled = |r: &SegmentRef| newest.saturating_sub(r.meta().sequences.1) >= options.clip_rewrite_sequences;
    let candidates = version.refs().filter(|(_, _, r)| r.live_share() < LIVE_SHARE && settled(r));
    let (level, _, picked) = candidates.min_by(|(_, _, a), (_, _, b)| a.live_share().total_cmp(&b.live_share()))?;
    let place = if level == 0 { Place::Replaced } else { Place::Level(level) };
    Some(Plan::new(version, Reason::Clipped, Action::Rewrite(place), vec![vec![Arc::clone(picked)]]))
}
