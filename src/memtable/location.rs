//! Where a record lies, and what an index keeps about it, each in one word.
//!
//! ```text
//! slot: hash tag 29 bits | referenced 1 bit | location 34 bits
//! location: page id 19 bits | offset in the page, in units of 8 bytes, 15 bits
//! link: birth of the page 30 bits | location 34 bits
//! ```
//! Page ids are reused; a page's birth number isn't (within 2^30 pages), so a link to a page that has
//! been evicted is seen to be broken.

const OFFSET_BITS: u32 = 15;
const LOCATION_BITS: u32 = 34;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
const REFERENCED: u64 = 1 << LOCATION_BITS;
const TAG_SHIFT: u32 = LOCATION_BITS + 1;
/// Bits of the hash that a slot keeps.
pub(super) const TAG_BITS: u32 = 64 - TAG_SHIFT;
const BIRTH_MASK: u32 = (1 << 30) - 1;

/// Largest page whose every record a location can name, in bytes.
pub(super) const MAX_PAGE_BYTES: usize = 8 << OFFSET_BITS;
/// Most pages at one time.
pub(super) const MAX_PAGES: usize = 1 << (LOCATION_BITS - OFFSET_BITS);

/// A record's place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location(u64);

impl Location {
    pub(super) fn new(page: u32, offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(8) && offset < MAX_PAGE_BYTES);
        Self(u64::from(page) << OFFSET_BITS | (offset as u64) >> 3)
    }

    /// A number that isn't a place in the log: the id of a group.
    pub(super) fn of_id(id: u32) -> Self {
        Self(u64::from(id))
    }

    #[expect(clippy::cast_possible_truncation, reason = "only used on what `of_id` made")]
    pub(super) fn id(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn page(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    #[inline]
    pub(super) fn offset(self) -> usize {
        ((self.0 & ((1 << OFFSET_BITS) - 1)) << 3) as usize
    }
}

/// An index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u64);

impl Slot {
    /// No entry: it would lead to a record at the last eight bytes of the last page there can be.
    pub(super) const EMPTY: Self = Self(u64::MAX);

    #[inline]
    pub(super) fn new(hash: u64, location: Location) -> Self {
        Self(hash >> TAG_SHIFT << TAG_SHIFT | location.0)
    }

    #[inline]
    pub(super) fn location(self) -> Location {
        Location(self.0 & LOCATION_MASK)
    }

    /// The leading bits of the hash.
    #[inline]
    pub(super) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// The tag of a whole hash.
    #[inline]
    pub(super) fn tag_of(hash: u64) -> u64 {
        hash >> TAG_SHIFT
    }

    #[inline]
    pub(super) fn referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    #[inline]
    pub(super) fn with_referenced(self) -> Self {
        Self(self.0 | REFERENCED)
    }

    /// The same entry, leading elsewhere; not referenced.
    #[inline]
    pub(super) fn at(self, location: Location) -> Self {
        Self(self.0 >> TAG_SHIFT << TAG_SHIFT | location.0)
    }
}

/// A record's pointer to the record of its key that it took over from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link(u64);

impl Link {
    pub(super) fn new(location: Location, birth: u32) -> Self {
        Self(u64::from(birth & BIRTH_MASK) << LOCATION_BITS | location.0)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn location(self) -> Location {
        Location(self.0 & LOCATION_MASK)
    }

    pub(super) fn leads_to(self, birth: u32) -> bool {
        self.0 >> LOCATION_BITS == u64::from(birth & BIRTH_MASK)
    }
}
