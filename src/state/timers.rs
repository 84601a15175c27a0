//! Timers that pop in order.
//!
//! ```text
//! user key: domain u8 (0 event, 1 processing) | time i64 BE, sign bit flipped | key, escaped unless of fixed width | namespace
//! ```
//! under the empty key and namespace of the key's group; the value is empty. So the timers of a group lie
//! in the order in which they pop, and the timers of a subtask are as many sorted runs as it has groups.
//! [`TimerService`] keeps the time at the head of each run in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Bound;

use smallvec::SmallVec;

use super::access::{Handle, Located};
use super::address::Address;
use super::codec::{Codec, take_part, undecodable};
use super::scratch::Scratch;
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
/// with a backend: it keeps the next time of each key group in memory.
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
    /// Times at the heads of the groups, a domain each; `None` before the first use.
    heads: Option<[Heads; 2]>,
    types: PhantomData<fn() -> (K, N)>,
}

impl<K, N> std::fmt::Debug for TimerService<K, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerService").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<K: Codec, N: Codec> TimerService<K, N> {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, heads: None, types: PhantomData }
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
        if let Some(heads) = &mut self.heads {
            heads[domain as usize].lower(timer.key_group(), timer.parts().user_key)?;
        }
        Ok(())
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
        if let Some(heads) = &mut self.heads
            && heads[domain as usize].of(group) == Some(timer.parts().user_key)
        {
            // Should the look fail, the head stays too early, which popping finds out.
            let [first, _] = first_two(self.handle, backend, domain, group, timer.parts().user_key)?;
            heads[domain as usize].set(group, first.as_deref().map(Vec::as_slice))?;
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
        let heads = &mut self.loaded(backend)?[domain as usize];
        while let Some((time, group)) = heads.first().filter(|(time, _)| *time <= until_ms) {
            let head = heads.of(group).unwrap_or_default();
            let [first, second] = first_two(handle, backend, domain, group, head)?;
            let Some(first) = first else {
                heads.set(group, None)?;
                continue;
            };
            let timer = decode::<K, N>(&first)?;
            if timer.timestamp_ms != time {
                heads.set(group, Some(&first))?;
                continue;
            }
            let mut at = Located::group(group);
            at.set_user_key(&first);
            handle.delete(backend, &at)?;
            heads.set(group, second.as_deref().map(Vec::as_slice))?;
            return Ok(Some(timer));
        }
        Ok(None)
    }

    /// When the next timer is due; `None` when there is none.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next_timestamp(&mut self, backend: &mut Backend, domain: TimeDomain) -> Result<Option<i64>> {
        let heads = self.loaded(backend)?;
        Ok(heads[domain as usize].first().map(|(time, _)| time))
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

    fn loaded(&mut self, backend: &mut Backend) -> Result<&mut [Heads; 2]> {
        let heads = match self.heads.take() {
            Some(heads) => heads,
            None => load(self.handle, backend)?,
        };
        Ok(self.heads.insert(heads))
    }
}

/// User key of a timer that stands first.
type Head = SmallVec<[u8; 48]>;

/// The heads of the groups that have timers: no timer of a group stands before its head. Whole user keys, not times: of
/// many timers at one time, those that have popped are behind the head, and nobody wades through their deletes.
#[derive(Debug, Default)]
struct Heads {
    of_group: BTreeMap<KeyGroup, Head>,
    by_time: BTreeSet<(i64, KeyGroup)>,
}

impl Heads {
    fn first(&self) -> Option<(i64, KeyGroup)> {
        self.by_time.first().copied()
    }

    fn of(&self, group: KeyGroup) -> Option<&[u8]> {
        self.of_group.get(&group).map(SmallVec::as_slice)
    }

    fn set(&mut self, group: KeyGroup, head: Option<&[u8]>) -> Result<()> {
        let time = head.map(time_of).transpose()?;
        let old = match head {
            Some(head) => self.of_group.insert(group, head.into()),
            None => self.of_group.remove(&group),
        };
        if let Some(old) = old {
            self.by_time.remove(&(time_of(&old)?, group));
        }
        if let Some(time) = time {
            self.by_time.insert((time, group));
        }
        Ok(())
    }

    fn lower(&mut self, group: KeyGroup, timer: &[u8]) -> Result<()> {
        if self.of(group).is_none_or(|head| timer < head) { self.set(group, Some(timer)) } else { Ok(()) }
    }
}

fn load(handle: Handle, backend: &mut Backend) -> Result<[Heads; 2]> {
    let groups = backend.key_groups();
    let mut heads = [Heads::default(), Heads::default()];
    for domain in DOMAINS {
        for group in groups.first()..=groups.last() {
            if let [Some(first), _] = first_two(handle, backend, domain, group, &[])? {
                heads[domain as usize].set(group, Some(&first))?;
            }
        }
    }
    Ok(heads)
}

/// The first two timers of a group, as user keys. No timer stands before `head` (empty: not known): looking from there
/// on passes over the deletes of all that have popped.
fn first_two(
    handle: Handle,
    backend: &mut Backend,
    domain: TimeDomain,
    group: KeyGroup,
    head: &[u8],
) -> Result<[Option<Scratch>; 2]> {
    let start = [domain as u8];
    let from = if head.is_empty() { &start[..] } else { head };
    let bounds = (Bound::Included(from), Bound::Unbounded);
    let mut scan = handle.scan(backend, &Located::group(group), bounds, Direction::Forward)?;
    let mut take = || {
        // Without an upper bound, which would have to be looked up: behind the domain come timers of the next.
        let next = scan.next()?.filter(|(user_key, _)| user_key.first() == Some(&(domain as u8)));
        Ok::<_, crate::Error>(next.map(|(user_key, _)| {
            let mut bytes = Scratch::take();
            bytes.extend_from_slice(user_key);
            bytes
        }))
    };
    Ok([take()?, take()?])
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
    fn heads_follow_what_is_set() {
        let timer = |time: i64, key: u8| {
            let mut bytes = vec![0];
            time.encode(&mut bytes).unwrap();
            bytes.push(key);
            bytes
        };
        let mut heads = Heads::default();
        heads.lower(3, &timer(10, 1)).unwrap();
        heads.lower(1, &timer(10, 1)).unwrap();
        heads.lower(3, &timer(20, 0)).unwrap();
        assert_eq!(heads.first(), Some((10, 1)));
        heads.lower(3, &timer(10, 0)).unwrap();
        assert_eq!(heads.of(3), Some(&timer(10, 0)[..]), "at one time the key decides");
        heads.lower(3, &timer(i64::MIN, 1)).unwrap();
        assert_eq!(heads.first(), Some((i64::MIN, 3)));
        heads.set(3, None).unwrap();
        heads.set(1, Some(&timer(i64::MAX, 1))).unwrap();
        assert_eq!((heads.first(), heads.of(3)), (Some((i64::MAX, 1)), None));
        heads.set(1, None).unwrap();
        assert_eq!(heads.first(), None);
    }

    #[test]
    fn worked_bytes() {
        let bytes = [0, 0x80, 0, 0, 0, 0, 0, 0, 5, b'a', 0, 1, 0xFF];
        let timer = decode::<String, Vec<u8>>(&bytes).unwrap();
        assert_eq!(timer, Timer { timestamp_ms: 5, key: "a".into(), namespace: vec![0xFF] });
        assert!(decode::<String, ()>(&bytes[..5]).is_err());
    }
}
