//! One map a key.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::access::{EncodedBounds, Handle, Located, UNBOUNDED};
use super::address::Address;
use super::codec::{Codec, OrderedCodec};
use super::entries::{Entries, EntryCursor};
use super::{Types, token};
use crate::Result;
use crate::base::cursor::Direction;
use crate::base::key_group::KeyGroupRange;
use crate::engine::{Backend, ReadView};

/// Token of a state that holds a map from `UK` to `UV` for each key (and namespace).
///
/// Entries are walked over in the order of their keys' bytes, which is the order of the keys themselves
/// where their codec is an [`OrderedCodec`]. Emptying a map is one record, however large it is.
///
/// # Examples
/// ```
/// # use highwater::*;
/// # use highwater::base::cursor::Direction;
/// # let dir = tempfile::tempdir()?;
/// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
/// let seats = b.map_state::<String, u32, String>("seats")?;
/// for (seat, name) in [(3, "Ada"), (1, "Bo"), (2, "Cy")] {
///     seats.put(&mut b, "UA1", &seat, name.to_string())?;
/// }
/// let taken: Result<Vec<u32>> = seats.keys(&mut b, "UA1")?.collect();
/// assert_eq!(taken?, [1, 2, 3]);
/// let last = seats.range(&mut b, "UA1", ..3, Direction::Backward)?.next().transpose()?;
/// assert_eq!(last, Some((2, "Cy".to_string())));
///
/// // A cursor sees the map as it was when opened, while it is written.
/// let mut cursor = seats.cursor(&mut b, "UA1", Direction::Forward)?;
/// while let Some((seat, _)) = cursor.next(&mut b)? {
///     seats.remove(&mut b, "UA1", &seat)?;
/// }
/// cursor.close(&mut b);
/// assert!(seats.is_empty(&mut b, "UA1")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MapState<K, UK, UV, N = ()> {
    handle: Handle,
    types: Types<(K, UK, UV, N)>,
}

token!(MapState < K, UK, UV, N > { handle });

