//! Cursors over vectors, and operators, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::StateId;
use crate::base::merge_operator::{MergeOperator, MergeOperators};
use crate::base::operands;
use crate::base::record::{Kind, NEVER, OwnedRecord, Record};
use crate::{Error, Result};

/// Sorted records of a vector; fails when it comes to the record numbered `fail_at`.
#[derive(Default)]
pub(crate) struct VecCursor {
    records: Vec<OwnedRecord>,
    at: usize,
    pub(crate) fail_at: Option<usize>,
}

impl VecCursor {
    pub(crate) fn new(mut records: Vec<OwnedRecord>, direction: Direction) -> Self {
        records.sort_by(|a, b| a.as_record().order(&b.as_record()));
        if direction == Direction::Backward {
            records.reverse();
        }
        Self { records, at: 0, fail_at: None }
    }

    fn failed(&self) -> bool {
        self.fail_at.is_some_and(|at| self.at >= at)
    }
}

impl RecordCursor for VecCursor {
    fn record(&self) -> Option<Record<'_>> {
        self.records.get(self.at).filter(|_| !self.failed()).map(OwnedRecord::as_record)
    }

    fn advance(&mut self) -> Result<()> {
        if !self.failed() {
            self.at = (self.at + 1).min(self.records.len());
        }
        if self.failed() { Err(Error::corruption("injected")) } else { Ok(()) }
    }
}

/// Appends operands with commas between them: shows order, loss and doubling.
pub(crate) struct Commas;

impl MergeOperator for Commas {
    fn name(&self) -> &str {
        "commas"
    }

    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        if operands.contains(&&b"bad"[..]) {
            return Err("bad operand".into());
        }
        let mut all: Vec<&[u8]> = base.into_iter().collect();
        all.extend(operands);
        Ok(all.join(&b","[..]))
    }
}

/// [`Commas`] for `state`.
pub(crate) fn commas(state: u32) -> Arc<MergeOperators> {
    let mut operators = MergeOperators::default();
    operators.insert(StateId(state), Arc::new(Commas));
    Arc::new(operators)
}

pub(crate) fn put(key: &[u8], sequence: u64, value: &[u8]) -> OwnedRecord {
    expiring(key, sequence, value, NEVER)
}

pub(crate) fn expiring(key: &[u8], sequence: u64, value: &[u8], expiry: i64) -> OwnedRecord {
    OwnedRecord { key: key.to_vec(), sequence, kind: Kind::Put, expiry, value: value.to_vec() }
}

pub(crate) fn bare(key: &[u8], sequence: u64, kind: Kind) -> OwnedRecord {
    OwnedRecord { key: key.to_vec(), sequence, kind, expiry: NEVER, value: Vec::new() }
}

pub(crate) fn merge(key: &[u8], sequence: u64, operands: &[&[u8]]) -> OwnedRecord {
    let mut value = operands::start(None);
    operands.iter().for_each(|o| operands::append(&mut value, o));
    OwnedRecord { key: key.to_vec(), sequence, kind: Kind::Merge, expiry: NEVER, value }
}

/// What is visible of `records`, said as plainly as possible.
pub(crate) fn model(records: &[OwnedRecord], now_ms: i64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut keys: BTreeMap<&[u8], Vec<&OwnedRecord>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.kind != Kind::PrefixDelete) {
        keys.entry(&record.key).or_default().push(record);
    }
    let mut visible = BTreeMap::new();
    for (key, mut all) in keys {
        let deletes = records.iter().filter(|r| r.kind == Kind::PrefixDelete && key.starts_with(&r.key));
        let deleted = deletes.map(|r| r.sequence).max().unwrap_or(0);
        all.retain(|r| r.sequence >= deleted);
        all.sort_by_key(|r| r.sequence);
        let mut value: Option<Vec<u8>> = None;
        for record in all {
            match record.kind {
                Kind::Put => value = (record.expiry > now_ms).then(|| record.value.clone()),
                Kind::Delete | Kind::PrefixDelete => value = None,
                Kind::Merge => {
                    let list = operands::decode(&record.value).unwrap();
                    let base = if list.is_complete() { list.base } else { value.as_deref() };
                    value = Some(Commas.merge(base, &list.list).unwrap());
                }
            }
        }
        if let Some(value) = value {
            visible.insert(key.to_vec(), value);
        }
    }
    visible
}
