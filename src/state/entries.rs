//! Walking over the entries of a map.

use std::marker::PhantomData;

use super::codec::Codec;
use crate::Result;
use crate::engine::{Backend, Cursor, Scan};

/// Entries, keys or values of a map, decoded one by one. Ends after an error, which it yields once.
pub struct Entries<'b, T> {
    scan: Option<Scan<'b>>,
    decode: fn(&[u8], &[u8]) -> Result<T>,
}

impl<'b, T> Entries<'b, T> {
    pub(super) fn new(scan: Scan<'b>, decode: fn(&[u8], &[u8]) -> Result<T>) -> Self {
        Self { scan: Some(scan), decode }
    }
}

impl<T> std::fmt::Debug for Entries<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("ended", &self.scan.is_none()).finish_non_exhaustive()
    }
}

impl<T> Iterator for Entries<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let item = match self.scan.as_mut()?.next() {
            Ok(Some((user_key, value))) => Some((self.decode)(user_key, value)),
            Ok(None) => None,
            Err(e) => Some(Err(e)),
        };
        if !matches!(item, Some(Ok(_))) {
            self.scan = None;
        }
        item
    }
}

impl<T> std::iter::FusedIterator for Entries<'_, T> {}

/// Walks over the entries of a map as they were when it was opened, whatever is written meanwhile.
pub struct EntryCursor<UK, UV> {
    cursor: Cursor,
    user_key: Vec<u8>,
    value: Vec<u8>,
    types: PhantomData<fn() -> (UK, UV)>,
}

impl<UK: Codec, UV: Codec> EntryCursor<UK, UV> {
    pub(super) fn new(cursor: Cursor) -> Self {
        Self { cursor, user_key: Vec::new(), value: Vec::new(), types: PhantomData }
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// Those of reading, which stick, and of decoding.
    pub fn next(&mut self, backend: &mut Backend) -> Result<Option<(UK, UV)>> {
        if !self.cursor.next(backend, &mut self.user_key, &mut self.value)? {
            return Ok(None);
        }
        Ok(Some((UK::decode(&self.user_key)?, UV::decode(&self.value)?)))
    }

    /// Lets go of what the cursor kept.
    pub fn close(self, backend: &mut Backend) {
        self.cursor.close(backend);
    }
}

impl<UK, UV> std::fmt::Debug for EntryCursor<UK, UV> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryCursor").finish_non_exhaustive()
    }
}
