//! The states of the job under test, reached by number so that a history can pick one.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use highwater::RawState;
use highwater::base::cursor::Direction;
use highwater::base::descriptor::{Layout, StateDescriptor};
use highwater::base::key::{KeyParts, KeyShape};
use highwater::base::merge_operator::MergeOperator;
use highwater::state::list::read::ElementCursor;
use highwater::state::{EntryCursor, TimerService};
use highwater::{Backend, Codec, KeyedState, ListState, MapState, ReducingState, Result, ValueState};

use crate::model::{Expiring, ListKey, RowKey, group};
use crate::ops::{Bounds, KeyNo, key_bytes};

/// Row states: 0 and 1 are values, the others maps.
pub const ROW_STATES: u8 = 5;
pub const MERGED: u8 = 5;
pub const SUM: u8 = 6;
/// List states are this and the next.
pub const LIST: u8 = 7;
pub const TTL_MS: u64 = 50;

pub type ByteRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Time to live of a state, by number.
pub fn ttl_ms(state: u8) -> Option<u64> {
    matches!(state, 1 | 3 | 8).then_some(TTL_MS)
}

/// The bytes of a key in a state.
pub fn encoded_key(state: u8, key: KeyNo) -> Vec<u8> {
    if state == 4 { u32::from(key).to_be_bytes().to_vec() } else { key_bytes(key) }
}

/// The bytes of a namespace in a state.
pub fn encoded_namespace(state: u8, namespace: i8) -> Vec<u8> {
    match state {
        0 | 4 | MERGED => Vec::new(),
        2 => namespace_bytes(namespace),
        _ => {
            let mut bytes = Vec::new();
            i64::from(namespace).encode(&mut bytes).unwrap();
            bytes
        }
    }
}

fn namespace_bytes(namespace: i8) -> Vec<u8> {
    key_bytes((namespace + 1) as KeyNo)
}

/// Where in the model a (state, key, namespace) lies.
pub fn place(state: u8, key: KeyNo, namespace: i8) -> ListKey {
    (state, encoded_key(state, key), encoded_namespace(state, namespace))
}

/// As [`place`], with a user key; values have none.
pub fn row(state: u8, key: KeyNo, namespace: i8, user_key: KeyNo) -> RowKey {
    let (state, key, namespace) = place(state, key, namespace);
    let user_key = if state < 2 { Vec::new() } else { key_bytes(user_key) };
    (state, key, namespace, user_key)
}

/// Concatenates operands, each with its length.
struct Concatenate;

impl MergeOperator for Concatenate {
    fn name(&self) -> &str {
        "concatenate"
    }

    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut out = base.unwrap_or_default().to_vec();
        operands.iter().for_each(|operand| concatenate(&mut out, operand));
        Ok(out)
    }
}

pub fn concatenate(out: &mut Vec<u8>, operand: &[u8]) {
    out.extend_from_slice(&(operand.len() as u32).to_le_bytes());
    out.extend_from_slice(operand);
}

type Bytes = Vec<u8>;

/// Tokens of one subtask's states.
pub struct States {
    plain: ValueState<Bytes, Bytes>,
    brief: ValueState<Bytes, Bytes, i64>,
    map: MapState<Bytes, Bytes, Bytes, Bytes>,
    aging: MapState<Bytes, Bytes, Bytes, i64>,
    fixed: MapState<u32, Bytes, Bytes>,
    merged: RawState,
    pub sum: ReducingState<Bytes, i64, i64>,
    lists: [ListState<Bytes, Bytes, i64>; 2],
    pub timers: TimerService<Bytes, i64>,
}

/// Runs `$body` with the value state `$state` and the place in it.
macro_rules! with_value {
    ($self:ident, $state:expr, $key:expr, $namespace:expr, |$token:ident, $at:ident| $body:expr) => {
        match $state {
            0 => {
                let ($token, key) = ($self.plain, key_bytes($key));
                let $at = (&key, &());
                $body
            }
            _ => {
                let ($token, key, namespace) = ($self.brief, key_bytes($key), i64::from($namespace));
                let $at = (&key, &namespace);
                $body
            }
        }
    };
}

