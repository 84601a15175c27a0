//! How far a source has been read: what a checkpoint stores so that a resume goes on at exactly the next record.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// A point between two records of the input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Bytes consumed (of a file), or events generated (by the demo).
    pub offset: u64,
    /// Line feeds consumed, so that errors name the right line after a resume.
    pub line: u64,
    /// XXH3-64 of the bytes before `offset`.
    pub hash: ContentHash,
    /// Well-formed records so far, late ones included.
    pub records: u64,
    /// Malformed rows so far; one of several lines counts for each.
    pub skipped: u64,
    /// The watermark after the last record; `i64::MIN` before the first, `i64::MAX` once the input has ended.
    pub watermark: i64,
    /// Whether the input has ended: a resume reads no further.
    pub finished: bool,
}

impl Position {
    /// Before the first byte.
    pub fn start() -> Self {
        Self {
            offset: 0,
            line: 0,
            hash: ContentHash::of_nothing(),
            records: 0,
            skipped: 0,
            watermark: i64::MIN,
            finished: false,
        }
    }
}

/// XXH3-64 of some content. Written in hex, as JSON numbers of 64 bits don't survive every reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(pub u64);

impl ContentHash {
    /// The hash of no bytes.
    pub fn of_nothing() -> Self {
        Self(Xxh3::new().digest())
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        u64::from_str_radix(&text, 16).map(Self).map_err(|_| format!("`{text}` is not a content hash of 16 hex digits"))
    }
}
