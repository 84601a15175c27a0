//! What the store should hold: plain ordered maps.

use std::collections::{BTreeMap, BTreeSet};

use highwater::base::key_group::{KeyGroup, key_group_of};

/// Number of key groups of the job under test.
pub const MAX_PARALLELISM: u32 = 16;

/// (state, key, namespace, user key), encoded.
pub type RowKey = (u8, Vec<u8>, Vec<u8>, Vec<u8>);

/// (state, key, namespace), encoded.
pub type ListKey = (u8, Vec<u8>, Vec<u8>);

/// (processing time?, time, group, key, namespace): the order in which timers pop.
pub type TimerKey = (bool, i64, KeyGroup, Vec<u8>, i64);

/// A value and when it expires.
pub type Expiring = (Vec<u8>, i64);

/// The key group of an encoded key.
pub fn group(key: &[u8]) -> KeyGroup {
    key_group_of(key, MAX_PARALLELISM)
}

/// The state of the whole job. Cloned at each checkpoint.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub rows: BTreeMap<RowKey, Expiring>,
    pub lists: BTreeMap<ListKey, Vec<Expiring>>,
    pub timers: BTreeSet<TimerKey>,
}

impl Model {
    pub fn get(&self, row: &RowKey, now_ms: i64) -> Option<&Vec<u8>> {
        self.rows.get(row).filter(|(_, expiry)| *expiry > now_ms).map(|(value, _)| value)
    }

    pub fn list(&self, list: &ListKey, now_ms: i64) -> Vec<Vec<u8>> {
        let elements = self.lists.get(list).map(Vec::as_slice).unwrap_or_default();
        elements.iter().filter(|(_, expiry)| *expiry > now_ms).map(|(value, _)| value.clone()).collect()
    }

    /// The entries of a map, in order of user key, expired ones too.
    pub fn entries(&self, (state, key, namespace): &ListKey) -> Vec<(Vec<u8>, Expiring)> {
        let from = (*state, key.clone(), namespace.clone(), Vec::new());
        self.rows
            .range(from..)
            .take_while(|((s, k, n, _), _)| (s, k, n) == (state, key, namespace))
            .map(|((_, _, _, user_key), entry)| (user_key.clone(), entry.clone()))
            .collect()
    }

    pub fn clear(&mut self, at: &ListKey) {
        for (user_key, _) in self.entries(at) {
            self.rows.remove(&(at.0, at.1.clone(), at.2.clone(), user_key));
        }
    }
}
