//! Walks a block from a record towards its start.
//!
//! Keys share with the one before, so a step back needs all keys from the restart on. They are rebuilt once
//! for each interval and then handed out from its end.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::ops::Range;

use crate::base::record::Record;
use crate::{Error, Result};

use super::builder::MAX_INTERVAL;
use super::entry::Entry;
use super::reader::Block;

/// Stands on a record of a block, or before its start.
#[derive(Debug, Clone)]
pub struct Backward {
    block: Block,
    /// Number of the restart at which the interval begins.
    restart: usize,
    /// Entries from there to the one it stands on, each with its key's place in `keys`.
    interval: Vec<(Entry, Range<usize>)>,
    keys: Vec<u8>,
}

impl Backward {
    /// Stands on the last record.
    ///
    /// # Errors
    /// Corruption or `Unsupported`, as the entries are; so do the others here.
    pub fn last(block: Block) -> Result<Self> {
        let restart = block.restarts() - 1;
        Self::within(block, restart, None)
    }

    /// Stands on the last record below `target`.
    ///
    /// # Errors
    /// As [`Backward::last`].
    pub fn before(block: Block, target: &[u8]) -> Result<Self> {
        let restart = block.last_restart_before(target, false)?;
        Self::within(block, restart, Some(target))
    }

    fn within(block: Block, restart: usize, below: Option<&[u8]>) -> Result<Self> {
        let mut cursor = Self { block, restart, interval: Vec::new(), keys: Vec::new() };
        cursor.fill(below)?;
        Ok(cursor)
    }

    /// Rebuilds the entries of the interval, up to those below `below`.
    fn fill(&mut self, below: Option<&[u8]>) -> Result<()> {
        self.keys.clear();
        let start = self.block.restart_offset(self.restart)?;
        let end = self.block.restart_offset(self.restart + 1)?;
        let (mut offset, mut key) = (start, Vec::new());
        while offset < end {
            let Some(entry) = self.block.entry_at(offset)? else { break };
            self.block.complete_key(&mut key, &entry)?;
            if below.is_some_and(|below| key.as_slice() >= below) {
                return Ok(());
            }
            if self.interval.len() == MAX_INTERVAL {
                return Err(Error::corruption(format!("block restart at byte {start}: over {MAX_INTERVAL} entries")));
            }
            offset = entry.value.end;
            let from = self.keys.len();
            self.keys.extend_from_slice(&key);
            self.interval.push((entry, from..self.keys.len()));
        }
        if offset != end {
            return Err(Error::corruption(format!("block restart expected at byte {end}, an entry ends at {offset}")));
        }
        Ok(())
    }

    /// The record it stands on.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        let (entry, key) = self.interval.last()?;
        Some(entry.record(self.keys.get(key.clone())?, self.block.bytes()))
    }

    /// Moves to the record before.
    ///
    /// # Errors
    /// As [`Backward::last`]; the cursor then stands before the start.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        self.interval.pop();
        if !self.interval.is_empty() || self.restart == 0 {
            return Ok(());
        }
        self.restart -= 1;
        let filled = self.fill(None);
        if filled.is_err() {
            self.interval.clear();
            self.restart = 0;
        }
        filled
    }
}
