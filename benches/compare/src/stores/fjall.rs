//! fjall with its defaults and a block cache of half of the budget (its memtables of 64 MiB come on top). Its journal can't be
//! turned off; it isn't synced here.

use std::time::Duration;

use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::Setting;
use super::encoding::Encoded;
use super::over_bytes::KeyValue;
use crate::Result;

/// See the module.
pub struct Fjall {
    db: Database,
    tables: Vec<Keyspace>,
}

impl std::fmt::Debug for Fjall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fjall({} tables)", self.tables.len())
    }
}

impl Fjall {
    /// An empty one.
    pub fn open(setting: &Setting) -> Result<Self> {
        let db = Database::builder(setting.directory.join("fjall"))
            .cache_size(setting.memory_bytes / 2)
            .worker_threads(2)
            .manual_journal_persist(true)
            .open()?;
        let table = |name: &str| db.keyspace(name, KeyspaceCreateOptions::default);
        let tables = setting.states.iter().map(|state| table(state.name)).collect::<std::result::Result<_, _>>()?;
        Ok(Self { db, tables })
    }
}

impl KeyValue for Fjall {
    fn get(&mut self, table: usize, key: &[u8], found: &mut impl FnMut(&[u8])) -> Result<bool> {
        let value = self.tables[table].get(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.tables[table].insert(key, value)?)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        Ok(self.tables[table].remove(key)?)
    }

    fn append(&mut self, table: usize, key: &[u8], suffix: &[u8]) -> Result<()> {
        let mut list = self.tables[table].get(key)?.map_or_else(Vec::new, |list| list.to_vec());
        list.extend_from_slice(suffix);
        Ok(self.tables[table].insert(key, list)?)
    }

    fn get_many(&mut self, table: usize, keys: &[Encoded], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            each(index, self.tables[table].get(key.bytes())?.as_deref());
        }
        Ok(())
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        last: &[u8],
        each: &mut impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        for entry in self.tables[table].range(from..=last) {
            let (key, value) = entry.into_inner()?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn wait_for_checkpoints(&mut self) -> Result<()> {
        Ok(())
    }

    fn referenced_bytes(&self) -> u64 {
        0
    }

    fn describe(&self) -> String {
        format!("{} flushes outstanding, {} journals", self.db.outstanding_flushes(), self.db.journal_count())
    }
}
