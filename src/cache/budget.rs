//! One memory budget for the process, every byte of it under a purpose.
//!
//! Reservations are taken for whole pages, shards, blocks and buffers, never per operation, and give
//! their bytes back when dropped, on whatever thread that happens.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, ErrorKind, Result};

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// Pages of records in memory, dirty or clean.
    Memtable,
    /// Hash tables and groups that lead to those records.
    Index,
    /// Decoded blocks, filters and index partitions of segments.
    BlockCache,
    /// Sorting and building segments out of frozen epochs.
    Flush,
    /// Inputs and outputs of compactions.
    Compaction,
    /// Bytes in flight to a store.
    Upload,
    /// Cursors and batched reads.
    Cursor,
    /// Bytes in flight from a store while restoring.
    Restore,
}

impl Purpose {
    /// Every purpose, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Memtable,
        Self::Index,
        Self::BlockCache,
        Self::Flush,
        Self::Compaction,
        Self::Upload,
        Self::Cursor,
        Self::Restore,
    ];
}

struct Inner {
    limit: u64,
    total: AtomicU64,
    used: [AtomicU64; Purpose::ALL.len()],
}

/// The budget; clones are the same one.
///
/// # Examples
/// ```
/// use highwater::cache::budget::{Budget, Purpose};
/// let budget = Budget::new(100);
/// let page = budget.try_reserve(Purpose::Memtable, 80)?;
/// assert!(budget.try_reserve(Purpose::Upload, 30).is_err());
/// drop(page);
/// assert_eq!(budget.total(), 0);
/// # Ok::<(), highwater::Error>(())
/// ```
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

impl Budget {
    /// A budget of `limit_bytes`, all free.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Inner { limit: limit_bytes, total: AtomicU64::new(0), used: Default::default() }))
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Bytes reserved for `purpose`.
    #[must_use]
    pub fn used(&self, purpose: Purpose) -> u64 {
        self.0.used[purpose as usize].load(Ordering::Relaxed)
    }

    /// Bytes reserved for all purposes; over the limit only by what was [forced](Budget::force).
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Bytes that [`Budget::try_reserve`] could still give.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.limit().saturating_sub(self.total())
    }

    /// Reserves `bytes` for `purpose`.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceExhausted`] when that would go over the limit; nothing is reserved then.
    pub fn try_reserve(&self, purpose: Purpose, bytes: u64) -> Result<Reservation> {
        self.try_reserve_for(purpose, bytes, None)
    }

    fn try_reserve_for(&self, purpose: Purpose, bytes: u64, held: Option<&Arc<AtomicU64>>) -> Result<Reservation> {
        self.take(bytes, false)
            .map_err(|total| {
                Error::new(
                    ErrorKind::ResourceExhausted,
                    format!("memory budget: {bytes} bytes for {purpose:?}, {total} of {} in use", self.limit()),
                )
            })
            .map(|()| self.reservation(purpose, bytes, held))
    }

    /// Reserves `bytes` even over the limit: for small growth that can't be refused half-way. Whoever
    /// watches [`Budget::total`] makes room afterwards.
    #[must_use]
    pub fn force(&self, purpose: Purpose, bytes: u64) -> Reservation {
        self.force_for(purpose, bytes, None)
    }

    fn force_for(&self, purpose: Purpose, bytes: u64, held: Option<&Arc<AtomicU64>>) -> Reservation {
        let _ = self.take(bytes, true);
        self.reservation(purpose, bytes, held)
    }

    /// A part of the budget for one user, who is never refused altogether: up to `floor_bytes` he gets whatever the
    /// others hold.
    #[must_use]
    pub fn part(&self, floor_bytes: u64) -> Part {
        Part { budget: self.clone(), floor_bytes, held: Arc::default() }
    }

    fn reservation(&self, purpose: Purpose, bytes: u64, held: Option<&Arc<AtomicU64>>) -> Reservation {
        self.0.used[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
        if let Some(held) = held {
            held.fetch_add(bytes, Ordering::Relaxed);
        }
        Reservation { budget: self.clone(), purpose, bytes, held: held.cloned() }
    }

    fn take(&self, bytes: u64, force: bool) -> std::result::Result<(), u64> {
        let admit = |total: u64| {
            let new = total.checked_add(bytes)?;
            (force || new <= self.0.limit).then_some(new)
        };
        self.0.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit).map(|_| ())
    }

    fn give_back(&self, purpose: Purpose, bytes: u64) {
        self.0.total.fetch_sub(bytes, Ordering::Relaxed);
        self.0.used[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Budget");
        out.field("limit", &self.limit()).field("total", &self.total());
        for purpose in Purpose::ALL {
            out.field(&format!("{purpose:?}"), &self.used(purpose));
        }
        out.finish()
    }
}

/// One user's part of a [`Budget`].
///
/// Users who give back only when it is their turn could keep another from ever having his: what he needs to get on,
/// his floor, he gets even over the limit. So the limit is exceeded by the floors of all users at most, or, where a single
/// reservation is larger than a floor, by one such reservation for each of them.
///
/// # Examples
/// ```
/// use highwater::cache::budget::{Budget, Purpose};
/// let budget = Budget::new(100);
/// let (greedy, late) = (budget.part(10), budget.part(10));
/// let all = greedy.try_reserve(Purpose::Memtable, 100)?;
/// let some = late.try_reserve(Purpose::Memtable, 10)?;
/// assert!(late.try_reserve(Purpose::Memtable, 1).is_err());
/// # Ok::<(), highwater::Error>(())
/// ```
#[derive(Debug)]
pub struct Part {
    budget: Budget,
    floor_bytes: u64,
    held: Arc<AtomicU64>,
}

