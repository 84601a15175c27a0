//! Point operations of the raw layer.

use super::backend::Backend;
use super::pressure::Pressure;
use super::scan::Prefix;
use super::states::RawState;
use super::value::Value;
use crate::base::descriptor::Layout;
use crate::base::key::{self, KeyParts};
use crate::base::record::{ExpiryMs, Kind, NEVER, Record};
use crate::memtable::{Base, Lookup, Probe};
use crate::read::{Lookup as Newer, Visible};
use crate::{Error, ErrorKind, Result};

/// Bytes of clean records that are gone through when a write finds memory full.
const ROOM_BYTES: u64 = 1 << 20;

#[cold]
fn needless_user_key(state: &str) -> Error {
    Error::invalid(format!("state `{state}` holds single values, which have no user key"))
}

impl Backend {
    /// Makes `parts` the current key, after checking state, group and lengths.
    #[inline(always)]
    pub(super) fn take_key(&mut self, state: RawState, parts: KeyParts<'_>) -> Result<()> {
        if self.key.is(state, &parts) { Ok(()) } else { self.encode(state, parts) }
    }

    fn encode(&mut self, state: RawState, parts: KeyParts<'_>) -> Result<()> {
        let known = self.states.get(state)?;
        if !self.groups.contains(parts.group) {
            return Err(self.foreign_group(parts.group));
        }
        if known.layout == Layout::Single && !parts.user_key.is_empty() {
            return Err(needless_user_key(&known.descriptor.name));
        }
        self.key.set(state, known, parts)
    }

    #[cold]
    fn foreign_group(&self, group: u16) -> Error {
        Error::invalid(format!(
            "key group {group} is outside {}, the key groups of {:?}",
            self.key_groups(),
            self.shared
        ))
    }

    /// The value of a key, if it has one that hasn't expired.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that can't be; `Merge` when operands can't be folded; what reading a segment
    /// fails with; why the backend was stopped.
    #[inline]
    pub fn get(&mut self, state: RawState, key: KeyParts<'_>) -> Result<Option<Value<'_>>> {
        self.shared.check()?;
        self.take_key(state, key)?;
        match self.memtable.probe(self.key.mem_key()) {
            Probe::Value { at, expiry } => {
                if expiry != NEVER && expiry <= self.shared.now_ms() {
                    return Ok(None);
                }
                Ok(Some(Value::memory(self.memtable.value(at))))
            }
            Probe::Absent => Ok(None),
            Probe::Operands => self.get_folded(),
            Probe::Unknown => self.get_cold(),
        }
    }

    /// A key that memory knows nothing of: read the tree, and keep what was found.
    #[cold]
    fn get_cold(&mut self) -> Result<Option<Value<'_>>> {
        self.resolver.now_ms = self.shared.now_ms();
        let found = self.tree.get(self.key.bytes(), self.key.group_prefix(), Newer::default(), &self.resolver)?;
        self.keep_found(found.as_ref());
        Ok(found.map(|visible| Value::block(visible.value)))
    }

    /// Keeps in memory what the tree says of the current key, which memory knew nothing of.
    pub(super) fn keep_found(&mut self, found: Option<&Visible>) {
        let Some(visible) = found else { return self.memtable.note_absent(self.key.mem_key()) };
        let adopted = self.memtable.adopted_sequence();
        // The adopted sequence stands for that of the record, which is none greater.
        let record = Record {
            key: self.key.bytes(),
            sequence: adopted,
            kind: Kind::Put,
            expiry: visible.expiry,
            value: &visible.value,
        };
        self.memtable.promote(self.key.mem_key(), &record, adopted);
    }

