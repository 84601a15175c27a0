//! Merging the inputs of a plan into what must be kept of them.
//!
//! At each key the newest record stays. Operands fold when what they apply to is among the inputs, or nothing
//! older can hold it; else their lists are joined. A tombstone stays as long as something older may hold what
//! it hides; an expired value is a tombstone.

use std::collections::HashSet;

use bytes::Bytes;

use super::plan::Plan;
use crate::base::cursor::RecordCursor;
use crate::base::ids::{Sequence, StateId};
use crate::base::key::{self, KeyRange};
use crate::base::merge_operator::MergeOperators;
use crate::base::record::{ExpiryMs, Kind, NEVER, Record};
use crate::read::{Carried, MergeCursor, Pending, Shapes};
use crate::{Error, ErrorKind, Result};

/// By what a compaction goes.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The greater of the clock and the time high-water mark.
    pub now_ms: i64,
    /// How operands fold; those of states without an operator are carried on unmerged.
    pub operators: &'a MergeOperators,
    /// Shapes of all states that have records.
    pub shapes: &'a Shapes,
    /// States whose records are left out.
    pub dropped: &'a HashSet<StateId>,
}

/// Takes what is kept.
pub trait Sink {
    /// The next record to keep, in [`Record::order`]; `prefix_len` as [`Shapes::prefix_len`] gives it.
    ///
    /// # Errors
    /// Whatever keeps it from being written.
    fn add(&mut self, record: &Record<'_>, prefix_len: Option<usize>) -> Result<()>;
}

/// Called every so often with the bytes read since the last call: sleeps, or cancels by an error.
pub type Pace<'a> = dyn FnMut(u64) -> Result<()> + 'a;

/// Bytes between two calls of [`Pace`].
const PACE_BYTES: u64 = 64 << 10;

/// Writes what must be kept of the records of `source`, the inputs of `plan` merged forward, to `sink`.
///
/// # Errors
/// Of the inputs, of `sink`, of `pace`. Operands that don't fold are no error, with one exception: under a
/// value that expires they have to wait for their operator ([`ErrorKind::Merge`]).
pub fn rewrite(
    plan: &Plan,
    source: MergeCursor<'_>,
    rules: Rules<'_>,
    sink: &mut dyn Sink,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let mut rewriter = Rewriter {
        plan,
        source,
        rules,
        sink,
        pace,
        unpaced_bytes: 0,
        prefixes: Vec::new(),
        prefix: None,
        key: Vec::new(),
        pending: Pending::default(),
    };
    while rewriter.step()? {}
    // Replay 4: a source that failed looks as if it had ended.
    rewriter.source.status()?;
    (rewriter.pace)(rewriter.unpaced_bytes)
}

struct Rewriter<'a> {
    plan: &'a Plan,
    source: MergeCursor<'a>,
    rules: Rules<'a>,
    sink: &'a mut dyn Sink,
    pace: &'a mut Pace<'a>,
    unpaced_bytes: u64,
    /// Prefix deletes over the current key.
    prefixes: Vec<(Vec<u8>, Sequence)>,
    /// The grouped prefix of the key before, if it had one.
    prefix: Option<Vec<u8>>,
    key: Vec<u8>,
    pending: Pending,
}

