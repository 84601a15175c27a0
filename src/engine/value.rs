//! A value that was read.

use std::ops::Deref;

use bytes::Bytes;

/// The bytes of a value: borrowed from memory, or a slice of a cached block. Nothing was copied.
#[derive(Debug, Clone)]
pub struct Value<'a>(Source<'a>);

#[derive(Debug, Clone)]
enum Source<'a> {
    Memory(&'a [u8]),
    Block(Bytes),
}

impl<'a> Value<'a> {
    #[inline]
    pub(super) fn memory(bytes: &'a [u8]) -> Self {
        Self(Source::Memory(bytes))
    }

    pub(super) fn block(bytes: Bytes) -> Self {
        Self(Source::Block(bytes))
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::Memory(bytes) => bytes,
            Source::Block(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Value<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}
