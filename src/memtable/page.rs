//! Pages: fixed pieces of memory that records are appended to, and the pool they come from.

use crate::cache::budget::{Budget, Part, Purpose, Reservation};
use crate::io::memory::{Memory as Piece, PIECE_BYTES, Slabs, View};
use crate::{Error, ErrorKind, Result};

use super::layout::Header;

/// A page of records. Its memory is reserved from the budget for as long as it exists.
#[derive(Debug)]
pub(super) struct Page {
    bytes: Piece,
    /// Bytes written so far.
    pub(super) used: usize,
    /// Records that aren't dead.
    pub(super) live: usize,
    /// Its id in the page table while it has one.
    pub(super) id: u32,
    reservation: Reservation,
}

impl Page {
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Where its bytes are, which never move.
    pub(super) fn view(&self) -> View {
        self.bytes.view()
    }

    /// Moves the page out and leaves one without memory.
    pub(super) fn take(&mut self) -> Self {
        let rest = self.reservation.split_all();
        Self { bytes: std::mem::take(&mut self.bytes), reservation: rest, ..*self }
    }

    /// Offsets and headers of all its records, dead ones too, oldest first.
    pub(super) fn headers(&self) -> impl Iterator<Item = (usize, Header)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= self.used {
                return None;
            }
            let (start, header) = (at, Header::read(&self.bytes, at));
            at += header.size();
            Some((start, header))
        })
    }
}

/// Whether a page may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// It may.
    Asked,
    /// It may not: the copy must be made so that pages can be given back.
    Forced,
}

impl Memory {
    pub(super) fn of(must: bool) -> Self {
        if must { Self::Forced } else { Self::Asked }
    }
}

/// Pages that a memtable gets whatever others hold: one that is filled, one that is flushed, one for what is kept of it,
/// and one over. With these it goes on for ever, since what is flushed can be evicted, by itself.
const FLOOR_PAGES: usize = 4;

/// Free pages of the usual size, kept so that a steady state asks the system for nothing.
#[derive(Debug)]
pub(super) struct PagePool {
    budget: Part,
    /// For what isn't pages: it doesn't count against the floor.
    beside: Budget,
    slabs: Slabs,
    page_bytes: usize,
    free: Vec<Page>,
    keep: usize,
    /// Pages that are asked for have been promised: none is refused.
    promised: bool,
}

impl PagePool {
    pub(super) fn new(budget: &Budget, slabs: Slabs, page_bytes: usize, keep: usize) -> Self {
        let (beside, budget) = (budget.clone(), budget.part((FLOOR_PAGES * page_bytes) as u64));
        Self { budget, beside, slabs, page_bytes, free: Vec::new(), keep, promised: false }
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(super) fn free_bytes(&self) -> u64 {
        (self.free.len() * self.page_bytes) as u64
    }

    /// An empty page for at least `bytes`: of the usual size, or as large as it has to be.
    pub(super) fn take(&mut self, bytes: usize, memory: Memory) -> Result<Page> {
        if bytes <= self.page_bytes
            && let Some(page) = self.free.pop()
        {
            return Ok(page);
        }
        let size = bytes.max(self.page_bytes);
        let reservation = match memory {
            Memory::Asked if !self.promised => {
                self.budget.try_reserve(Purpose::Memtable, size as u64).map_err(|e| {
                    let what = format!("memtable: no memory for a page of {size} bytes");
                    Error::with_source(ErrorKind::Backpressure, what, e)
                })?
            }
            _ => self.budget.force(Purpose::Memtable, size as u64),
        };
        let bytes = if size == PIECE_BYTES { self.slabs.piece() } else { Piece::zeroed(size) };
        Ok(Page { bytes, used: 0, live: 0, id: 0, reservation })
    }

    /// Memory for what is kept of the pages beside them.
    pub(super) fn reserve_beside(&self, bytes: u64) -> Reservation {
        self.beside.force(Purpose::Index, bytes)
    }

    /// Promises pages for `bytes` of records, until [`PagePool::end_promise`].
    ///
    /// # Errors
    /// [`ErrorKind::Backpressure`] when there is no memory for so many; nothing is promised then.
    pub(super) fn promise(&mut self, bytes: u64) -> Result<()> {
        // The last page may end up nearly empty.
        let needed = bytes.saturating_add(self.page_bytes as u64);
        let there = self.free_bytes() + self.budget.available();
        if there < needed && !self.budget.admits(needed) {
            let what = format!("memtable: no memory for records of {bytes} bytes, {there} are free");
            return Err(Error::new(ErrorKind::Backpressure, what));
        }
        self.promised = true;
        Ok(())
    }

    pub(super) fn end_promise(&mut self) {
        self.promised = false;
    }

    /// Takes back a page that nobody reads any more.
    pub(super) fn put(&mut self, mut page: Page) {
        if page.bytes.len() == self.page_bytes && self.free.len() < self.keep {
            page.used = 0;
            page.live = 0;
            self.free.push(page);
        }
    }

    /// Gives free pages back to the budget.
    pub(super) fn clear(&mut self) {
        self.free.clear();
    }
}
