//! The one place that calls the engine's raw layer.

use std::ops::{Bound, RangeBounds};

use super::address::Address;
use super::codec::Codec;
use super::scratch::Scratch;
use crate::base::cursor::Direction;
use crate::base::key::{HEADER_BYTES, KeyParts};
use crate::base::key_group::{KeyGroup, KeyGroupRange, key_group_of};
use crate::engine::{Backend, Cursor, Prefix, RawState, ReadView, Scan};
use crate::{Error, Result};

/// Bounds over encoded user keys.
pub(super) type ByteBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Takes an entry of a whole-state scan: key, namespace, user key, value.
pub(super) type VisitEntry<'a> = dyn FnMut(&[u8], &[u8], &[u8], &[u8]) -> Result<()> + 'a;

/// No bounds.
pub(super) const UNBOUNDED: ByteBounds<'static> = (Bound::Unbounded, Bound::Unbounded);

/// An encoded key, namespace and, where it has been set, user key, with the key's group.
pub(super) struct Located {
    group: KeyGroup,
    bytes: Scratch,
    key_end: usize,
    namespace_end: usize,
}

impl Located {
    /// Encodes `address` and checks that its key belongs to the backend.
    #[inline]
    pub(super) fn of<K, N>(backend: &Backend, address: &impl Address<K, N>) -> Result<Self> {
        let mut bytes = Scratch::take();
        address.encode_key(&mut bytes)?;
        let key_end = bytes.len();
        let group = key_group_of(&bytes, backend.max_parallelism());
        let range = backend.key_groups();
        if !range.contains(group) {
            return Err(foreign_key(group, range));
        }
        address.encode_namespace(&mut bytes)?;
        let namespace_end = bytes.len();
        Ok(Self { group, bytes, key_end, namespace_end })
    }

    /// As [`Located::of`], with a user key.
    #[inline]
    pub(super) fn entry<K, N, Q: Codec + ?Sized>(
        backend: &Backend,
        address: &impl Address<K, N>,
        user_key: &Q,
    ) -> Result<Self> {
        let mut located = Self::of(backend, address)?;
        user_key.encode(&mut located.bytes)?;
        Ok(located)
    }

    /// The empty key and namespace of `group`.
    pub(super) fn group(group: KeyGroup) -> Self {
        Self { group, bytes: Scratch::take(), key_end: 0, namespace_end: 0 }
    }

    /// Replaces the user key.
    #[inline]
    pub(super) fn set_user_key(&mut self, user_key: &[u8]) {
        self.bytes.truncate(self.namespace_end);
        self.bytes.extend_from_slice(user_key);
    }

    /// The key's group.
    pub(super) fn key_group(&self) -> KeyGroup {
        self.group
    }

    /// The key's bytes.
    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_end]
    }

    /// The namespace's bytes.
    pub(super) fn namespace(&self) -> &[u8] {
        &self.bytes[self.key_end..self.namespace_end]
    }

    /// True when both have the same key and namespace.
    pub(super) fn same_prefix(&self, other: &Self) -> bool {
        self.key_end == other.key_end && self.bytes[..self.namespace_end] == other.bytes[..other.namespace_end]
    }

    #[inline]
    pub(super) fn parts(&self) -> KeyParts<'_> {
        KeyParts {
            group: self.group,
            key: self.key(),
            namespace: self.namespace(),
            user_key: &self.bytes[self.namespace_end..],
        }
    }

    #[inline]
    fn prefix(&self) -> Prefix<'_> {
        Prefix { group: self.group, key: self.key(), namespace: self.namespace() }
    }
}

#[cold]
fn foreign_key(group: KeyGroup, range: KeyGroupRange) -> Error {
    Error::invalid(format!("the key is of key group {group}, which isn't among {range}, those of this subtask"))
}

/// The encoded bounds of a range of user keys.
pub(super) struct EncodedBounds(Bound<Scratch>, Bound<Scratch>);

