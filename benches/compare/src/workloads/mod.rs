//! What streaming operators do to their state, made ahead as streams of operations.

pub mod w01_aggregate;
pub mod w02_tumbling;
pub mod w03_holistic;
pub mod w04_sliding;
pub mod w05_session;
pub mod w06_interval_join;
pub mod w07_continuous_join;
pub mod w08_beyond_memory;
pub mod w09_map;
pub mod w10_timers;
pub mod w11_nexmark;
pub mod w12_new_keys;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::ops::{Lap, StreamWriter};
use crate::store::{StateKind, StateSpec};

/// How large a workload is, as a part of its full size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(pub f64);

impl Scale {
    /// `full`, scaled, at least 1.
    pub fn of(self, full: u64) -> u64 {
        ((full as f64 * self.0) as u64).max(1)
    }
}

/// Makes the operations of one workload.
pub trait Generate {
    /// Operations before anything is measured.
    fn load(&mut self, out: &mut StreamWriter) -> Result<()>;
    /// The operations that are measured.
    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap>;
}

/// A workload.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// `W8`.
    pub name: &'static str,
    /// `zipf`; empty when there is one variant alone.
    pub variant: &'static str,
    /// Its states.
    pub states: &'static [StateSpec],
    /// True when it asks for and writes single values alone, so that any store of keys and values can do it.
    pub points: bool,
    /// True when the state must not fit into memory: a cgroup keeps the page cache out.
    pub io: bool,
    /// Makes its operations.
    pub generate: fn(Scale) -> Box<dyn Generate>,
}

impl Workload {
    /// `W8/zipf`.
    pub fn title(&self) -> String {
        if self.variant.is_empty() { self.name.to_owned() } else { format!("{}/{}", self.name, self.variant) }
    }
}

/// A stream in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stream {
    /// Its file.
    pub path: PathBuf,
    /// Operations that are loaded first.
    pub loaded: u64,
    /// Operations in all.
    pub total: u64,
    /// What is added in each lap.
    pub lap: Lap,
}

/// Writes the stream of a workload to `path`.
pub fn make_stream(workload: &Workload, scale: Scale, path: &Path) -> Result<Stream> {
    let mut out = StreamWriter::create(path)?;
    let mut generator = (workload.generate)(scale);
    generator.load(&mut out)?;
    let loaded = out.written();
    let lap = generator.run(&mut out)?;
    Ok(Stream { path: path.to_path_buf(), loaded, total: out.finish()?, lap })
}

/// All of them, in order.
pub fn all() -> Vec<Workload> {
    [
        &w01_aggregate::WORKLOADS[..],
        &w02_tumbling::WORKLOADS,
        &w03_holistic::WORKLOADS,
        &w04_sliding::WORKLOADS,
        &w05_session::WORKLOADS,
        &w06_interval_join::WORKLOADS,
        &w07_continuous_join::WORKLOADS,
        &w08_beyond_memory::WORKLOADS,
        &w09_map::WORKLOADS,
        &w10_timers::WORKLOADS,
        &w11_nexmark::WORKLOADS,
        &w12_new_keys::WORKLOADS,
    ]
    .concat()
}

/// A state whose values aren't counters and which is often asked for what isn't there.
const fn state(name: &'static str, kind: StateKind) -> StateSpec {
    StateSpec { name, kind, counters: false, keys_exist: false }
}

/// A state of counters.
const fn counters(name: &'static str, kind: StateKind) -> StateSpec {
    StateSpec { name, kind, counters: true, keys_exist: false }
}
