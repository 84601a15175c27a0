//! Timers that pop in order.
//!
//! ```text
//! user key: domain u8 (0 event, 1 processing) | time i64 BE, sign bit flipped | key, escaped unless of fixed width | namespace
//! ```
//! under the empty key and namespace of the key's group; the value is empty. So the timers of a group lie
//! in the order in which they pop, and the timers of a subtask are as many sorted runs as it has groups.
//! [`TimerService`] keeps the first few of each run in memory ([`super::upcoming`]), so that popping reads the state
//! once in a batch, and never wades through the deletes of those that popped before.

use std::marker::PhantomData;
use std::ops::Bound;

use super::access::{Handle, Located};
use super::address::Address;
use super::codec::{Codec, take_part, undecodable};
use super::scratch::Scratch;
use super::upcoming::{BATCH_BYTES, Batch, Known, Upcoming};
use crate::Result;
use crate::base::cursor::Direction;
use crate::base::key::{check_part, put_escaped};
use crate::base::key_group::{KeyGroup, KeyGroupRange};
use crate::engine::{Backend, ReadView};

/// Codec id of timers as user keys, with the version of the format above.
pub(super) const TIMER_CODEC: &str = "timer@1";

/// The clock that a timer goes by. The service compares with what the caller says the time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum TimeDomain {
    /// Watermarks.
    Event = 0,
    /// The machine's clock.
    Processing = 1,
}

const DOMAINS: [TimeDomain; 2] = [TimeDomain::Event, TimeDomain::Processing];

/// A timer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Timer<K, N> {
    /// When it is due, in milliseconds.
    pub timestamp_ms: i64,
    /// The key it was registered for.
    pub key: K,
    /// The namespace it was registered for.
    pub namespace: N,
}

/// The timers of one name, of both time domains.
///
/// A timer is a (time, key, namespace): registering it again changes nothing. Timers pop in the order of
/// (time, key group, key's bytes, namespace's bytes). A timer that popped is deleted in the same state, so
/// it fires once in the history that a restore continues. At most one service of a name may be in use
/// with a backend: it keeps the next timers of each key group in memory.
///
/// # Examples
/// ```
/// # use highwater::*;
/// # let dir = tempfile::tempdir()?;
/// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
/// let mut timers = b.timers::<String, i64>("windows")?;
/// timers.register(&mut b, TimeDomain::Event, ("UA", &0), 3_600_000)?;
/// timers.register(&mut b, TimeDomain::Event, ("B6", &0), 1_800_000)?;
/// assert_eq!(timers.next_timestamp(&mut b, TimeDomain::Event)?, Some(1_800_000));
///
/// let watermark = 2_000_000;
/// while let Some(timer) = timers.pop_until(&mut b, TimeDomain::Event, watermark)? {
///     assert_eq!(timer.key, "B6"); // may register others, earlier ones too: they pop in their turn
/// }
/// assert_eq!(timers.next_timestamp(&mut b, TimeDomain::Event)?, Some(3_600_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TimerService<K, N = ()> {
    handle: Handle,
    /// The next timers of the groups, a domain each; `None` before the first use.
    upcoming: Option<[Upcoming; 2]>,
    types: PhantomData<fn() -> (K, N)>,
}

