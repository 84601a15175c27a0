//! RocksDB, as Flink gives it to its users and at its best.
//!
//! Both: no log, no fsync, two memtables of 64 MiB, files of 64 MiB, a base level of 256 MiB, blocks of 4 KiB, all files kept
//! open, one column family a state. The managed memory M is a block cache of M * 2.5 / 3 and, charged to it, a write-buffer
//! manager of M / 3. Where Flink gives a tenth of the cache to blocks of high priority, RocksDB's C interface has no such
//! setting: it stays at its default, half.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    LruCacheOptions, MergeOperands, Options, ReadOptions, WriteBufferManager, WriteOptions, checkpoint::Checkpoint,
};

use super::Setting;
use super::encoding::Encoded;
use super::over_bytes::KeyValue;
use super::upload::Uploads;
use crate::Result;
use crate::measure::checkpoints::CheckpointLog;
use crate::object_store::client::Client;
use crate::store::{StateKind, StateSpec};

/// See the module.
pub struct Rocks {
    db: &'static DB,
    tables: Vec<&'static ColumnFamily>,
    write: WriteOptions,
    read: ReadOptions,
    directory: PathBuf,
    checkpoints: u64,
    uploads: Option<Uploads>,
}

impl std::fmt::Debug for Rocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rocks({})", self.directory.display())
    }
}

impl Rocks {
    /// An empty one.
    pub fn open(setting: &Setting, strong: bool, client: Option<Arc<Client>>, log: &CheckpointLog) -> Result<Self> {
        let path = setting.directory.join("rocksdb");
        let cache_bytes = setting.memory_bytes / 6 * 5;
        let cache = cache(usize::try_from(cache_bytes)?, strong);
        let buffers = usize::try_from(setting.memory_bytes / 3)?;
        let manager = WriteBufferManager::new_write_buffer_manager_with_cache(buffers, false, cache.clone());
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_use_fsync(false);
        options.set_max_open_files(-1);
        options.set_stats_dump_period_sec(0);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as i32;
        options.set_max_background_jobs(if strong { cores.clamp(2, 4) } else { 2 });
        options.set_write_buffer_manager(&manager);
        let tables = setting
            .states
            .iter()
            .map(|state| ColumnFamilyDescriptor::new(state.name, table_options(state, strong, &cache, &manager)));
        // Its column families borrow from it; both live for as long as the process, which is there for this run alone.
        let db: &'static DB = Box::leak(Box::new(DB::open_cf_descriptors(&options, &path, tables)?));
        let handle = |state: &StateSpec| db.cf_handle(state.name).ok_or("a column family is missing");
        let tables = setting.states.iter().map(handle).collect::<std::result::Result<_, _>>()?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Self {
            db,
            tables,
            write,
            read: ReadOptions::default(),
            directory: setting.directory.clone(),
            checkpoints: 0,
            uploads: client.map(|client| Uploads::start(client, log.clone())),
        })
    }
}

fn cache(bytes: usize, strong: bool) -> Cache {
    if !strong {
        return Cache::new_lru_cache(bytes);
    }
    let mut options = LruCacheOptions::default();
    options.set_capacity(bytes);
    // Shards of some 50 MiB: in 64 small ones, large index blocks drive out everything else.
    options.set_num_shard_bits(2);
    Cache::new_lru_cache_opts(&options)
}

fn table_options(state: &StateSpec, strong: bool, cache: &Cache, manager: &WriteBufferManager) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_size(4 << 10);
    blocks.set_block_cache(cache);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if strong {
        blocks.set_bloom_filter(10.0, false);
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_partition_filters(true);
        blocks.set_metadata_block_size(4 << 10);
        blocks.set_pin_top_level_index_and_filter(true);
    }
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_manager(manager);
    options.set_write_buffer_size(64 << 20);
    options.set_max_write_buffer_number(2);
    options.set_target_file_size_base(64 << 20);
    options.set_max_bytes_for_level_base(256 << 20);
    options.set_compression_type(if strong { DBCompressionType::Lz4 } else { DBCompressionType::Snappy });
    if strong && state.keys_exist {
        options.set_optimize_filters_for_hits(true);
    }
    if state.kind == StateKind::List {
        options.set_merge_operator_associative("append", append);
    }
    options
}

fn append(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let length = existing.map_or(0, <[u8]>::len) + operands.iter().map(<[u8]>::len).sum::<usize>();
    let mut list = Vec::with_capacity(length);
    list.extend_from_slice(existing.unwrap_or_default());
    operands.iter().for_each(|operand| list.extend_from_slice(operand));
    Some(list)
}

impl KeyValue for Rocks {
    #[inline]
    fn get(&mut self, table: usize, key: &[u8], found: &mut impl FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_cf_opt(self.tables[table], key, &self.read)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    #[inline]
    fn put(&mut self, table: usize, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_cf_opt(self.tables[table], key, value, &self.write)?)
    }

    fn delete(&mut self, table: usize, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_cf_opt(self.tables[table], key, &self.write)?)
    }

    fn append(&mut self, table: usize, key: &[u8], suffix: &[u8]) -> Result<()> {
        Ok(self.db.merge_cf_opt(self.tables[table], key, suffix, &self.write)?)
    }

    fn get_many(&mut self, table: usize, keys: &[Encoded], each: &mut impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let keys = keys.iter().map(Encoded::bytes);
        let values = self.db.batched_multi_get_cf_opt(self.tables[table], keys, false, &self.read);
        for (index, value) in values.into_iter().enumerate() {
            each(index, value?.as_deref());
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
        let mut cursor = self.db.raw_iterator_cf(self.tables[table]);
        cursor.seek(from);
        while let Some((key, value)) = cursor.item() {
            if key > last || !each(key, value) {
                return Ok(());
            }
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn checkpoint(&mut self) -> Result<Option<Duration>> {
        let Some(uploads) = &self.uploads else { return Ok(None) };
        if uploads.busy()? {
            return Ok(None);
        }
        self.checkpoints += 1;
        let directory = self.directory.join(format!("checkpoint-{}", self.checkpoints));
        let began = Instant::now();
        Checkpoint::new(self.db)?.create_checkpoint(&directory)?;
        let sync = began.elapsed();
        uploads.add(directory, began, sync)?;
        Ok(Some(sync))
    }

    fn wait_for_checkpoints(&mut self) -> Result<()> {
        while self.uploads.as_ref().map_or(Ok(false), Uploads::busy)? {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn busy(&self) -> Result<bool> {
        let whole = ["rocksdb.num-running-compactions", "rocksdb.num-running-flushes"];
        for name in whole {
            if self.db.property_int_value(name)?.unwrap_or(0) > 0 {
                return Ok(true);
            }
        }
        for table in &self.tables {
            for name in ["rocksdb.compaction-pending", "rocksdb.mem-table-flush-pending"] {
                if self.db.property_int_value_cf(*table, name)?.unwrap_or(0) > 0 {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn referenced_bytes(&self) -> u64 {
        self.uploads.as_ref().map_or(0, Uploads::referenced_bytes)
    }

    fn describe(&self) -> String {
        let stats = |table: &&ColumnFamily| self.db.property_value_cf(*table, "rocksdb.levelstats").ok().flatten();
        self.tables.iter().filter_map(stats).collect()
    }
}
