//! What a point read finds in memory.

use super::location::Location;
use crate::base::merge_operator::{self, MergeOperator};
use crate::base::operands;
use crate::base::record::{ExpiryMs, Record};
use crate::{Error, Result};

/// What memory says about a key.
#[derive(Debug, Clone)]
pub enum Lookup<'a> {
    /// The newest record, a [`Put`](crate::base::record::Kind::Put) (which may have expired: that is the reader's to see) or a
    /// [`Delete`](crate::base::record::Kind::Delete). Nothing below matters.
    Record(Record<'a>),
    /// Operands that have not been folded.
    Operands(OperandChain<'a>),
    /// The key is absent. Nothing below matters.
    Absent,
    /// Memory says nothing: read the version.
    Unknown,
}

/// As [`Lookup`], borrowing nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// A value that stops being visible at `expiry`.
    Value {
        /// Where it lies.
        at: ValueAt,
        /// When it expires.
        expiry: ExpiryMs,
    },
    /// The key is absent. Nothing below matters.
    Absent,
    /// Operands that have not been folded: see [`super::Memtable::lookup`].
    Operands,
    /// Memory says nothing: read the version.
    Unknown,
}

/// Where a value lies in memory, until the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueAt {
    pub(super) location: Location,
    /// Bytes from the record's beginning.
    pub(super) skip: usize,
    pub(super) len: usize,
}

/// What the operands in memory apply to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    /// This put.
    Put(Record<'a>),
    /// Nothing: the key was absent.
    Absent,
    /// Whatever the version holds.
    Below,
}

/// Merge records in memory and what they apply to.
#[derive(Debug, Clone)]
pub struct OperandChain<'a> {
    /// [`Merge`](crate::base::record::Kind::Merge) records, newest first, at least one.
    pub newest_first: Vec<Record<'a>>,
    /// What they apply to.
    pub base: Base<'a>,
}

impl OperandChain<'_> {
    /// The value at `now_ms`. `below` is the version's value, for [`Base::Below`] only.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Merge`] when there is no operator or it fails.
    pub fn fold(&self, operator: Option<&dyn MergeOperator>, below: Option<&[u8]>, now_ms: i64) -> Result<Vec<u8>> {
        let operator = operator.ok_or_else(no_operator)?;
        let mut base = match self.base {
            Base::Put(record) => (!record.expired(now_ms)).then_some(record.value),
            Base::Absent => None,
            Base::Below => below,
        };
        let mut list: Vec<&[u8]> = Vec::new();
        for record in self.newest_first.iter().rev() {
            let decoded = operands::decode(record.value)?;
            if decoded.is_complete() {
                base = decoded.base;
                list.clear();
            }
            list.extend(decoded.list);
        }
        merge_operator::fold(operator, base, &list)
    }
}

#[cold]
pub(super) fn no_operator() -> Error {
    Error::new(crate::ErrorKind::Merge, "merge on a state without a merge operator")
}

/// What memory knows about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupInfo {
    /// All entries that live are in memory: a scan need not read the version, and a key that isn't
    /// in memory is absent.
    pub complete: bool,
    /// Records in memory under the prefix.
    pub members: usize,
}