impl<K, N> std::fmt::Debug for TimerService<K, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerService").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<K: Codec, N: Codec> TimerService<K, N> {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, upcoming: None, types: PhantomData }
    }

    /// Registers a timer, at any time, also one that has passed: it is then due at once.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask, or when key or namespace is over the limit
    /// of a part of a key; `Backpressure` when storage is behind. Nothing was written then.
    pub fn register(
        &mut self,
        backend: &mut Backend,
        domain: TimeDomain,
        at: impl Address<K, N>,
        timestamp_ms: i64,
    ) -> Result<()> {
        let timer = locate::<K, N>(backend, domain, &at, timestamp_ms)?;
        self.handle.put_bytes(backend, &timer, &[])?;
        match &mut self.upcoming {
            Some(upcoming) => upcoming[domain as usize].register(timer.key_group(), timer.parts().user_key),
            None => Ok(()),
        }
    }

    /// Deletes a timer. An absent one is no error.
    ///
    /// # Errors
    /// As [`TimerService::register`], and those of reading.
    pub fn delete(
        &mut self,
        backend: &mut Backend,
        domain: TimeDomain,
        at: impl Address<K, N>,
        timestamp_ms: i64,
    ) -> Result<()> {
        let timer = locate::<K, N>(backend, domain, &at, timestamp_ms)?;
        let group = timer.key_group();
        self.handle.delete(backend, &timer)?;
        if let Some(upcoming) = &mut self.upcoming
            && upcoming[domain as usize].remove(group, timer.parts().user_key)?
        {
            let most = upcoming[domain as usize].batch_timers();
            let batch = read(self.handle, backend, domain, group, timer.parts().user_key, most)?;
            upcoming[domain as usize].replace(group, batch)?;
        }
        Ok(())
    }

    /// Takes the next timer that is due at `until_ms` or before; `None` when none is.
    ///
    /// # Errors
    /// `Codec` when stored bytes are no timer of these types; those of reading and writing. The timer is
    /// still there then.
    pub fn pop_until(
        &mut self,
        backend: &mut Backend,
        domain: TimeDomain,
        until_ms: i64,
    ) -> Result<Option<Timer<K, N>>> {
        let handle = self.handle;
        let upcoming = &mut self.loaded(backend)?[domain as usize];
        let Some((_, group)) = next(handle, backend, domain, upcoming, until_ms)? else { return Ok(None) };
        let Some((first, known)) = upcoming.first_of(group) else { return Ok(None) };
        let timer = decode::<K, N>(first)?;
        let mut at = Located::group(group);
        at.set_user_key(first);
        // Before anything is deleted: should reading fail, the timer is still there.
        if known == Known::Alone {
            let most = upcoming.batch_timers();
            upcoming.replace(group, read(handle, backend, domain, group, at.parts().user_key, most)?)?;
        }
        handle.delete(backend, &at)?;
        upcoming.remove(group, at.parts().user_key)?;
        Ok(Some(timer))
    }

    /// When the next timer is due; `None` when there is none.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next_timestamp(&mut self, backend: &mut Backend, domain: TimeDomain) -> Result<Option<i64>> {
        let handle = self.handle;
        let upcoming = &mut self.loaded(backend)?[domain as usize];
        Ok(next(handle, backend, domain, upcoming, i64::MAX)?.map(|(time, _)| time))
    }

    /// Calls `visit` with every timer of a view in `groups`: by key group, then event time before
    /// processing time, then in the order in which they would pop.
    ///
    /// # Errors
    /// Those of reading and decoding, and what `visit` returns.
    pub fn for_each(
        &self,
        view: &ReadView,
        groups: KeyGroupRange,
        mut visit: impl FnMut(TimeDomain, Timer<K, N>) -> Result<()>,
    ) -> Result<()> {
        self.handle.visit(view, groups, &mut |_, _, user_key, _| {
            let domain = match user_key.first() {
                Some(0) => TimeDomain::Event,
                _ => TimeDomain::Processing,
            };
            visit(domain, decode(user_key)?)
        })
    }

    fn loaded(&mut self, backend: &mut Backend) -> Result<&mut [Upcoming; 2]> {
        let upcoming = match self.upcoming.take() {
            Some(upcoming) => upcoming,
            None => load(self.handle, backend)?,
        };
        Ok(self.upcoming.insert(upcoming))
    }
}

