//! Small groups that memory knows only in part are brought in whole by the first scan that meets them: the next ones, and
//! puts of new keys, then needn't look below.

use super::backend::Backend;
use super::scan::Source;
use crate::Result;
use crate::base::cursor::Direction;
use crate::base::ids::Sequence;
use crate::base::record::{ExpiryMs, Kind, Record};
use crate::memtable::{ALL_USER_KEYS, MemKey};

/// Entries and bytes up to which a group is small: what is read in vain of a larger one.
const MOST_ENTRIES: usize = 32;
const MOST_BYTES: usize = 8 << 10;

type Found = Vec<(Vec<u8>, Vec<u8>, ExpiryMs)>;

impl Backend {
    /// Brings in the group of the encoded prefix in `self.key`, if it is small and not all in memory.
    pub(super) fn bring_in(&mut self) -> Result<()> {
        let known = self.memtable.group_info(self.key.bytes());
        if known.is_some_and(|g| g.complete || g.members > MOST_ENTRIES) {
            return Ok(());
        }
        // The tree is that of the epochs adopted: the owner takes both at once.
        let read_at = self.memtable.adopted_sequence();
        let Some(found) = self.read_small_group()? else { return Ok(()) };
        let prefix_len = self.key.bytes().len();
        if found.iter().all(|(key, value, expiry)| self.keep(key, value, *expiry, prefix_len, read_at)) {
            self.memtable.mark_complete(self.key.bytes(), read_at);
        }
        Ok(())
    }

    /// All entries of the group; `None` when they are too many.
    fn read_small_group(&self) -> Result<Option<Found>> {
        let memory = self.memtable.scan(self.key.bytes(), ALL_USER_KEYS, Direction::Forward);
        let source = Source {
            prefix: self.key.bytes(),
            bounds: ALL_USER_KEYS,
            direction: Direction::Forward,
            tree: &self.tree,
            resolver: &self.resolver,
        };
        let mut cursor = source.visible(memory, false)?;
        let (mut found, mut bytes) = (Found::new(), 0);
        while let Some(entry) = cursor.entry() {
            bytes += entry.key.len() + entry.value.len();
            if found.len() == MOST_ENTRIES || bytes > MOST_BYTES {
                return Ok(None);
            }
            found.push((entry.key.to_vec(), entry.value.to_vec(), entry.expiry));
            cursor.advance()?;
        }
        cursor.status()?;
        Ok(Some(found))
    }

    /// Sees to it that memory has an entry; false when it has no room.
    fn keep(&mut self, key: &[u8], value: &[u8], expiry: ExpiryMs, prefix_len: usize, read_at: Sequence) -> bool {
        let mem_key = MemKey::grouped(key, prefix_len);
        // The adopted sequence stands for that of the record, which is none greater.
        let record = Record { key, sequence: read_at, kind: Kind::Put, expiry, value };
        self.memtable.promote(mem_key, &record, read_at) || self.memtable.holds(mem_key)
    }
}