impl EncodedBounds {
    pub(super) fn of<Q: Codec + ?Sized>(range: &impl RangeBounds<Q>) -> Result<Self> {
        let encode = |bound: Bound<&Q>| {
            let encoded = |value: &Q| {
                let mut bytes = Scratch::take();
                value.encode(&mut bytes)?;
                Ok::<_, Error>(bytes)
            };
            Ok::<_, Error>(match bound {
                Bound::Included(value) => Bound::Included(encoded(value)?),
                Bound::Excluded(value) => Bound::Excluded(encoded(value)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        Ok(Self(encode(range.start_bound())?, encode(range.end_bound())?))
    }

    pub(super) fn as_bytes(&self) -> ByteBounds<'_> {
        (self.0.as_ref().map(|bytes| bytes.as_slice()), self.1.as_ref().map(|bytes| bytes.as_slice()))
    }
}

impl Located {
    /// Bytes of the encoded key, at most.
    pub(super) fn most_bytes(&self) -> usize {
        HEADER_BYTES + 2 * self.bytes.len() + 4
    }
}

/// What every token carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Handle {
    pub(super) raw: RawState,
    /// Time to live of a write in milliseconds.
    pub(super) ttl_ms: Option<u64>,
}

impl Handle {
    /// Reads an entry.
    #[inline]
    pub(super) fn get<V: Codec>(self, backend: &mut Backend, at: &Located) -> Result<Option<V>> {
        match backend.get(self.raw, at.parts())? {
            Some(bytes) => V::decode(&bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Reads many entries.
    pub(super) fn get_many<V: Codec>(
        self,
        backend: &mut Backend,
        at: &[Located],
        mut visit: impl FnMut(usize, Option<V>) -> Result<()>,
    ) -> Result<()> {
        let parts: Vec<_> = at.iter().map(Located::parts).collect();
        backend.get_many(self.raw, &parts, |index, bytes| visit(index, bytes.map(V::decode).transpose()?))
    }

    /// True when the entry is there.
    pub(super) fn contains(self, backend: &mut Backend, at: &Located) -> Result<bool> {
        Ok(backend.get(self.raw, at.parts())?.is_some())
    }

    /// Writes an entry.
    #[inline]
    pub(super) fn put<V: Codec + ?Sized>(self, backend: &mut Backend, at: &Located, value: &V) -> Result<()> {
        let mut bytes = Scratch::take();
        value.encode(&mut bytes)?;
        backend.put(self.raw, at.parts(), &bytes)
    }

    /// Writes an entry of bytes.
    pub(super) fn put_bytes(self, backend: &mut Backend, at: &Located, value: &[u8]) -> Result<()> {
        backend.put(self.raw, at.parts(), value)
    }

    /// Deletes an entry.
    #[inline]
    pub(super) fn delete(self, backend: &mut Backend, at: &Located) -> Result<()> {
        backend.delete(self.raw, at.parts())
    }

    /// Deletes all entries of a key and namespace.
    pub(super) fn delete_all(self, backend: &mut Backend, at: &Located) -> Result<()> {
        backend.delete_prefix(self.raw, at.prefix())
    }

    /// Walks over the entries of a key and namespace while the backend is borrowed.
    pub(super) fn scan<'b>(
        self,
        backend: &'b mut Backend,
        at: &Located,
        bounds: ByteBounds<'_>,
        direction: Direction,
    ) -> Result<Scan<'b>> {
        backend.scan(self.raw, at.prefix(), bounds, direction)
    }

    /// Walks over the entries of a key and namespace as they are now while the backend is written.
    pub(super) fn cursor(
        self,
        backend: &mut Backend,
        at: &Located,
        bounds: ByteBounds<'_>,
        direction: Direction,
    ) -> Result<Cursor> {
        backend.open_cursor(self.raw, at.prefix(), bounds, direction)
    }

    /// Shows `visit` the greatest user key at or after `from`, which nobody can have written before the current
    /// sequence, and its value. Never reads below memory.
    pub(super) fn newest_entry<T>(
        self,
        backend: &mut Backend,
        at: &Located,
        from: &[u8],
        visit: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Result<Option<T>> {
        backend.newest_in_memory(self.raw, at.prefix(), from, visit)
    }

    /// Appends to the bytes of an entry in place; false when that can't be and nothing was done.
    pub(super) fn append_bytes(self, backend: &mut Backend, at: &Located, suffix: &[u8]) -> Result<bool> {
        Ok(backend.append(self.raw, at.parts(), suffix)?.is_some())
    }

    /// Appends to the bytes of the greatest user key in place; see [`Backend::append_newest`].
    #[inline]
    pub(super) fn append_newest(
        self,
        backend: &mut Backend,
        at: &Located,
        from: &[u8],
        suffix: &[u8],
        most: usize,
    ) -> Result<bool> {
        backend.append_newest(self.raw, at.prefix(), from, suffix, most)
    }

    /// Appends the bytes of an entry to `out`, if it is there.
    pub(super) fn get_bytes(self, backend: &mut Backend, at: &Located, out: &mut Vec<u8>) -> Result<()> {
        if let Some(bytes) = backend.get(self.raw, at.parts())? {
            out.extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// Every entry in `groups`, from a view: (key, namespace, user key, value).
    pub(super) fn visit(self, view: &ReadView, groups: KeyGroupRange, visit: &mut VisitEntry<'_>) -> Result<()> {
        (groups.first()..=groups.last()).try_for_each(|group| {
            view.scan_state(self.raw, group, |e| visit(&e.key, &e.namespace, &e.user_key, e.value))
        })
    }
}