fn load(handle: Handle, backend: &mut Backend) -> Result<[Upcoming; 2]> {
    let groups = backend.key_groups();
    let mut upcoming = [Upcoming::new(groups, time_of), Upcoming::new(groups, time_of)];
    for domain in DOMAINS {
        for group in groups.first()..=groups.last() {
            let most = upcoming[domain as usize].batch_timers();
            let batch = read(handle, backend, domain, group, &[domain as u8], most)?;
            upcoming[domain as usize].replace(group, batch)?;
        }
    }
    Ok(upcoming)
}

/// Time and group of the earliest timer, if it is due at `until_ms` or before: one that is there for certain.
fn next(
    handle: Handle,
    backend: &mut Backend,
    domain: TimeDomain,
    upcoming: &mut Upcoming,
    until_ms: i64,
) -> Result<Option<(i64, KeyGroup)>> {
    while let Some((time, group)) = upcoming.first().filter(|(time, _)| *time <= until_ms) {
        match upcoming.first_of(group) {
            Some((first, Known::Doubtful)) => {
                let batch = read(handle, backend, domain, group, first, upcoming.batch_timers())?;
                upcoming.replace(group, batch)?;
            }
            _ => return Ok(Some((time, group))),
        }
    }
    Ok(None)
}

/// The first timers of a group at or after `from`, before which there is none: looking from there on passes over the
/// deletes of all that have popped. Two at least, if there are so many.
fn read(
    handle: Handle,
    backend: &mut Backend,
    domain: TimeDomain,
    group: KeyGroup,
    from: &[u8],
    most: usize,
) -> Result<Batch> {
    let bounds = (Bound::Included(from), Bound::Unbounded);
    let mut scan = handle.scan(backend, &Located::group(group), bounds, Direction::Forward)?;
    let (mut batch, mut bytes) = (Batch::default(), 0);
    while batch.timers.len() < 2 || (batch.timers.len() < most && bytes < BATCH_BYTES) {
        // Without an upper bound, which would have to be looked up: behind the domain come timers of the next.
        let Some((timer, _)) = scan.next()?.filter(|(timer, _)| timer.first() == Some(&(domain as u8))) else {
            batch.all = true;
            break;
        };
        bytes += timer.len();
        batch.timers.push_back(timer.into());
    }
    Ok(batch)
}

/// Where the record of a timer lies.
fn locate<K: Codec, N: Codec>(
    backend: &Backend,
    domain: TimeDomain,
    at: &impl Address<K, N>,
    timestamp_ms: i64,
) -> Result<Located> {
    let owner = Located::of(backend, at)?;
    check_part(owner.key(), "key")?;
    check_part(owner.namespace(), "namespace")?;
    let mut bytes = Scratch::take();
    bytes.push(domain as u8);
    timestamp_ms.encode(&mut bytes)?;
    if K::FIXED_WIDTH.is_some() {
        bytes.extend_from_slice(owner.key());
    } else {
        put_escaped(&mut bytes, owner.key());
    }
    bytes.extend_from_slice(owner.namespace());
    let mut timer = Located::group(owner.key_group());
    timer.set_user_key(&bytes);
    Ok(timer)
}

fn time_of(user_key: &[u8]) -> Result<i64> {
    let time = user_key.get(1..9).ok_or_else(|| undecodable(TIMER_CODEC, user_key))?;
    i64::decode(time)
}

fn decode<K: Codec, N: Codec>(user_key: &[u8]) -> Result<Timer<K, N>> {
    let timestamp_ms = time_of(user_key)?;
    let (key, namespace) = take_part::<K>(&user_key[9..])?;
    Ok(Timer { timestamp_ms, key, namespace: N::decode(namespace)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_bytes() {
        let bytes = [0, 0x80, 0, 0, 0, 0, 0, 0, 5, b'a', 0, 1, 0xFF];
        let timer = decode::<String, Vec<u8>>(&bytes).unwrap();
        assert_eq!(timer, Timer { timestamp_ms: 5, key: "a".into(), namespace: vec![0xFF] });
        assert!(decode::<String, ()>(&bytes[..5]).is_err());
    }
}
