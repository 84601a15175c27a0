//! Registering states: the door from a backend to its typed states.

use std::marker::PhantomData;
use std::time::Duration;

use super::access::Handle;
use super::aggregating::{AggregatingState, Aggregator};
use super::codec::Codec;
use super::list::{self, ListState};
use super::map::MapState;
use super::reducing::ReducingState;
use super::timers::{self, TimerService};
use super::value::ValueState;
use crate::base::descriptor::{Layout, StateDescriptor};
use crate::base::key::KeyShape;
use crate::base::limits::MAX_NAME_BYTES;
use crate::engine::Backend;
use crate::{Error, Result};

/// Typed states of a [`Backend`].
///
/// A state is known by its name. Registering it again gives an equal token, before and after a restore;
/// registering it as something else is refused.
///
/// # Examples
/// ```
/// use highwater::{Environment, KeyedState, Operator, Subtask};
///
/// let dir = tempfile::tempdir()?;
/// let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// let operator = Operator::new("sessions", 128);
/// let mut b = env.backend(&operator, Subtask { index: 0, parallelism: 1 }, None)?;
///
/// let hits = b.value_state::<String, u64>("hits")?;
/// let n = hits.get(&mut b, "carrier")?.unwrap_or(0);
/// hits.put(&mut b, "carrier", n + 1)?;
/// assert_eq!(hits.get(&mut b, "carrier")?, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyedState {
    /// Starts registering the state `name`, for those with a namespace or a time to live.
    fn state(&mut self, name: &str) -> StateBuilder<'_>;

    /// Registers a state of one value a key.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    fn value_state<K: Codec, V: Codec>(&mut self, name: &str) -> Result<ValueState<K, V>> {
        self.state(name).value()
    }

    /// Registers a state of one list a key.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    fn list_state<K: Codec, T: Codec>(&mut self, name: &str) -> Result<ListState<K, T>> {
        self.state(name).list()
    }

    /// Registers a state of one map a key.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    fn map_state<K: Codec, UK: Codec, UV: Codec>(&mut self, name: &str) -> Result<MapState<K, UK, UV>> {
        self.state(name).map()
    }

    /// Registers a state of one value a key into which `fold` folds what is added.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    fn reducing_state<K: Codec, V: Codec>(&mut self, name: &str, fold: fn(V, V) -> V) -> Result<ReducingState<K, V>> {
        self.state(name).reducing(fold)
    }

    /// Registers a state of one accumulator a key.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    fn aggregating_state<K: Codec, A: Aggregator>(
        &mut self,
        name: &str,
        aggregator: A,
    ) -> Result<AggregatingState<K, A>> {
        self.state(name).aggregating(aggregator)
    }

    /// Registers the timers `name`, of both time domains.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    fn timers<K: Codec, N: Codec>(&mut self, name: &str) -> Result<TimerService<K, N>> {
        self.state(name).namespace::<N>().timers()
    }
}

impl KeyedState for Backend {
    fn state(&mut self, name: &str) -> StateBuilder<'_> {
        StateBuilder { backend: self, name: name.into(), ttl: None, namespace: PhantomData }
    }
}

/// A state about to be registered.
///
/// # Errors
/// Its last step, which registers the state, returns [`crate::ErrorKind::InvalidArgument`] when the name
/// is empty or too long; when the time to live is under a millisecond; and when a state of that name (or
/// of another name with the same id) is there with another kind, other codecs or none where this one has
/// a time to live: the message names both.
///
/// # Examples
/// ```no_run
/// # use highwater::*;
/// # use std::time::Duration;
/// # fn example(b: &mut Backend) -> Result<()> {
/// let windows = b.state("windows").namespace::<i64>().ttl(Duration::from_secs(3600)).value::<String, u64>()?;
/// windows.put(b, ("carrier", &1_357_034_400_000), 7)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a state is registered by the builder's last step"]
pub struct StateBuilder<'b, N = ()> {
    backend: &'b mut Backend,
    name: String,
    ttl: Option<Duration>,
    namespace: PhantomData<fn() -> N>,
}

