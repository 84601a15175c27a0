//! What is stored about a state beside its records.

use super::ids::StateId;
use super::key::KeyShape;

/// How a state's entries lie under one (key, namespace).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Layout {
    /// One record, found by hash.
    Single = 1,
    /// An ordered group of records, one a user key: maps, lists (a chunk an entry), timers and range-scanned
    /// stores (the empty key's group).
    Grouped = 2,
}

/// A state as registered: what two incarnations must agree on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDescriptor {
    /// The name given by the user.
    pub name: String,
    /// Kind for people and for checks at registration: `value`, `list`, `map`, `reducing`, `aggregating`, `timers`, `raw`.
    pub kind: String,
    /// How entries lie.
    pub layout: Layout,
    /// Widths of key and namespace.
    pub shape: KeyShape,
    /// Codec ids with their versions, `id@version`, of key, namespace, user key and value, in this order;
    /// empty for raw bytes.
    pub codecs: [String; 4],
    /// Time to live of a write in milliseconds.
    pub ttl_ms: Option<u64>,
    /// Name of the merge operator.
    pub merge_operator: Option<String>,
}

impl StateDescriptor {
    /// The id that follows from the name.
    #[must_use]
    pub fn id(&self) -> StateId {
        StateId::of(&self.name)
    }
}
