//! Which segments a checkpoint uploads where their stand-ins would do: a function of plain data.
//!
//! Stand-ins cost no upload, but space in the store, which has to keep all of an object of which anything counts, and
//! more objects and runs to restore from. So outputs of compactions take their stand-ins' place when they cost less to
//! upload than those, when the objects have come to too many bytes against what is alive, or when they are too many;
//! those first that release most for their bytes, and not all at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::ids::SegmentId;
use crate::base::key::KeyRange;
use crate::version::{SegmentRef, Version, pack};

/// Where a segment's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the store, or on the way there for another checkpoint.
    Stored,
    /// Here, to be uploaded if it is wanted.
    Here,
    /// Nowhere any more.
    Gone,
}

/// How much stand-ins may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes of objects against bytes alive.
    pub space: f64,
    /// Objects beyond one for every [`Limits::object_bytes`].
    pub objects: usize,
    /// Bytes alive that allow for a further object.
    pub object_bytes: u64,
    /// Runs, each of which a read after a restore may have to look into.
    pub runs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { space: 2.0, objects: 64, object_bytes: 16 << 20, runs: 100 }
    }
}

/// From this part of the room for dead bytes on, a checkpoint uploads more than it has to.
const EASE: f64 = 0.85;

/// Most bytes uploaded at once to make space, for each byte that a checkpoint uploads anyway, while there is time.
const STEP: f64 = 8.0;

/// Part of what is alive up to which a segment is uploaded while there is time.
const SMALL: f64 = 0.1;

/// Released bytes for each byte of a segment, below which it isn't worth its upload.
const LEAST_GAIN: f64 = 1.1;

/// A segment of the tree that isn't stored itself.
struct Unit {
    id: SegmentId,
    bytes: u64,
    /// Objects that stand in for it.
    needs: Vec<SegmentId>,
    /// Keys that it is responsible for.
    range: KeyRange,
    /// Runs of what stands in for it.
    depth: usize,
}

struct Object {
    bytes: u64,
    /// It has to be uploaded, if anybody needs it.
    here: bool,
    /// Units, or references that nothing stands in for.
    users: usize,
}

struct Chooser<'a> {
    limits: &'a Limits,
    /// Those that have stand-ins and weren't chosen.
    units: Vec<Unit>,
    objects: HashMap<SegmentId, Object>,
    chosen: HashSet<SegmentId>,
    alive_bytes: f64,
}

/// Segments of `version` that go into a manifest themselves, those that are stored included. The others have
/// stand-ins, all of them stored or here.
#[must_use]
pub fn choose(version: &Version, place: &dyn Fn(SegmentId) -> Place, limits: &Limits) -> HashSet<SegmentId> {
    let mut chooser = Chooser {
        limits,
        units: Vec::new(),
        objects: HashMap::new(),
        chosen: HashSet::new(),
        alive_bytes: alive_bytes(version),
    };
    for (_, _, r) in version.refs() {
        chooser.add(r, place);
    }
    chooser.take_cheap();
    chooser.make_space();
    chooser.make_few();
    chooser.make_shallow(version, place);
    chooser.chosen
}

/// A guess at the bytes of what is alive in a tree: where keys are written again and again, about the largest run; where
/// new ones come, nearly all.
#[expect(clippy::cast_precision_loss, reason = "a guess")]
fn alive_bytes(version: &Version) -> f64 {
    let alive = |r: &SegmentRef| {
        let (meta, dead) = (r.meta(), r.meta().deletes + r.meta().prefix_deletes);
        r.live_bytes() as f64 * (1.0 - dead as f64 / meta.entries.max(1) as f64)
    };
    let runs = version.runs().map(|(_, run)| run.refs().iter().map(|r| alive(r)).sum::<f64>());
    let (largest, all) = runs.fold((0.0_f64, 0.0), |(largest, all), run| (largest.max(run), all + run));
    largest.max(all * 2.0 / 3.0)
}

