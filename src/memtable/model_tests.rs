//! Random histories against plain ordered maps: the present, every view, and every frozen epoch.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;

use crate::base::checksum;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::descriptor::Layout;
use crate::base::key::KeyRange;
use crate::base::merge_operator::MergeOperator;
use crate::base::operands;
use crate::base::record::{Kind, NEVER, OwnedRecord, Record};
use crate::cache::budget::Budget;

use super::{Below, GroupScan, Lookup, MemKey, Memtable, MemtableConfig, Probe, SealedEpoch, UserKeyBounds, ViewId};

/// Joins operands to the value; refuses "!".
struct Join;

impl MergeOperator for Join {
    fn name(&self) -> &str {
        "join"
    }

    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut value = base.unwrap_or(b"<").to_vec();
        for operand in operands {
            if *operand == b"!" {
                return Err("refused".into());
            }
            value.extend_from_slice(operand);
        }
        Ok(value)
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// The tree below: value and sequence by key.
type Version = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

#[derive(Debug, Clone)]
enum Op {
    Put { key: u8, len: u16, hint: bool },
    Delete { key: u8, hint: bool },
    Merge { key: u8, len: u8, hint: bool },
    Refused { key: u8 },
    Append { key: u8, len: u8 },
    DeletePrefix { group: u8, hint: bool },
    Get { key: u8, promote: bool },
    GetMany,
    Scan { group: u8, from: u8, to: u8, backward: bool },
    Freeze,
    Adopt,
    Evict { bytes: u16 },
    Tidy { bytes: u16 },
    OpenView,
    CloseView { which: u8 },
    Complete { group: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    let key = any::<u8>();
    prop_oneof![
        12 => (key, prop_oneof![0_u16..30, 0_u16..30, 200_u16..700], any::<bool>())
            .prop_map(|(key, len, hint)| Op::Put { key, len, hint }),
        7 => (key, any::<bool>()).prop_map(|(key, hint)| Op::Delete { key, hint }),
        6 => (key, 0_u8..12, any::<bool>()).prop_map(|(key, len, hint)| Op::Merge { key, len, hint }),
        1 => key.prop_map(|key| Op::Refused { key }),
        2 => (key, 0_u8..12).prop_map(|(key, len)| Op::Append { key, len }),
        2 => (0_u8..GROUPS, any::<bool>()).prop_map(|(group, hint)| Op::DeletePrefix { group, hint }),
        6 => (key, any::<bool>()).prop_map(|(key, promote)| Op::Get { key, promote }),
        1 => Just(Op::GetMany),
        2 => (0_u8..GROUPS, any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(group, from, to, backward)| Op::Scan { group, from, to, backward }),
        3 => Just(Op::Freeze),
        3 => Just(Op::Adopt),
        4 => (1_u16..2000).prop_map(|bytes| Op::Evict { bytes }),
        3 => (1_u16..2000).prop_map(|bytes| Op::Tidy { bytes }),
        1 => Just(Op::OpenView),
        2 => any::<u8>().prop_map(|which| Op::CloseView { which }),
        1 => (0_u8..GROUPS).prop_map(|group| Op::Complete { group }),
    ]
}

const GROUPS: u8 = 3;
const PREFIX_LEN: usize = 4;

fn prefix(group: u8) -> [u8; PREFIX_LEN] {
    [0, 1, group, 0xFF]
}

/// A quarter of the numbers are single keys; the rest are members, most of group 0, of many lengths.
fn bytes_of(key: u8) -> (Vec<u8>, bool) {
    if key.is_multiple_of(4) {
        return (vec![0, 0, key % 32], false);
    }
    let group = if key.is_multiple_of(3) { 1 + key % 2 } else { 0 };
    let mut bytes = prefix(group).to_vec();
    match key % 5 {
        0 => bytes.extend_from_slice(&[]),
        1 => bytes.extend_from_slice(&[key / 5]),
        2 => bytes.extend_from_slice(&[key / 5, 0]),
        3 => bytes.extend_from_slice(&[9, 9, 9, 9, 9, 9, 9, 9, key / 5]),
        _ => bytes.extend_from_slice(&[[7; 20].as_slice(), &[key / 5]].concat()),
    }
    (bytes, true)
}

/// Numbered, so that each call may find what the one before found of the same key.
fn mem_key(bytes: &[u8], grouped: bool) -> MemKey<'_> {
    let (layout, prefix_len) = if grouped { (Layout::Grouped, PREFIX_LEN) } else { (Layout::Single, bytes.len()) };
    let number = checksum::hash64(bytes) << 1 | 1;
    MemKey::numbered(layout, bytes, prefix_len, MemKey::hash_of(layout, bytes, prefix_len), number)
}

/// A probe says what a lookup says.
fn assert_probe(memtable: &Memtable, key: MemKey<'_>) {
    let probe = memtable.probe(key);
    let agree = match (&probe, memtable.lookup(key)) {
        (Probe::Value { at, expiry }, Lookup::Record(record)) => {
            record.kind == Kind::Put && memtable.value(*at) == record.value && *expiry == record.expiry
        }
        (Probe::Absent, Lookup::Absent) | (Probe::Operands, Lookup::Operands(_)) => true,
        (Probe::Unknown, Lookup::Unknown) => true,
        (Probe::Absent, Lookup::Record(record)) => record.kind == Kind::Delete,
        _ => false,
    };
    assert!(agree, "{probe:?} but {:?}", memtable.lookup(key));
}

struct Frozen {
    epoch: Arc<SealedEpoch>,
    model: Map,
}

struct View {
    id: ViewId,
    model: Map,
    version: Version,
}

struct World {
    memtable: Memtable,
    budget: Budget,
    model: Map,
    version: Version,
    frozen: VecDeque<Frozen>,
    views: Vec<View>,
    step: u64,
}

fn drain(mut cursor: impl RecordCursor) -> Vec<OwnedRecord> {
    let mut out = Vec::new();
    while let Some(record) = cursor.record() {
        out.push(OwnedRecord::from(record));
        cursor.advance().unwrap();
    }
    out
}

/// Applies records of one key, newest first, to what is below.
fn fold_records(records: &[Record<'_>], below: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut base = below.map(<[u8]>::to_vec);
    let mut list: Vec<&[u8]> = Vec::new();
    for record in records.iter().rev() {
        match record.kind {
            Kind::Put => (base, list) = (Some(record.value.to_vec()), vec![]),
            Kind::Merge => list.extend(operands::decode(record.value).unwrap().list),
            _ => (base, list) = (None, vec![]),
        }
    }
    if list.is_empty() { base } else { Some(Join.merge(base.as_deref(), &list).unwrap()) }
}

fn flush(version: &mut Version, epoch: &Arc<SealedEpoch>) {
    let records = drain(epoch.cursor(&KeyRange::all(), Direction::Forward));
    let mut reversed = drain(epoch.cursor(&KeyRange::all(), Direction::Backward));
    reversed.reverse();
    assert_eq!(records, reversed, "backward is the reverse");
    for pair in records.windows(2) {
        assert!(pair[0].as_record().order(&pair[1].as_record()).is_lt(), "in order, no duplicates");
    }
    for record in records.iter().filter(|r| r.kind == Kind::PrefixDelete) {
        assert_eq!(epoch.prefix_delete(&record.key), Some(record.sequence));
        version.retain(|key, (_, sequence)| !(key.starts_with(&record.key) && *sequence < record.sequence));
    }
    let keyed: Vec<_> = records.iter().filter(|r| r.kind != Kind::PrefixDelete).collect();
    for same in keyed.chunk_by(|a, b| a.key == b.key) {
        let key = &same[0].key;
        let same: Vec<Record<'_>> = same.iter().map(|r| r.as_record()).collect();
        assert_eq!(epoch.get(key).collect::<Vec<_>>(), same);
        match fold_records(&same, version.get(key).map(|(value, _)| value.as_slice())) {
            Some(value) => version.insert(key.clone(), (value, same[0].sequence)),
            None => version.remove(key),
        };
    }
}

fn values(version: &Version) -> Map {
    version.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
}

fn answer(lookup: &Lookup<'_>, below: Option<&[u8]>) -> Option<Vec<u8>> {
    match lookup {
        Lookup::Record(record) => (record.kind == Kind::Put).then(|| record.value.to_vec()),
        Lookup::Operands(chain) => Some(chain.fold(Some(&Join), below, 0).unwrap()),
        Lookup::Absent => None,
        Lookup::Unknown => below.map(<[u8]>::to_vec),
    }
}

fn scanned(scan: GroupScan<'_>, prefix: &[u8], bounds: UserKeyBounds<'_>, version: &Version) -> Map {
    let complete = scan.is_complete();
    let records = drain(scan);
    let below = |key: &[u8]| if complete { None } else { version.get(key).map(|(v, _)| v.as_slice()) };
    let inside = |key: &[u8]| key.starts_with(prefix) && within(&key[prefix.len()..], bounds);
    let mut out: Map = Map::new();
    if !complete {
        out.extend(values(version).into_iter().filter(|(key, _)| inside(key)));
    }
    for same in records.chunk_by(|a, b| a.key == b.key) {
        let mut same: Vec<Record<'_>> = same.iter().map(OwnedRecord::as_record).collect();
        same.sort_by(Record::order);
        assert!(inside(same[0].key));
        match fold_records(&same, below(same[0].key)) {
            Some(value) => out.insert(same[0].key.to_vec(), value),
            None => out.remove(same[0].key),
        };
    }
    out
}

/// Equality that names only the keys that differ.
fn assert_same(found: &Map, expected: &Map) {
    let wrong = |a: &Map, b: &Map| -> Vec<Vec<u8>> {
        a.iter().filter(|(key, value)| b.get(*key) != Some(value)).map(|(key, _)| key.clone()).collect()
    };
    assert_eq!((wrong(found, expected), wrong(expected, found)), (vec![], vec![]), "(too many, missing)");
}

fn within(user_key: &[u8], bounds: UserKeyBounds<'_>) -> bool {
    let above = match bounds.0 {
        Bound::Included(from) => user_key >= from,
        Bound::Excluded(from) => user_key > from,
        Bound::Unbounded => true,
    };
    above
        && match bounds.1 {
            Bound::Included(to) => user_key <= to,
            Bound::Excluded(to) => user_key < to,
            Bound::Unbounded => true,
        }
}

impl World {
    fn new(page_bytes: usize) -> Self {
        let budget = Budget::new(64 << 20);
        let config = MemtableConfig { page_bytes, ..MemtableConfig::new(budget.clone()) };
        Self {
            memtable: Memtable::new(config),
            budget,
            model: Map::new(),
            version: Version::new(),
            frozen: VecDeque::new(),
            views: Vec::new(),
            step: 0,
        }
    }

    fn below(&self, key: &[u8], grouped: bool, hint: bool) -> Below {
        if !hint {
            return Below::Unknown;
        }
        if grouped && !self.version.keys().any(|k| k.starts_with(&key[..PREFIX_LEN])) {
            return Below::NothingAtPrefix;
        }
        if self.version.contains_key(key) { Below::Unknown } else { Below::NothingAtKey }
    }

    fn value(&self, len: usize) -> Vec<u8> {
        self.step.to_string().into_bytes().into_iter().cycle().take(len).collect()
    }

    fn below_value(&self, key: &[u8]) -> Option<&[u8]> {
        self.version.get(key).map(|(value, _)| value.as_slice())
    }

    fn apply(&mut self, op: &Op) {
        self.step += 1;
        match *op {
            Op::Put { key, len, hint } => {
                let (key, grouped) = bytes_of(key);
                let (value, below) = (self.value(len.into()), self.below(&key, grouped, hint));
                self.memtable.put(mem_key(&key, grouped), &value, NEVER, || below).unwrap();
                self.model.insert(key, value);
            }
            Op::Delete { key, hint } => {
                let (key, grouped) = bytes_of(key);
                let below = self.below(&key, grouped, hint);
                self.memtable.delete(mem_key(&key, grouped), || below).unwrap();
                self.model.remove(&key);
            }
            Op::Merge { key, len, hint } => {
                let (key, grouped) = bytes_of(key);
                let (operand, below) = (self.value(len.into()), self.below(&key, grouped, hint));
                self.memtable.merge(mem_key(&key, grouped), &operand, Some(&Join), 0, || below).unwrap();
                let folded = Join.merge(self.model.get(&key).map(Vec::as_slice), &[&operand]).unwrap();
                self.model.insert(key, folded);
            }
            Op::Refused { key } => {
                let (key, grouped) = bytes_of(key);
                let key = mem_key(&key, grouped);
                if !matches!(self.memtable.lookup(key), Lookup::Unknown | Lookup::Operands(_)) {
                    self.memtable.merge(key, b"!", Some(&Join), 0, Below::unknown).unwrap_err();
                }
                self.memtable.merge(key, b"x", None, 0, Below::unknown).unwrap_err();
            }
            Op::Append { key, len } => {
                let (key, grouped) = bytes_of(key);
                let suffix = self.value(len.into());
                if let Some(len) = self.memtable.append(mem_key(&key, grouped), &suffix).unwrap() {
                    let value = self.model.get_mut(&key).unwrap();
                    value.extend_from_slice(&suffix);
                    assert_eq!(value.len(), len);
                }
            }
            Op::DeletePrefix { group, hint } => {
                let prefix = prefix(group);
                let below = self.below(&prefix, true, hint);
                self.memtable.delete_prefix(&prefix, || below).unwrap();
                self.model.retain(|key, _| !key.starts_with(&prefix));
            }
            Op::Get { key, promote } => self.get(key, promote),
            Op::GetMany => self.get_many(),
            Op::Scan { group, from, to, backward } => self.scan(group, from, to, backward),
            Op::Complete { group } => self.complete(group),
            _ => self.apply_upkeep(op),
        }
    }

    fn apply_upkeep(&mut self, op: &Op) {
        match *op {
            Op::Freeze => {
                let epoch = self.memtable.freeze();
                self.frozen.push_back(Frozen { epoch, model: self.model.clone() });
            }
            Op::Adopt => {
                if let Some(Frozen { epoch, model }) = self.frozen.pop_front() {
                    flush(&mut self.version, &epoch);
                    assert_eq!(values(&self.version), model, "what was frozen is what was flushed");
                    self.memtable.adopt(epoch.last_sequence());
                }
            }
            Op::Evict { bytes } => {
                self.memtable.evict_step(bytes.into());
                drop(self.memtable.take_trash());
            }
            Op::Tidy { bytes } => {
                self.memtable.tidy_step(bytes.into());
                drop(self.memtable.take_trash());
            }
            Op::OpenView => {
                let id = self.memtable.open_view();
                self.views.push(View { id, model: self.model.clone(), version: self.version.clone() });
            }
            Op::CloseView { which } => {
                if !self.views.is_empty() {
                    let view = self.views.swap_remove(usize::from(which) % self.views.len());
                    self.memtable.close_view(view.id);
                }
            }
            _ => unreachable!(),
        }
    }

    fn get(&mut self, key: u8, promote: bool) {
        let (key, grouped) = bytes_of(key);
        assert_probe(&self.memtable, mem_key(&key, grouped));
        let lookup = self.memtable.lookup(mem_key(&key, grouped));
        let unknown = matches!(lookup, Lookup::Unknown);
        assert_eq!(answer(&lookup, self.below_value(&key)).as_ref(), self.model.get(&key));
        drop(lookup);
        match self.version.get(&key) {
            Some((value, sequence)) if promote => {
                let record = Record { key: &key, sequence: *sequence, kind: Kind::Put, expiry: NEVER, value };
                let read_at = self.memtable.adopted_sequence();
                assert_eq!(self.memtable.promote(mem_key(&key, grouped), &record, read_at), unknown);
            }
            None if unknown && promote => self.memtable.note_absent(mem_key(&key, grouped)),
            _ => {}
        }
    }

    fn get_many(&self) {
        let keys: Vec<_> = (0..=255).map(bytes_of).collect();
        let asked: Vec<_> = keys.iter().map(|(key, grouped)| mem_key(key, *grouped)).collect();
        for (lookup, (key, _)) in self.memtable.get_many(&asked).iter().zip(&keys) {
            assert_eq!(answer(lookup, self.below_value(key)).as_ref(), self.model.get(key));
        }
    }

    fn scan(&self, group: u8, from: u8, to: u8, backward: bool) {
        let prefix = prefix(group);
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let (from_key, to_key) = (&bytes_of(from | 1).0[PREFIX_LEN..], &bytes_of(to | 1).0[PREFIX_LEN..]);
        let bound = |n: u8, key| match n % 3 {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        let bounds: UserKeyBounds<'_> = (bound(from, from_key), bound(to, to_key));
        let expected = |model: &Map| -> Map {
            let inside = |key: &[u8]| key.starts_with(&prefix) && within(&key[PREFIX_LEN..], bounds);
            model.iter().filter(|(key, _)| inside(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let keys: Vec<_> = drain(self.memtable.scan(&prefix, bounds, direction));
        let sorted = keys.is_sorted_by(|a, b| match direction {
            Direction::Forward => a.as_record().order(&b.as_record()).is_le(),
            Direction::Backward => a.as_record().order(&b.as_record()).is_ge(),
        });
        assert!(sorted, "in the cursor's order");
        let scan = self.memtable.scan(&prefix, bounds, direction);
        assert_same(&scanned(scan, &prefix, bounds, &self.version), &expected(&self.model));
        for view in &self.views {
            let scan = self.memtable.scan_at(view.id, &prefix, bounds, direction);
            assert_same(&scanned(scan, &prefix, bounds, &view.version), &expected(&view.model));
        }
    }

    fn complete(&mut self, group: u8) {
        let (prefix, read_at) = (prefix(group), self.memtable.adopted_sequence());
        for (key, (value, sequence)) in self.version.range(prefix.to_vec()..) {
            if key.starts_with(&prefix) {
                let record = Record { key, sequence: *sequence, kind: Kind::Put, expiry: NEVER, value };
                self.memtable.promote(mem_key(key, true), &record, read_at);
            }
        }
        self.memtable.mark_complete(&prefix, read_at);
    }

    fn check_all(&self) {
        for key in 0..=255 {
            let (key, grouped) = bytes_of(key);
            assert_probe(&self.memtable, mem_key(&key, grouped));
            let lookup = self.memtable.lookup(mem_key(&key, grouped));
            let found = answer(&lookup, self.below_value(&key));
            assert_eq!(found.as_ref(), self.model.get(&key), "now, {key:?}: {lookup:?}");
            for view in &self.views {
                let lookup = self.memtable.lookup_at(view.id, mem_key(&key, grouped));
                let below = view.version.get(&key).map(|(value, _)| value.as_slice());
                assert_eq!(answer(&lookup, below).as_ref(), view.model.get(&key), "view, {key:?}: {lookup:?}");
            }
        }
        for group in 0..GROUPS {
            self.scan(group, 2, 2, group == 1);
        }
    }

    /// Closes, flushes and evicts everything: what is left must be all below, and no memory held.
    fn wind_down(mut self) {
        for view in std::mem::take(&mut self.views) {
            self.memtable.close_view(view.id);
        }
        self.apply(&Op::Freeze);
        while !self.frozen.is_empty() {
            self.apply(&Op::Adopt);
        }
        self.check_all();
        // Three rounds: what was read has a second chance.
        for _ in 0..3 {
            while self.memtable.evict_step(100) > 0 {}
        }
        drop(self.memtable.take_trash());
        self.memtable.release_pool();
        let stats = self.memtable.stats();
        assert_eq!((stats.single_keys, stats.groups, stats.clean_bytes, stats.dirty_bytes), (0, 0, 0, 0));
        assert_eq!(values(&self.version), self.model);
        drop(self.memtable);
        assert_eq!(self.budget.total(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_plain_maps(
        ops in proptest::collection::vec(op(), 1..250),
        page_bytes in prop_oneof![Just(256), Just(1024), Just(256 << 10)],
    ) {
        let mut world = World::new(page_bytes);
        for (at, op) in ops.iter().enumerate() {
            world.apply(op);
            if at % 8 == 7 {
                world.check_all();
            }
        }
        world.check_all();
        world.wind_down();
    }
}
