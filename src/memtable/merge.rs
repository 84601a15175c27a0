//! Merges: folded at once where the value is in memory, kept as operands where it isn't.

use crate::Result;
use crate::base::ids::Sequence;
use crate::base::merge_operator::{self, MergeOperator};
use crate::base::operands;
use crate::base::record::{Kind, NEVER};

use super::key::{Below, MemKey};
use super::location::Location;
use super::lookup::no_operator;
use super::memtable::{Memtable, Place};
use super::write::Write;

impl Memtable {
    /// Applies `operand` to the value of `key`. Where memory knows the value, or knows that there is
    /// none, the operator runs now; otherwise the operand is kept for the reader. A value that has
    /// expired at `now_ms` counts as none; a folded value keeps the expiry of the one it came from.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Merge`] when there is no operator, or when it fails or panics here; else as
    /// [`Memtable::put`]. Nothing has changed then.
    pub fn merge(
        &mut self,
        key: MemKey<'_>,
        operand: &[u8],
        operator: Option<&dyn MergeOperator>,
        now_ms: i64,
        below: impl FnOnce() -> Below,
    ) -> Result<()> {
        key.check(operand.len())?;
        let operator = operator.ok_or_else(no_operator)?;
        let (place, found) = self.locate(&key);
        let Some(location) = found else {
            let below = self.ask(&key, place, below);
            if below == Below::Unknown {
                let value = first_operand(operand);
                let write = Write { kind: Kind::Merge, spare: value.len(), ..Write::put(&value, NEVER) };
                return self.insert(&key, place, &write, below);
            }
            let value = merge_operator::fold(operator, None, &[operand])?;
            key.check(value.len())?;
            return self.insert(&key, place, &Write::put(&value, NEVER), below);
        };
        let record = self.log.record(location);
        let gone = self.is_hidden(place, record.sequence);
        let base = match record.kind {
            Kind::Put if !gone => (!record.expired(now_ms)).then_some(record),
            Kind::Merge if !gone => {
                let sequence = record.sequence;
                return self.merge_onto_operands(&key, place, location, operand, sequence);
            }
            _ => None,
        };
        let expiry = base.map_or(NEVER, |base| base.expiry);
        let value = merge_operator::fold(operator, base.map(|base| base.value), &[operand])?;
        key.check(value.len())?;
        self.overwrite(&key, place, location, &Write::put(&value, expiry))
    }

    fn merge_onto_operands(
        &mut self,
        key: &MemKey<'_>,
        place: Place,
        location: Location,
        operand: &[u8],
        sequence: Sequence,
    ) -> Result<()> {
        if self.is_mutable(location, sequence) {
            let mut more = Vec::with_capacity(operand.len() + 5);
            operands::append(&mut more, operand);
            key.check(self.log.header(location).value_len as usize + more.len())?;
            return self.extend(key, place, location, &more, usize::MAX, None);
        }
        // Operands of an adopted epoch are in the version: linking to them would count them twice.
        let prev = (sequence > self.adopted).then(|| self.log.link(location));
        let value = first_operand(operand);
        let write = Write { kind: Kind::Merge, spare: value.len(), prev, ..Write::put(&value, NEVER) };
        self.overwrite(key, place, location, &write)
    }
}

fn first_operand(operand: &[u8]) -> Vec<u8> {
    let mut value = operands::start(None);
    operands::append(&mut value, operand);
    value
}
