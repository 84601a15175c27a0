//! Walks a block from a record towards its end.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::base::record::Record;
use crate::{Error, Result};

use super::builder::HEADER_BYTES;
use super::entry::Entry;
use super::reader::Block;

/// Stands on a record of a block, or past its end.
#[derive(Debug, Clone)]
pub struct Forward {
    block: Block,
    key: Vec<u8>,
    entry: Option<Entry>,
}

impl Forward {
    /// Stands on the first record.
    ///
    /// # Errors
    /// Corruption or `Unsupported`, as the entries are; so do the others here.
    pub fn first(block: Block) -> Result<Self> {
        Self::at_restart(block, HEADER_BYTES)
    }

    /// Stands on the first record at `target` or above.
    ///
    /// # Errors
    /// As [`Forward::first`].
    pub fn seek(block: Block, target: &[u8]) -> Result<Self> {
        let entry = block.lower_bound(target)?;
        let mut key = Vec::with_capacity(target.len());
        if let Some(entry) = &entry {
            key.extend_from_slice(target.get(..entry.shared).unwrap_or_default());
            block.complete_key(&mut key, entry)?;
        }
        Ok(Self { block, key, entry })
    }

    /// Stands on the last record at `target` or below; on the first record when there is none.
    ///
    /// # Errors
    /// As [`Forward::first`].
    pub fn floor(block: Block, target: &[u8]) -> Result<Self> {
        let Some(wanted) = block.floor(target)? else { return Self::first(block) };
        let restart = block.last_restart_before(target, true)?;
        let offset = block.restart_offset(restart)?;
        let mut cursor = Self::at_restart(block, offset)?;
        while cursor.entry.as_ref().is_some_and(|entry| entry.offset < wanted.offset) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    fn at_restart(block: Block, offset: usize) -> Result<Self> {
        let entry = block.entry_at(offset)?;
        let mut key = Vec::new();
        if let Some(entry) = &entry {
            block.complete_key(&mut key, entry)?;
        }
        Ok(Self { block, key, entry })
    }

    /// The record it stands on.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        self.entry.as_ref().map(|entry| entry.record(&self.key, self.block.bytes()))
    }

    /// Moves to the next record.
    ///
    /// # Errors
    /// As [`Forward::first`]; the cursor then stands past the end.
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        let next = self.block.entry_at(entry.value.end)?;
        if let Some(next) = next {
            self.block.complete_key(&mut self.key, &next)?;
            self.entry = Some(next);
        } else if entry.value.end != self.block.entries_end() {
            return Err(Error::corruption(format!("entry at byte {}: ends past the entries", entry.offset)));
        }
        Ok(())
    }
}
