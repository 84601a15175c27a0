//! Appending to a list.

use super::chunk::{CHUNK_BYTES, ElementReader, TIME_BYTES, chunk_key, counter_of, put_element, split};
use super::read::ChunkExpiry;
use crate::Result;
use crate::engine::{Backend, Cursor};
use crate::state::access::{Handle, Located};
use crate::state::scratch::Scratch;

/// The end of a list: its newest chunk, and what is to be added to that.
pub(super) struct Appender {
    handle: Handle,
    at: Located,
    sequence: u64,
    /// Number of the chunk.
    counter: u32,
    /// Bytes of the chunk that are stored.
    stored: usize,
    /// Bytes that are to follow them.
    added: Scratch,
    /// When the elements of the chunk were written; `None` without a time to live.
    written_ms: Option<i64>,
}

impl Appender {
    /// Stands at the end of the newest chunk if it was begun in the current sequence, else before a new one.
    pub(super) fn open(handle: Handle, backend: &mut Backend, at: Located) -> Result<Self> {
        let sequence = backend.current_sequence();
        let timed = handle.ttl_ms.is_some();
        let newest = handle.newest_entry(backend, &at, &chunk_key(sequence, 0), |user_key, chunk| {
            Ok::<_, crate::Error>((counter_of(user_key)?, chunk.len(), split(chunk, timed)?.0))
        })?;
        let (counter, stored, written_ms) = newest.transpose()?.unwrap_or_default();
        Ok(Self { handle, at, sequence, counter, stored, added: Scratch::take(), written_ms })
    }

    /// Adds an element written at `written_ms` (`None` without a time to live).
    pub(super) fn push(&mut self, backend: &mut Backend, element: &[u8], written_ms: Option<i64>) -> Result<()> {
        let bytes = self.stored + self.added.len();
        if bytes > 0 && (bytes + element.len() > CHUNK_BYTES || self.written_ms != written_ms) {
            self.finish(backend)?;
            self.stored = 0;
            self.counter += 1;
        }
        if self.stored + self.added.len() == 0
            && let Some(written_ms) = written_ms
        {
            self.added.extend_from_slice(&written_ms.to_le_bytes());
        }
        self.written_ms = written_ms;
        put_element(&mut self.added, element);
        Ok(())
    }

    /// Stores what was added.
    pub(super) fn finish(&mut self, backend: &mut Backend) -> Result<()> {
        if self.added.is_empty() {
            return Ok(());
        }
        self.at.set_user_key(&chunk_key(self.sequence, self.counter));
        if self.stored == 0 {
            self.handle.put_bytes(backend, &self.at, &self.added)?;
        } else if !self.handle.append_bytes(backend, &self.at, &self.added)? {
            let mut whole = Scratch::take();
            self.handle.get_bytes(backend, &self.at, &mut whole)?;
            whole.extend_from_slice(&self.added);
            self.handle.put_bytes(backend, &self.at, &whole)?;
        }
        self.stored += self.added.len();
        self.added.clear();
        Ok(())
    }
}

/// Records that appending elements of `bytes` to the list at `at` writes, and their bytes, at most.
pub(super) fn most_written(at: &Located, bytes: usize) -> (usize, usize) {
    // Two chunks that follow one another are more than one chunk's bytes together. What is in the newest chunk may be
    // written once more, with as much room behind it.
    let chunks = 2 + 2 * bytes / CHUNK_BYTES;
    (chunks, bytes + chunks * (at.most_bytes() + TIME_BYTES) + 2 * CHUNK_BYTES)
}

/// Appends elements that stand one behind the other, as in a chunk, to the list at `at`.
pub(super) fn append_all(handle: Handle, backend: &mut Backend, at: Located, elements: &[u8]) -> Result<()> {
    let written_ms = handle.ttl_ms.map(|_| backend.now_ms());
    let mut appender = Appender::open(handle, backend, at)?;
    let mut elements = ElementReader::new(elements);
    while let Some(element) = elements.next()? {
        appender.push(backend, element, written_ms)?;
    }
    appender.finish(backend)
}

/// Appends all elements under `cursor` to the list at `to`.
pub(super) fn move_elements(
    handle: Handle,
    backend: &mut Backend,
    mut cursor: Cursor,
    expiry: ChunkExpiry,
    to: Located,
) -> Result<()> {
    let step = || {
        let mut appender = Appender::open(handle, backend, to)?;
        let (mut user_key, mut value) = (Vec::new(), Vec::new());
        while cursor.next(backend, &mut user_key, &mut value)? {
            let (written_ms, _) = split(&value, handle.ttl_ms.is_some())?;
            let mut elements = expiry.open(&value)?;
            while let Some(element) = elements.next()? {
                appender.push(backend, element, written_ms)?;
            }
        }
        appender.finish(backend)
    };
    let moved = step();
    cursor.close(backend);
    moved
}
