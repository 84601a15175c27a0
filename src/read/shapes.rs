//! How the keys of each state are made.

use std::collections::HashMap;

use crate::base::descriptor::{Layout, StateDescriptor};
use crate::base::ids::StateId;
use crate::base::key::{self, KeyShape};
use crate::{Error, Result};

/// Key shape and layout of every state that a tree may hold records of.
#[derive(Debug, Clone, Default)]
pub struct Shapes(HashMap<StateId, (KeyShape, Layout)>);

impl Shapes {
    /// Adds or replaces a state.
    pub fn insert(&mut self, state: StateId, shape: KeyShape, layout: Layout) {
        self.0.insert(state, (shape, layout));
    }

    /// Length of the (group, state, key, namespace) prefix of an encoded key whose state has grouped entries;
    /// `None` where every key stands alone.
    ///
    /// # Errors
    /// Internal when the state isn't known, since a record without its prefix would be lost to prefix filters;
    /// corruption when the key isn't one of its state.
    pub fn prefix_len(&self, encoded: &[u8]) -> Result<Option<usize>> {
        let (_, state, _) = key::split_header(encoded)?;
        match self.0.get(&state) {
            Some((_, Layout::Single)) => Ok(None),
            Some((shape, Layout::Grouped)) => key::prefix_len(encoded, *shape).map(Some),
            None => Err(Error::internal(format!("a record of the unknown state {:08x}", state.0))),
        }
    }
}

impl<'a> FromIterator<&'a StateDescriptor> for Shapes {
    fn from_iter<I: IntoIterator<Item = &'a StateDescriptor>>(states: I) -> Self {
        Self(states.into_iter().map(|s| (s.id(), (s.shape, s.layout))).collect())
    }
}
