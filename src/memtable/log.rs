//! The log: pages, who holds them, and how a location leads to bytes.
//!
//! A page id leads to (container, index); a container is the open epoch, a sealed one, or one page of
//! the cache log (clean copies that are never flushed). Sealing changes one container, whatever the
//! number of pages.

use std::sync::Arc;

use crate::base::ids::Sequence;
use crate::base::record::{Kind, Record};
use crate::base::short;
use crate::{Error, ErrorKind, Result};

use super::layout::{Header, NewRecord};
use super::location::{Link, Location, MAX_PAGES};
use super::page::{Memory, Page, PagePool};
use super::page_table::PageTable;
use super::sealed::SealedEpoch;

/// A tick is so many bytes of a page written.
const TICK_SHIFT: u32 = 14;

/// Pages of the open epoch from which on deletes have pages of their own: a backend with little memory needs no further one.
const PAGES_BEFORE_PARTING: usize = 8;

/// Places of the two pages that are filled at a time.
const VALUES: usize = 0;
const DELETES: usize = 1;

/// What holds pages.
#[derive(Debug)]
pub(super) enum Container {
    Open(Vec<Page>),
    Sealed(Arc<SealedEpoch>),
    Cache(Vec<Page>),
    Free,
}

impl Container {
    #[inline]
    pub(super) fn pages(&self) -> &[Page] {
        match self {
            Self::Open(pages) | Self::Cache(pages) => pages,
            Self::Sealed(epoch) => &epoch.pages,
            Self::Free => &[],
        }
    }
}

/// What a record took over from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Previous {
    /// No record of its key, or one that no reader needs.
    None,
    /// The record there.
    At(Location),
    /// One that is in the version and no longer in memory.
    Evicted,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Log {
    table: PageTable,
    containers: Vec<Container>,
    free_containers: Vec<u32>,
    open: u32,
    /// Pages of the open epoch that are being filled: that of values, that of deletes.
    filling: [Option<u32>; 2],
    /// Container of the cache page that is being filled.
    cache_filling: Option<u32>,
    pub(super) pool: PagePool,
    open_bytes: u64,
    pages_taken: u64,
    ticks: u64,
    clean_cache_bytes: u64,
    clean_pages: usize,
    /// Records in clean pages, those that nothing leads to included.
    clean_records: u64,
}

#[expect(clippy::cast_possible_truncation, reason = "pages are at most 2^19, containers fewer, offsets below 2^18")]
impl Log {
    pub(super) fn new(pool: PagePool) -> Self {
        Self {
            table: PageTable::default(),
            containers: vec![Container::Open(Vec::new())],
            free_containers: Vec::new(),
            open: 0,
            filling: [None; 2],
            cache_filling: None,
            pool,
            open_bytes: 0,
            pages_taken: 0,
            ticks: 0,
            clean_cache_bytes: 0,
            clean_pages: 0,
            clean_records: 0,
        }
    }

    #[inline]
    pub(super) fn pages_taken(&self) -> u64 {
        self.pages_taken
    }

    #[inline]
    pub(super) fn ticks(&self) -> u64 {
        self.ticks
    }

    #[inline]
    pub(super) fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    pub(super) fn cache_bytes(&self) -> u64 {
        self.clean_cache_bytes
    }

    #[inline]
    pub(super) fn clean_records(&self) -> u64 {
        self.clean_records
    }

    pub(super) fn clean_pages(&self) -> usize {
        self.clean_pages
    }

    /// The epoch in `container` has become clean.
    pub(super) fn note_clean(&mut self, container: u32) {
        let Some(epoch) = self.epoch(container) else { return };
        let (records, pages) = (epoch.record_count(), epoch.pages.len());
        self.clean_records += records;
        self.clean_pages += pages;
    }

    /// The bytes of the page in which `location` lies.
    #[inline]
    pub(super) fn bytes(&self, location: Location) -> &[u8] {
        self.table.bytes(location)
    }

    #[inline]
    pub(super) fn header(&self, location: Location) -> Header {
        Header::read(self.bytes(location), location.offset())
    }