impl<K: Codec, UK: Codec, UV: Codec, N: Codec> MapState<K, UK, UV, N> {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, types: PhantomData }
    }

    /// The value at `user_key`; `None` when there is none or it has expired.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask; `Codec` when the stored bytes are no `UV`; those
    /// of reading.
    #[inline]
    pub fn get<Q>(self, backend: &mut Backend, at: impl Address<K, N>, user_key: &Q) -> Result<Option<UV>>
    where
        UK: Borrow<Q>,
        Q: Codec + ?Sized,
    {
        let at = Located::entry(backend, &at, user_key)?;
        self.handle.get(backend, &at)
    }

    /// True when there is a value at `user_key`.
    ///
    /// # Errors
    /// As [`MapState::get`].
    pub fn contains<Q>(self, backend: &mut Backend, at: impl Address<K, N>, user_key: &Q) -> Result<bool>
    where
        UK: Borrow<Q>,
        Q: Codec + ?Sized,
    {
        let at = Located::entry(backend, &at, user_key)?;
        self.handle.contains(backend, &at)
    }

    /// Sets the value at `user_key`.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask, or a key or value over the limits;
    /// `Backpressure` when storage is behind. Nothing was written then.
    #[inline]
    pub fn put<Q>(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        user_key: &Q,
        value: impl Borrow<UV>,
    ) -> Result<()>
    where
        UK: Borrow<Q>,
        Q: Codec + ?Sized,
    {
        let at = Located::entry(backend, &at, user_key)?;
        self.handle.put(backend, &at, value.borrow())
    }

    /// Removes the value at `user_key`, if any.
    ///
    /// # Errors
    /// As [`MapState::put`].
    #[inline]
    pub fn remove<Q>(self, backend: &mut Backend, at: impl Address<K, N>, user_key: &Q) -> Result<()>
    where
        UK: Borrow<Q>,
        Q: Codec + ?Sized,
    {
        let at = Located::entry(backend, &at, user_key)?;
        self.handle.delete(backend, &at)
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// As [`MapState::put`].
    pub fn clear(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<()> {
        let at = Located::of(backend, &at)?;
        self.handle.delete_all(backend, &at)
    }

    /// True when there is no entry.
    ///
    /// # Errors
    /// As [`MapState::get`].
    pub fn is_empty(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<bool> {
        let at = Located::of(backend, &at)?;
        let mut scan = self.handle.scan(backend, &at, UNBOUNDED, Direction::Forward)?;
        Ok(scan.next()?.is_none())
    }

    /// Walks over all entries. The backend is borrowed meanwhile; to write while walking, see
    /// [`MapState::cursor`].
    ///
    /// # Errors
    /// As [`MapState::get`], here and from the iterator.
    pub fn iter(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        direction: Direction,
    ) -> Result<Entries<'_, (UK, UV)>> {
        let at = Located::of(backend, &at)?;
        let scan = self.handle.scan(backend, &at, UNBOUNDED, direction)?;
        Ok(Entries::new(scan, Self::entry))
    }

    /// As [`MapState::iter`], over the entries whose keys are in `range`. A range that ends before it
    /// starts is empty.
    ///
    /// # Errors
    /// As [`MapState::iter`].
    pub fn range<Q>(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        range: impl RangeBounds<Q>,
        direction: Direction,
    ) -> Result<Entries<'_, (UK, UV)>>
    where
        UK: Borrow<Q> + OrderedCodec,
        Q: Codec + ?Sized,
    {
        let at = Located::of(backend, &at)?;
        let bounds = EncodedBounds::of(&range)?;
        let scan = self.handle.scan(backend, &at, bounds.as_bytes(), direction)?;
        Ok(Entries::new(scan, Self::entry))
    }

    /// Walks forward over all keys. Values aren't decoded.
    ///
    /// # Errors
    /// As [`MapState::iter`].
    pub fn keys(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Entries<'_, UK>> {
        let at = Located::of(backend, &at)?;
        let scan = self.handle.scan(backend, &at, UNBOUNDED, Direction::Forward)?;
        Ok(Entries::new(scan, |user_key, _| UK::decode(user_key)))
    }

    /// Walks forward over all values, in the order of their keys.
    ///
    /// # Errors
    /// As [`MapState::iter`].
    pub fn values(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Entries<'_, UV>> {
        let at = Located::of(backend, &at)?;
        let scan = self.handle.scan(backend, &at, UNBOUNDED, Direction::Forward)?;
        Ok(Entries::new(scan, |_, value| UV::decode(value)))
    }

    /// Opens a cursor on all entries as they are now; the backend may be written while it walks. Until
    /// it is closed, what it may still show stays in memory and on disk.
    ///
    /// # Errors
    /// As [`MapState::get`].
    pub fn cursor(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        direction: Direction,
    ) -> Result<EntryCursor<UK, UV>> {
        let at = Located::of(backend, &at)?;
        Ok(EntryCursor::new(self.handle.cursor(backend, &at, UNBOUNDED, direction)?))
    }

    /// As [`MapState::cursor`], over the entries whose keys are in `range`.
    ///
    /// # Errors
    /// As [`MapState::get`].
    pub fn range_cursor<Q>(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        range: impl RangeBounds<Q>,
        direction: Direction,
    ) -> Result<EntryCursor<UK, UV>>
    where
        UK: Borrow<Q> + OrderedCodec,
        Q: Codec + ?Sized,
    {
        let at = Located::of(backend, &at)?;
        let bounds = EncodedBounds::of(&range)?;
        Ok(EntryCursor::new(self.handle.cursor(backend, &at, bounds.as_bytes(), direction)?))
    }

    /// Calls `visit` with every (key, namespace, user key, value) of a view in `groups`, by key group,
    /// then by bytes.
    ///
    /// # Errors
    /// Those of reading and decoding, and what `visit` returns.
    pub fn for_each(
        self,
        view: &ReadView,
        groups: KeyGroupRange,
        mut visit: impl FnMut(K, N, UK, UV) -> Result<()>,
    ) -> Result<()> {
        self.handle.visit(view, groups, &mut |key, namespace, user_key, value| {
            visit(K::decode(key)?, N::decode(namespace)?, UK::decode(user_key)?, UV::decode(value)?)
        })
    }

    fn entry(user_key: &[u8], value: &[u8]) -> Result<(UK, UV)> {
        Ok((UK::decode(user_key)?, UV::decode(value)?))
    }
}
