//! Appending to a list.

use super::chunk::{CHUNK_BYTES, chunk_key, counter_of, put_element, split};
use super::read::ChunkExpiry;
use crate::Result;
use crate::engine::{Backend, Cursor};
use crate::state::access::{Handle, Located};
use crate::state::scratch::Scratch;

/// The newest chunk of a list, to which elements are added.
///
/// Where elements have no time to live the chunk itself stays in the backend, and what is added goes behind it in
/// place: an element costs what it is long. Where they have one, chunks are small; they are held and put whole.
pub(super) struct Appender {
    handle: Handle,
    at: Located,
    sequence: u64,
    /// Number of the chunk.
    counter: u32,
    /// Bytes of the chunk that the backend has and `held` doesn't.
    stored: usize,
    /// What goes behind those.
    held: Scratch,
    /// When the elements of the chunk were written; `None` without a time to live.
    written_ms: Option<i64>,
    /// True when `held` has what hasn't been put yet.
    dirty: bool,
}

impl Appender {
    /// Picks up the newest chunk if it was begun in the current sequence, else stands before a new one.
    pub(super) fn open(handle: Handle, backend: &mut Backend, at: Located) -> Result<Self> {
        let sequence = backend.current_sequence();
        let mut appender =
            Self { handle, at, sequence, counter: 0, stored: 0, held: Scratch::take(), written_ms: None, dirty: false };
        if let Some((user_key, chunk)) = handle.newest_in_memory(backend, &appender.at, &chunk_key(sequence, 0))? {
            appender.counter = counter_of(user_key)?;
            if handle.ttl_ms.is_some() {
                appender.written_ms = split(chunk, true)?.0;
                appender.held.extend_from_slice(chunk);
            } else {
                appender.stored = chunk.len();
            }
        }
        Ok(appender)
    }

    /// Adds an element written at `written_ms` (`None` without a time to live).
    pub(super) fn push(&mut self, backend: &mut Backend, element: &[u8], written_ms: Option<i64>) -> Result<()> {
        let len = self.stored + self.held.len();
        let full = len + element.len() > CHUNK_BYTES || self.written_ms != written_ms;
        if full && len > 0 {
            self.put(backend)?;
            self.held.clear();
            self.stored = 0;
            self.counter += 1;
        }
        if self.held.is_empty()
            && let Some(written_ms) = written_ms
        {
            self.held.extend_from_slice(&written_ms.to_le_bytes());
        }
        self.written_ms = written_ms;
        put_element(&mut self.held, element);
        self.dirty = true;
        Ok(())
    }

    /// Puts what is held.
    pub(super) fn finish(mut self, backend: &mut Backend) -> Result<()> {
        self.put(backend)
    }

    fn put(&mut self, backend: &mut Backend) -> Result<()> {
        if !self.dirty {
            return Ok(());
        }
        self.at.set_user_key(&chunk_key(self.sequence, self.counter));
        if self.stored == 0 || self.handle.append_bytes(backend, &self.at, &self.held)?.is_none() {
            if self.stored > 0 {
                // Making room for the write has cost memory the chunk, flushed meanwhile: another one follows it.
                self.counter += 1;
                self.at.set_user_key(&chunk_key(self.sequence, self.counter));
            }
            self.handle.put_bytes(backend, &self.at, &self.held)?;
        }
        self.dirty = false;
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