    /// A key with operands in memory.
    #[cold]
    fn get_folded(&mut self) -> Result<Option<Value<'_>>> {
        self.resolver.now_ms = self.shared.now_ms();
        let Lookup::Operands(chain) = self.memtable.lookup(self.key.mem_key()) else {
            return Err(Error::internal("operands that were there are gone"));
        };
        let below = match chain.base {
            Base::Below => {
                self.tree.get(self.key.bytes(), self.key.group_prefix(), Newer::default(), &self.resolver)?
            }
            _ => None,
        };
        let (_, state, _) = key::split_header(self.key.bytes())?;
        let operator = self.resolver.operators.get(state).map(|o| &**o);
        let below = below.as_ref().map(|visible| &*visible.value);
        self.value = chain.fold(operator, below, self.resolver.now_ms)?;
        Ok(Some(Value::memory(&self.value)))
    }

    /// Checks and encodes a write's key, and makes the write bear the pressure there is, before anything changes.
    #[inline]
    fn begin_write(&mut self, state: RawState, key: KeyParts<'_>) -> Result<()> {
        self.shared.check()?;
        self.take_key(state, key)?;
        if self.pressure != Pressure::None {
            self.bear_pressure()?;
        }
        Ok(())
    }

    /// Makes a write, once more after making room when memory was full, then looks after memory every now and then.
    #[inline]
    fn write<T>(&mut self, mut write: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let mut ticks = self.memtable.ticks();
        let mut room_made = false;
        loop {
            match write(self) {
                Ok(written) => {
                    if self.memtable.ticks() != ticks {
                        self.tick()?;
                    }
                    return Ok(written);
                }
                Err(error) if error.kind() == ErrorKind::Backpressure && !room_made => {
                    self.make_room(&error)?;
                    room_made = true;
                    ticks = self.memtable.ticks();
                }
                Err(error) => return Err(error),
            }
        }
    }

    #[inline]
    pub(super) fn check_value(&self, value: &[u8]) -> Result<()> {
        if value.len() > self.max_value_bytes() { Err(self.too_large(value.len())) } else { Ok(()) }
    }

    #[cold]
    fn too_large(&self, len: usize) -> Error {
        Error::invalid(format!(
            "value of {len} bytes is over the limit of {} (an eighth of the memory budget, at most 256 MiB)",
            self.max_value_bytes()
        ))
    }

    #[inline]
    fn expiry(&self) -> ExpiryMs {
        match self.key.ttl_ms() {
            None => NEVER,
            Some(ttl) => self.shared.now_ms().saturating_add_unsigned(ttl),
        }
    }

    /// Sets a key's value. In a state with a TTL it expires that long after now.
    ///
    /// # Errors
    /// `InvalidArgument` for a key or value that can't be; `Backpressure` when storage is too far behind; nothing was
    /// written then. `ResourceExhausted` or `Io` in place of `Backpressure` once local disk has taken nothing for as
    /// long as a checkpoint may take ([`crate::CoordinatorSettings::timeout`]), unless all it waits for is a store that
    /// is away. Why the backend was stopped.
    #[inline]
    pub fn put(&mut self, state: RawState, key: KeyParts<'_>, value: &[u8]) -> Result<()> {
        self.check_value(value)?;
        self.begin_write(state, key)?;
        let expiry = self.expiry();
        self.write(|b| {
            let (key, tree) = (&b.key, &b.tree);
            b.memtable.put(key.mem_key(), value, expiry, || key.below(tree))
        })
    }

    /// Appends to the value that memory holds of a key, in place where there is room. Returns its new length, or
    /// `None` when memory holds no value of it, or one that may expire: nothing was done then.
    ///
    /// # Errors
    /// As [`Backend::put`].
    #[inline]
    pub fn append(&mut self, state: RawState, key: KeyParts<'_>, suffix: &[u8]) -> Result<Option<usize>> {
        self.check_value(suffix)?;
        self.begin_write(state, key)?;
        self.write(|b| b.memtable.append(b.key.mem_key(), suffix))
    }

    /// Appends to the value of the greatest user key under a prefix, if memory holds a value there. False, and nothing done,
    /// where that user key lies before `from`, where the state has a TTL, and where more than `most` bytes would come of it.
    ///
    /// # Errors
    /// As [`Backend::put`]; `InvalidArgument` for a state of single values.
    #[inline]
    pub fn append_newest(
        &mut self,
        state: RawState,
        prefix: Prefix<'_>,
        from: &[u8],
        suffix: &[u8],
        most: usize,
    ) -> Result<bool> {
        self.check_value(suffix)?;
        self.begin_write(state, prefix.parts(&[]))?;
        if self.key.layout() == Layout::Single {
            return Err(Error::invalid("an append to the newest entry of a state of single values"));
        }
        self.write(|b| b.memtable.append_newest(b.key.mem_key(), from, suffix, most))
    }

    /// Applies a merge operand to a key's value, now where the value is in memory, else at the next read or merge.
    ///
    /// # Errors
    /// As [`Backend::put`]; `Merge` when the state has no operator or the operator fails now, the state unchanged.
    pub fn merge(&mut self, state: RawState, key: KeyParts<'_>, operand: &[u8]) -> Result<()> {
        self.check_value(operand)?;
        self.begin_write(state, key)?;
        let operator = self.resolver.operators.get(state.id).cloned();
        let now_ms = self.shared.now_ms();
        self.write(|b| {
            let (key, tree) = (&b.key, &b.tree);
            b.memtable.merge(key.mem_key(), operand, operator.as_deref(), now_ms, || key.below(tree))
        })
        .map(drop)
    }

    /// Deletes a key. Deleting an absent one is no error.
    ///
    /// # Errors
    /// As [`Backend::put`].
    #[inline]
    pub fn delete(&mut self, state: RawState, key: KeyParts<'_>) -> Result<()> {
        self.begin_write(state, key)?;
        self.write(|b| {
            let (key, tree) = (&b.key, &b.tree);
            b.memtable.delete(key.mem_key(), || key.below(tree))
        })
    }

    /// Deletes every user key under (group, key, namespace) of a grouped state, in time that doesn't grow with
    /// their number.
    ///
    /// # Errors
    /// As [`Backend::put`]; `InvalidArgument` for a state of single values.
    pub fn delete_prefix(&mut self, state: RawState, prefix: Prefix<'_>) -> Result<()> {
        self.begin_write(state, prefix.parts(&[]))?;
        if self.key.layout() == Layout::Single {
            return Err(Error::invalid("prefix delete on a state of single values"));
        }
        self.write(|b| {
            let (key, tree) = (&b.key, &b.tree);
            b.memtable.delete_prefix(key.bytes(), || key.below(tree))
        })
    }

    /// Memory was full: evicts what is clean, so that the write can be made after all. What isn't clean has to be
    /// flushed first, which is backpressure.
    #[cold]
    pub(super) fn make_room(&mut self, error: &Error) -> Result<()> {
        self.maintain()?;
        let evicted = self.memtable.evict_step(ROOM_BYTES);
        // A record that needs a page of its own isn't helped by free pages of the usual size, which count in the budget.
        let pooled = self.memtable.stats().pooled_bytes;
        self.memtable.release_pool();
        if evicted > 0 || pooled > 0 {
            self.drop_trash();
            return Ok(());
        }
        if self.memtable.dirty_bytes() > 0 {
            self.freeze(None);
        }
        let refusal = self.refusal();
        Err(refusal.context(error.message()))
    }
}
