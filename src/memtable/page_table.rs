//! How a location leads to bytes: the table of pages by id.
//!
//! Every probe goes through here, so an entry holds the address of its page's bytes, one step from the location; the way
//! through the container that owns the page would be four, each waiting for the one before.

#![expect(unsafe_code, reason = "`cargo bench --bench w1` shows what for")]

use crate::cache::budget::Reservation;
use crate::io::memory::View;

use super::location::{Location, MAX_PAGE_BYTES, MAX_PAGES};
use super::page::Page;

const NONE: u32 = u32::MAX;

/// Where a page is.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageEntry {
    view: View,
    /// Who owns the page.
    pub(super) container: u32,
    /// Its place there.
    pub(super) index: u32,
    /// Never the same for two lives of one id.
    pub(super) birth: u32,
}

impl PageEntry {
    const FREE: Self = Self { view: View::EMPTY, container: NONE, index: 0, birth: 0 };
}

/// Records start at multiples of this.
const RECORD_ALIGNMENT: usize = 8;

/// Which records of a page nothing leads to any more: a bit for each place where one may start.
#[derive(Debug)]
struct Marks {
    words: Box<[u64]>,
    _reservation: Reservation,
}

impl Marks {
    #[cold]
    fn new(page_bytes: usize, reserve: impl FnOnce(u64) -> Reservation) -> Self {
        // A larger page holds one record.
        let words = page_bytes.min(MAX_PAGE_BYTES).div_ceil(RECORD_ALIGNMENT * 64);
        Self { words: vec![0; words].into(), _reservation: reserve((words * 8) as u64) }
    }
}

/// The pages of one log. The log owns the pages, and keeps to this: a page in the table exists, in one of the log's
/// containers, until it has been forgotten; and the bytes of a page that a reader on another thread may hold are written
/// by nobody.
#[derive(Debug, Default)]
pub(super) struct PageTable {
    entries: Vec<PageEntry>,
    /// Beside the entries, which stay small.
    marks: Vec<Option<Marks>>,
    free: Vec<u32>,
    next_birth: u32,
}

impl PageTable {
    /// Gives a page an id; `None` when all are in use.
    #[expect(clippy::cast_possible_truncation, reason = "ids are below 2^19")]
    pub(super) fn register(&mut self, page: &mut Page, container: u32, index: u32) -> Option<()> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.entries.len() < MAX_PAGES => {
                self.entries.push(PageEntry::FREE);
                self.marks.push(None);
                self.entries.len() as u32 - 1
            }
            None => return None,
        };
        self.next_birth = self.next_birth.wrapping_add(1);
        page.id = id;
        self.entries[id as usize] = PageEntry { view: page.view(), container, index, birth: self.next_birth };
        Some(())
    }

    /// Forgets a page: nothing leads to it any more, and it may go.
    pub(super) fn forget(&mut self, id: u32) {
        self.entries[id as usize] = PageEntry::FREE;
        self.marks[id as usize] = None;
        self.free.push(id);
    }

    /// Notes that the page has another place in its container.
    pub(super) fn moved(&mut self, id: u32, index: u32) {
        self.entries[id as usize].index = index;
    }

    #[inline]
    pub(super) fn entry(&self, location: Location) -> &PageEntry {
        &self.entries[location.page()]
    }

    /// True while the page at `location` is the one that was born as `birth`.
    pub(super) fn is_born(&self, location: Location, leads_to: impl FnOnce(u32) -> bool) -> bool {
        let entry = self.entry(location);
        entry.container != NONE && leads_to(entry.birth)
    }

    /// Notes that nothing in the index leads to the record at `location` any more.
    #[inline]
    pub(super) fn mark_gone(&mut self, location: Location, reserve: impl FnOnce(u64) -> Reservation) {
        let bit = location.offset() / RECORD_ALIGNMENT;
        let page_bytes = self.entry(location).view.length();
        let marks = self.marks[location.page()].get_or_insert_with(|| Marks::new(page_bytes, reserve));
        marks.words[bit / 64] |= 1 << (bit % 64);
    }

    /// True when it is known that nothing in the index leads to the record at `location`.
    #[inline]
    pub(super) fn is_gone(&self, location: Location) -> bool {
        let bit = location.offset() / RECORD_ALIGNMENT;
        self.marks[location.page()].as_ref().is_some_and(|marks| marks.words[bit / 64] >> (bit % 64) & 1 == 1)
    }

    /// The bytes of the page in which `location` lies; none when the page has been forgotten.
    #[inline]
    pub(super) fn bytes(&self, location: Location) -> &[u8] {
        // SAFETY: a page in the table exists (see the type), and its bytes are only written through `bytes_mut` or the
        // page itself, for both of which the log that owns table and pages has to be borrowed mutably.
        unsafe { self.entry(location).view.bytes() }
    }

    /// The same, to be written: the page must be one that only this log's owner knows.
    #[inline]
    pub(super) fn bytes_mut(&mut self, location: Location) -> &mut [u8] {
        // SAFETY: as for `bytes`; the log asks this for pages of the open epoch only, which nobody else has seen, and is
        // borrowed mutably itself.
        unsafe { self.entry(location).view.bytes_mut() }
    }
}