#[expect(clippy::cast_precision_loss, reason = "sizes are compared")]
impl Chooser<'_> {
    fn add(&mut self, r: &Arc<SegmentRef>, place: &dyn Fn(SegmentId) -> Place) {
        let (id, bytes) = (r.meta().id, r.meta().length_bytes);
        let refs = r.resolved(&|r| place(r.meta().id) == Place::Stored);
        let mut needs: HashMap<SegmentId, u64> = refs.iter().map(|r| (r.meta().id, r.meta().length_bytes)).collect();
        let itself = needs.contains_key(&id) || needs.keys().any(|id| place(*id) == Place::Gone);
        if itself {
            needs = HashMap::from([(id, bytes)]);
            self.chosen.insert(id);
        }
        for (id, bytes) in &needs {
            let here = place(*id) != Place::Stored;
            self.objects.entry(*id).or_insert(Object { bytes: *bytes, here, users: 0 }).users += 1;
        }
        if !itself {
            let mut needs: Vec<_> = needs.into_keys().collect();
            needs.sort_unstable();
            self.units.push(Unit { id, bytes, needs, range: r.range().clone(), depth: pack(refs).len() });
        }
    }

    fn needed<'a>(&'a self, unit: &'a Unit) -> impl Iterator<Item = &'a Object> {
        unit.needs.iter().filter_map(|id| self.objects.get(id))
    }

    /// Bytes that it takes to upload the unit more than what stands in for it.
    fn cost(&self, unit: &Unit) -> f64 {
        let spared =
            self.needed(unit).filter(|object| object.here).map(|object| object.bytes as f64 / object.users as f64);
        unit.bytes as f64 - spared.sum::<f64>()
    }

    /// The unit's share of the bytes of what stands in for it.
    fn gain(&self, unit: &Unit) -> f64 {
        self.needed(unit).map(|object| object.bytes as f64 / object.users as f64).sum()
    }

    /// The unit's share of the objects that stand in for it.
    fn objects_gained(&self, unit: &Unit) -> f64 {
        self.needed(unit).map(|object| 1.0 / object.users as f64).sum::<f64>() - 1.0
    }

    fn take(&mut self, at: usize) {
        let unit = self.units.swap_remove(at);
        for id in &unit.needs {
            if let Some(object) = self.objects.get_mut(id) {
                object.users -= 1;
            }
        }
        self.chosen.insert(unit.id);
        self.objects.insert(unit.id, Object { bytes: unit.bytes, here: true, users: 1 });
    }

    fn used(&self) -> impl Iterator<Item = &Object> {
        self.objects.values().filter(|object| object.users > 0)
    }

    /// Index of the unit with the greatest `worth`, if any has one.
    fn best(&self, worth: impl Fn(&Unit) -> Option<f64>) -> Option<usize> {
        let worths = self.units.iter().enumerate().filter_map(|(at, unit)| Some((at, worth(unit)?)));
        worths.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
    }

    /// Takes what costs no more than its stand-ins do.
    fn take_cheap(&mut self) {
        while let Some(at) = self.best(|unit| Some(-self.cost(unit)).filter(|spared| *spared >= 0.0)) {
            self.take(at);
        }
    }

    /// Takes what releases most for its bytes: the more, the less room there is for dead bytes.
    fn make_space(&mut self) {
        let delta: f64 = self.used().filter(|object| object.here).map(|object| object.bytes as f64).sum();
        let room = (self.limits.space - 1.0) * self.alive_bytes;
        let soft = self.alive_bytes + room * EASE;
        let mut spent = 0.0;
        loop {
            let bytes: f64 = self.used().map(|object| object.bytes as f64).sum();
            let pressure = (bytes - soft) / (room * (1.0 - EASE)).max(1.0);
            let at_most = match pressure {
                over if over <= 0.0 => break,
                under if under < 1.0 => delta * under * 2.0 / (self.limits.space - 1.0).max(0.1),
                over if over < 2.0 => delta * STEP,
                _ => f64::INFINITY,
            };
            if spent >= at_most {
                break;
            }
            let worth = |unit: &Unit| {
                let (gain, cost) = (self.gain(unit), self.cost(unit));
                // While there is time, only what is small, and releases as much as there is room for dead bytes.
                let small = cost <= delta * STEP && cost <= self.alive_bytes * SMALL;
                let least = if pressure < 1.0 { 1.0 + (self.limits.space - 1.0) * EASE } else { LEAST_GAIN };
                ((pressure >= 1.0 || small) && gain >= unit.bytes as f64 * least).then(|| gain / cost.max(1.0))
            };
            let Some(at) = self.best(worth) else { break };
            spent += self.units.get(at).map_or(0.0, |unit| self.cost(unit));
            self.take(at);
        }
    }

    /// Takes what releases most objects for its bytes while they are too many.
    fn make_few(&mut self) {
        let further = (self.alive_bytes / self.limits.object_bytes.max(1) as f64) as usize;
        while self.used().count() > self.limits.objects + further {
            let worth = |unit: &Unit| {
                let gained = self.objects_gained(unit);
                (gained > 0.0).then(|| gained / self.cost(unit).max(1.0))
            };
            let Some(at) = self.best(worth) else { break };
            self.take(at);
        }
    }

    /// Takes what lies under the topmost runs while they are too many: there, what saves most runs for its bytes.
    fn make_shallow(&mut self, version: &Version, place: &dyn Fn(SegmentId) -> Place) {
        loop {
            let itself = |r: &SegmentRef| place(r.meta().id) == Place::Stored || self.chosen.contains(&r.meta().id);
            let Ok(view) = version.stored(&itself) else { return };
            if view.runs().count() <= self.limits.runs {
                return;
            }
            let tops = view.runs().next().map(|(_, run)| run.refs()).unwrap_or_default();
            let saved = |unit: &Unit| (unit.depth > 1).then(|| (unit.depth - 1) as f64 / self.cost(unit).max(1.0));
            let under = |top: &KeyRange, unit: &Unit| !unit.range.intersect(top).is_empty();
            let mut taken: Vec<SegmentId> = Vec::new();
            for top in tops {
                let best = self.best(|unit| saved(unit).filter(|_| under(top.range(), unit)));
                taken.extend(best.and_then(|at| self.units.get(at)).map(|unit| unit.id));
            }
            if taken.is_empty() {
                // Pieces that overlap only their neighbours may be stacked sideways.
                taken.extend(self.best(saved).and_then(|at| self.units.get(at)).map(|unit| unit.id));
            }
            if taken.is_empty() {
                return;
            }
            for id in taken {
                if let Some(at) = self.units.iter().position(|unit| unit.id == id) {
                    self.take(at);
                }
            }
        }
    }
}
