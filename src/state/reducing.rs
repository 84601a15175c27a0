//! One folded value a key.

use std::borrow::Borrow;

use super::address::Address;
use super::codec::Codec;
use super::token;
use super::value::ValueState;
use crate::Result;
use crate::base::key_group::KeyGroupRange;
use crate::engine::{Backend, ReadView};

/// Token of a state into whose one value a function folds what is added: sums, maxima, unions.
///
/// # Examples
/// ```
/// # use highwater::*;
/// # let dir = tempfile::tempdir()?;
/// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
/// let highest = b.reducing_state::<String, i64>("highest", i64::max)?;
/// for delay in [3, 11, -2] {
///     highest.add(&mut b, "UA", delay)?;
/// }
/// assert_eq!(highest.get(&mut b, "UA")?, Some(11));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ReducingState<K, V, N = ()> {
    value: ValueState<K, V, N>,
    fold: fn(V, V) -> V,
}

token!(ReducingState < K, V, N > { value });

impl<K: Codec, V: Codec, N: Codec> ReducingState<K, V, N> {
    pub(super) fn new(value: ValueState<K, V, N>, fold: fn(V, V) -> V) -> Self {
        Self { value, fold }
    }

    /// The folded value; `None` when nothing was added or it has expired.
    ///
    /// # Errors
    /// As [`ValueState::get`].
    #[inline]
    pub fn get(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Option<V>> {
        self.value.get(backend, at)
    }

    /// Folds `value` in; the first one stands as it is.
    ///
    /// # Errors
    /// As [`ValueState::update`].
    #[inline]
    pub fn add(self, backend: &mut Backend, at: impl Address<K, N>, value: V) -> Result<()> {
        self.value.update(backend, at, |old| {
            Some(match old {
                Some(old) => (self.fold)(old, value),
                None => value,
            })
        })
    }

    /// Removes the folded value, if any.
    ///
    /// # Errors
    /// As [`ValueState::clear`].
    #[inline]
    pub fn clear(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<()> {
        self.value.clear(backend, at)
    }

    /// Folds the namespaces `sources`, in their order, into `target`, and removes them.
    ///
    /// # Errors
    /// As [`ValueState::merge_namespaces`].
    pub fn merge_namespaces<Q: Codec + ?Sized>(
        self,
        backend: &mut Backend,
        key: &Q,
        target: &N,
        sources: &[N],
    ) -> Result<()>
    where
        K: Borrow<Q>,
    {
        self.value.merge_namespaces(backend, key, target, sources, self.fold)
    }

    /// Calls `visit` with every (key, namespace, folded value) of a view in `groups`.
    ///
    /// # Errors
    /// As [`ValueState::for_each`].
    pub fn for_each(
        self,
        view: &ReadView,
        groups: KeyGroupRange,
        visit: impl FnMut(K, N, V) -> Result<()>,
    ) -> Result<()> {
        self.value.for_each(view, groups, visit)
    }
}
