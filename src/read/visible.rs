//! From merged records to what a user sees.

use std::sync::Arc;

use bytes::Bytes;

use super::fold::Pending;
use super::merge::MergeCursor;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::Sequence;
use crate::base::merge_operator::MergeOperators;
use crate::base::record::{ExpiryMs, Kind, NEVER};
use crate::{Error, Result};

/// The rules by which records become visible.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    /// The greater of the clock and the time high-water mark: a value whose expiry isn't beyond it is gone.
    pub now_ms: i64,
    /// How operands fold.
    pub operators: Arc<MergeOperators>,
}

/// Tells, of a key, the length of its (key, namespace) prefix and the greatest sequence of a prefix delete there.
pub type AskPrefix<'a> = Box<dyn FnMut(&[u8]) -> Result<(usize, Sequence)> + 'a>;

/// How a scan learns of prefix deletes. A record older than the newest prefix delete over it is gone.
pub enum PrefixDeletes<'a> {
    /// From the records themselves, before the keys they cover: right for scans that go forward and don't
    /// begin inside a (key, namespace).
    OnTheWay,
    /// The scan stays within one (key, namespace), and this is the greatest sequence of a prefix delete there in
    /// any source; 0 for none.
    Known(Sequence),
    /// By asking: given a key, the length of its (key, namespace) prefix and that sequence. Asked once a prefix.
    Ask(AskPrefix<'a>),
}

/// A visible entry, borrowed from its cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Encoded key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// When it stops being visible.
    pub expiry: ExpiryMs,
}

enum Standing {
    /// On the source's current record.
    Source,
    /// On `key` and `value`.
    Own(ExpiryMs),
    End,
    Failed(Error),
}

/// Walks over visible entries. The contract is that of [`crate::base::cursor`], with entries for records:
/// past the end, [`VisibleCursor::status`] tells an error from the end.
pub struct VisibleCursor<'a> {
    source: MergeCursor<'a>,
    direction: Direction,
    resolver: Resolver,
    prefix_deletes: PrefixDeletes<'a>,
    /// Prefixes over the current key that have a prefix delete, or the one prefix last asked for.
    open: Vec<(Vec<u8>, Sequence)>,
    key: Vec<u8>,
    value: Vec<u8>,
    pending: Pending,
    standing: Standing,
}

impl<'a> VisibleCursor<'a> {
    /// What is visible in `source`, which walks in `direction`.
    #[must_use]
    pub fn new(
        source: MergeCursor<'a>,
        direction: Direction,
        resolver: Resolver,
        prefix_deletes: PrefixDeletes<'a>,
    ) -> Self {
        let mut cursor = Self {
            source,
            direction,
            resolver,
            prefix_deletes,
            open: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            pending: Pending::default(),
            standing: Standing::End,
        };
        cursor.settle();
        cursor
    }

