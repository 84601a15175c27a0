//! What a history is made of.

use highwater::CheckpointKind;
use proptest::prelude::*;

/// Index of a key, mapped to bytes by [`key_bytes`].
pub type KeyNo = u8;

/// One step of a history. Numbers that pick something of which there may be fewer are taken modulo.
#[derive(Debug, Clone)]
pub enum Op {
    Put { state: u8, key: KeyNo, namespace: i8, user_key: KeyNo, value: ValueSpec },
    Delete { state: u8, key: KeyNo, namespace: i8, user_key: KeyNo },
    DeletePrefix { state: u8, key: KeyNo, namespace: i8 },
    Fill { state: u8, key: KeyNo, namespace: i8, from: u8, count: u8, value: ValueSpec },
    Merge { key: KeyNo, operand: ValueSpec },
    Reduce { key: KeyNo, namespace: i8, value: i32 },
    ReduceMerge { key: KeyNo, target: i8, sources: Vec<i8> },
    ListAdd { state: u8, key: KeyNo, namespace: i8, values: Vec<ValueSpec> },
    ListUpdate { state: u8, key: KeyNo, namespace: i8, values: Vec<ValueSpec> },
    ListClear { state: u8, key: KeyNo, namespace: i8 },
    ListMerge { state: u8, key: KeyNo, target: i8, sources: Vec<i8> },
    TimerRegister { domain: bool, key: KeyNo, namespace: i8, time: i64 },
    TimerDelete { domain: bool, key: KeyNo, namespace: i8, time: i64 },
    TimerPop { domain: bool, subtask: u8, until: i64 },
    GetMany { subtask: u8 },
    Get { state: u8, key: KeyNo, namespace: i8, user_key: KeyNo },
    ListGet { state: u8, key: KeyNo, namespace: i8 },
    Scan { state: u8, key: KeyNo, namespace: i8, bounds: Bounds, backward: bool },
    CursorOpen { state: u8, key: KeyNo, namespace: i8, bounds: Bounds, backward: bool },
    CursorNext { cursor: u8, count: u8 },
    CursorClose { cursor: u8 },
    ViewOpen { subtask: u8 },
    ViewCheck { view: u8 },
    Clock { by_ms: i16 },
    Checkpoint { kind: CheckpointKind },
    Work { picks: Vec<u8> },
    Confirm { checkpoint: u8 },
    Abort { checkpoint: u8 },
    Collect,
    Crash { parallelism: u8, finish_work: bool },
    Usurp { parallelism: u8 },
    FullCheck,
}

/// A value by its length and a byte that tells values apart.
#[derive(Debug, Clone, Copy)]
pub struct ValueSpec {
    pub length: u16,
    pub fill: u8,
}

impl ValueSpec {
    pub fn bytes(self) -> Vec<u8> {
        (0..self.length).map(|i| self.fill.wrapping_add((i % 7) as u8)).collect()
    }
}

/// Bounds of a scan: kind (0 none, 1 included, 2 excluded) and key of either end.
pub type Bounds = [(u8, KeyNo); 2];

/// Keys that are prefixes of one another, hold 0x00 and 0xFF, are empty or long; then plain ones.
pub fn key_bytes(key: KeyNo) -> Vec<u8> {
    match key {
        0 => vec![],
        1 => vec![0],
        2 => vec![0, 0],
        3 => vec![0, 1],
        4 => vec![0, 0xFF],
        5 => vec![0xFF],
        6 => vec![0xFF, 0xFF],
        7 => vec![0xFF, 0],
        8 => vec![b'k'; 300],
        _ => format!("key-{key}").into_bytes(),
    }
}

fn value() -> impl Strategy<Value = ValueSpec> {
    let length = prop_oneof![2 => Just(0_u16), 8 => 1_u16..40, 2 => 100_u16..2000, 1 => 15_000_u16..40_000];
    (length, any::<u8>()).prop_map(|(length, fill)| ValueSpec { length, fill })
}

fn key() -> impl Strategy<Value = KeyNo> {
    // A few hot keys, so that operations meet.
    prop_oneof![4 => prop::sample::select(vec![0_u8, 4, 9]), 2 => 0_u8..9, 2 => 9_u8..30]
}

fn namespace() -> impl Strategy<Value = i8> {
    prop_oneof![3 => Just(0_i8), 1 => -1_i8..3]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![1 => Just(i64::MIN), 1 => Just(i64::MAX), 8 => -1_i64..20]
}

fn bounds() -> impl Strategy<Value = Bounds> {
    [(0_u8..3, key()), (0_u8..3, key())]
}