    #[inline]
    pub(super) fn record(&self, location: Location) -> Record<'_> {
        let (bytes, at) = (self.bytes(location), location.offset());
        Header::read(bytes, at).record(bytes, at)
    }

    /// True when the record at `location` has `key`.
    #[inline]
    pub(super) fn key_is(&self, location: Location, key: &[u8]) -> bool {
        short::equal(Header::key_at(self.bytes(location), location.offset()), key)
    }

    #[inline]
    pub(super) fn user_key(&self, location: Location) -> &[u8] {
        let (bytes, at) = (self.bytes(location), location.offset());
        Header::read(bytes, at).user_key(bytes, at)
    }

    pub(super) fn prev(&self, location: Location) -> Option<Link> {
        let (bytes, at) = (self.bytes(location), location.offset());
        Header::read(bytes, at).prev(bytes, at)
    }

    /// The record before the one at `location`.
    pub(super) fn previous(&self, location: Location) -> Previous {
        let Some(link) = self.prev(location) else { return Previous::None };
        let is_there = self.table.is_born(link.location(), |birth| link.leads_to(birth));
        if is_there { Previous::At(link.location()) } else { Previous::Evicted }
    }

    /// The record that links to `older`, on the way down from the one at `newest`.
    pub(super) fn successor(&self, newest: Location, older: Location) -> Option<Location> {
        let mut location = newest;
        while let Previous::At(previous) = self.previous(location) {
            if previous == older {
                return Some(location);
            }
            location = previous;
        }
        None
    }

    pub(super) fn link(&self, location: Location) -> Link {
        Link::new(location, self.table.entry(location).birth)
    }

    /// True when the record at `location` belongs to the open epoch.
    #[inline]
    pub(super) fn is_open(&self, location: Location) -> bool {
        self.table.entry(location).container == self.open
    }

    /// The page bytes and offset of a record of the open epoch; `None` for any other.
    #[inline]
    pub(super) fn open_record(&mut self, location: Location) -> Option<(&mut [u8], usize)> {
        self.is_open(location).then(|| (self.table.bytes_mut(location), location.offset()))
    }

    /// Notes that the index has stopped leading to the record at `location`, so that eviction needn't ask it. A record of the
    /// open epoch is left alone.
    #[inline]
    pub(super) fn mark_gone(&mut self, location: Location) {
        if !self.is_open(location) {
            let pool = &self.pool;
            self.table.mark_gone(location, |bytes| pool.reserve_beside(bytes));
        }
    }

    /// True when it is known that the index doesn't lead to the record at `location`.
    #[inline]
    pub(super) fn is_gone(&self, location: Location) -> bool {
        self.table.is_gone(location)
    }

    /// Appends to the open epoch.
    ///
    /// # Errors
    /// [`ErrorKind::Backpressure`] when there is no memory for another page; nothing changed then.
    #[inline]
    pub(super) fn append(&mut self, new: &NewRecord<'_>) -> Result<Location> {
        let header = new.header();
        let stream = self.stream_of(new.kind);
        match self.append_to_filling(&header, new, stream) {
            Some(location) => Ok(location),
            None => self.append_to_new_page(&header, new, stream),
        }
    }

    #[inline]
    fn append_to_filling(&mut self, header: &Header, new: &NewRecord<'_>, stream: usize) -> Option<Location> {
        let size = header.size();
        let index = self.filling[stream]?;
        let Container::Open(pages) = &mut self.containers[self.open as usize] else { return None };
        let page = &mut pages[index as usize];
        if page.used + size > self.pool.page_bytes() {
            return None;
        }
        let location = write_into(page, header, new);
        let started_at = location.offset();
        self.ticks += u64::from(started_at >> TICK_SHIFT != (started_at + size) >> TICK_SHIFT);
        Some(location)
    }

    /// Deletes have pages of their own in an epoch that isn't small: they stay until the epoch is flushed, where values
    /// that die in it leave nothing, and one of them would keep a page of the dead in memory.
    #[inline]
    fn stream_of(&self, kind: Kind) -> usize {
        let is_delete = matches!(kind, Kind::Delete | Kind::PrefixDelete);
        if is_delete && self.parts_deletes() { DELETES } else { VALUES }
    }

    /// True when deletes go to pages of their own now.
    #[inline]
    pub(super) fn parts_deletes(&self) -> bool {
        self.open_bytes >= (PAGES_BEFORE_PARTING * self.pool.page_bytes()) as u64
    }

    #[cold]
    fn append_to_new_page(&mut self, header: &Header, new: &NewRecord<'_>, stream: usize) -> Result<Location> {
        let size = header.size();
        let mut page = match self.pool.take(size, Memory::Asked) {
            Ok(page) => page,
            // Without memory for a page of their own, deletes go among values while there is room.
            Err(refusal) if stream == DELETES => {
                return self.append_to_filling(header, new, VALUES).ok_or(refusal);
            }
            Err(refusal) => return Err(refusal),
        };
        let open = self.open;
        let index = self.containers[open as usize].pages().len() as u32;
        self.register(&mut page, open, index)?;
        self.open_bytes += page.bytes().len() as u64;
        self.pages_taken += 1;
        self.ticks += 1;
        // A record that fills most of a page of its own leaves the page before it open.
        let filling = &mut self.filling[stream];
        if size <= self.pool.page_bytes() / 2 || filling.is_none() && size <= self.pool.page_bytes() {
            *filling = Some(index);
        }
        let location = write_into(&mut page, header, new);
        if let Container::Open(pages) = &mut self.containers[open as usize] {
            pages.push(page);
        }
        Ok(location)
    }

    /// Appends a clean copy to the cache log. The container of a page that is full, to be queued for
    /// eviction, comes with it.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub(super) fn append_clean(&mut self, new: &NewRecord<'_>, memory: Memory) -> Result<(Location, Option<u32>)> {
        let header = new.header();
        let size = header.size();
        let page_bytes = self.pool.page_bytes();
        if let Some(container) = self.cache_filling
            && let Container::Cache(pages) = &mut self.containers[container as usize]
            && let Some(page) = pages.first_mut()
            && page.used + size <= page_bytes
        {
            self.clean_records += 1;
            return Ok((write_into(page, &header, new), None));
        }
        let mut page = self.pool.take(size, memory)?;
        let container = self.new_container();
        if let Err(full) = self.register(&mut page, container, 0) {
            self.free_containers.push(container);
            return Err(full);
        }
        self.clean_records += 1;
        self.clean_pages += 1;
        self.clean_cache_bytes += page.bytes().len() as u64;
        let location = write_into(&mut page, &header, new);
        self.containers[container as usize] = Container::Cache(vec![page]);
        Ok((location, self.cache_filling.replace(container)))
    }

    /// Stops filling the current cache page and returns its container.
    pub(super) fn close_cache_page(&mut self) -> Option<u32> {
        self.cache_filling.take()
    }

    fn new_container(&mut self) -> u32 {
        self.free_containers.pop().unwrap_or_else(|| {
            self.containers.push(Container::Free);
            self.containers.len() as u32 - 1
        })
    }

    fn register(&mut self, page: &mut Page, container: u32, index: u32) -> Result<()> {
        let full = || Error::new(ErrorKind::Backpressure, format!("memtable: all {MAX_PAGES} pages in use"));
        self.table.register(page, container, index).ok_or_else(full)
    }

    /// Marks a record of the open epoch dead: nobody can see it and it will not be flushed. A page in
    /// which all are dead is used again.
    pub(super) fn kill(&mut self, location: Location) {
        let entry = *self.table.entry(location);
        let Container::Open(pages) = &mut self.containers[entry.container as usize] else {
            debug_assert!(false, "only records of the open epoch die");
            return;
        };
        let page = &mut pages[entry.index as usize];
        let mut header = Header::read(page.bytes(), location.offset());
        debug_assert!(!header.is_dead());
        header.set_dead();
        header.write(page.bytes_mut(), location.offset());
        page.live -= 1;
        if page.live > 0 {
            return;
        }
        if self.filling.contains(&Some(entry.index)) {
            page.used = 0;
            return;
        }
        let page = pages.swap_remove(entry.index as usize);
        let last = Some(pages.len() as u32);
        for filling in self.filling.iter_mut().filter(|filling| **filling == last) {
            *filling = Some(entry.index);
        }
        if let Some(moved) = pages.get(entry.index as usize) {
            self.table.moved(moved.id, entry.index);
        }
        self.open_bytes -= page.bytes().len() as u64;
        self.table.forget(page.id);
        self.pool.put(page);
    }

    /// Seals the open epoch and opens the next. Returns the sealed one and its container.
    pub(super) fn seal(&mut self, first: Sequence, last: Sequence) -> (Arc<SealedEpoch>, u32) {
        let sealed = self.open;
        let pages = match std::mem::replace(&mut self.containers[sealed as usize], Container::Free) {
            Container::Open(pages) => pages,
            _ => Vec::new(),
        };
        let epoch = Arc::new(SealedEpoch::new(pages, first, last));
        self.containers[sealed as usize] = Container::Sealed(epoch.clone());
        self.open = self.new_container();
        self.containers[self.open as usize] = Container::Open(Vec::new());
        self.filling = [None; 2];
        self.open_bytes = 0;
        (epoch, sealed)
    }

    pub(super) fn pages_of(&self, container: u32) -> &[Page] {
        self.containers[container as usize].pages()
    }

    pub(super) fn epoch(&self, container: u32) -> Option<&Arc<SealedEpoch>> {
        match &self.containers[container as usize] {
            Container::Sealed(epoch) => Some(epoch),
            _ => None,
        }
    }

    /// Lets go of page `index` of a container from which nothing in the index leads there any more.
    /// Its memory goes to the pool at once, unless somebody else holds the epoch.
    pub(super) fn release_page(&mut self, container: u32, index: usize) {
        let Some(page) = self.containers[container as usize].pages().get(index) else { return };
        let (id, records) = (page.id, page.live as u64);
        self.table.forget(id);
        self.clean_records -= records;
        self.clean_pages -= 1;
        let page = match &mut self.containers[container as usize] {
            Container::Sealed(epoch) => Arc::get_mut(epoch).and_then(|epoch| epoch.take_page(index)),
            Container::Cache(pages) => pages.pop(),
            Container::Open(_) | Container::Free => None,
        };
        if let Some(page) = page {
            if matches!(self.containers[container as usize], Container::Cache(_)) {
                self.clean_cache_bytes -= page.bytes().len() as u64;
            }
            self.pool.put(page);
        }
    }

    /// Lets go of a container whose pages have all been released.
    pub(super) fn release_container(&mut self, container: u32) -> Option<Arc<SealedEpoch>> {
        self.free_containers.push(container);
        match std::mem::replace(&mut self.containers[container as usize], Container::Free) {
            Container::Sealed(epoch) => Some(epoch),
            _ => None,
        }
    }
}

#[inline]
fn write_into(page: &mut Page, header: &Header, new: &NewRecord<'_>) -> Location {
    let at = page.used;
    new.write(header, page.bytes_mut(), at);
    page.used += header.size();
    page.live += 1;
    Location::new(page.id, at)
}
