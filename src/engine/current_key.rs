//! The key of the call that runs.
//!
//! Operators read a key and then write it. So the key of one call is kept for the next: the same parts again cost a
//! comparison in place of checks, encoding, hashing and a search.

use super::states::{Known, RawState};
use crate::Result;
use crate::base::descriptor::Layout;
use crate::base::ids::StateId;
use crate::base::key::{self, HEADER_BYTES, KeyParts};
use crate::base::key_group::KeyGroup;
use crate::base::short;
use crate::memtable::{Below, MemKey};
use crate::read::Tree;

/// See the module.
#[derive(Debug)]
pub(super) struct CurrentKey {
    bytes: Vec<u8>,
    state: RawState,
    group: KeyGroup,
    layout: Layout,
    ttl_ms: Option<u64>,
    prefix_len: usize,
    hash: u64,
    /// Counts the keys, 0 before the first.
    number: u64,
    /// Where the parts stand in `bytes`; `None` when some of their bytes are escaped.
    plain: Option<Plain>,
}

/// Parts that stand in the encoded key as they are.
#[derive(Debug, Clone, Copy)]
struct Plain {
    key_end: usize,
    namespace_start: usize,
    namespace_end: usize,
}

impl CurrentKey {
    pub fn new() -> Self {
        Self {
            bytes: Vec::new(),
            state: RawState { id: StateId(0), index: u32::MAX },
            group: 0,
            layout: Layout::Single,
            ttl_ms: None,
            prefix_len: 0,
            hash: 0,
            number: 0,
            plain: None,
        }
    }

    /// True when it is these parts of this state.
    #[inline(always)]
    pub fn is(&self, state: RawState, parts: &KeyParts<'_>) -> bool {
        let Some(plain) = self.plain else { return false };
        let part = |from: usize, to: usize| self.bytes.get(from..to).unwrap_or_default();
        self.state == state
            && self.group == parts.group
            && short::equal(part(HEADER_BYTES, plain.key_end), parts.key)
            && short::equal(part(plain.namespace_start, plain.namespace_end), parts.namespace)
            && short::equal(part(self.prefix_len, self.bytes.len()), parts.user_key)
    }

    /// Makes it these parts of a state, which have been checked against the backend.
    ///
    /// # Errors
    /// `InvalidArgument` when a part is over the limit or not of the state's width; it is no key then.
    pub fn set(&mut self, state: RawState, known: &Known, parts: KeyParts<'_>) -> Result<()> {
        self.plain = None;
        self.prefix_len = key::encode(&mut self.bytes, state.id, known.shape, parts)?;
        self.number += 1;
        self.hash = MemKey::hash_of(known.layout, &self.bytes, self.prefix_len);
        (self.state, self.group, self.layout, self.ttl_ms) = (state, parts.group, known.layout, known.ttl_ms);
        let end = |width: Option<u16>| if width.is_some() { 0 } else { key::PART_END_BYTES };
        let key_end = HEADER_BYTES + parts.key.len();
        let namespace_start = key_end + end(known.shape.key_width);
        let namespace_end = namespace_start + parts.namespace.len();
        if namespace_end + end(known.shape.namespace_width) == self.prefix_len {
            self.plain = Some(Plain { key_end, namespace_start, namespace_end });
        }
        Ok(())
    }

    /// The encoded key.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoded (group, state, key, namespace).
    pub fn prefix(&self) -> &[u8] {
        self.bytes.get(..self.prefix_len).unwrap_or(&self.bytes)
    }

    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Time to live of what is written.
    #[inline]
    pub fn ttl_ms(&self) -> Option<u64> {
        self.ttl_ms
    }

    /// As the memtable wants it.
    #[inline]
    pub fn mem_key(&self) -> MemKey<'_> {
        MemKey::numbered(self.layout, &self.bytes, self.prefix_len, self.hash, self.number)
    }

    /// As segments want it: `None` for single values.
    #[inline]
    pub fn group_prefix(&self) -> Option<usize> {
        (self.layout == Layout::Grouped).then_some(self.prefix_len)
    }

    /// What the tree is known to hold of it, without I/O, memory having nothing.
    pub fn below(&self, tree: &Tree) -> Below {
        match self.layout {
            _ if tree.version().is_empty() => Below::NothingAtPrefix,
            Layout::Grouped => match tree.nothing_below(self.prefix()) {
                Ok(true) => Below::NothingAtPrefix,
                // A corrupt filter shows its error when it is read.
                Ok(false) | Err(_) => Below::Unknown,
            },
            Layout::Single => Below::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::descriptor::StateDescriptor;
    use crate::base::key::KeyShape;

    fn known(key_width: Option<u16>, namespace_width: Option<u16>) -> Known {
        let descriptor = StateDescriptor {
            name: "s".into(),
            kind: "raw".into(),
            layout: Layout::Grouped,
            shape: KeyShape { key_width, namespace_width },
            codecs: Default::default(),
            ttl_ms: None,
            merge_operator: None,
        };
        let (id, layout, shape) = (descriptor.id(), descriptor.layout, descriptor.shape);
        Known { id, layout, shape, ttl_ms: None, descriptor: Arc::new(descriptor) }
    }

    /// Parts that are easily taken for one another: ends of parts, escapes, empty ones, one the start of another.
    const TRICKY: [&[u8]; 9] = [b"", b"a", b"a\0", b"a\0\xFF", b"a\0\xFF\0\x01", b"a\0\x01", b"\0\x01", b"\0", b"ab"];

    #[test]
    fn a_key_is_taken_for_the_one_before_only_when_all_its_parts_are_the_same() {
        let known = known(None, None);
        let state = RawState { id: known.id, index: 0 };
        let mut all = Vec::new();
        for key in TRICKY {
            for namespace in TRICKY {
                all.extend(TRICKY.map(|user_key| KeyParts { group: 3, key, namespace, user_key }));
            }
        }
        let mut current = CurrentKey::new();
        let mut recognised = 0;
        for held in &all {
            current.set(state, &known, *held).unwrap();
            for other in &all {
                let is = current.is(state, other);
                assert!(!is || held == other, "{held:?} taken for {other:?}");
                recognised += usize::from(is);
            }
            assert!(!current.is(state, &KeyParts { group: 4, ..*held }));
            assert!(!current.is(RawState { id: StateId(7), index: 0 }, held));
        }
        assert!(recognised >= 2 * 2 * 9, "plain keys are recognised");
    }

    #[test]
    fn a_key_that_was_refused_is_no_key() {
        let known = known(Some(2), Some(0));
        let state = RawState { id: known.id, index: 0 };
        let mut current = CurrentKey::new();
        let parts = KeyParts { group: 0, key: b"ab", namespace: b"", user_key: b"u" };
        current.set(state, &known, parts).unwrap();
        assert!(current.is(state, &parts));
        assert!(!current.is(state, &KeyParts { key: b"a", user_key: b"bu", ..parts }));
        assert!(current.set(state, &known, KeyParts { key: b"abc", ..parts }).is_err());
        assert!(!current.is(state, &parts));
    }
}