    /// The entry the cursor stands on; `None` past the end or after an error.
    #[must_use]
    pub fn entry(&self) -> Option<Entry<'_>> {
        match &self.standing {
            Standing::Source => {
                let record = self.source.record()?;
                Some(Entry { key: record.key, value: record.value, expiry: record.expiry })
            }
            Standing::Own(expiry) => Some(Entry { key: &self.key, value: &self.value, expiry: *expiry }),
            Standing::End | Standing::Failed(_) => None,
        }
    }

    /// Moves to the next entry.
    ///
    /// # Errors
    /// Whatever a source or a merge operator failed with; it sticks.
    pub fn advance(&mut self) -> Result<()> {
        match self.standing {
            Standing::Source => {
                if let Err(error) = self.skip_key() {
                    self.standing = Standing::Failed(error);
                } else {
                    self.settle();
                }
            }
            Standing::Own(_) => self.settle(),
            Standing::End | Standing::Failed(_) => {}
        }
        self.status()
    }

    /// The error that stopped the cursor, if one did.
    ///
    /// # Errors
    /// That error.
    pub fn status(&self) -> Result<()> {
        match &self.standing {
            Standing::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn settle(&mut self) {
        let found = match self.direction {
            Direction::Forward => self.find_forward(),
            Direction::Backward => self.find_backward(),
        };
        self.standing = match found {
            Ok(standing) => standing,
            Err(error) => Standing::Failed(error),
        };
    }

    /// Leaves all records of the current key behind.
    fn skip_key(&mut self) -> Result<()> {
        if let Some(record) = self.source.record() {
            self.key.clear();
            self.key.extend_from_slice(record.key);
        }
        self.skip_rest()
    }

    fn skip_rest(&mut self) -> Result<()> {
        while self.source.record().is_some_and(|r| r.key == self.key) {
            self.source.advance()?;
        }
        Ok(())
    }

    /// Greatest sequence of a prefix delete over the current record.
    fn prefix_delete(&mut self) -> Result<Sequence> {
        let Some(record) = self.source.record() else { return Ok(0) };
        let key = record.key;
        match &mut self.prefix_deletes {
            PrefixDeletes::Known(sequence) => Ok(*sequence),
            PrefixDeletes::OnTheWay => {
                while self.open.last().is_some_and(|(prefix, _)| !key.starts_with(prefix)) {
                    self.open.pop();
                }
                Ok(self.open.iter().map(|(_, sequence)| *sequence).max().unwrap_or(0))
            }
            PrefixDeletes::Ask(ask) => {
                if let Some((_, sequence)) = self.open.last().filter(|(prefix, _)| key.starts_with(prefix)) {
                    return Ok(*sequence);
                }
                let (prefix_len, sequence) = ask(key)?;
                let prefix = key.get(..prefix_len).unwrap_or(key).to_vec();
                self.open = vec![(prefix, sequence)];
                Ok(sequence)
            }
        }
    }

    fn find_forward(&mut self) -> Result<Standing> {
        loop {
            let Some(record) = self.source.record() else {
                self.source.status()?;
                return Ok(Standing::End);
            };
            if record.kind == Kind::PrefixDelete {
                if matches!(self.prefix_deletes, PrefixDeletes::OnTheWay) {
                    let opened = (record.key.to_vec(), record.sequence);
                    self.prefix_delete()?;
                    self.open.push(opened);
                }
                self.source.advance()?;
                continue;
            }
            let (sequence, kind, expired) = (record.sequence, record.kind, record.expired(self.resolver.now_ms));
            let hidden = sequence < self.prefix_delete()?;
            match kind {
                Kind::Put if !hidden && !expired => return Ok(Standing::Source),
                Kind::Merge if !hidden => return self.fold_forward(),
                _ => self.skip_key()?,
            }
        }
    }

    /// The source stands on the newest record of a key, which is a merge.
    fn fold_forward(&mut self) -> Result<Standing> {
        let deleted = self.prefix_delete()?;
        self.pending.clear();
        self.key.clear();
        if let Some(record) = self.source.record() {
            self.key.extend_from_slice(record.key);
        }
        while let Some(record) = self.source.record().filter(|r| r.key == self.key && r.sequence >= deleted) {
            if record.kind != Kind::Merge || self.pending.is_complete() {
                break;
            }
            self.pending.push_older(Bytes::copy_from_slice(record.value))?;
            self.source.advance()?;
        }
        let base = self.source.record().filter(|r| {
            let older = r.key == self.key && r.sequence >= deleted && r.kind == Kind::Put;
            older && !r.expired(self.resolver.now_ms) && !self.pending.is_complete()
        });
        let expiry = base.map_or(NEVER, |r| r.expiry);
        self.value = self.pending.fold(&self.key, base.map(|r| r.value), &self.resolver.operators)?;
        self.skip_rest()?;
        Ok(Standing::Own(expiry))
    }

    fn find_backward(&mut self) -> Result<Standing> {
        loop {
            let Some(record) = self.source.record() else {
                self.source.status()?;
                return Ok(Standing::End);
            };
            if record.kind == Kind::PrefixDelete {
                self.source.advance()?;
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(record.key);
            if let Some(expiry) = self.resolve_backward()? {
                return Ok(Standing::Own(expiry));
            }
        }
    }

    /// The source stands on the oldest record of `key`. Leaves the value of the key in `value` and returns its
    /// expiry when it is visible.
    fn resolve_backward(&mut self) -> Result<Option<ExpiryMs>> {
        let deleted = self.prefix_delete()?;
        let now_ms = self.resolver.now_ms;
        self.pending.clear();
        let mut base = None;
        while let Some(record) = self.source.record().filter(|r| r.key == self.key && r.kind != Kind::PrefixDelete) {
            if record.sequence >= deleted {
                match record.kind {
                    Kind::Merge => self.pending.push_newer(Bytes::copy_from_slice(record.value))?,
                    Kind::Put if !record.expired(now_ms) => {
                        self.pending.clear();
                        self.value.clear();
                        self.value.extend_from_slice(record.value);
                        base = Some(record.expiry);
                    }
                    _ => {
                        self.pending.clear();
                        base = None;
                    }
                }
            }
            self.source.advance()?;
        }
        if !self.pending.is_empty() {
            let older = base.map(|_| self.value.as_slice());
            let complete = self.pending.is_complete();
            self.value = self.pending.fold(&self.key, older, &self.resolver.operators)?;
            return Ok(Some(base.filter(|_| !complete).unwrap_or(NEVER)));
        }
        Ok(base)
    }
}
