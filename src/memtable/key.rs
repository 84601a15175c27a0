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
    /// Of the whole key, of the prefix where the layout is grouped.
    hash: u64,
    number: u64,
}

impl<'a> MemKey<'a> {
    /// A key of a state with [`Layout::Single`].
    #[inline]
    #[must_use]
    pub fn single(bytes: &'a [u8]) -> Self {
        Self { bytes, prefix_len: bytes.len(), layout: Layout::Single, hash: checksum::hash64(bytes), number: 0 }
    }

    /// A key of a state with [`Layout::Grouped`]: the first `prefix_len` bytes are those of
    /// (group, state, key, namespace), the rest is the user key. A `prefix_len` beyond the end means
    /// the whole key.
    #[inline]
    #[must_use]
    pub fn grouped(bytes: &'a [u8], prefix_len: usize) -> Self {
        let prefix_len = prefix_len.min(bytes.len());
        let hash = checksum::hash64(&bytes[..prefix_len]);
        Self { bytes, prefix_len, layout: Layout::Grouped, hash, number: 0 }
    }

    /// The hash that [`MemKey::numbered`] wants of a key.
    #[inline]
    #[must_use]
    pub fn hash_of(layout: Layout, bytes: &[u8], prefix_len: usize) -> u64 {
        match layout {
            Layout::Single => checksum::hash64(bytes),
            Layout::Grouped => checksum::hash64(&bytes[..prefix_len]),
        }
    }

    /// A key whose hash is known already, under a number that the caller never gives to another key: what the memtable
    /// found at one call is then at hand for the next. A `prefix_len` beyond the end means the whole key.
    #[inline]
    #[must_use]
    pub fn numbered(layout: Layout, bytes: &'a [u8], prefix_len: usize, hash: u64, number: u64) -> Self {
        Self { bytes, prefix_len: prefix_len.min(bytes.len()), layout, hash, number }
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
        self.hash
    }

    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number
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
