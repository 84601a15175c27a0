//! Reading from other threads: an immutable view of a backend as of one moment.

use std::sync::Arc;

use super::backend::Backend;
use super::states::{RawState, StateTable};
use crate::Result;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::descriptor::Layout;
use crate::base::ids::Sequence;
use crate::base::key::{self, KeyParts, KeyRange};
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::memtable::SealedEpoch;
use crate::read::Tree;
use crate::read::{MergeCursor, PrefixDeletes, Resolver, VisibleCursor};

/// A version and the sealed epochs above it. `Send + Sync`; it sees nothing that is written later. Holding one keeps
/// its epochs in memory and its files on disk.
pub struct ReadView {
    /// Newest first.
    epochs: Vec<Arc<SealedEpoch>>,
    tree: Arc<Tree>,
    states: Arc<StateTable>,
    resolver: Resolver,
    groups: KeyGroupRange,
    max_parallelism: u32,
}

impl std::fmt::Debug for ReadView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadView({} epochs)", self.epochs.len())
    }
}

/// An entry of a scan over a whole state, its key in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewEntry<'a> {
    /// Serialized key.
    pub key: Vec<u8>,
    /// Serialized namespace.
    pub namespace: Vec<u8>,
    /// User key; empty for single values.
    pub user_key: Vec<u8>,
    /// Value.
    pub value: &'a [u8],
}

impl Backend {
    /// A view of everything up to now for other threads. Seals the memtable, which is O(1); what is sealed is flushed
    /// like any other epoch.
    ///
    /// # Errors
    /// Why the backend was stopped, if it was.
    pub fn read_view(&mut self) -> Result<ReadView> {
        self.poll()?;
        self.freeze(None);
        let mut epochs: Vec<_> = self.memtable.unadopted_epochs().cloned().collect();
        epochs.reverse();
        let mut resolver = self.resolver.clone();
        resolver.now_ms = self.shared.now_ms();
        let (tree, states) = (self.tree.clone(), self.states.clone());
        let (groups, max_parallelism) = (self.key_groups(), self.max_parallelism());
        Ok(ReadView { epochs, tree, states, resolver, groups, max_parallelism })
    }
}

impl ReadView {
    /// Key groups of the backend that it is a view of: those worth scanning.
    #[must_use]
    pub fn key_groups(&self) -> KeyGroupRange {
        self.groups
    }

    /// Number of key groups of the operator.
    #[must_use]
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`Backend::get`].
    pub fn get(&self, state: RawState, parts: KeyParts<'_>) -> Result<Option<Vec<u8>>> {
        let descriptor = self.states.get(state)?;
        let mut encoded = Vec::new();
        let prefix_len = key::encode(&mut encoded, state.id(), descriptor.shape, parts)?;
        let range = KeyRange { end: Some([&encoded[..], &[0]].concat()), start: encoded };
        let prefix = range.start.get(..prefix_len).unwrap_or_default();
        let deleted = match descriptor.layout {
            Layout::Single => 0,
            Layout::Grouped => self.prefix_delete(prefix)?,
        };
        let cursor = self.visible(&range, PrefixDeletes::Known(deleted));
        cursor.status()?;
        Ok(cursor.entry().map(|entry| entry.value.to_vec()))
    }

    /// Hands every entry of a state in one key group to `visit`, in key order.
    ///
    /// # Errors
    /// As [`Backend::get`], and whatever `visit` returns.
    pub fn scan_state(
        &self,
        state: RawState,
        group: KeyGroup,
        mut visit: impl FnMut(ViewEntry<'_>) -> Result<()>,
    ) -> Result<()> {
        let shape = self.states.get(state)?.shape;
        let prefix = [&group.to_be_bytes()[..], &state.id().0.to_be_bytes()].concat();
        let mut cursor = self.visible(&KeyRange::prefix(&prefix), PrefixDeletes::OnTheWay);
        cursor.status()?;
        while let Some(entry) = cursor.entry() {
            let parts = key::decode(entry.key, shape)?;
            visit(ViewEntry {
                key: parts.key,
                namespace: parts.namespace,
                user_key: parts.user_key,
                value: entry.value,
            })?;
            cursor.advance()?;
        }
        Ok(())
    }

    fn prefix_delete(&self, prefix: &[u8]) -> Result<Sequence> {
        let memory = self.epochs.iter().filter_map(|epoch| epoch.prefix_delete(prefix)).max().unwrap_or(0);
        Ok(memory.max(self.tree.prefix_delete(prefix)?))
    }

    fn visible<'a>(&'a self, range: &KeyRange, prefix_deletes: PrefixDeletes<'a>) -> VisibleCursor<'a> {
        let epochs = self.epochs.iter().map(|epoch| epoch.cursor(range, Direction::Forward));
        let epochs = epochs.map(|cursor| Box::new(cursor) as Box<dyn RecordCursor + 'a>);
        let sources = epochs.chain(self.tree.cursors(range, Direction::Forward, false));
        let merged = MergeCursor::new(sources, Direction::Forward);
        VisibleCursor::new(merged, Direction::Forward, self.resolver.clone(), prefix_deletes)
    }
}

/// Says that a view may cross threads.
const _: fn() = || {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<ReadView>();
};