fn writes() -> impl Strategy<Value = Op> {
    let at = || (any::<u8>(), key(), namespace());
    prop_oneof![
        12 => (at(), key(), value()).prop_map(|((state, key, namespace), user_key, value)| Op::Put { state, key, namespace, user_key, value }),
        4 => (at(), key()).prop_map(|((state, key, namespace), user_key)| Op::Delete { state, key, namespace, user_key }),
        2 => at().prop_map(|(state, key, namespace)| Op::DeletePrefix { state, key, namespace }),
        2 => (at(), any::<u8>(), 1_u8..40, value()).prop_map(|((state, key, namespace), from, count, mut value)| {
            value.length %= 200;
            Op::Fill { state, key, namespace, from, count, value }
        }),
        6 => (key(), value()).prop_map(|(key, operand)| Op::Merge { key, operand }),
        4 => (key(), namespace(), any::<i32>()).prop_map(|(key, namespace, value)| Op::Reduce { key, namespace, value }),
        1 => (key(), namespace(), prop::collection::vec(namespace(), 0..4)).prop_map(|(key, target, sources)| Op::ReduceMerge { key, target, sources }),
        6 => (at(), prop::collection::vec(value(), 1..5)).prop_map(|((state, key, namespace), values)| Op::ListAdd { state, key, namespace, values }),
        1 => (at(), prop::collection::vec(value(), 0..4)).prop_map(|((state, key, namespace), values)| Op::ListUpdate { state, key, namespace, values }),
        1 => at().prop_map(|(state, key, namespace)| Op::ListClear { state, key, namespace }),
        1 => (at(), prop::collection::vec(namespace(), 0..4)).prop_map(|((state, key, target), sources)| Op::ListMerge { state, key, target, sources }),
        4 => (any::<bool>(), key(), namespace(), time()).prop_map(|(domain, key, namespace, time)| Op::TimerRegister { domain, key, namespace, time }),
        1 => (any::<bool>(), key(), namespace(), time()).prop_map(|(domain, key, namespace, time)| Op::TimerDelete { domain, key, namespace, time }),
        3 => (any::<bool>(), any::<u8>(), time()).prop_map(|(domain, subtask, until)| Op::TimerPop { domain, subtask, until }),
    ]
}

fn reads() -> impl Strategy<Value = Op> {
    let at = || (any::<u8>(), key(), namespace());
    prop_oneof![
        8 => (at(), key()).prop_map(|((state, key, namespace), user_key)| Op::Get { state, key, namespace, user_key }),
        3 => at().prop_map(|(state, key, namespace)| Op::ListGet { state, key, namespace }),
        4 => (at(), bounds(), any::<bool>()).prop_map(|((state, key, namespace), bounds, backward)| Op::Scan { state, key, namespace, bounds, backward }),
        2 => (at(), bounds(), any::<bool>()).prop_map(|((state, key, namespace), bounds, backward)| Op::CursorOpen { state, key, namespace, bounds, backward }),
        4 => (any::<u8>(), 1_u8..10).prop_map(|(cursor, count)| Op::CursorNext { cursor, count }),
        1 => any::<u8>().prop_map(|cursor| Op::CursorClose { cursor }),
        1 => any::<u8>().prop_map(|subtask| Op::ViewOpen { subtask }),
        1 => any::<u8>().prop_map(|view| Op::ViewCheck { view }),
        1 => any::<u8>().prop_map(|subtask| Op::GetMany { subtask }),
        1 => Just(Op::FullCheck),
    ]
}

/// Small steps, steps of about a time to live, and steps back.
fn clock() -> impl Strategy<Value = Op> {
    let by_ms = prop_oneof![3 => 1_i16..5, 2 => 10_i16..30, 2 => 49_i16..52, 1 => -60_i16..0];
    by_ms.prop_map(|by_ms| Op::Clock { by_ms })
}

fn machinery() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![4 => Just(CheckpointKind::Incremental), 1 => Just(CheckpointKind::Full)];
    prop_oneof![
        5 => clock(),
        4 => kind.prop_map(|kind| Op::Checkpoint { kind }),
        10 => prop::collection::vec(any::<u8>(), 1..12).prop_map(|picks| Op::Work { picks }),
        2 => any::<u8>().prop_map(|checkpoint| Op::Confirm { checkpoint }),
        1 => any::<u8>().prop_map(|checkpoint| Op::Abort { checkpoint }),
        2 => Just(Op::Collect),
        1 => (1_u8..6).prop_map(|parallelism| Op::Usurp { parallelism }),
        1 => (1_u8..6, any::<bool>()).prop_map(|(parallelism, finish_work)| Op::Crash { parallelism, finish_work }),
    ]
}

/// One step of any kind.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![12 => writes(), 6 => reads(), 5 => machinery()]
}

/// A history of up to `length` steps.
pub fn history(length: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..length)
}