impl<N> std::fmt::Debug for StateBuilder<'_, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateBuilder").field("name", &self.name).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl<'b, N: Codec> StateBuilder<'b, N> {
    /// Entries stop being visible `ttl` after they were last written. A list's elements expire one by
    /// one, a map's entries too; a folded value lives on with each addition. At least a millisecond;
    /// fractions of one are cut off; what leads beyond the end of time never expires.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Gives each key its own entry in each namespace (a window, say).
    pub fn namespace<M: Codec>(self) -> StateBuilder<'b, M> {
        StateBuilder { backend: self.backend, name: self.name, ttl: self.ttl, namespace: PhantomData }
    }

    /// Registers a state of one value.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    pub fn value<K: Codec, V: Codec>(self) -> Result<ValueState<K, V, N>> {
        self.register::<K>("value", Layout::Single, String::new(), V::id()).map(ValueState::new)
    }

    /// Registers a state of one list.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    pub fn list<K: Codec, T: Codec>(self) -> Result<ListState<K, T, N>> {
        self.register::<K>("list", Layout::Grouped, list::CHUNK_CODEC.into(), T::id()).map(ListState::new)
    }

    /// Registers a state of one map.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    pub fn map<K: Codec, UK: Codec, UV: Codec>(self) -> Result<MapState<K, UK, UV, N>> {
        self.register::<K>("map", Layout::Grouped, UK::id(), UV::id()).map(MapState::new)
    }

    /// Registers a state of one value into which `fold` folds what is added. `fold` must be associative
    /// where namespaces are merged.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    pub fn reducing<K: Codec, V: Codec>(self, fold: fn(V, V) -> V) -> Result<ReducingState<K, V, N>> {
        let handle = self.register::<K>("reducing", Layout::Single, String::new(), V::id())?;
        Ok(ReducingState::new(ValueState::new(handle), fold))
    }

    /// Registers a state of one accumulator.
    ///
    /// # Errors
    /// See [`StateBuilder`].
    pub fn aggregating<K: Codec, A: Aggregator>(self, aggregator: A) -> Result<AggregatingState<K, A, N>> {
        let handle = self.register::<K>("aggregating", Layout::Single, String::new(), A::Accumulator::id())?;
        Ok(AggregatingState::new(ValueState::new(handle), aggregator))
    }

    /// Registers timers.
    ///
    /// # Errors
    /// See [`StateBuilder`]; timers have no time to live.
    pub fn timers<K: Codec>(self) -> Result<TimerService<K, N>> {
        if self.ttl.is_some() {
            return Err(Error::invalid(format!("timers `{}` can't have a time to live", self.name)));
        }
        self.register::<K>("timers", Layout::Grouped, timers::TIMER_CODEC.into(), <()>::id()).map(TimerService::new)
    }

    fn register<K: Codec>(self, kind: &str, layout: Layout, user_key: String, value: String) -> Result<Handle> {
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES {
            return Err(Error::invalid(format!(
                "the name of a {kind} state is {} bytes long (1 to {MAX_NAME_BYTES} are allowed): `{}`",
                self.name.len(),
                self.name.chars().take(64).collect::<String>(),
            )));
        }
        let ttl_ms = self.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        if ttl_ms == Some(0) {
            return Err(Error::invalid(format!(
                "state `{}`: a time to live of {:?} is under 1 ms",
                self.name, self.ttl
            )));
        }
        // Timers lie in time order under the empty key of their group: the key is part of the timer.
        let shape = if kind == "timers" {
            KeyShape::USER_KEYS_ONLY
        } else {
            KeyShape { key_width: K::FIXED_WIDTH, namespace_width: N::FIXED_WIDTH }
        };
        let descriptor = StateDescriptor {
            name: self.name,
            kind: kind.into(),
            layout,
            shape,
            codecs: [K::id(), N::id(), user_key, value],
            ttl_ms,
            merge_operator: None,
        };
        let raw = self.backend.register(descriptor, None)?;
        Ok(Handle { raw, ttl_ms })
    }
}
