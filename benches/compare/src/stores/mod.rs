//! The stores that take part.

pub mod download;
pub mod encoding;
pub mod fjall;
pub mod hashmap;
pub mod highwater;
pub mod over_bytes;
pub mod payload;
pub mod redb;
pub mod rocksdb;
pub mod timers;
pub mod upload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::measure::checkpoints::CheckpointLog;
use crate::object_store::client::Client;
use crate::store::{StateSpec, Store};

/// A store by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// This library.
    Highwater,
    /// RocksDB as Flink configures it.
    RocksdbFlink,
    /// RocksDB with what its wiki advises.
    RocksdbStrong,
    /// fjall.
    Fjall,
    /// redb.
    Redb,
    /// A hash map of boxed bytes, without durability.
    Hashmap,
}

impl StoreKind {
    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Highwater => "highwater",
            Self::RocksdbFlink => "rocksdb-flink",
            Self::RocksdbStrong => "rocksdb-strong",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            Self::Hashmap => "hashmap",
        }
    }

    /// True for those that the targets are ratios to.
    pub fn is_rocksdb(self) -> bool {
        matches!(self, Self::RocksdbFlink | Self::RocksdbStrong)
    }

    /// True for those that can make checkpoints.
    pub fn has_checkpoints(self) -> bool {
        self.is_rocksdb() || self == Self::Highwater
    }
}

/// What a store is opened with.
#[derive(Debug, Clone)]
pub struct Setting {
    /// A fresh directory.
    pub directory: PathBuf,
    /// Memory budget.
    pub memory_bytes: u64,
    /// States of the workload.
    pub states: &'static [StateSpec],
    /// Where checkpoints go.
    pub object_store: Option<SocketAddr>,
}

/// Something to do with a store of any type.
pub trait Task {
    /// Does it.
    fn with<S: Store>(self, store: S) -> Result<crate::child::Outcome>;
}

/// Opens an empty store of `kind` and does `task` with it.
pub fn open(
    kind: StoreKind,
    setting: &Setting,
    client: Option<Arc<Client>>,
    log: &CheckpointLog,
    task: impl Task,
) -> Result<crate::child::Outcome> {
    use over_bytes::OverBytes;
    let states = setting.states;
    match kind {
        StoreKind::Highwater => task.with(highwater::Highwater::open(setting, client, log)?),
        StoreKind::RocksdbFlink => {
            task.with(OverBytes::new(rocksdb::Rocks::open(setting, false, client, log)?, states))
        }
        StoreKind::RocksdbStrong => {
            task.with(OverBytes::new(rocksdb::Rocks::open(setting, true, client, log)?, states))
        }
        StoreKind::Fjall => task.with(OverBytes::new(fjall::Fjall::open(setting)?, states)),
        StoreKind::Redb => task.with(OverBytes::new(redb::Redb::open(setting)?, states)),
        StoreKind::Hashmap => task.with(hashmap::Maps::open(setting)),
    }
}
