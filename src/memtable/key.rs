//! How the memtable is told a key.

use crate::base::checksum;
use crate::base::descriptor::Layout;
use crate::base::limits::{MAX_COMPOSED_KEY_BYTES, MAX_ENCODED_KEY_BYTES, MAX_VALUE_BYTES};
use crate::{Error, Result};

/// An encoded key ([`crate::base::key`]) and how its state's entries lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemKey<'a> {
    bytes: &'a [u8],
    prefix_len: usize,
    layout: Layout,
}

impl<'a> MemKey<'a> {
    /// A key of a state with [`Layout::Single`].
    #[inline]
    #[must_use]
    pub fn single(bytes: &'a [u8]) -> Self {
        Self { bytes, prefix_len: bytes.len(), layout: Layout::Single }
    }

    /// A key of a state with [`Layout::Grouped`]: the first `prefix_len` bytes are those of
    /// (group, state, key, namespace), the rest is the user key. A `prefix_len` beyond the end means
    /// the whole key.
    #[inline]
    #[must_use]
    pub fn grouped(bytes: &'a [u8], prefix_len: usize) -> Self {
        Self { bytes, prefix_len: prefix_len.min(bytes.len()), layout: Layout::Grouped }
    }

    /// [`MemKey::single`] or [`MemKey::grouped`].
    #[inline]
    #[must_use]
    pub fn new(layout: Layout, bytes: &'a [u8], prefix_len: usize) -> Self {
        match layout {
            Layout::Single => Self::single(bytes),
            Layout::Grouped => Self::grouped(bytes, prefix_len),
        }
    }

    /// The whole encoded key.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The part that names the group.
    #[inline]
    #[must_use]
    pub fn prefix(&self) -> &'a [u8] {
        &self.bytes[..self.prefix_len]
    }

    /// The part within the group.
    #[inline]
    #[must_use]
    pub fn user_key(&self) -> &'a [u8] {
        &self.bytes[self.prefix_len..]
    }

    /// How the state's entries lie.
    #[inline]
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    #[inline]
    pub(super) fn user_key_len(&self) -> Option<usize> {
        (self.layout == Layout::Grouped).then(|| self.bytes.len() - self.prefix_len)
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        checksum::hash64(self.bytes)
    }

    /// Checks what the record layout can hold.
    #[inline]
    pub(super) fn check(&self, value_len: usize) -> Result<()> {
        if self.bytes.len() > MAX_ENCODED_KEY_BYTES
            || self.bytes.len() - self.prefix_len > MAX_COMPOSED_KEY_BYTES
            || value_len > MAX_VALUE_BYTES
        {
            return Err(self.too_long(value_len));
        }
        Ok(())
    }

    #[cold]
    fn too_long(&self, value_len: usize) -> Error {
        Error::invalid(format!(
            "encoded key of {} bytes (limit {MAX_ENCODED_KEY_BYTES}), its user key of {} (limit {MAX_COMPOSED_KEY_BYTES}), \
             value of {value_len} (limit {MAX_VALUE_BYTES})",
            self.bytes.len(),
            self.bytes.len() - self.prefix_len
        ))
    }
}

/// What the caller knows about the tree below the memtable, as of the adopted version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Below {
    /// Nothing.
    #[default]
    Unknown,
    /// It holds no record of the key.
    NothingAtKey,
    /// It holds no record of any key with the key's prefix, nor of the prefix.
    NothingAtPrefix,
}

impl Below {
    /// For callers that don't know: `memtable.put(key, value, NEVER, Below::unknown)`.
    #[inline]
    #[must_use]
    pub fn unknown() -> Self {
        Self::Unknown
    }
}
