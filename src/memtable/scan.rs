//! Scans of a group, of the present and of views.

use std::ops::Bound;

use smallvec::SmallVec;

use crate::Result;
use crate::base::cursor::{Direction, RecordCursor};
use crate::base::ids::Sequence;
use crate::base::record::{Kind, Record};

use super::group::{Group, MemberIter};
use super::key::MemKey;
use super::layout::Header;
use super::location::Location;
use super::lookup::{Base, Lookup};
use super::memtable::{Memtable, Sight, ViewId};

/// Bounds on user keys.
pub type UserKeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Every user key.
pub const ALL_USER_KEYS: UserKeyBounds<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Walks over the records of a group in memory, as stored: puts, tombstones, and merge records. At a key
/// whose newest visible record is a merge, the older ones that it rests on follow, newest first, down to
/// the first that is none. So a scan merges with cursors over segments like one of them.
#[derive(Debug)]
pub struct GroupScan<'a> {
    memtable: &'a Memtable,
    group: Option<&'a Group>,
    members: Option<MemberIter<'a>>,
    sight: Sight,
    direction: Direction,
    complete: bool,
    /// Sequence of the newest prefix delete, 0 for none.
    buried_at: Sequence,
    /// Records of the current key that are still to come, next one last.
    pending: SmallVec<[Record<'a>; 2]>,
}

impl Memtable {
    /// Scans the members of the group of `prefix` whose user keys are within `bounds` (crossed bounds
    /// are an empty range). Borrows; for a scan that lives on while the owner writes, open a view and
    /// call [`Memtable::scan_at`] for each step, bounded by the last user key.
    #[must_use]
    pub fn scan(&self, prefix: &[u8], bounds: UserKeyBounds<'_>, direction: Direction) -> GroupScan<'_> {
        self.scan_as(prefix, bounds, direction, self.now())
    }

    /// As [`Memtable::scan`], as of `view`; empty and incomplete when it isn't open.
    #[must_use]
    pub fn scan_at(
        &self,
        view: ViewId,
        prefix: &[u8],
        bounds: UserKeyBounds<'_>,
        direction: Direction,
    ) -> GroupScan<'_> {
        let sight = self.views.get(&view).copied().unwrap_or(Sight { sequence: 0, adopted: 0 });
        self.scan_as(prefix, bounds, direction, sight)
    }

    /// As [`Memtable::scan`], but over values only, and `None` unless memory knows all of them: the group is
    /// complete, or `alone` says that there is nothing below. The operands of merges aren't folded here: for states
    /// that have none.
    #[inline]
    #[must_use]
    pub fn values(
        &self,
        prefix: MemKey<'_>,
        bounds: UserKeyBounds<'_>,
        direction: Direction,
        now_ms: i64,
        alone: bool,
    ) -> Option<GroupValues<'_>> {
        let group = self.groups.find_hashed(prefix.hash(), prefix.prefix()).map(|id| self.groups.get(id));
        let known = alone || group.is_some_and(|group| group.complete_at(self.now().sequence));
        known.then(|| self.values_of(group, bounds, direction, now_ms))
    }

    /// True when memory knows all of the group of `prefix`.
    #[inline]
    #[must_use]
    pub fn is_complete(&self, prefix: MemKey<'_>) -> bool {
        let group = self.groups.find_hashed(prefix.hash(), prefix.prefix());
        group.is_some_and(|id| self.groups.get(id).complete_at(self.now().sequence))
    }

    /// The newest value of the group of `prefix` in memory whose user key is at or after `from`, and its user key.
    #[inline]
    #[must_use]
    pub fn newest(&self, prefix: &[u8], from: &[u8], now_ms: i64) -> Option<(&[u8], &[u8])> {
        let group = self.groups.get(self.groups.find(prefix)?);
        let bounds = (Bound::Included(from), Bound::Unbounded);
        self.values_of(Some(group), bounds, Direction::Backward, now_ms).next()
    }

    fn values_of<'a>(
        &'a self,
        group: Option<&'a Group>,
        bounds: UserKeyBounds<'_>,
        direction: Direction,
        now_ms: i64,
    ) -> GroupValues<'a> {
        let (members, buried_at) = match group {
            Some(group) if !are_crossed(bounds) => {
                (Some(group.members.range(&self.log, bounds.0, bounds.1)), self.buried_at(Some(group), self.now()))
            }
            _ => (None, 0),
        };
        GroupValues { memtable: self, members, direction, buried_at, now_ms }
    }

    fn scan_as(&self, prefix: &[u8], bounds: UserKeyBounds<'_>, direction: Direction, sight: Sight) -> GroupScan<'_> {
        let group = self.groups.find(prefix).map(|id| self.groups.get(id));
        let members = group.filter(|_| !are_crossed(bounds)).map(|g| g.members.range(&self.log, bounds.0, bounds.1));
        let complete = group.is_some_and(|group| group.complete_at(sight.sequence));
        let (buried_at, pending) = (self.buried_at(group, sight), SmallVec::new());
        let mut scan = GroupScan { memtable: self, group, members, sight, direction, complete, buried_at, pending };
        scan.settle();
        scan
    }
}

/// Walks over the values of a group of which memory knows everything.
#[derive(Debug)]
pub struct GroupValues<'a> {
    memtable: &'a Memtable,
    members: Option<MemberIter<'a>>,
    direction: Direction,
    buried_at: Sequence,
    now_ms: i64,
}

impl<'a> Iterator for GroupValues<'a> {
    /// User key and value.
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let slot = self.members.as_mut()?.step(self.direction)?;
            self.memtable.touch(slot);
            let location = slot.get().location();
            let (bytes, at) = (self.memtable.log.bytes(location), location.offset());
            let header = Header::read(bytes, at);
            let is_there = header.kind() == Kind::Put && header.sequence >= self.buried_at;
            if is_there && header.expiry(bytes, at) > self.now_ms {
                return Some((header.user_key(bytes, at), header.value(bytes, at)));
            }
        }
    }
}

/// True for ranges that hold no key at all, which ordered maps refuse.
fn are_crossed(bounds: UserKeyBounds<'_>) -> bool {
    match bounds {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

impl GroupScan<'_> {
    /// True when the version holds nothing that the scan would have to add.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Sequence of the newest prefix delete of the group in memory, 0 for none. What the version holds under the
    /// prefix and is older is gone.
    #[must_use]
    pub fn prefix_delete(&self) -> Sequence {
        self.buried_at
    }

    /// Finds the next member that shows something.
    fn settle(&mut self) {
        while self.pending.is_empty() {
            let Some(slot) = self.members.as_mut().and_then(|members| members.step(self.direction)) else { return };
            self.memtable.touch(slot);
            self.show(slot.get().location());
        }
    }

    fn show(&mut self, location: Location) {
        match self.memtable.resolve(location, self.group, self.sight) {
            Lookup::Record(record) => self.pending.push(record),
            Lookup::Operands(chain) => {
                if let Base::Put(base) = chain.base {
                    self.pending.push(base);
                }
                self.pending.extend(chain.newest_first.into_iter().rev());
                if self.direction == Direction::Backward {
                    self.pending.reverse();
                }
            }
            Lookup::Absent | Lookup::Unknown => {}
        }
    }
}

impl RecordCursor for GroupScan<'_> {
    fn record(&self) -> Option<Record<'_>> {
        self.pending.last().copied()
    }

    fn advance(&mut self) -> Result<()> {
        self.pending.pop();
        self.settle();
        Ok(())
    }
}
