//! Point operations of the raw layer.

use super::backend::Backend;
use super::pressure::Pressure;
use super::scan::Prefix;
use super::states::RawState;
use super::value::Value;
use crate::base::descriptor::Layout;
use crate::base::key::{self, KeyParts};
use crate::base::record::{ExpiryMs, Kind, NEVER, Record};
use crate::memtable::{Base, Below, Lookup, MemKey, Probe};
use crate::read::{Lookup as Newer, Tree};
use crate::{Error, ErrorKind, Result};

/// Bytes of clean records that are gone through when a write finds memory full.
const ROOM_BYTES: u64 = 1 << 20;

/// What the encoded key in `Backend::key` is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoded {
    pub layout: Layout,
    pub prefix_len: usize,
    pub ttl_ms: Option<u64>,
}

impl Encoded {
    #[inline]
    pub fn mem_key<'a>(&self, key: &'a [u8]) -> MemKey<'a> {
        MemKey::new(self.layout, key, self.prefix_len)
    }

    /// As segments want it: `None` for single values.
    #[inline]
    pub fn group_prefix(&self) -> Option<usize> {
        (self.layout == Layout::Grouped).then_some(self.prefix_len)
    }
}

#[cold]
fn needless_user_key(state: &str) -> Error {
    Error::invalid(format!("state `{state}` holds single values, which have no user key"))
}

/// What the tree is known to hold of a key that memory doesn't have, without I/O.
fn below(tree: &Tree, key: &[u8], encoded: Encoded) -> Below {
    match encoded.layout {
        _ if tree.version().is_empty() => Below::NothingAtPrefix,
        Layout::Grouped => match tree.nothing_below(key.get(..encoded.prefix_len).unwrap_or(key)) {
            Ok(true) => Below::NothingAtPrefix,
            // A corrupt filter shows its error when it is read.
            Ok(false) | Err(_) => Below::Unknown,
        },
        Layout::Single => Below::Unknown,
    }
}

impl Backend {
    /// Encodes a key into `self.key` after checking state, group and lengths.
    #[inline]
    pub(super) fn encode(&mut self, state: RawState, parts: KeyParts<'_>) -> Result<Encoded> {
        let known = self.states.get(state)?;
        if !self.groups.contains(parts.group) {
            return Err(self.foreign_group(parts.group));
        }
        if known.layout == Layout::Single && !parts.user_key.is_empty() {
            return Err(needless_user_key(&known.descriptor.name));
        }
        let prefix_len = key::encode(&mut self.key, state.id, known.shape, parts)?;
        Ok(Encoded { layout: known.layout, prefix_len, ttl_ms: known.ttl_ms })
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
        let encoded = self.encode(state, key)?;
        match self.memtable.probe(encoded.mem_key(&self.key)) {
            Probe::Value { at, expiry } => {
                if expiry != NEVER && expiry <= self.shared.now_ms() {
                    return Ok(None);
                }
                Ok(Some(Value::memory(self.memtable.value(at))))
            }
            Probe::Absent => Ok(None),
            Probe::Operands => self.get_folded(encoded),
            Probe::Unknown => self.get_cold(encoded),
        }
    }

