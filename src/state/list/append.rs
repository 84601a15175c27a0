//! Appending to a list.

use super::chunk::{CHUNK_BYTES, chunk_key, counter_of, put_element, split};
use super::read::ChunkExpiry;
use crate::Result;
use crate::engine::{Backend, Cursor};
use crate::state::access::{Handle, Located};
use crate::state::scratch::Scratch;

/// The newest chunk of a list, held while elements are added to it.
pub(super) struct Appender {
    handle: Handle,
    at: Located,
    sequence: u64,
    /// Number of the chunk held.
    counter: u32,
    chunk: Scratch,
    /// When the elements of the chunk held were written; `None` without a time to live.
    written_ms: Option<i64>,
    /// True when the chunk holds what hasn't been put yet.
    dirty: bool,
}

impl Appender {
    /// Picks up the newest chunk if it was begun in the current sequence, else stands before a new one.
    pub(super) fn open(handle: Handle, backend: &mut Backend, at: Located) -> Result<Self> {
        let sequence = backend.current_sequence();
        let mut chunk = Scratch::take();
        let (mut counter, mut written_ms) = (0, None);
        if let Some(user_key) = handle.newest_entry(backend, &at, &chunk_key(sequence, 0), &mut chunk)? {
            counter = counter_of(&user_key)?;
            written_ms = split(&chunk, handle.ttl_ms.is_some())?.0;
        }
        Ok(Self { handle, at, sequence, counter, chunk, written_ms, dirty: false })
    }

    /// Adds an element written at `written_ms` (`None` without a time to live).
    pub(super) fn push(&mut self, backend: &mut Backend, element: &[u8], written_ms: Option<i64>) -> Result<()> {
        let full = self.chunk.len() + element.len() > CHUNK_BYTES;
        if full && !self.chunk.is_empty() {
            self.put(backend)?;
            self.chunk.clear();
            self.counter += 1;
        }
        if self.chunk.is_empty()
            && let Some(written_ms) = written_ms
        {
            self.chunk.extend_from_slice(&written_ms.to_le_bytes());
        }
        self.written_ms = written_ms;
        put_element(&mut self.chunk, element);
        self.dirty = true;
        Ok(())
    }

    /// Puts what is held.
    pub(super) fn finish(mut self, backend: &mut Backend) -> Result<()> {
        self.put(backend)
    }

    fn put(&mut self, backend: &mut Backend) -> Result<()> {
        if self.dirty {
            self.at.set_user_key(&chunk_key(self.sequence, self.counter));
            self.handle.put_bytes(backend, &self.at, &self.chunk)?;
            self.dirty = false;
        }
        Ok(())
    }
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
