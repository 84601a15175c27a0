//! A store without a memtable, for tests: records go straight into segments on a disk in memory, and a model
//! remembers them all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::executor;
use super::plan::Plan;
use super::rewrite::Rules;
use super::upload_choice::{Limits, Place, choose};
use crate::base::compression::Compression;
use crate::base::cursor::Direction;
use crate::base::descriptor::Layout;
use crate::base::ids::{SegmentId, StateId};
use crate::base::key::{KeyRange, KeyShape};
use crate::base::merge_operator::MergeOperators;
use crate::base::record::{Kind, OwnedRecord};
use crate::cache::block_cache::BlockCache;
use crate::io::files::{FileWriter, ReadAt};
use crate::read::testing::{Commas, model};
use crate::read::{Lookup, MergeCursor, PrefixDeletes, Resident, Resolver, Shapes, Tree, VisibleCursor};
use crate::segment::builder::{SegmentBuilder, SegmentOptions};
use crate::segment::reader::Segment;
use crate::segment::run_writer::{OutputOptions, Outputs};
use crate::version::{Edit, SegmentRef, Version};
use crate::{Error, Result};

/// State with grouped entries, keys of one byte.
pub(crate) const GROUPED: u32 = 7;
/// State with single entries, keys of one byte.
pub(crate) const SINGLE: u32 = 8;

pub(crate) fn grouped(group: u16, key: u8, user: &[u8]) -> Vec<u8> {
    [&group.to_be_bytes()[..], &GROUPED.to_be_bytes(), &[key], user].concat()
}

pub(crate) fn single(group: u16, key: u8) -> Vec<u8> {
    [&group.to_be_bytes()[..], &SINGLE.to_be_bytes(), &[key]].concat()
}

/// Files, and what is to go wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    files: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    next_id: Mutex<u64>,
    /// Reads that still succeed.
    pub(crate) reads_left: Mutex<Option<u64>>,
    /// Appends that still succeed.
    pub(crate) appends_left: Mutex<Option<u64>>,
}

fn spend(left: &Mutex<Option<u64>>, what: &str) -> Result<()> {
    if let Some(left) = left.lock().as_mut() {
        *left = left.checked_sub(1).ok_or_else(|| Error::io(what, std::io::Error::other("injected")))?;
    }
    Ok(())
}

impl Disk {
    pub(crate) fn ids(&self) -> HashSet<u64> {
        self.files.lock().keys().copied().collect()
    }
}

#[derive(Debug)]
struct File(Arc<Disk>, u64, Arc<Vec<u8>>);

impl ReadAt for File {
    fn name(&self) -> &str {
        "file in memory"
    }

    fn len(&self) -> u64 {
        self.2.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        spend(&self.0.reads_left, "reading")?;
        assert!(self.0.files.lock().contains_key(&self.1), "a removed file is read");
        let start = usize::try_from(offset).unwrap();
        buffer.copy_from_slice(&self.2[start..start + buffer.len()]);
        Ok(())
    }
}

struct Writer(Arc<Disk>, u64);

impl FileWriter for Writer {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        spend(&self.0.appends_left, "writing")?;
        let mut files = self.0.files.lock();
        Arc::make_mut(files.get_mut(&self.1).unwrap()).extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, _: bool) -> Result<()> {
        spend(&self.0.appends_left, "finishing")
    }
}

pub(crate) struct NewFiles(pub(crate) Arc<Disk>);

impl Outputs for NewFiles {
    fn create(&mut self) -> Result<(SegmentId, Box<dyn FileWriter>)> {
        let mut next = self.0.next_id.lock();
        *next += 1;
        self.0.files.lock().insert(*next, Arc::default());
        Ok((SegmentId(*next), Box::new(Writer(Arc::clone(&self.0), *next))))
    }

    fn remove(&mut self, id: SegmentId) {
        self.0.files.lock().remove(&id.0);
    }
}

pub(crate) struct World {
    pub(crate) disk: Arc<Disk>,
    cache: Arc<BlockCache>,
    pub(crate) shapes: Shapes,
    pub(crate) operators: Arc<MergeOperators>,
    pub(crate) options: OutputOptions,
    pub(crate) now_ms: i64,
    pub(crate) sequence: u64,
    /// Every record ever written.
    pub(crate) log: Vec<OwnedRecord>,
    pub(crate) tree: Tree,
    pub(crate) dropped: HashSet<StateId>,
    /// Segments that the store has.
    stored: Mutex<HashSet<SegmentId>>,
}

