//! Timers over a sorted store of bytes, as Flink's RocksDB backend has them: an entry each, and for each key group the first
//! hundred or so in memory, so that the store is asked for the next ones only now and then.

use std::collections::BTreeSet;

use super::encoding::{KEY_GROUPS, TIMER_BYTES, number};
use super::over_bytes::KeyValue;
use crate::Result;

type Timer = [u8; TIMER_BYTES];

/// Timers of a group kept in memory (`state.backend.rocksdb.timer-service.cache-size` of Flink).
const CACHED: usize = 128;

#[derive(Debug, Default)]
struct Group {
    first: BTreeSet<Timer>,
    /// True when memory has all timers of the group.
    complete: bool,
    /// No timer stands before it.
    from: Option<Timer>,
}

/// Timers of one state.
#[derive(Debug)]
pub struct Timers {
    groups: Vec<Group>,
    heads: BTreeSet<(u64, u16)>,
}

fn group_of(timer: &Timer) -> usize {
    usize::from(u16::from_be_bytes([timer[0], timer[1]]))
}

fn time_of(timer: &Timer) -> u64 {
    number(&timer[2..])
}

impl Timers {
    /// None.
    pub fn new() -> Self {
        let group = || Group { complete: true, ..Group::default() };
        Self { groups: std::iter::repeat_with(group).take(usize::from(KEY_GROUPS)).collect(), heads: BTreeSet::new() }
    }

    /// Registers one.
    pub fn add(&mut self, store: &mut impl KeyValue, table: usize, timer: Timer) -> Result<()> {
        store.put(table, &timer, &[])?;
        let index = group_of(&timer);
        let head = self.groups[index].first.first().copied();
        let group = &mut self.groups[index];
        if group.complete || group.first.last().is_some_and(|last| timer < *last) {
            group.first.insert(timer);
            if group.first.len() > CACHED {
                group.first.pop_last();
                group.complete = false;
            }
        }
        group.from = group.from.map(|from| from.min(timer));
        self.move_head(index, head);
        Ok(())
    }

    /// Deletes one.
    pub fn delete(&mut self, store: &mut impl KeyValue, table: usize, timer: &Timer) -> Result<()> {
        store.delete(table, timer)?;
        self.forget(store, table, timer)
    }

    /// Takes the next that is due at `until`.
    pub fn pop(&mut self, store: &mut impl KeyValue, table: usize, until: u64) -> Result<Option<Timer>> {
        let Some((_, group)) = self.heads.first().copied().filter(|(time, _)| *time <= until) else { return Ok(None) };
        let Some(timer) = self.groups[usize::from(group)].first.first().copied() else { return Ok(None) };
        store.delete(table, &timer)?;
        self.groups[usize::from(group)].from = Some(timer);
        self.forget(store, table, &timer)?;
        Ok(Some(timer))
    }

    fn forget(&mut self, store: &mut impl KeyValue, table: usize, timer: &Timer) -> Result<()> {
        let index = group_of(timer);
        let head = self.groups[index].first.first().copied();
        let group = &mut self.groups[index];
        group.first.remove(timer);
        if group.first.is_empty() && !group.complete {
            refill(group, store, table, index as u16)?;
        }
        self.move_head(index, head);
        Ok(())
    }

    fn move_head(&mut self, index: usize, old: Option<Timer>) {
        let new = self.groups[index].first.first().copied();
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.heads.remove(&(time_of(&old), index as u16));
        }
        if let Some(new) = new {
            self.heads.insert((time_of(&new), index as u16));
        }
    }
}

fn refill(group: &mut Group, store: &mut impl KeyValue, table: usize, index: u16) -> Result<()> {
    let mut from = [0; TIMER_BYTES];
    from[..2].copy_from_slice(&index.to_be_bytes());
    let from = group.from.unwrap_or(from);
    let mut last = [0xFF; TIMER_BYTES];
    last[..2].copy_from_slice(&index.to_be_bytes());
    let first = &mut group.first;
    store.scan(table, &from, &last, &mut |timer, _| {
        first.extend(Timer::try_from(timer));
        first.len() < CACHED
    })?;
    group.complete = group.first.len() < CACHED;
    Ok(())
}