impl Rewriter<'_> {
    /// Deals with all records of the current key; false past the end.
    fn step(&mut self) -> Result<bool> {
        let Some(record) = self.source.record() else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(record.key);
        let (kind, sequence) = (record.kind, record.sequence);
        let (_, state, _) = key::split_header(record.key)?;
        if self.rules.dropped.contains(&state) {
            self.skip_key()?;
            return Ok(true);
        }
        while self.prefixes.last().is_some_and(|(prefix, _)| !self.key.starts_with(prefix)) {
            self.prefixes.pop();
        }
        let deleted = self.prefixes.iter().map(|(_, sequence)| *sequence).max().unwrap_or(0);
        if kind == Kind::PrefixDelete {
            self.prefix_delete(sequence, deleted)?;
        } else if sequence < deleted {
            self.skip_key()?;
        } else {
            self.newest(kind, deleted)?;
        }
        Ok(true)
    }

    /// The source stands on a prefix delete at `key`, `deleted` being the newest one over it so far.
    fn prefix_delete(&mut self, sequence: Sequence, deleted: Sequence) -> Result<()> {
        if sequence > deleted {
            if self.plan.older_overlaps(&KeyRange::prefix(&self.key)) {
                let prefix_len = self.prefix_len()?;
                if let Some(record) = self.source.record() {
                    self.sink.add(&record, prefix_len)?;
                }
            }
            self.prefixes.push((self.key.clone(), sequence));
        }
        self.advance()
    }

    /// The source stands on the newest record of `key`, which no prefix delete hides.
    fn newest(&mut self, kind: Kind, deleted: Sequence) -> Result<()> {
        if kind == Kind::Merge {
            return self.merge(deleted);
        }
        let now_ms = self.rules.now_ms;
        let dead = self.source.record().is_none_or(|r| kind != Kind::Put || r.expired(now_ms));
        if !dead {
            let prefix_len = self.prefix_len()?;
            if let Some(record) = self.source.record() {
                self.sink.add(&record, prefix_len)?;
            }
        } else if let Some(sequence) = self.source.record().map(|r| r.sequence) {
            self.delete(sequence)?;
        }
        self.skip_key()
    }

    /// Keeps a delete at `key` if it hides anything.
    fn delete(&mut self, sequence: Sequence) -> Result<()> {
        if !self.plan.older_holds(&self.key) {
            return Ok(());
        }
        self.keep(sequence, Kind::Delete, NEVER, &[])
    }

    /// The source stands on the newest record of `key`, a merge.
    fn merge(&mut self, deleted: Sequence) -> Result<()> {
        self.pending.clear();
        let newest = self.source.record().map_or(0, |r| r.sequence);
        // `None` while nothing was met; then the value, if there was one, and its expiry.
        let mut base: Option<Option<(Bytes, ExpiryMs)>> = None;
        while let Some(record) = self.source.record().filter(|r| r.key == self.key) {
            if record.sequence < deleted {
                base = Some(None);
                break;
            }
            if record.kind != Kind::Merge {
                let living = record.kind == Kind::Put && !record.expired(self.rules.now_ms);
                base = Some(living.then(|| (Bytes::copy_from_slice(record.value), record.expiry)));
                break;
            }
            self.pending.push_older(Bytes::copy_from_slice(record.value))?;
            if self.pending.is_complete() {
                break;
            }
            self.advance()?;
        }
        self.skip_key()?;
        // What a prefix delete hides, or nothing older can hold, is known to be absent.
        let absent = deleted > 0 || !self.plan.older_holds(&self.key);
        if base.is_none() && !self.pending.is_complete() && !absent {
            let value = self.pending.carry(Carried::Older)?;
            return self.keep(newest, Kind::Merge, NEVER, &value);
        }
        self.fold(newest, base.flatten())
    }

    /// Folds the pending operands over `base`, or carries both on.
    fn fold(&mut self, newest: Sequence, base: Option<(Bytes, ExpiryMs)>) -> Result<()> {
        let value = base.as_ref().map(|(value, _)| value.as_ref());
        let expiry = base.as_ref().map_or(NEVER, |(_, expiry)| *expiry);
        match self.pending.fold(&self.key, value, self.rules.operators) {
            Ok(folded) => self.keep(newest, Kind::Put, expiry, &folded),
            Err(error) if error.kind() == ErrorKind::Merge => {
                if expiry != NEVER && !self.has_operator()? {
                    // A merge record can't say when its base expires.
                    return Err(error);
                }
                let carried = self.pending.carry(value.map_or(Carried::Absent, Carried::Value))?;
                self.keep(newest, Kind::Merge, NEVER, &carried)
            }
            Err(error) => Err(error),
        }
    }

    fn has_operator(&self) -> Result<bool> {
        let (_, state, _) = key::split_header(&self.key)?;
        Ok(self.rules.operators.get(state).is_some())
    }

    /// Writes a record of our own making at `key`.
    fn keep(&mut self, sequence: Sequence, kind: Kind, expiry: ExpiryMs, value: &[u8]) -> Result<()> {
        let prefix_len = self.prefix_len()?;
        self.sink.add(&Record { key: &self.key, sequence, kind, expiry, value }, prefix_len)
    }

    fn prefix_len(&mut self) -> Result<Option<usize>> {
        if let Some(prefix) = self.prefix.as_ref().filter(|prefix| self.key.starts_with(prefix)) {
            return Ok(Some(prefix.len()));
        }
        let len = self.rules.shapes.prefix_len(&self.key)?;
        self.prefix = len.and_then(|len| self.key.get(..len)).map(<[u8]>::to_vec);
        Ok(len)
    }

    /// Leaves all records at `key` behind.
    fn skip_key(&mut self) -> Result<()> {
        while self.source.record().is_some_and(|r| r.key == self.key) {
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        let Some(record) = self.source.record() else { return Ok(()) };
        self.unpaced_bytes += (record.key.len() + record.value.len()) as u64;
        if self.unpaced_bytes >= PACE_BYTES {
            (self.pace)(std::mem::take(&mut self.unpaced_bytes))?;
        }
        self.source.advance()
    }
}

/// The error with which a pace callback ends a compaction that nobody wants any more.
#[must_use]
pub fn cancelled() -> Error {
    Error::new(ErrorKind::Aborted, "the compaction was cancelled")
}
