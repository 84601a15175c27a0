//! One accumulator a key.

use std::borrow::Borrow;

use super::address::Address;
use super::codec::Codec;
use super::value::ValueState;
use crate::Result;
use crate::base::key_group::KeyGroupRange;
use crate::engine::{Backend, ReadView};

/// How inputs become an accumulator, and an accumulator a result.
///
/// # Examples
/// ```
/// use highwater::Aggregator;
///
/// /// Count and sum in, mean out.
/// #[derive(Clone, Copy)]
/// struct Mean;
///
/// impl Aggregator for Mean {
///     type Input = i64;
///     type Accumulator = (u64, i64);
///     type Output = f64;
///     fn create(&self) -> (u64, i64) { (0, 0) }
///     fn add(&self, (count, sum): (u64, i64), input: i64) -> (u64, i64) { (count + 1, sum + input) }
///     fn merge(&self, a: (u64, i64), b: (u64, i64)) -> (u64, i64) { (a.0 + b.0, a.1 + b.1) }
///     fn result(&self, (count, sum): (u64, i64)) -> f64 { sum as f64 / count as f64 }
/// }
/// ```
pub trait Aggregator: Copy {
    /// What is added.
    type Input;
    /// What is stored.
    type Accumulator: Codec;
    /// What is read.
    type Output;

    /// The accumulator before the first input.
    fn create(&self) -> Self::Accumulator;

    /// The accumulator after `input`.
    fn add(&self, accumulator: Self::Accumulator, input: Self::Input) -> Self::Accumulator;

    /// The accumulator of all inputs of both. Must be associative.
    fn merge(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;

    /// What an accumulator stands for.
    fn result(&self, accumulator: Self::Accumulator) -> Self::Output;
}

/// Token of a state that holds one accumulator for each key (and namespace).
///
/// # Examples
/// ```
/// # use highwater::*;
/// # #[derive(Clone, Copy)]
/// # struct Mean;
/// # impl Aggregator for Mean {
/// #     type Input = i64;
/// #     type Accumulator = (u64, i64);
/// #     type Output = f64;
/// #     fn create(&self) -> (u64, i64) { (0, 0) }
/// #     fn add(&self, (count, sum): (u64, i64), input: i64) -> (u64, i64) { (count + 1, sum + input) }
/// #     fn merge(&self, a: (u64, i64), b: (u64, i64)) -> (u64, i64) { (a.0 + b.0, a.1 + b.1) }
/// #     fn result(&self, (count, sum): (u64, i64)) -> f64 { sum as f64 / count as f64 }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
/// let mean = b.aggregating_state::<String, _>("mean delay", Mean)?; // `Mean` as in `Aggregator`'s example
/// mean.add(&mut b, "UA", 3)?;
/// mean.add(&mut b, "UA", 4)?;
/// assert_eq!(mean.get(&mut b, "UA")?, Some(3.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AggregatingState<K, A: Aggregator, N = ()> {
    value: ValueState<K, A::Accumulator, N>,
    aggregator: A,
}

impl<K, A: Aggregator, N> Clone for AggregatingState<K, A, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, A: Aggregator, N> Copy for AggregatingState<K, A, N> {}

impl<K, A: Aggregator, N> std::fmt::Debug for AggregatingState<K, A, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregatingState").field("value", &self.value).finish_non_exhaustive()
    }
}

impl<K: Codec, A: Aggregator, N: Codec> AggregatingState<K, A, N> {
    pub(super) fn new(value: ValueState<K, A::Accumulator, N>, aggregator: A) -> Self {
        Self { value, aggregator }
    }

    /// The result of all inputs so far; `None` when there were none or they have expired.
    ///
    /// # Errors
    /// As [`ValueState::get`].
    #[inline]
    pub fn get(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Option<A::Output>> {
        Ok(self.value.get(backend, at)?.map(|accumulator| self.aggregator.result(accumulator)))
    }

    /// Adds an input.
    ///
    /// # Errors
    /// As [`ValueState::update`].
    #[inline]
    pub fn add(self, backend: &mut Backend, at: impl Address<K, N>, input: A::Input) -> Result<()> {
        self.value.update(backend, at, |old| {
            Some(self.aggregator.add(old.unwrap_or_else(|| self.aggregator.create()), input))
        })
    }

    /// Removes the accumulator, if any.
    ///
    /// # Errors
    /// As [`ValueState::clear`].
    #[inline]
    pub fn clear(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<()> {
        self.value.clear(backend, at)
    }

    /// Merges the namespaces `sources`, in their order, into `target`, and removes them.
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
        self.value.merge_namespaces(backend, key, target, sources, |a, b| self.aggregator.merge(a, b))
    }

    /// Calls `visit` with every (key, namespace, result) of a view in `groups`.
    ///
    /// # Errors
    /// As [`ValueState::for_each`].
    pub fn for_each(
        self,
        view: &ReadView,
        groups: KeyGroupRange,
        mut visit: impl FnMut(K, N, A::Output) -> Result<()>,
    ) -> Result<()> {
        self.value.for_each(view, groups, |key, namespace, accumulator| {
            visit(key, namespace, self.aggregator.result(accumulator))
        })
    }
}
