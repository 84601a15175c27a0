//! Records: what memtable, segments and merging readers pass to one another.

use std::cmp::Ordering;

use super::ids::Sequence;

/// What a record says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The value is the bytes given.
    Put = 1,
    /// The key is absent; hides everything older.
    Delete = 2,
    /// Operands to be applied, in order, to what is older (or to the base value inside); the bytes are
    /// an [`super::operands`] list.
    Merge = 3,
    /// Every key that starts with this one is absent where its record is older than this one.
    PrefixDelete = 4,
}

impl Kind {
    /// The kind with `tag`; `None` for an unknown one (tag 5 is reserved for range tombstones).
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Put),
            2 => Some(Self::Delete),
            3 => Some(Self::Merge),
            4 => Some(Self::PrefixDelete),
            _ => None,
        }
    }
}

/// When a value stops being visible: wall milliseconds; [`NEVER`] for no expiry.
pub type ExpiryMs = i64;

/// No expiry.
pub const NEVER: ExpiryMs = i64::MAX;

/// A record, its bytes borrowed from a page or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Encoded key ([`super::key`]); for a [`Kind::PrefixDelete`] the prefix.
    pub key: &'a [u8],
    /// Generation in which it was written.
    pub sequence: Sequence,
    /// What it says.
    pub kind: Kind,
    /// Only a [`Kind::Put`] may expire.
    pub expiry: ExpiryMs,
    /// Value of a put, operands of a merge, empty otherwise.
    pub value: &'a [u8],
}

impl Record<'_> {
    /// Order of records in a segment or any other sorted source: by key; at one key a prefix delete
    /// stands first, then newest first.
    #[must_use]
    pub fn order(&self, other: &Record<'_>) -> Ordering {
        self.key
            .cmp(other.key)
            .then_with(|| (self.kind != Kind::PrefixDelete).cmp(&(other.kind != Kind::PrefixDelete)))
            .then_with(|| other.sequence.cmp(&self.sequence))
    }

    /// True when the value had expired at `now_ms`. A value expires at its expiry, not after it.
    #[must_use]
    pub fn expired(&self, now_ms: i64) -> bool {
        self.expiry <= now_ms
    }
}

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// See [`Record::key`].
    pub key: Vec<u8>,
    /// See [`Record::sequence`].
    pub sequence: Sequence,
    /// See [`Record::kind`].
    pub kind: Kind,
    /// See [`Record::expiry`].
    pub expiry: ExpiryMs,
    /// See [`Record::value`].
    pub value: Vec<u8>,
}

impl OwnedRecord {
    /// The record, borrowed.
    #[must_use]
    pub fn as_record(&self) -> Record<'_> {
        Record { key: &self.key, sequence: self.sequence, kind: self.kind, expiry: self.expiry, value: &self.value }
    }
}

impl From<Record<'_>> for OwnedRecord {
    fn from(r: Record<'_>) -> Self {
        Self { key: r.key.to_vec(), sequence: r.sequence, kind: r.kind, expiry: r.expiry, value: r.value.to_vec() }
    }
}
