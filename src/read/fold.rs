//! Folding the merge records of one key.

use bytes::Bytes;

use crate::base::key;
use crate::base::merge_operator::{self, MergeOperators};
use crate::base::operands::{self, Operands};
use crate::{Error, ErrorKind, Result};

/// What lies under operands that are carried on unmerged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried<'a> {
    /// Whatever is older.
    Older,
    /// Nothing: the key was absent.
    Absent,
    /// This value.
    Value(&'a [u8]),
}

/// The merge records of one key that still await what they apply to.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    /// Newest first, or oldest first when `backward`.
    merges: Vec<Bytes>,
    backward: bool,
    complete: bool,
}

impl Pending {
    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.merges.is_empty()
    }

    /// True when the oldest one holds its base: nothing older matters.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.merges.clear();
        self.backward = false;
        self.complete = false;
    }

    /// Takes the value of a merge record older than all before it.
    ///
    /// # Errors
    /// Corruption when it isn't an operand list.
    pub fn push_older(&mut self, merge: Bytes) -> Result<()> {
        self.complete |= operands::decode(&merge)?.is_complete();
        self.merges.push(merge);
        Ok(())
    }

    /// Takes the value of a merge record newer than all before it.
    ///
    /// # Errors
    /// Corruption when it isn't an operand list.
    pub fn push_newer(&mut self, merge: Bytes) -> Result<()> {
        if operands::decode(&merge)?.is_complete() {
            self.merges.clear();
            self.complete = true;
        }
        self.backward = true;
        self.merges.push(merge);
        Ok(())
    }

    /// The value of `key` once the operands are applied to `older` (`None`: absent), or to the base they bring.
    ///
    /// # Errors
    /// [`ErrorKind::Merge`] when the state of `key` has no operator or the operator fails.
    pub fn fold(&self, key: &[u8], older: Option<&[u8]>, operators: &MergeOperators) -> Result<Vec<u8>> {
        let (_, state, _) = key::split_header(key)?;
        let operator = operators.get(state).ok_or_else(|| {
            Error::new(ErrorKind::Merge, format!("state {:08x} has operands but no merge operator", state.0))
        })?;
        let all = self.collect()?;
        let base = if all.is_complete() { all.base } else { older };
        merge_operator::fold(operator.as_ref(), base, &all.list)
    }

    /// The value of one merge record that says the same, over what is given.
    ///
    /// # Errors
    /// Corruption when a record isn't an operand list.
    pub fn carry(&self, over: Carried<'_>) -> Result<Vec<u8>> {
        let all = self.collect()?;
        let mut out = match (all.base, all.absent, over) {
            (Some(base), ..) | (None, false, Carried::Value(base)) => operands::start(Some(base)),
            (None, true, _) | (None, false, Carried::Absent) => operands::start_absent(),
            (None, false, Carried::Older) => operands::start(None),
        };
        all.list.iter().for_each(|operand| operands::append(&mut out, operand));
        Ok(out)
    }

    /// All operands, oldest first, from the newest base on.
    fn collect(&self) -> Result<Operands<'_>> {
        let oldest_first: Vec<&Bytes> =
            if self.backward { self.merges.iter().collect() } else { self.merges.iter().rev().collect() };
        let mut all = Operands::default();
        for merge in oldest_first {
            let mut one = operands::decode(merge)?;
            if one.is_complete() {
                all = one;
            } else {
                all.list.append(&mut one.list);
            }
        }
        Ok(all)
    }
}
