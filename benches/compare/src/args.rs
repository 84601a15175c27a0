//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::stores::StoreKind;

/// Highwater beside what users would pick instead: the same operations on the same machine, in turns, as ratios.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct Args {
    /// What to run: W1 to W12, one variant (W8/zipf), checks C1 to C8. Everything when none is named.
    pub workloads: Vec<String>,
    /// The others.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        StoreKind::RocksdbFlink, StoreKind::RocksdbStrong, StoreKind::Fjall, StoreKind::Redb, StoreKind::Hashmap
    ])]
    pub against: Vec<StoreKind>,
    /// How often each pair is run.
    #[arg(long, default_value_t = 5)]
    pub pairs: usize,
    /// A tenth of the sizes or less, one pair: whether it works, within five minutes. No figures to quote.
    #[arg(long)]
    pub quick: bool,
    /// Checks C1 to C8 as short as with --quick, but for C3, whose 200 checkpoints are the point.
    #[arg(long)]
    pub quick_checks: bool,
    /// Writes all rows here.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Writes plots into this directory.
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Writes the measured part of this page (benches/RESULTS.md), and plots and rows into the folder `results` beside it.
    #[arg(long)]
    pub results: Option<PathBuf>,
    /// Part of the full sizes; with --quick 0.01 when not given.
    #[arg(long)]
    pub scale: Option<f64>,
    /// Memory budget of every store, MiB.
    #[arg(long, default_value_t = 256)]
    pub memory_mib: u64,
    /// Seconds between checkpoints, 0 for none; what each workload asks for when not given.
    #[arg(long, value_delimiter = ',')]
    pub intervals: Vec<f64>,
    /// Seconds of each run at a fixed rate, as many more as two checkpoints take; with --quick 0.5 when not given.
    #[arg(long)]
    pub latency_seconds: Option<f64>,
    /// Doesn't compare answers with the model's first.
    #[arg(long)]
    pub no_verify: bool,
    /// Where stores keep their files meanwhile; a temporary directory when not given.
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// What this process is, when it isn't the one that compares.
    #[command(subcommand)]
    pub role: Option<Role>,
}

/// Processes that the comparison starts.
#[derive(Debug, Clone, Subcommand)]
pub enum Role {
    /// Plays the object store.
    #[command(hide = true)]
    ObjectStore {
        /// Directory of its objects.
        root: PathBuf,
    },
    /// Measures one store; the job comes on standard input.
    #[command(hide = true)]
    Child,
}

impl Args {
    /// Part of the full sizes.
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or(if self.quick { 0.01 } else { 1.0 })
    }

    /// True for a store that a quick run does without where another variant of it takes part.
    pub fn leaves_out(&self, store: StoreKind) -> bool {
        self.quick && store == StoreKind::RocksdbFlink && self.against.contains(&StoreKind::RocksdbStrong)
    }

    /// True when checks are to be short.
    pub fn short_checks(&self) -> bool {
        self.quick || self.quick_checks
    }

    /// Pairs to run.
    pub fn pairs(&self) -> usize {
        if self.quick { 1 } else { self.pairs.max(1) }
    }

    /// Seconds of each run at a fixed rate.
    pub fn latency_seconds(&self) -> f64 {
        self.latency_seconds.unwrap_or(if self.quick { 0.5 } else { 20.0 })
    }

    /// Memory budget.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    /// True when `title` is asked for: by name, or by its workload's name.
    pub fn wants(&self, title: &str) -> bool {
        let name = title.split('/').next().unwrap_or_default();
        let is = |wanted: &String| wanted.eq_ignore_ascii_case(title) || wanted.eq_ignore_ascii_case(name);
        self.workloads.is_empty() || self.workloads.iter().any(is)
    }
}