/// Runs `$body` with the map state `$state` and the place in it.
macro_rules! with_map {
    ($self:ident, $state:expr, $key:expr, $namespace:expr, |$token:ident, $at:ident| $body:expr) => {
        match $state {
            2 => {
                let ($token, key, namespace) = ($self.map, key_bytes($key), namespace_bytes($namespace));
                let $at = (&key, &namespace);
                $body
            }
            3 => {
                let ($token, key, namespace) = ($self.aging, key_bytes($key), i64::from($namespace));
                let $at = (&key, &namespace);
                $body
            }
            _ => {
                let ($token, key) = ($self.fixed, u32::from($key));
                let $at = (&key, &());
                $body
            }
        }
    };
}

impl States {
    pub fn register(b: &mut Backend) -> Result<Self> {
        let ttl = Duration::from_millis(TTL_MS);
        let merged = StateDescriptor {
            name: "merged".into(),
            kind: "raw".into(),
            layout: Layout::Single,
            shape: KeyShape { key_width: None, namespace_width: Some(0) },
            codecs: Default::default(),
            ttl_ms: None,
            merge_operator: Some("concatenate".into()),
        };
        Ok(Self {
            plain: b.value_state("plain")?,
            brief: b.state("brief").namespace().ttl(ttl).value()?,
            map: b.state("map").namespace().map()?,
            aging: b.state("aging").namespace().ttl(ttl).map()?,
            fixed: b.map_state("fixed")?,
            merged: b.register(merged, Some(Arc::new(Concatenate)))?,
            sum: b.state("sum").namespace().reducing(i64::wrapping_add)?,
            lists: [b.state("list").namespace().list()?, b.state("aging list").namespace().ttl(ttl).list()?],
            timers: b.timers("timers")?,
        })
    }

    pub fn list(&self, state: u8) -> ListState<Bytes, Bytes, i64> {
        self.lists[usize::from(state - LIST)]
    }

    pub fn put(&self, b: &mut Backend, (s, k, n, u): (u8, KeyNo, i8, KeyNo), value: &Bytes) -> Result<()> {
        if s < 2 {
            with_value!(self, s, k, n, |token, at| token.put(b, at, value))
        } else {
            with_map!(self, s, k, n, |token, at| token.put(b, at, &key_bytes(u), value))
        }
    }

    pub fn delete(&self, b: &mut Backend, (s, k, n, u): (u8, KeyNo, i8, KeyNo)) -> Result<()> {
        if s < 2 {
            with_value!(self, s, k, n, |token, at| token.clear(b, at))
        } else {
            with_map!(self, s, k, n, |token, at| token.remove(b, at, &key_bytes(u)))
        }
    }

    pub fn delete_prefix(&self, b: &mut Backend, s: u8, k: KeyNo, n: i8) -> Result<()> {
        if s < 2 {
            return self.delete(b, (s, k, n, 0));
        }
        with_map!(self, s, k, n, |token, at| token.clear(b, at))
    }

    pub fn get(&self, b: &mut Backend, (s, k, n, u): (u8, KeyNo, i8, KeyNo)) -> Result<Option<Bytes>> {
        match s {
            0 | 1 => with_value!(self, s, k, n, |token, at| token.get(b, at)),
            MERGED => {
                let key = key_bytes(k);
                let parts = merged_parts(&key);
                Ok(b.get(self.merged, parts)?.map(|value| value.to_vec()))
            }
            SUM => {
                let sum = self.sum.get(b, (&key_bytes(k), &i64::from(n)))?;
                Ok(sum.map(encoded_sum))
            }
            _ => with_map!(self, s, k, n, |token, at| token.get(b, at, &key_bytes(u))),
        }
    }

    pub fn merge(&self, b: &mut Backend, key: KeyNo, operand: &[u8]) -> Result<()> {
        b.merge(self.merged, merged_parts(&key_bytes(key)), operand)
    }

    pub fn scan(
        &self,
        b: &mut Backend,
        (s, k, n): (u8, KeyNo, i8),
        range: ByteRange,
        direction: Direction,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        with_map!(self, s, k, n, |token, at| token.range::<Bytes>(b, at, range, direction)?.collect())
    }