impl World {
    pub(crate) fn new(target_bytes: u64, cache_bytes: u64) -> Self {
        let shape = KeyShape { key_width: Some(1), namespace_width: Some(0) };
        let mut shapes = Shapes::default();
        shapes.insert(StateId(GROUPED), shape, Layout::Grouped);
        shapes.insert(StateId(SINGLE), shape, Layout::Single);
        let mut operators = MergeOperators::default();
        operators.insert(StateId(GROUPED), Arc::new(Commas));
        operators.insert(StateId(SINGLE), Arc::new(Commas));
        let segment = SegmentOptions { block_bytes: 64, compression: Compression::None, sync: false };
        Self {
            disk: Arc::default(),
            cache: Arc::new(BlockCache::new(cache_bytes).unwrap()),
            shapes,
            operators: Arc::new(operators),
            options: OutputOptions { target_bytes, segment },
            now_ms: 0,
            sequence: 0,
            log: Vec::new(),
            tree: Tree::default(),
            dropped: HashSet::new(),
            stored: Mutex::default(),
        }
    }

    pub(crate) fn version(&self) -> &Version {
        self.tree.version()
    }

    pub(crate) fn resolver(&self) -> Resolver {
        Resolver { now_ms: self.now_ms, operators: Arc::clone(&self.operators) }
    }

    pub(crate) fn set_version(&mut self, version: Version) {
        self.tree = self.open(version);
    }

    pub(crate) fn open(&self, version: Version) -> Tree {
        Tree::new(version, &self.tree, |r| {
            let id = r.meta().id.0;
            let bytes = Arc::clone(&self.disk.files.lock()[&id]);
            let file = Arc::new(File(Arc::clone(&self.disk), id, bytes));
            Ok(Segment::open(r.meta().as_ref().clone(), file, Arc::clone(&self.cache)))
        })
        .unwrap()
    }

    /// Makes the newest run of `records`, which get the next sequence. A later one at a key replaces an earlier.
    pub(crate) fn flush(&mut self, records: Vec<OwnedRecord>) {
        self.sequence += 1;
        let mut newest = BTreeMap::new();
        for mut record in records {
            record.sequence = self.sequence;
            newest.insert((record.key.clone(), record.kind != Kind::PrefixDelete), record);
        }
        if newest.is_empty() {
            return;
        }
        let (id, writer) = NewFiles(Arc::clone(&self.disk)).create().unwrap();
        let mut builder = SegmentBuilder::new(writer, id, self.options.segment);
        for record in newest.into_values() {
            builder.add(&record.as_record(), self.shapes.prefix_len(&record.key).unwrap()).unwrap();
            self.log.push(record);
        }
        let r = Arc::new(SegmentRef::local(Arc::new(builder.finish().unwrap())));
        let version = self.version().apply(&Edit::flush(vec![r])).unwrap();
        self.set_version(version);
    }

