//! What a store must do to take part.

use std::time::Duration;

use crate::Result;
use crate::values::Key;

/// Takes what a store answers.
pub trait See {
    /// A value, an element, or the value of an entry.
    fn value(&mut self, bytes: &[u8]);
    /// The key of an entry or timer.
    fn number(&mut self, n: u64);
}

/// Kinds of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// One value a key.
    Value,
    /// One value a key and namespace.
    Windowed,
    /// As `Value`, read in batches: on Highwater through the raw layer, which has them.
    Batched,
    /// One list a key and namespace.
    List,
    /// A map a key, from numbers to values.
    Map,
    /// Timers.
    Timers,
}

/// A state of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpec {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: StateKind,
    /// True when all values are 8 bytes long, so that a user would store a `u64`.
    pub counters: bool,
    /// True when what is asked for is nearly always there.
    pub keys_exist: bool,
}

/// Operations on the states of a workload, by index in its list. `namespace` means nothing to a state without.
pub trait Store {
    /// Reads a value.
    fn get(&mut self, state: u8, key: &Key, namespace: u64, see: &mut impl See) -> Result<()>;
    /// Writes a value.
    fn put(&mut self, state: u8, key: &Key, namespace: u64, value: &[u8]) -> Result<()>;
    /// Deletes a value.
    fn delete(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()>;
    /// Reads many values of a state without namespaces; `each` is called for every key, in order.
    fn get_many(&mut self, state: u8, keys: &[Key], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()>;
    /// Appends to a list.
    fn append(&mut self, state: u8, key: &Key, namespace: u64, element: &[u8]) -> Result<()>;
    /// Reads a list whose elements are all `element_bytes` long.
    fn read_list(
        &mut self,
        state: u8,
        key: &Key,
        namespace: u64,
        element_bytes: usize,
        see: &mut impl See,
    ) -> Result<()>;
    /// Clears a list.
    fn clear_list(&mut self, state: u8, key: &Key, namespace: u64) -> Result<()>;
    /// Writes an entry of a map.
    fn map_put(&mut self, state: u8, key: &Key, user_key: u64, value: &[u8]) -> Result<()>;
    /// Reads one.
    fn map_get(&mut self, state: u8, key: &Key, user_key: u64, see: &mut impl See) -> Result<()>;
    /// Asks whether one is there.
    fn map_contains(&mut self, state: u8, key: &Key, user_key: u64) -> Result<bool>;
    /// Removes one.
    fn map_remove(&mut self, state: u8, key: &Key, user_key: u64) -> Result<()>;
    /// Walks over the entries from `from` to `to`, both included, in order.
    fn map_range(&mut self, state: u8, key: &Key, from: u64, to: u64, see: &mut impl See) -> Result<()>;
    /// Registers a timer.
    fn timer_add(&mut self, state: u8, key: &Key, time: u64) -> Result<()>;
    /// Deletes one.
    fn timer_delete(&mut self, state: u8, key: &Key, time: u64) -> Result<()>;
    /// Takes the next that is due at `until`.
    fn timer_pop(&mut self, state: u8, until: u64, see: &mut impl See) -> Result<()>;

    /// Starts a checkpoint unless one is being made. Returns how long the owner was held up.
    fn checkpoint(&mut self) -> Result<Option<Duration>>;
    /// Waits until no checkpoint is being made.
    fn wait_for_checkpoints(&mut self) -> Result<()>;
    /// Looks after finished background work, where a store wants to be asked. True while it knows of more.
    fn poll(&mut self) -> Result<bool>;
    /// Bytes that the newest complete checkpoint refers to.
    fn referenced_bytes(&self) -> u64;
    /// What the store itself tells of its state, for people.
    fn describe(&self) -> String;
}
