//! The next timers of each key group, kept in memory so that popping one costs no look at the state.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::Result;
use crate::base::key_group::{KeyGroup, KeyGroupRange};

use super::winners::Winners;

/// Timers of a group that are read at a time, and their bytes, beyond the second. With many groups fewer timers, so that
/// all groups together keep no more than [`ALL_TIMERS`], and twice that of those that are registered.
const BATCH_TIMERS: usize = 64;
pub(super) const BATCH_BYTES: usize = 8 << 10;
const ALL_TIMERS: usize = 16 << 10;

/// User key of a timer.
pub(super) type Key = SmallVec<[u8; 48]>;

/// Timers of a group as they were read: the first ones, and whether that is all there are.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub timers: VecDeque<Key>,
    pub all: bool,
}

/// The first timers of a group.
#[derive(Debug)]
struct Group {
    /// In their order, never empty.
    timers: VecDeque<Key>,
    bytes: usize,
    /// There are no others.
    all: bool,
    /// The first of them may be gone: it only says that no timer stands before it.
    doubtful: bool,
}

/// How well the first timer of a group is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It may be gone.
    Doubtful,
    /// It is there, and what follows it would have to be read.
    Alone,
    /// It is there, and what follows it is known.
    Followed,
}

/// The first timers of all groups that have any, and the groups by the time of their first.
#[derive(Debug)]
pub(super) struct Upcoming {
    range: KeyGroupRange,
    groups: Vec<Option<Box<Group>>>,
    by_time: Winners,
    batch_timers: usize,
    time_of: fn(&[u8]) -> Result<i64>,
}

impl Upcoming {
    /// None of any of these groups; `time_of` takes the time out of a timer.
    pub(super) fn new(range: KeyGroupRange, time_of: fn(&[u8]) -> Result<i64>) -> Self {
        let count = usize::from(range.last() - range.first()) + 1;
        let batch_timers = (ALL_TIMERS / count).clamp(2, BATCH_TIMERS);
        let groups = (0..count).map(|_| None).collect();
        Self { range, groups, by_time: Winners::new(count), batch_timers, time_of }
    }

    /// Timers of a group to be read at a time.
    pub(super) fn batch_timers(&self) -> usize {
        self.batch_timers
    }

    fn index_of(&self, group: KeyGroup) -> usize {
        debug_assert!(self.range.contains(group), "timers of other groups are refused");
        usize::from(group - self.range.first())
    }

    /// The group whose first timer is the earliest, and that timer's time.
    pub(super) fn first(&self) -> Option<(i64, KeyGroup)> {
        let (time, index) = self.by_time.first()?;
        let group = u16::try_from(index).map_or(self.range.last(), |index| self.range.first() + index);
        Some((time, group))
    }

    /// The first timer of a group.
    pub(super) fn first_of(&self, group: KeyGroup) -> Option<(&[u8], Known)> {
        let group = self.groups[self.index_of(group)].as_deref()?;
        let known = match group {
            Group { doubtful: true, .. } => Known::Doubtful,
            Group { all: false, timers, .. } if timers.len() < 2 => Known::Alone,
            _ => Known::Followed,
        };
        group.timers.front().map(|first| (first.as_slice(), known))
    }

    /// Puts what was read in the place of what was known of a group.
    ///
    /// # Errors
    /// When one of them has no time; nothing is changed then.
    pub(super) fn replace(&mut self, group: KeyGroup, batch: Batch) -> Result<()> {
        batch.timers.iter().try_for_each(|timer| (self.time_of)(timer).map(drop))?;
        let bytes = batch.timers.iter().map(|timer| timer.len()).sum();
        let Batch { timers, all } = batch;
        let index = self.index_of(group);
        self.groups[index] = Some(Box::new(Group { timers, bytes, all, doubtful: false }));
        self.settle(index)
    }

    /// A timer was registered.
    pub(super) fn register(&mut self, group: KeyGroup, timer: &[u8]) -> Result<()> {
        let (index, most) = (self.index_of(group), 2 * self.batch_timers);
        let Some(known) = self.groups[index].as_deref_mut() else {
            let timers = VecDeque::from([Key::from_slice(timer)]);
            return self.replace(group, Batch { timers, all: true });
        };
        let beyond = known.timers.back().is_none_or(|last| last.as_slice() < timer);
        if beyond && !known.all {
            return Ok(());
        }
        let Err(at) = known.timers.binary_search_by(|other| other.as_slice().cmp(timer)) else { return Ok(()) };
        if at > 0 {
            known.insert(at, timer, most);
            return Ok(());
        }
        // The one before which none stood may be gone, and this one is there.
        if std::mem::take(&mut known.doubtful) {
            known.timers.clear();
            (known.bytes, known.all) = (0, false);
        }
        known.insert(0, timer, most);
        self.settle(index)
    }