    pub fn cursor(
        &self,
        b: &mut Backend,
        (s, k, n): (u8, KeyNo, i8),
        range: ByteRange,
        direction: Direction,
    ) -> Result<EntryCursor<Bytes, Bytes>> {
        with_map!(self, s, k, n, |token, at| token.range_cursor::<Bytes>(b, at, range, direction))
    }

    pub fn list_cursor(&self, b: &mut Backend, (s, k, n): (u8, KeyNo, i8)) -> Result<ElementCursor<Bytes>> {
        self.list(s).cursor(b, (&key_bytes(k), &i64::from(n)))
    }

    /// Everything of rows and lists that a view shows: see [`Seen`].
    pub fn collect(&self, view: &highwater::ReadView, b: &Backend, seen: &mut Seen) -> Result<()> {
        let groups = b.key_groups();
        let rows = &mut seen.rows;
        let mut add = |state: u8, key: Bytes, namespace: Bytes, user_key: Bytes, value: Bytes| {
            assert!(groups.contains(group(&key)), "a row of another subtask");
            rows.push(((state, key, namespace, user_key), value));
            Ok(())
        };
        self.plain.for_each(view, groups, |k, (), v| add(0, k, vec![], vec![], v))?;
        self.brief.for_each(view, groups, |k, n, v| add(1, k, encoded_i64(n), vec![], v))?;
        self.map.for_each(view, groups, |k, n, u, v| add(2, k, n, u, v))?;
        self.aging.for_each(view, groups, |k, n, u, v| add(3, k, encoded_i64(n), u, v))?;
        self.fixed.for_each(view, groups, |k, (), u, v| add(4, k.to_be_bytes().into(), vec![], u, v))?;
        self.sum.for_each(view, groups, |k, n, v| add(SUM, k, encoded_i64(n), vec![], encoded_sum(v)))?;
        for group in groups.first()..=groups.last() {
            view.scan_state(self.merged, group, |e| add(MERGED, e.key, e.namespace, e.user_key, e.value.into()))?;
        }
        for state in [LIST, LIST + 1] {
            self.list(state).for_each(view, groups, b.now_ms(), |k, n, element| {
                seen.elements.push(((state, k.clone(), encoded_i64(*n)), element));
                Ok(())
            })?;
        }
        self.timers.for_each(view, groups, |domain, timer| {
            let group = group(&timer.key);
            let domain = domain == highwater::TimeDomain::Processing;
            seen.timers.push((domain, timer.timestamp_ms, group, timer.key, timer.namespace));
            Ok(())
        })
    }
}

/// What a full scan saw, in the order in which it saw it.
#[derive(Debug, Default)]
pub struct Seen {
    pub rows: Vec<(RowKey, Bytes)>,
    pub elements: Vec<(ListKey, Bytes)>,
    pub timers: Vec<crate::model::TimerKey>,
}

fn merged_parts(key: &[u8]) -> KeyParts<'_> {
    KeyParts { group: group(key), key, namespace: &[], user_key: &[] }
}

fn encoded_i64(value: i64) -> Bytes {
    let mut bytes = Vec::new();
    value.encode(&mut bytes).unwrap();
    bytes
}

/// The bytes of the state `sum`.
pub fn encoded_sum(value: i64) -> Bytes {
    encoded_i64(value)
}

/// Bounds of a history as byte bounds.
pub fn byte_range(bounds: Bounds) -> ByteRange {
    let bound = |(kind, key): (u8, KeyNo)| match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(key_bytes(key)),
        _ => Bound::Excluded(key_bytes(key)),
    };
    (bound(bounds[0]), bound(bounds[1]))
}

/// The entries within the bounds, in the direction: what a scan of the model gives.
pub fn within(entries: Vec<(Bytes, Expiring)>, range: &ByteRange, direction: Direction) -> Vec<(Bytes, Expiring)> {
    use std::ops::RangeBounds;
    let mut inside: Vec<_> = entries.into_iter().filter(|(user_key, _)| range.contains(user_key)).collect();
    if direction == Direction::Backward {
        inside.reverse();
    }
    inside
}
