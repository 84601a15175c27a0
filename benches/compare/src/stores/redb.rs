//! redb: a copy-on-write tree in one file. A transaction of 20,000 writes at a time, committed without waiting for the disk;
//! reads go through the same transaction.

use std::time::Duration;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::Setting;
use super::encoding::Encoded;
use super::over_bytes::KeyValue;
use crate::Result;

/// Writes in a transaction.
const WRITES: u32 = 20_000;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// See the module.
pub struct Redb {
    db: Database,
    open: Option<WriteTransaction>,
    writes: u32,
    tables: Vec<Definition>,
}

impl std::fmt::Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redb({} tables)", self.tables.len())
    }
}

impl Redb {
    /// An empty one.
    pub fn open(setting: &Setting) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(setting.memory_bytes)?);
        let db = builder.create(setting.directory.join("redb"))?;
        let tables = setting.states.iter().map(|state| TableDefinition::new(state.name)).collect();
        Ok(Self { db, open: None, writes: 0, tables })
    }

    fn transaction(&mut self) -> Result<&WriteTransaction> {
        if self.writes >= WRITES
            && let Some(done) = self.open.take()
        {
            done.commit()?;
            self.writes = 0;
        }
        if self.open.is_none() {
            let mut begun = self.db.begin_write()?;
            begun.set_durability(Durability::None)?;
            self.open = Some(begun);
        }
        self.open.as_ref().ok_or_else(|| "no transaction".into())
    }
}

impl KeyValue for Redb {
    fn get(&mut self, table: usize, key: &[u8], found: &mut impl FnMut(&[u8])) -> Result<bool> {
        let definition = self.tables[table];
        let table = self.transaction()?.open_table(definition)?;
        let value = table.get(key)?;
        if let Some(value) = &value {
            found(value.value());
        }
        Ok(value.is_some())
    }

    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        let definition = self.tables[table];
        self.transaction()?.open_table(definition)?.insert(key, value)?;
        self.writes += 1;
        Ok(())
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        let definition = self.tables[table];
        self.transaction()?.open_table(definition)?.remove(key)?;
        self.writes += 1;
        Ok(())
    }

    fn append(&mut self, table: usize, key: &[u8], suffix: &[u8]) -> Result<()> {
        let mut list = Vec::new();
        self.get(table, key, &mut |value| list.extend_from_slice(value))?;
        list.extend_from_slice(suffix);
        self.put(table, key, &list)
    }

    fn get_many(&mut self, table: usize, keys: &[Encoded], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let definition = self.tables[table];
        let table = self.transaction()?.open_table(definition)?;
        for (index, key) in keys.iter().enumerate() {
            each(index, table.get(key.bytes())?.as_ref().map(redb::AccessGuard::value));
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
        let definition = self.tables[table];
        let table = self.transaction()?.open_table(definition)?;
        for entry in table.range(from..=last)? {
            let (key, value) = entry?;
            if !each(key.value(), value.value()) {
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
        format!("{} bytes cached", self.db.cache_stats().used_bytes())
    }
}
