//! Which segments a checkpoint uploads where their stand-ins would do: a function of plain data.
//!
//! Stand-ins cost no upload, but space in the store, which has to keep all of an object of which anything counts, and
//! more objects and runs to restore from. So outputs of compactions take their stand-ins' place when they cost less to
//! upload than those, when the objects have come to too many bytes against what is alive, or when they are too many;
//! those first that release most for their bytes, and not all at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::ids::SegmentId;
use crate::version::{SegmentRef, Version};

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
    /// Objects beyond one for every [`Limits::object_bytes`]. Hardly more are the runs that a read after a restore may have
    /// to look into.
    pub objects: usize,
    /// Bytes alive that allow for a further object.
    pub object_bytes: u64,
}

impl Limits {
    /// For a tree whose segments are about this long.
    #[must_use]
    pub fn with_segments_of(bytes: u64) -> Self {
        Self { space: 2.0, objects: 64, object_bytes: bytes }
    }
}

/// Released bytes for each byte of a segment, below which it isn't worth its upload.
const LEAST_GAIN: f64 = 1.1;

/// Share of the objects from which on a segment goes that takes the place of many at once.
const HALF_FULL: f64 = 0.5;

/// Objects that such a segment spares at least, and its bytes for each of them, in bytes of the middle one. Merges of level 0
/// are like that; once they have gone down, what they brought together costs a rewrite of all that lies there.
const MANY: f64 = 7.0;
const EACH: f64 = 1.2;

/// A segment of the tree that isn't stored itself.
struct Unit {
    id: SegmentId,
    bytes: u64,
    /// Objects that stand in for it.
    needs: Vec<SegmentId>,
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

/// What a checkpoint uploads.
#[derive(Debug, Default)]
pub struct Choice {
    /// Segments of the tree that go into the manifest themselves, those that are stored included. The others have
    /// stand-ins, all of them stored or here.
    pub segments: HashSet<SegmentId>,
    /// After as much again there will be too many bytes.
    pub nearly_full: bool,
}

/// What to upload of `version`, and what to leave to stand-ins.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sizes are compared")]
pub fn choose(version: &Version, place: &dyn Fn(SegmentId) -> Place, limits: &Limits) -> Choice {
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
    let delta: f64 = chooser.used().filter(|object| object.here).map(|object| object.bytes as f64).sum();
    chooser.make_space();
    chooser.make_few();
    let nearly_full = chooser.used_bytes() + delta > chooser.most_bytes();
    Choice { segments: chooser.chosen, nearly_full }
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
            self.units.push(Unit { id, bytes, needs });
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

    /// The unit's share of the objects that stand in for it, but for the one that takes their place.
    fn objects_spared(&self, unit: &Unit) -> f64 {
        self.needed(unit).map(|object| 1.0 / object.users as f64).sum::<f64>() - 1.0
    }

    /// Bytes of the middle one of the objects that stand in for it.
    fn middle_bytes(&self, unit: &Unit) -> f64 {
        let mut bytes: Vec<_> = self.needed(unit).map(|object| object.bytes).collect();
        bytes.sort_unstable();
        bytes.get(bytes.len() / 2).map_or(0.0, |bytes| *bytes as f64)
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

    fn used_bytes(&self) -> f64 {
        self.used().map(|object| object.bytes as f64).sum()
    }

    fn most_bytes(&self) -> f64 {
        self.limits.space * self.alive_bytes
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

    /// Takes what releases most for its bytes while there are too many.
    fn make_space(&mut self) {
        while self.used_bytes() > self.most_bytes() {
            let worth = |unit: &Unit| {
                let (gain, bytes) = (self.gain(unit), unit.bytes as f64);
                (gain >= bytes * LEAST_GAIN).then(|| (gain - bytes) / self.cost(unit).max(1.0))
            };
            let Some(at) = self.best(worth) else { break };
            self.take(at);
        }
    }

    /// Takes what spares most objects for its bytes while they are too many, and what spares many before that.
    fn make_few(&mut self) {
        let further = (self.alive_bytes / self.limits.object_bytes.max(1) as f64) as usize;
        let (most, soft) = (self.limits.objects, (self.limits.objects as f64 * HALF_FULL) as usize);
        loop {
            let used = self.used().count().saturating_sub(further);
            if used <= soft {
                return;
            }
            let worth = |unit: &Unit| {
                let (spared, cost) = (self.objects_spared(unit), self.cost(unit).max(1.0));
                let many = spared >= MANY && cost <= spared * self.middle_bytes(unit) * EACH;
                (many || (used > most && spared > 0.0)).then(|| spared / cost)
            };
            let Some(at) = self.best(worth) else { return };
            self.take(at);
        }
    }
}
