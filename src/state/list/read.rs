//! Reading a list chunk by chunk.

use std::marker::PhantomData;

use super::chunk::{ElementReader, split};
use crate::Result;
use crate::engine::{Backend, Cursor, Scan};
use crate::state::access::Handle;
use crate::state::codec::Codec;
use crate::state::scratch::Scratch;

/// Which chunks have expired. A chunk's own time of writing decides: its record may live longer, because
/// it was put again when elements were added or moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkExpiry {
    /// Chunks written at or before this have expired; `None` without a time to live.
    expired_up_to_ms: Option<i64>,
}

impl ChunkExpiry {
    pub(super) fn now(handle: Handle, backend: &Backend) -> Self {
        // Only a time to live needs to know the time.
        Self::at(handle, handle.ttl_ms.map_or(0, |_| backend.now_ms()))
    }

    pub(super) fn at(handle: Handle, now_ms: i64) -> Self {
        let expired_up_to_ms = handle.ttl_ms.map(|ttl| now_ms.saturating_sub_unsigned(ttl));
        Self { expired_up_to_ms }
    }

    /// The elements of a chunk, none when it has expired.
    pub(super) fn open(self, value: &[u8]) -> Result<ElementReader<'_>> {
        let (written_ms, elements) = split(value, self.expired_up_to_ms.is_some())?;
        let expired = matches!((written_ms, self.expired_up_to_ms), (Some(at), Some(limit)) if at <= limit);
        Ok(ElementReader::new(if expired { &[] } else { elements }))
    }
}

/// A chunk's elements and how far they have been read.
struct Chunk {
    elements: Scratch,
    position: usize,
}

impl Chunk {
    fn empty() -> Self {
        Self { elements: Scratch::take(), position: 0 }
    }

    fn fill(&mut self, expiry: ChunkExpiry, value: &[u8]) -> Result<()> {
        self.position = 0;
        self.elements.clear();
        self.elements.extend_from_slice(expiry.open(value)?.rest());
        Ok(())
    }

    fn next<T: Codec>(&mut self) -> Result<Option<T>> {
        let mut reader = ElementReader::new(&self.elements[self.position..]);
        let Some(element) = reader.next()? else { return Ok(None) };
        let element = T::decode(element)?;
        self.position += reader.position();
        Ok(Some(element))
    }
}

/// Elements of a list, oldest first, decoded one by one. Ends after an error, which it yields once.
pub struct Elements<'b, T> {
    scan: Option<Scan<'b>>,
    chunk: Chunk,
    expiry: ChunkExpiry,
    element: PhantomData<fn() -> T>,
}

impl<'b, T: Codec> Elements<'b, T> {
    pub(super) fn new(scan: Scan<'b>, expiry: ChunkExpiry) -> Self {
        Self { scan: Some(scan), chunk: Chunk::empty(), expiry, element: PhantomData }
    }

    fn step(&mut self) -> Result<Option<T>> {
        loop {
            if let Some(element) = self.chunk.next()? {
                return Ok(Some(element));
            }
            let Some(scan) = &mut self.scan else { return Ok(None) };
            let Some((_, value)) = scan.next()? else { return Ok(None) };
            self.chunk.fill(self.expiry, value)?;
        }
    }
}

impl<T: Codec> Iterator for Elements<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.scan.as_ref()?;
        let item = self.step().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.scan = None;
        }
        item
    }
}

impl<T: Codec> std::iter::FusedIterator for Elements<'_, T> {}

impl<T> std::fmt::Debug for Elements<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elements").field("ended", &self.scan.is_none()).finish_non_exhaustive()
    }
}

/// Walks over the elements of a list as they were when it was opened, whatever is written meanwhile.
pub struct ElementCursor<T> {
    cursor: Cursor,
    chunk: Chunk,
    expiry: ChunkExpiry,
    user_key: Vec<u8>,
    value: Vec<u8>,
    element: PhantomData<fn() -> T>,
}

impl<T: Codec> ElementCursor<T> {
    pub(super) fn new(cursor: Cursor, expiry: ChunkExpiry) -> Self {
        let (user_key, value) = (Vec::new(), Vec::new());
        Self { cursor, chunk: Chunk::empty(), expiry, user_key, value, element: PhantomData }
    }

    /// The next element; `None` at the end.
    ///
    /// # Errors
    /// Those of reading, which stick, and of decoding.
    pub fn next(&mut self, backend: &mut Backend) -> Result<Option<T>> {
        loop {
            if let Some(element) = self.chunk.next()? {
                return Ok(Some(element));
            }
            if !self.cursor.next(backend, &mut self.user_key, &mut self.value)? {
                return Ok(None);
            }
            self.chunk.fill(self.expiry, &self.value)?;
        }
    }

    /// Lets go of what the cursor kept.
    pub fn close(self, backend: &mut Backend) {
        self.cursor.close(backend);
    }
}

impl<T> std::fmt::Debug for ElementCursor<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElementCursor").finish_non_exhaustive()
    }
}
