//! Sizes that follow from the memory budget, and that only tests and experts set by hand.

use crate::base::compression::Compression;
use crate::{Error, Result};

/// Sizes of the store's parts. The default for a budget comes from [`Tuning::for_memory`]; tests use tiny ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Size of a memtable page.
    pub page_bytes: usize,
    /// Most memtable bytes of a backend, dirty and clean, where its share of the budget is more.
    pub memtable_bytes: u64,
    /// Dirty bytes at which a backend freezes its epoch without being asked, to flush it.
    pub epoch_bytes: u64,
    /// Size of a data block before compression.
    pub block_bytes: usize,
    /// Size at which a segment file is cut.
    pub segment_bytes: u64,
    /// Size of level 1; each deeper level is ten times larger.
    pub level_base_bytes: u64,
    /// Runs of level 0 at which they are merged.
    pub level_zero_runs: usize,
    /// Compression of blocks in level 1 and below. Level 0 is short-lived and stays raw.
    pub compression: Compression,
}

impl Tuning {
    /// Sizes that suit a memory budget.
    #[must_use]
    pub fn for_memory(memory_bytes: u64) -> Self {
        let small = memory_bytes < 128 << 20;
        Self {
            page_bytes: if small { 64 << 10 } else { 256 << 10 },
            memtable_bytes: u64::MAX,
            epoch_bytes: (memory_bytes / 8).max(1 << 20),
            block_bytes: 4 << 10,
            segment_bytes: if small { 4 << 20 } else { 32 << 20 },
            level_base_bytes: (memory_bytes / 4).max(16 << 20),
            level_zero_runs: 8,
            compression: Compression::Lz4,
        }
    }

    /// # Errors
    /// `InvalidArgument` naming the value that makes no sense.
    pub(super) fn check(&self) -> Result<()> {
        let check = |name: &str, value: u64, least: u64| {
            if value >= least {
                Ok(())
            } else {
                Err(Error::invalid(format!("tuning: {name} {value} is below {least}")))
            }
        };
        check("page_bytes", self.page_bytes as u64, 4096)?;
        check("memtable_bytes", self.memtable_bytes, 16 * self.page_bytes as u64)?;
        check("epoch_bytes", self.epoch_bytes, 1024)?;
        check("block_bytes", self.block_bytes as u64, 64)?;
        check("segment_bytes", self.segment_bytes, 1024)?;
        check("level_base_bytes", self.level_base_bytes, 1024)?;
        check("level_zero_runs", self.level_zero_runs as u64, 2)
    }
}
