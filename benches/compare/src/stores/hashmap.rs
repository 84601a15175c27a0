//! Plain maps in memory with no durability at all: how close to them is a store? They are the model, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::Setting;
use super::encoding::Encoded;
use crate::Result;
use crate::store::{See, StateSpec, Store};
use crate::values::Key;

type Bytes = Box<[u8]>;
type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// One table a state.
#[derive(Debug, Default)]
struct Table {
    values: HashMap<Bytes, Bytes>,
    lists: HashMap<Bytes, Vec<u8>>,
    maps: HashMap<Key, BTreeMap<u64, Bytes>>,
    timers: BTreeSet<(u64, Key)>,
}

/// See the module.
#[derive(Debug)]
pub struct Maps {
    tables: Vec<Table>,
    states: &'static [StateSpec],
}

impl Maps {
    /// Empty ones.
    pub fn open(setting: &Setting) -> Self {
        Self { tables: setting.states.iter().map(|_| Table::default()).collect(), states: setting.states }
    }

    #[inline]
    fn encode(&self, state: u8, key: &Key, namespace: u64) -> Encoded {
        match self.states[usize::from(state)].kind {
            crate::store::StateKind::Value | crate::store::StateKind::Batched => Encoded::key(key),
            _ => Encoded::entry(key, namespace),
        }
    }

    #[inline]
    fn table(&mut self, state: u8) -> &mut Table {
        &mut self.tables[usize::from(state)]
    }

    /// Bytes of keys and values that are there.
    pub fn live_bytes(&self) -> u64 {
        let bytes = |table: &Table| {
            let values: usize = table.values.iter().map(|(k, v)| k.len() - 2 + v.len()).sum();
            let lists: usize = table.lists.iter().map(|(k, v)| k.len() - 2 + v.len()).sum();
            let maps: usize = table.maps.values().flat_map(BTreeMap::values).map(|v| 24 + v.len()).sum();
            (values + lists + maps + 24 * table.timers.len()) as u64
        };
        self.tables.iter().map(bytes).sum()
    }
}

impl Store for Maps {
    #[inline]
    fn get(&mut self, state: u8, key: &Key, namespace: u64, see: &mut impl See) -> Result<()> {
        let key = self.encode(state, key, namespace);
        if let Some(value) = self.table(state).values.get(key.bytes()) {
            see.value(value);
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, state: u8, key: &Key, namespace: u64, value: &[u8]) -> Result<()> {
        let key = self.encode(state, key, namespace);
        let values = &mut self.table(state).values;
        match values.get_mut(key.bytes()) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = value.into(),
            None => drop(values.insert(key.bytes().into(), value.into())),
        }
        Ok(())
    }

    fn delete(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()> {
        let key = self.encode(state, key, namespace);
        self.table(state).values.remove(key.bytes());
        Ok(())
    }

    fn get_many(&mut self, state: u8, keys: &[Key], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            let key = self.encode(state, key, 0);
            each(index, self.table(state).values.get(key.bytes()).map(|value| &**value));
        }
        Ok(())
    }

    fn append(&mut self, state: u8, key: &Key, namespace: u64, element: &[u8]) -> Result<()> {
        let key = Encoded::entry(key, namespace);
        let lists = &mut self.table(state).lists;
        match lists.get_mut(key.bytes()) {
            Some(list) => list.extend_from_slice(element),
            None => drop(lists.insert(key.bytes().into(), element.to_vec())),
        }
        Ok(())
    }

    fn read_list(
        &mut self,
        state: u8,
        key: &Key,
        namespace: u64,
        element_bytes: usize,
        see: &mut impl See,
    ) -> Result<()> {
        if let Some(list) = self.table(state).lists.get(Encoded::entry(key, namespace).bytes()) {
            list.chunks_exact(element_bytes).for_each(|element| see.value(element));
        }
        Ok(())
    }

    fn clear_list(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()> {
        self.table(state).lists.remove(Encoded::entry(key, namespace).bytes());
        Ok(())
    }

    fn map_put(&mut self, state: u8, key: &Key, user_key: u64, value: &[u8]) -> Result<()> {
        self.table(state).maps.entry(*key).or_default().insert(user_key, value.into());
        Ok(())
    }

    fn map_get(&mut self, state: u8, key: &Key, user_key: u64, see: &mut impl See) -> Result<()> {
        if let Some(value) = self.table(state).maps.get(key).and_then(|map| map.get(&user_key)) {
            see.value(value);
        }
        Ok(())
    }

    fn map_contains(&mut self, state: u8, key: &Key, user_key: u64) -> Result<bool> {
        Ok(self.table(state).maps.get(key).is_some_and(|map| map.contains_key(&user_key)))
    }

    fn map_remove(&mut self, state: u8, key: &Key, user_key: u64) -> Result<()> {
        let maps = &mut self.table(state).maps;
        if let Some(map) = maps.get_mut(key) {
            map.remove(&user_key);
            if map.is_empty() {
                maps.remove(key);
            }
        }
        Ok(())
    }

    fn map_range(&mut self, state: u8, key: &Key, from: u64, to: u64, see: &mut impl See) -> Result<()> {
        if let Some(map) = self.table(state).maps.get(key) {
            for (user_key, value) in map.range(from..=to) {
                see.number(*user_key);
                see.value(value);
            }
        }
        Ok(())
    }

    fn timer_add(&mut self, state: u8, key: &Key, time: u64) -> Result<()> {
        self.table(state).timers.insert((time, *key));
        Ok(())
    }

    fn timer_delete(&mut self, state: u8, key: &Key, time: u64) -> Result<()> {
        self.table(state).timers.remove(&(time, *key));
        Ok(())
    }

    fn timer_pop(&mut self, state: u8, until: u64, see: &mut impl See) -> Result<()> {
        let timers = &mut self.table(state).timers;
        if timers.first().is_some_and(|(time, _)| *time <= until)
            && let Some((time, key)) = timers.pop_first()
        {
            see.number(time);
            see.value(&key);
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn wait_for_checkpoints(&mut self) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn referenced_bytes(&self) -> u64 {
        self.live_bytes()
    }

    fn describe(&self) -> String {
        String::new()
    }
}
