//! The stores that take part.

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

use serde::{Deserialize, Serialize};

use crate::store::StateSpec;

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
