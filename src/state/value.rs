//! One value a key.

use std::borrow::Borrow;
use std::marker::PhantomData;

use super::access::{Handle, Located};
use super::address::Address;
use super::codec::Codec;
use super::scratch::Scratch;
use super::{Types, token};
use crate::Result;
use crate::base::key_group::KeyGroupRange;
use crate::engine::{Backend, ReadView};

/// Token of a state that holds at most one `V` for each key (and namespace).
///
/// # Examples
/// ```
/// # use highwater::*;
/// # let dir = tempfile::tempdir()?;
/// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
/// let hits = b.value_state::<String, u64>("hits")?;
/// hits.put(&mut b, "a", 1)?;
/// hits.update(&mut b, "a", |n| Some(n.unwrap_or(0) + 1))?;
/// assert_eq!(hits.get(&mut b, "a")?, Some(2));
/// hits.clear(&mut b, "a")?;
/// assert_eq!(hits.get(&mut b, "a")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueState<K, V, N = ()> {
    handle: Handle,
    types: Types<(K, V, N)>,
}

token!(ValueState < K, V, N > { handle });

impl<K: Codec, V: Codec, N: Codec> ValueState<K, V, N> {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, types: PhantomData }
    }

    /// The value; `None` when there is none or it has expired.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask; `Codec` when the stored bytes are no `V`; those
    /// of reading.
    #[inline]
    pub fn get(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Option<V>> {
        let at = Located::of(backend, &at)?;
        self.handle.get(backend, &at)
    }

    /// The values of many keys, handed to `visit` with the place of each among the keys, in no order that may be relied
    /// on. Those that aren't in memory are read side by side: several times faster than one after another.
    ///
    /// ```
    /// # use highwater::*;
    /// # let dir = tempfile::tempdir()?;
    /// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
    /// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
    /// let hits = b.value_state::<String, u64>("hits")?;
    /// hits.put(&mut b, "a", 1)?;
    /// let mut found = [None; 2];
    /// hits.get_many(&mut b, ["a", "b"], |index, value| Ok(found[index] = value))?;
    /// assert_eq!(found, [Some(1), None]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`ValueState::get`], and what `visit` returns; some keys have been visited then.
    pub fn get_many<A: Address<K, N>>(
        self,
        backend: &mut Backend,
        keys: impl IntoIterator<Item = A>,
        visit: impl FnMut(usize, Option<V>) -> Result<()>,
    ) -> Result<()> {
        let at = keys.into_iter().map(|key| Located::of(backend, &key)).collect::<Result<Vec<_>>>()?;
        self.handle.get_many(backend, &at, visit)
    }

    /// Sets the value.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask, or a key or value over the limits;
    /// `Backpressure` when storage is behind. Nothing was written then.
    #[inline]
    pub fn put(self, backend: &mut Backend, at: impl Address<K, N>, value: impl Borrow<V>) -> Result<()> {
        let at = Located::of(backend, &at)?;
        self.handle.put(backend, &at, value.borrow())
    }

    /// Removes the value, if any.
    ///
    /// # Errors
    /// As [`ValueState::put`].
    #[inline]
    pub fn clear(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<()> {
        let at = Located::of(backend, &at)?;
        self.handle.delete(backend, &at)
    }

    /// Replaces the value by what `change` makes of it; `None` removes it. `change` is called once.
    ///
    /// # Errors
    /// As [`ValueState::get`] and [`ValueState::put`].
    #[inline]
    pub fn update(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        change: impl FnOnce(Option<V>) -> Option<V>,
    ) -> Result<()> {
        let at = Located::of(backend, &at)?;
        let old = self.handle.get(backend, &at)?;
        let was_there = old.is_some();
        match change(old) {
            Some(value) => self.handle.put(backend, &at, &value),
            None if was_there => self.handle.delete(backend, &at),
            None => Ok(()),
        }
    }

    /// Folds the values of the namespaces `sources`, in their order, into that of `target`, and removes
    /// them. Absent ones count for nothing; `target` among the sources does too.
    ///
    /// # Errors
    /// As [`ValueState::get`] and [`ValueState::put`]; nothing was merged then.
    pub fn merge_namespaces<Q: Codec + ?Sized>(
        self,
        backend: &mut Backend,
        key: &Q,
        target: &N,
        sources: &[N],
        mut fold: impl FnMut(V, V) -> V,
    ) -> Result<()>
    where
        K: Borrow<Q>,
    {
        let at = Located::of::<K, N>(backend, &(key, target))?;
        let mut merged: Option<V> = None;
        let mut gone = Vec::with_capacity(sources.len());
        for source in sources {
            let from = Located::of::<K, N>(backend, &(key, source))?;
            if from.same_prefix(&at) || gone.iter().any(|other| from.same_prefix(other)) {
                continue;
            }
            let Some(value) = self.handle.get::<V>(backend, &from)? else { continue };
            let before = match merged.take() {
                None => self.handle.get(backend, &at)?,
                some => some,
            };
            merged = Some(match before {
                Some(before) => fold(before, value),
                None => value,
            });
            gone.push(from);
        }
        let Some(merged) = merged else { return Ok(()) };
        let mut bytes = Scratch::take();
        merged.encode(&mut bytes)?;
        let keys: usize = gone.iter().map(Located::most_bytes).sum();
        backend.admitted(1 + gone.len(), bytes.len() + at.most_bytes() + keys, |backend| {
            self.handle.put_bytes(backend, &at, &bytes)?;
            gone.iter().try_for_each(|from| self.handle.delete(backend, from))
        })
    }

    /// Calls `visit` with every (key, namespace, value) of a view in `groups`, by key group, then by
    /// bytes.
    ///
    /// # Errors
    /// Those of reading and decoding, and what `visit` returns.
    pub fn for_each(
        self,
        view: &ReadView,
        groups: KeyGroupRange,
        mut visit: impl FnMut(K, N, V) -> Result<()>,
    ) -> Result<()> {
        self.handle.visit(view, groups, &mut |key, namespace, _, value| {
            visit(K::decode(key)?, N::decode(namespace)?, V::decode(value)?)
        })
    }
}
