//! States over a sorted store of bytes, laid out as Flink does it over RocksDB.

use std::time::Duration;

use super::encoding::{Encoded, number};
use super::timers::Timers;
use crate::Result;
use crate::store::{See, StateKind, StateSpec, Store};
use crate::values::Key;

/// A sorted store of bytes, with one table a state.
pub trait KeyValue {
    /// Shows `found` a value; false when there is none.
    fn get(&mut self, table: usize, key: &[u8], found: &mut impl FnMut(&[u8])) -> Result<bool>;
    /// Sets one.
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()>;
    /// Deletes one.
    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()>;
    /// Appends to one.
    fn append(&mut self, table: usize, key: &[u8], suffix: &[u8]) -> Result<()>;
    /// Reads many; `each` gets the index of each key and its value, in order.
    fn get_many(&mut self, table: usize, keys: &[Encoded], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()>;
    /// Shows entries from `from` to `last`, both included, until `each` says false.
    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        last: &[u8],
        each: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;

    /// See [`Store::checkpoint`].
    fn checkpoint(&mut self) -> Result<Option<Duration>>;
    /// See [`Store::wait_for_checkpoints`].
    fn wait_for_checkpoints(&mut self) -> Result<()>;
    /// True while it knows of background work. Without a way to ask, the process's idleness has to do.
    fn busy(&self) -> Result<bool> {
        Ok(false)
    }
    /// See [`Store::referenced_bytes`].
    fn referenced_bytes(&self) -> u64;
    /// See [`Store::describe`].
    fn describe(&self) -> String;
}

/// See the module.
#[derive(Debug)]
pub struct OverBytes<B> {
    inner: B,
    states: &'static [StateSpec],
    timers: Vec<Timers>,
    keys: Vec<Encoded>,
}

impl<B: KeyValue> OverBytes<B> {
    /// The states in the tables of `inner`, which are empty.
    pub fn new(inner: B, states: &'static [StateSpec]) -> Self {
        Self { inner, states, timers: states.iter().map(|_| Timers::new()).collect(), keys: Vec::new() }
    }

    #[inline]
    fn encode(&self, state: u8, key: &Key, namespace: u64) -> Encoded {
        match self.states[usize::from(state)].kind {
            StateKind::Value | StateKind::Batched => Encoded::key(key),
            _ => Encoded::entry(key, namespace),
        }
    }
}

impl<B: KeyValue> Store for OverBytes<B> {
    #[inline]
    fn get(&mut self, state: u8, key: &Key, namespace: u64, see: &mut impl See) -> Result<()> {
        let key = self.encode(state, key, namespace);
        self.inner.get(usize::from(state), key.bytes(), &mut |value| see.value(value)).map(drop)
    }

    #[inline]
    fn put(&mut self, state: u8, key: &Key, namespace: u64, value: &[u8]) -> Result<()> {
        let key = self.encode(state, key, namespace);
        self.inner.put(usize::from(state), key.bytes(), value)
    }

    fn delete(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()> {
        let key = self.encode(state, key, namespace);
        self.inner.delete(usize::from(state), key.bytes())
    }

    fn get_many(&mut self, state: u8, keys: &[Key], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.keys.clear();
        self.keys.extend(keys.iter().map(Encoded::key));
        self.inner.get_many(usize::from(state), &self.keys, each)
    }

    fn append(&mut self, state: u8, key: &Key, namespace: u64, element: &[u8]) -> Result<()> {
        self.inner.append(usize::from(state), Encoded::entry(key, namespace).bytes(), element)
    }

    fn read_list(
        &mut self,
        state: u8,
        key: &Key,
        namespace: u64,
        element_bytes: usize,
        see: &mut impl See,
    ) -> Result<()> {
        let key = Encoded::entry(key, namespace);
        let mut each = |list: &[u8]| list.chunks_exact(element_bytes).for_each(|element| see.value(element));
        self.inner.get(usize::from(state), key.bytes(), &mut each).map(drop)
    }

    fn clear_list(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()> {
        self.inner.delete(usize::from(state), Encoded::entry(key, namespace).bytes())
    }

    fn map_put(&mut self, state: u8, key: &Key, user_key: u64, value: &[u8]) -> Result<()> {
        self.inner.put(usize::from(state), Encoded::entry(key, user_key).bytes(), value)
    }

    fn map_get(&mut self, state: u8, key: &Key, user_key: u64, see: &mut impl See) -> Result<()> {
        let key = Encoded::entry(key, user_key);
        self.inner.get(usize::from(state), key.bytes(), &mut |value| see.value(value)).map(drop)
    }

    fn map_contains(&mut self, state: u8, key: &Key, user_key: u64) -> Result<bool> {
        self.inner.get(usize::from(state), Encoded::entry(key, user_key).bytes(), &mut |_| {})
    }

    fn map_remove(&mut self, state: u8, key: &Key, user_key: u64) -> Result<()> {
        self.inner.delete(usize::from(state), Encoded::entry(key, user_key).bytes())
    }

    fn map_range(&mut self, state: u8, key: &Key, from: u64, to: u64, see: &mut impl See) -> Result<()> {
        let (from, last) = (Encoded::entry(key, from), Encoded::entry(key, to));
        self.inner.scan(usize::from(state), from.bytes(), last.bytes(), &mut |key, value| {
            see.number(number(&key[18..]));
            see.value(value);
            true
        })
    }

    fn timer_add(&mut self, state: u8, key: &Key, time: u64) -> Result<()> {
        let table = usize::from(state);
        self.timers[table].add(&mut self.inner, table, Encoded::timer(key, time))
    }

    fn timer_delete(&mut self, state: u8, key: &Key, time: u64) -> Result<()> {
        let table = usize::from(state);
        self.timers[table].delete(&mut self.inner, table, &Encoded::timer(key, time))
    }

    fn timer_pop(&mut self, state: u8, until: u64, see: &mut impl See) -> Result<()> {
        let table = usize::from(state);
        if let Some(timer) = self.timers[table].pop(&mut self.inner, table, until)? {
            see.number(number(&timer[2..]));
            see.value(&timer[10..]);
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Duration>> {
        self.inner.checkpoint()
    }

    fn wait_for_checkpoints(&mut self) -> Result<()> {
        self.inner.wait_for_checkpoints()
    }

    fn poll(&mut self) -> Result<bool> {
        self.inner.busy()
    }

    fn referenced_bytes(&self) -> u64 {
        self.inner.referenced_bytes()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
