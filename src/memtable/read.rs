//! Point reads, of the present and of views.

use std::cell::Cell;

use crate::base::descriptor::Layout;
use crate::base::record::Kind;

use super::group::Group;
use super::key::MemKey;
use super::layout::Header;
use super::location::{Location, Slot};
use super::log::Previous;
use super::lookup::{Base, GroupInfo, Lookup, OperandChain, Probe, ValueAt};
use super::memtable::{Memtable, Place, Sight, ViewId};

impl Memtable {
    /// What memory says about `key` now.
    ///
    /// # Examples
    /// ```
    /// use highwater::cache::budget::Budget;
    /// use highwater::memtable::{Lookup, MemKey, Memtable, MemtableConfig};
    /// let memtable = Memtable::new(MemtableConfig::new(Budget::new(16 << 20)));
    /// assert!(matches!(memtable.lookup(MemKey::single(b"k")), Lookup::Unknown));
    /// ```
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: MemKey<'_>) -> Lookup<'_> {
        match key.layout() {
            Layout::Single => {
                self.find_single(key.hash(), key.bytes()).map_or(Lookup::Unknown, |slot| self.read_now(slot))
            }
            Layout::Grouped => self.lookup_member(key, self.now()),
        }
    }

    /// The newest record of an entry, as the present sees it.
    #[inline]
    fn read_now(&self, slot: &Cell<Slot>) -> Lookup<'_> {
        let location = slot.get().location();
        self.touch(slot);
        let record = self.log.record(location);
        match record.kind {
            Kind::Put | Kind::Delete => Lookup::Record(record),
            Kind::Merge | Kind::PrefixDelete => self.resolve(location, None, self.now()),
        }
    }

    /// As [`Memtable::lookup`], but borrowing nothing: a value is then had by [`Memtable::value`], as long as
    /// nothing was written.
    #[inline]
    #[must_use]
    pub fn probe(&self, key: MemKey<'_>) -> Probe {
        let location = match self.locate(&key) {
            (Place::Single(_), Some(location)) => location,
            (Place::Member(id), found) => return self.probe_member(id, found),
            _ => return Probe::Unknown,
        };
        let (bytes, at) = (self.log.bytes(location), location.offset());
        let header = Header::read(bytes, at);
        match header.kind() {
            Kind::Put => Probe::Value { at: value_at(location, &header), expiry: header.expiry(bytes, at) },
            Kind::Delete => Probe::Absent,
            Kind::Merge if header.sequence <= self.adopted => Probe::Unknown,
            Kind::Merge => Probe::Operands,
            Kind::PrefixDelete => Probe::Absent,
        }
    }

    fn probe_member(&self, id: u32, found: Option<Location>) -> Probe {
        let group = self.groups.get(id);
        let now = self.now();
        let Some(location) = found else {
            return if group.complete_at(now.sequence) { Probe::Absent } else { Probe::Unknown };
        };
        match self.resolve(location, Some(group), now) {
            Lookup::Record(record) if record.kind == Kind::Put => {
                // Where the present sees a put, it is the newest record.
                Probe::Value { at: value_at(location, &self.log.header(location)), expiry: record.expiry }
            }
            Lookup::Record(_) | Lookup::Absent => Probe::Absent,
            Lookup::Operands(_) => Probe::Operands,
            Lookup::Unknown => Probe::Unknown,
        }
    }

    /// True when memory says what `key` is now, so that nobody has to look below for it.
    #[must_use]
    pub fn holds(&self, key: MemKey<'_>) -> bool {
        !matches!(self.lookup(key), Lookup::Unknown)
    }

    /// The value that [`Memtable::probe`] found, nothing written since.
    #[inline]
    #[must_use]
    pub fn value(&self, at: ValueAt) -> &[u8] {
        let start = at.location.offset() + at.skip;
        &self.log.bytes(at.location)[start..start + at.len]
    }

    /// What memory says about `key` as of `view`; [`Lookup::Unknown`] refers to the version that was
    /// adopted when it was opened, and is also the answer when the view isn't open.
    #[must_use]
    pub fn lookup_at(&self, view: ViewId, key: MemKey<'_>) -> Lookup<'_> {
        let Some(sight) = self.views.get(&view).copied() else { return Lookup::Unknown };
        match key.layout() {
            Layout::Single => {
                let found = self.find_single(key.hash(), key.bytes());
                found.map_or(Lookup::Unknown, |slot| self.resolve(slot.get().location(), None, sight))
            }
            Layout::Grouped => self.lookup_member(key, sight),
        }
    }

    fn lookup_member(&self, key: MemKey<'_>, sight: Sight) -> Lookup<'_> {
        let Some(id) = self.groups.find_hashed(key.hash(), key.prefix()) else { return Lookup::Unknown };
        let group = self.groups.get(id);
        match group.members.find(&self.log, key.user_key()) {
            Some(slot) => {
                self.touch(slot);
                self.resolve(slot.get().location(), Some(group), sight)
            }
            None if group.complete_at(sight.sequence) => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }

    /// Looks up several keys. The hashes and index entries of all come first, then their records, so
    /// that the cache misses of different keys overlap.
    #[must_use]
    pub fn get_many<'a>(&'a self, keys: &[MemKey<'_>]) -> Vec<Lookup<'a>> {
        let candidate = |key: &MemKey<'_>| {
            (key.layout() == Layout::Single).then(|| self.singles.find(key.hash(), |_| true)).flatten()
        };
        let candidates: Vec<_> = keys.iter().map(candidate).collect();
        let read = |(key, slot): (&MemKey<'_>, Option<&Cell<Slot>>)| match slot {
            Some(slot) if self.log.key_is(slot.get().location(), key.bytes()) => self.read_now(slot),
            None if key.layout() == Layout::Single => Lookup::Unknown,
            _ => self.lookup(*key),
        };
        keys.iter().zip(candidates).map(read).collect()
    }

    /// What memory knows about the group of `prefix`; `None` when it has none.
    #[must_use]
    pub fn group_info(&self, prefix: &[u8]) -> Option<GroupInfo> {
        self.info(prefix, self.now())
    }

    /// As [`Memtable::group_info`], as of `view`.
    #[must_use]
    pub fn group_info_at(&self, view: ViewId, prefix: &[u8]) -> Option<GroupInfo> {
        self.info(prefix, *self.views.get(&view)?)
    }

    pub(super) fn info(&self, prefix: &[u8], sight: Sight) -> Option<GroupInfo> {
        let group = self.groups.get(self.groups.find(prefix)?);
        Some(GroupInfo { complete: group.complete_at(sight.sequence), members: group.members.len() })
    }

    /// Remembers that a clean record was read, so that eviction passes it over once.
    #[inline]
    pub(super) fn touch(&self, slot: &Cell<Slot>) {
        let value = slot.get();
        if !value.referenced() && !self.log.is_open(value.location()) {
            slot.set(value.with_referenced());
        }
    }

    /// Sequence of the newest prefix delete of `group` that `sight` sees, 0 for none.
    pub(super) fn buried_at(&self, group: Option<&Group>, sight: Sight) -> u64 {
        let Some(group) = group else { return 0 };
        let mut next = group.tombstone.and_then(|tombstone| tombstone.location);
        while let Some(location) = next {
            let sequence = self.log.header(location).sequence;
            if sequence <= sight.sequence {
                return sequence;
            }
            next = match self.log.previous(location) {
                Previous::At(previous) => Some(previous),
                Previous::None | Previous::Evicted => None,
            };
        }
        group.settled_tombstone
    }

    /// The newest record that `sight` sees, from that at `location` on downwards.
    fn visible(&self, location: Location, group: Option<&Group>, sight: Sight) -> Result<Location, Lookup<'_>> {
        let mut location = location;
        while self.log.header(location).sequence > sight.sequence {
            match self.log.previous(location) {
                Previous::At(previous) => location = previous,
                // Evicting what a view sees ends the group's completeness for it.
                Previous::None | Previous::Evicted => {
                    let complete = group.is_some_and(|group| group.complete_at(sight.sequence));
                    return Err(if complete { Lookup::Absent } else { Lookup::Unknown });
                }
            }
        }
        Ok(location)
    }

    /// What `sight` sees of the key whose newest record lies at `location`.
    pub(super) fn resolve(&self, location: Location, group: Option<&Group>, sight: Sight) -> Lookup<'_> {
        let location = match self.visible(location, group, sight) {
            Ok(location) => location,
            Err(answer) => return answer,
        };
        let buried_at = self.buried_at(group, sight);
        let record = self.log.record(location);
        if record.sequence < buried_at {
            return Lookup::Absent;
        }
        match record.kind {
            Kind::Merge if record.sequence <= sight.adopted => Lookup::Unknown,
            Kind::Merge => Lookup::Operands(self.chain(location, buried_at, sight)),
            Kind::Put | Kind::Delete | Kind::PrefixDelete => Lookup::Record(record),
        }
    }

    /// Collects operands from the merge record at `location` on downwards.
    fn chain(&self, location: Location, buried_at: u64, sight: Sight) -> OperandChain<'_> {
        let mut newest_first = vec![self.log.record(location)];
        let mut location = location;
        let base = loop {
            location = match self.log.previous(location) {
                Previous::At(previous) => previous,
                Previous::None | Previous::Evicted => break Base::Below,
            };
            let record = self.log.record(location);
            if record.sequence < buried_at {
                break Base::Absent;
            }
            match record.kind {
                Kind::Put => break Base::Put(record),
                Kind::Delete => break Base::Absent,
                // The version has these, and what they apply to.
                Kind::Merge if record.sequence <= sight.adopted => break Base::Below,
                Kind::Merge => newest_first.push(record),
                Kind::PrefixDelete => break Base::Absent,
            }
        };
        OperandChain { newest_first, base }
    }
}

#[inline]
fn value_at(location: Location, header: &Header) -> ValueAt {
    ValueAt { location, skip: header.value_offset(), len: header.value_len as usize }
}