    /// A key that memory knows nothing of: read the tree, and keep what was found.
    #[cold]
    fn get_cold(&mut self, encoded: Encoded) -> Result<Option<Value<'_>>> {
        self.resolver.now_ms = self.shared.now_ms();
        let found = self.tree.get(&self.key, encoded.group_prefix(), Newer::default(), &self.resolver)?;
        match found {
            Some(visible) => {
                let adopted = self.memtable.adopted_sequence();
                // The adopted sequence stands for that of the record, which is none greater.
                let record = Record {
                    key: &self.key,
                    sequence: adopted,
                    kind: Kind::Put,
                    expiry: visible.expiry,
                    value: &visible.value,
                };
                self.memtable.promote(encoded.mem_key(&self.key), &record, adopted);
                Ok(Some(Value::block(visible.value)))
            }
            None => {
                self.memtable.note_absent(encoded.mem_key(&self.key));
                Ok(None)
            }
        }
    }

    /// A key with operands in memory.
    #[cold]
    fn get_folded(&mut self, encoded: Encoded) -> Result<Option<Value<'_>>> {
        self.resolver.now_ms = self.shared.now_ms();
        let Lookup::Operands(chain) = self.memtable.lookup(encoded.mem_key(&self.key)) else {
            return Err(Error::internal("operands that were there are gone"));
        };
        let below = match chain.base {
            Base::Below => self.tree.get(&self.key, encoded.group_prefix(), Newer::default(), &self.resolver)?,
            _ => None,
        };
        let (_, state, _) = key::split_header(&self.key)?;
        let operator = self.resolver.operators.get(state).map(|o| &**o);
        let below = below.as_ref().map(|visible| &*visible.value);
        self.value = chain.fold(operator, below, self.resolver.now_ms)?;
        Ok(Some(Value::memory(&self.value)))
    }

    /// The values of many keys of one state, handed to `visit` with the key's index, in no order that may be
    /// relied on. Cheaper than as many calls of [`Backend::get`] when keys aren't in memory.
    ///
    /// # Errors
    /// As [`Backend::get`], and whatever `visit` returns.
    pub fn get_many(
        &mut self,
        state: RawState,
        keys: &[KeyParts<'_>],
        mut visit: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            let value = self.get(state, *key)?;
            visit(index, value.as_deref())?;
        }
        Ok(())
    }

    /// Checks and encodes a write's key, and makes the write bear the pressure there is, before anything changes.
    #[inline]
    fn begin_write(&mut self, state: RawState, key: KeyParts<'_>) -> Result<Encoded> {
        self.shared.check()?;
        let encoded = self.encode(state, key)?;
        if self.pressure != Pressure::None {
            self.bear_pressure()?;
        }
        Ok(encoded)
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
    fn expiry_of(&self, encoded: Encoded) -> ExpiryMs {
        match encoded.ttl_ms {
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
        let encoded = self.begin_write(state, key)?;
        let expiry = self.expiry_of(encoded);
        self.write(|b| {
            let (tree, bytes) = (&b.tree, b.key.as_slice());
            b.memtable.put(encoded.mem_key(bytes), value, expiry, || below(tree, bytes, encoded))
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
        let encoded = self.begin_write(state, key)?;
        self.write(|b| b.memtable.append(encoded.mem_key(&b.key), suffix))
    }

    /// Applies a merge operand to a key's value, now where the value is in memory, else at the next read or merge.
    ///
    /// # Errors
    /// As [`Backend::put`]; `Merge` when the state has no operator or the operator fails now, the state unchanged.
    pub fn merge(&mut self, state: RawState, key: KeyParts<'_>, operand: &[u8]) -> Result<()> {
        self.check_value(operand)?;
        let encoded = self.begin_write(state, key)?;
        let operator = self.resolver.operators.get(state.id).cloned();
        let now_ms = self.shared.now_ms();
        self.write(|b| {
            let (tree, bytes) = (&b.tree, b.key.as_slice());
            let key = encoded.mem_key(bytes);
            b.memtable.merge(key, operand, operator.as_deref(), now_ms, || below(tree, bytes, encoded))
        })
        .map(drop)
    }

    /// Deletes a key. Deleting an absent one is no error.
    ///
    /// # Errors
    /// As [`Backend::put`].
    #[inline]
    pub fn delete(&mut self, state: RawState, key: KeyParts<'_>) -> Result<()> {
        let encoded = self.begin_write(state, key)?;
        self.write(|b| {
            let (tree, bytes) = (&b.tree, b.key.as_slice());
            b.memtable.delete(encoded.mem_key(bytes), || below(tree, bytes, encoded))
        })
    }

    /// Deletes every user key under (group, key, namespace) of a grouped state, in time that doesn't grow with
    /// their number.
    ///
    /// # Errors
    /// As [`Backend::put`]; `InvalidArgument` for a state of single values.
    pub fn delete_prefix(&mut self, state: RawState, prefix: Prefix<'_>) -> Result<()> {
        let encoded = self.begin_write(state, prefix.parts(&[]))?;
        if encoded.layout == Layout::Single {
            return Err(Error::invalid("prefix delete on a state of single values"));
        }
        self.write(|b| {
            let (tree, bytes) = (&b.tree, b.key.as_slice());
            b.memtable.delete_prefix(bytes, || below(tree, bytes, encoded))
        })
    }

    /// Memory was full: evicts what is clean, so that the write can be made after all. What isn't clean has to be
    /// flushed first, which is backpressure.
    #[cold]
    fn make_room(&mut self, error: &Error) -> Result<()> {
        self.maintain()?;
        if self.memtable.evict_step(ROOM_BYTES) > 0 {
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