    /// Executes `plan`; an error leaves everything as it was.
    pub(crate) fn compact(&mut self, plan: &Plan, operators: &MergeOperators) -> Result<()> {
        let before = self.disk.ids();
        let rules = Rules { now_ms: self.now_ms, operators, shapes: &self.shapes, dropped: &self.dropped };
        let mut outputs = NewFiles(Arc::clone(&self.disk));
        match executor::run(plan, &self.tree, rules, self.options, &mut outputs, &mut |_| Ok(())) {
            Ok(mut outcome) => {
                let stored = self.stored.lock().clone();
                let stored = |r: &SegmentRef| stored.contains(&r.meta().id);
                for addition in &mut outcome.edit.added {
                    addition.refs.iter_mut().for_each(|r| *r = Arc::new(r.simplified(&stored, &stored)));
                }
                let version = self.version().apply(&outcome.edit).unwrap();
                self.set_version(version);
                Ok(())
            }
            Err(error) => {
                assert_eq!(self.disk.ids(), before, "no output is left behind");
                Err(error)
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let prefix_len = self.shapes.prefix_len(key)?;
        let found = self.tree.get(key, prefix_len, Lookup::default(), &self.resolver())?;
        let resident = self.tree.get_resident(key, prefix_len, Lookup::default(), &self.resolver())?;
        assert!(resident == Resident::NotResident || resident == Resident::Known(found.clone()));
        Ok(found.map(|f| f.value.to_vec()))
    }

    pub(crate) fn scan_tree(
        &self,
        tree: &Tree,
        range: &KeyRange,
        direction: Direction,
        within: Option<&[u8]>,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let merged = MergeCursor::new(tree.cursors(range, direction, true), direction);
        let prefixes: PrefixDeletes<'_> = tree.prefix_deletes(within, direction, &self.shapes, |_| Ok(0))?;
        let mut cursor = VisibleCursor::new(merged, direction, self.resolver(), prefixes);
        let mut out = Vec::new();
        while let Some(entry) = cursor.entry() {
            out.push((entry.key.to_vec(), entry.value.to_vec()));
            cursor.advance()?;
        }
        cursor.status()?;
        if direction == Direction::Backward {
            out.reverse();
        }
        Ok(out)
    }

    pub(crate) fn expected(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        model(&self.log, self.now_ms)
    }

    /// Every way of reading `tree` gives what the model has within `clip`.
    pub(crate) fn check_tree(&self, tree: &Tree, clip: &KeyRange) {
        let expected: Vec<_> = self.expected().into_iter().filter(|(k, _)| clip.contains(k)).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(self.scan_tree(tree, &KeyRange::all(), direction, None).unwrap(), expected, "{direction:?}");
        }
        let prefixes: HashSet<Vec<u8>> =
            self.log.iter().filter(|r| r.key[5] == 7).map(|r| r.key[..7].to_vec()).collect();
        for prefix in &prefixes {
            let under: Vec<_> = expected.iter().filter(|(k, _)| k.starts_with(prefix)).cloned().collect();
            let half = KeyRange { start: [prefix, &[2][..]].concat(), ..KeyRange::prefix(prefix) };
            let upper: Vec<_> = under.iter().filter(|(k, _)| half.contains(k)).cloned().collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let range = KeyRange::prefix(prefix);
                assert_eq!(self.scan_tree(tree, &range, direction, Some(prefix)).unwrap(), under);
                assert_eq!(self.scan_tree(tree, &half, direction, Some(prefix)).unwrap(), upper);
            }
            assert!(under.is_empty() || !tree.nothing_below(prefix).unwrap());
        }
        let expected: BTreeMap<_, _> = expected.into_iter().collect();
        for record in self.log.iter().filter(|r| clip.contains(&r.key)) {
            let prefix_len = self.shapes.prefix_len(&record.key).unwrap();
            let found = tree.get(&record.key, prefix_len, Lookup::default(), &self.resolver()).unwrap();
            let value = expected.get(&record.key);
            assert_eq!(found.map(|f| f.value.to_vec()).as_ref(), value, "get {:?}", record.key);
            assert!(value.is_none() || !tree.nothing_at(&record.key).unwrap());
        }
    }

    /// What a checkpoint would put into its manifest says the same as the tree. Of those made here some come to an end, of
    /// some others nobody has the stand-ins any more.
    fn check_stored(&self) {
        let mut stored = self.stored.lock();
        let turn = self.tree.version().max_sequence() + self.tree.version().ref_count() as u64;
        let place = |id: SegmentId| {
            if stored.contains(&id) {
                Place::Stored
            } else if turn.is_multiple_of(7) && self.tree.segment(id).is_none() {
                Place::Gone
            } else {
                Place::Here
            }
        };
        let tight = Limits { space: 1.1, objects: 4, object_bytes: 1 << 20 };
        let limits = if turn.is_multiple_of(5) { tight } else { Limits::with_segments_of(1 << 20) };
        let chosen = choose(self.version(), &place, &limits).segments;
        let itself = |r: &SegmentRef| place(r.meta().id) == Place::Stored || chosen.contains(&r.meta().id);
        let view = self.version().stored(&itself).unwrap();
        assert!(view.refs().all(|(_, _, r)| place(r.meta().id) != Place::Gone && r.stand_ins().is_none()));
        self.check_tree(&self.open(view.clone()), &KeyRange::all());
        if !turn.is_multiple_of(3) {
            stored.extend(view.refs().map(|(_, _, r)| r.meta().id));
        }
    }

    pub(crate) fn check(&self) {
        self.check_tree(&self.tree, &KeyRange::all());
        self.check_stored();
        let seen = self.expected();
        for key in seen.keys() {
            assert_eq!(self.get(key).unwrap().as_ref(), seen.get(key));
        }
    }
}