    /// A timer was deleted. True when the group's next ones have to be read: until then the first stays as one that
    /// may be gone.
    pub(super) fn remove(&mut self, group: KeyGroup, timer: &[u8]) -> Result<bool> {
        let index = self.index_of(group);
        let Some(known) = self.groups[index].as_deref_mut() else { return Ok(false) };
        let Ok(at) = known.timers.binary_search_by(|other| other.as_slice().cmp(timer)) else { return Ok(false) };
        if known.timers.len() == 1 && !known.all {
            known.doubtful = true;
            return Ok(true);
        }
        known.bytes -= known.timers.remove(at).map_or(0, |timer| timer.len());
        known.doubtful &= at > 0;
        if at == 0 {
            self.settle(index)?;
        }
        Ok(false)
    }

    /// Gives a group its place among the others, or takes it from one without timers. Every timer that comes here has
    /// a time.
    fn settle(&mut self, index: usize) -> Result<()> {
        let first = self.groups[index].as_ref().and_then(|group| group.timers.front());
        let time = first.map(|first| (self.time_of)(first)).transpose()?;
        if time.is_none() {
            self.groups[index] = None;
        }
        self.by_time.set(index, time);
        Ok(())
    }
}

impl Group {
    fn insert(&mut self, at: usize, timer: &[u8], most: usize) {
        self.bytes += timer.len();
        self.timers.insert(at, timer.into());
        while self.timers.len() > most || (self.timers.len() > 2 && self.bytes > 2 * BATCH_BYTES) {
            self.bytes -= self.timers.pop_back().map_or(0, |timer| timer.len());
            self.all = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer is its time in one byte, then the key.
    fn upcoming() -> Upcoming {
        Upcoming::new(KeyGroupRange::new(1, 9).unwrap(), |timer| Ok(i64::from(timer[0])))
    }

    fn batch(timers: &[&[u8]], all: bool) -> Batch {
        Batch { timers: timers.iter().map(|timer| Key::from_slice(timer)).collect(), all }
    }

    #[test]
    fn the_first_follows_what_is_registered_and_deleted() {
        let mut upcoming = upcoming();
        for (group, timer) in [(3, [10, 1]), (1, [10, 1]), (3, [20, 0]), (3, [10, 1])] {
            upcoming.register(group, &timer).unwrap();
        }
        assert_eq!(upcoming.first(), Some((10, 1)));
        upcoming.register(3, &[10, 0]).unwrap();
        assert_eq!(upcoming.first_of(3), Some((&[10, 0][..], Known::Followed)), "at one time the key decides");
        assert!(!upcoming.remove(1, &[10, 1]).unwrap());
        for (timer, next) in [([10, 0], Some(10)), ([10, 1], Some(20)), ([20, 0], None)] {
            assert_eq!(upcoming.first().map(|(_, group)| group), Some(3));
            assert!(!upcoming.remove(3, &timer).unwrap());
            assert_eq!(upcoming.first().map(|(time, _)| time), next);
        }
    }

    #[test]
    fn timers_behind_those_that_were_read_are_left_to_the_next_reading() {
        let mut upcoming = upcoming();
        upcoming.replace(7, batch(&[&[5], &[9]], false)).unwrap();
        upcoming.register(7, &[10]).unwrap();
        upcoming.register(7, &[8]).unwrap();
        for timer in [5, 8] {
            assert!(!upcoming.remove(7, &[timer]).unwrap());
        }
        assert_eq!(upcoming.first_of(7), Some((&[9][..], Known::Alone)));
        assert!(upcoming.remove(7, &[9]).unwrap());
        assert_eq!(upcoming.first_of(7), Some((&[9][..], Known::Doubtful)), "none stands before it");
        upcoming.register(7, &[3]).unwrap();
        assert_eq!(upcoming.first_of(7), Some((&[3][..], Known::Alone)));
        upcoming.replace(7, batch(&[], true)).unwrap();
        assert_eq!((upcoming.first(), upcoming.first_of(7)), (None, None));
    }

    #[test]
    fn what_is_kept_of_a_group_is_bounded_in_number_and_bytes() {
        let mut upcoming = upcoming();
        for n in (0..=255).rev() {
            upcoming.register(1, &[n]).unwrap();
        }
        assert_eq!(upcoming.groups[0].as_ref().unwrap().timers.len(), 2 * BATCH_TIMERS);
        for n in 0..50 {
            upcoming.register(2, &[&[n][..], &[0; 60_000]].concat()).unwrap();
        }
        let group = upcoming.groups[1].as_ref().unwrap();
        assert_eq!((group.timers.len(), group.all), (2, false));
    }
}