impl Part {
    /// Bytes that can be reserved without going over limit and floor.
    #[must_use]
    pub fn available(&self) -> u64 {
        let floor = self.floor_bytes.saturating_sub(self.held_bytes());
        self.budget.available().max(floor)
    }

    /// Bytes reserved for this user.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// True when [`Part::try_reserve`] would give so many bytes now.
    #[must_use]
    pub fn admits(&self, bytes: u64) -> bool {
        self.held_bytes() == 0 || bytes <= self.available()
    }

    /// Reserves `bytes` for `purpose`: within the limit, within the floor, or as the only reservation of this user.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`].
    pub fn try_reserve(&self, purpose: Purpose, bytes: u64) -> Result<Reservation> {
        if self.held_bytes() == 0 || self.held_bytes().saturating_add(bytes) <= self.floor_bytes {
            return Ok(self.force(purpose, bytes));
        }
        self.budget.try_reserve_for(purpose, bytes, Some(&self.held))
    }

    /// As [`Budget::force`].
    #[must_use]
    pub fn force(&self, purpose: Purpose, bytes: u64) -> Reservation {
        self.budget.force_for(purpose, bytes, Some(&self.held))
    }
}

/// Bytes set aside; they go back when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    purpose: Purpose,
    bytes: u64,
    /// What the user of the [`Part`] that it is from holds.
    held: Option<Arc<AtomicU64>>,
}

impl Reservation {
    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves all its bytes into another reservation and keeps none.
    #[must_use]
    pub fn split_all(&mut self) -> Self {
        let held = self.held.clone();
        Self { budget: self.budget.clone(), purpose: self.purpose, bytes: std::mem::take(&mut self.bytes), held }
    }

    /// Changes it to `bytes`.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`] when it grows; it stays as it was then.
    pub fn resize(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.bytes {
            let mut more = self.budget.try_reserve_for(self.purpose, bytes - self.bytes, self.held.as_ref())?;
            self.bytes += std::mem::take(&mut more.bytes);
        } else {
            self.shrink(bytes);
        }
        Ok(())
    }

    /// As [`Reservation::resize`], growing even over the limit.
    pub fn force_resize(&mut self, bytes: u64) {
        if bytes > self.bytes {
            let mut more = self.budget.force_for(self.purpose, bytes - self.bytes, self.held.as_ref());
            self.bytes += std::mem::take(&mut more.bytes);
        } else {
            self.shrink(bytes);
        }
    }

    fn shrink(&mut self, bytes: u64) {
        let less = self.bytes - bytes;
        self.budget.give_back(self.purpose, less);
        if let Some(held) = &self.held {
            held.fetch_sub(less, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_back_and_the_limit_holds() {
        let budget = Budget::new(10);
        let mut a = budget.try_reserve(Purpose::Flush, 6).unwrap();
        assert_eq!(budget.try_reserve(Purpose::Upload, 5).unwrap_err().kind(), ErrorKind::ResourceExhausted);
        assert_eq!(a.resize(11).unwrap_err().kind(), ErrorKind::ResourceExhausted);
        assert_eq!((a.bytes(), budget.total(), budget.available()), (6, 6, 4));
        a.resize(2).unwrap();
        let forced = budget.force(Purpose::Index, 20);
        assert_eq!((budget.total(), budget.used(Purpose::Index), budget.available()), (22, 20, 0));
        drop((a, forced));
        assert_eq!(Purpose::ALL.map(|p| budget.used(p)), [0; 8]);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn a_user_gets_his_floor_whatever_the_others_hold_and_one_reservation_of_any_size() {
        let budget = Budget::new(100);
        let (greedy, late) = (budget.part(10), budget.part(10));
        let all = greedy.try_reserve(Purpose::Memtable, 100).unwrap();
        assert!(!greedy.admits(1) && greedy.try_reserve(Purpose::Memtable, 1).is_err());
        let mut some: Vec<_> = (0..3).map(|_| late.try_reserve(Purpose::Memtable, 3).unwrap()).collect();
        assert_eq!((late.held_bytes(), late.available(), late.admits(1), late.admits(2)), (9, 1, true, false));
        assert!(late.try_reserve(Purpose::Memtable, 2).is_err());
        some.clear();
        let large = late.try_reserve(Purpose::Memtable, 50).unwrap();
        assert!(budget.total() == 150 && !late.admits(1));
        drop((large, all));
        assert_eq!((late.held_bytes(), greedy.held_bytes(), budget.total(), late.available()), (0, 0, 0, 100));
        let mut moved = late.force(Purpose::Memtable, 7);
        let rest = moved.split_all();
        moved.force_resize(5);
        drop(moved);
        assert_eq!(late.held_bytes(), 7);
        drop(rest);
        assert_eq!((late.held_bytes(), budget.total()), (0, 0));
    }

    #[test]
    fn purposes_are_numbered_in_order() {
        assert!(Purpose::ALL.iter().enumerate().all(|(i, p)| *p as usize == i));
    }
}
