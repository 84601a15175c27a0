//! What the comparison shows: progress, a table, JSON, plots.

pub mod json;
pub mod plots;
pub mod results;
pub mod svg;
pub mod table;
pub mod targets;

use std::time::Instant;

use crate::Result;
use crate::args::Args;
use crate::child::{Mode, Outcome};
use crate::rows::Row;
use crate::stores::StoreKind;

/// Runs kept for plots.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// `W8/zipf`.
    pub title: String,
    /// Seconds between checkpoints.
    pub interval_s: Option<f64>,
    /// Of each store, its last run at a fixed rate.
    pub runs: Vec<(StoreKind, Outcome)>,
}

/// Collects as the comparison goes on.
#[derive(Debug)]
pub struct Report {
    start: Instant,
    /// The machine's load when it began.
    pub load: String,
    /// Lines of the table.
    pub rows: Vec<Row>,
    /// What went wrong, or wasn't done.
    pub notes: Vec<String>,
    /// Runs kept for plots.
    pub remembered: Vec<Remembered>,
}

impl Report {
    /// An empty one.
    pub fn new() -> Self {
        Self { start: Instant::now(), load: json::load(), rows: Vec::new(), notes: Vec::new(), remembered: Vec::new() }
    }

    /// Prints a line.
    pub fn progress(&self, line: impl AsRef<str>) {
        eprintln!("{:6.1} s  {}", self.start.elapsed().as_secs_f64(), line.as_ref());
    }

    /// Prints what went wrong, and keeps it.
    pub fn note(&mut self, line: String) {
        self.progress(&line);
        self.notes.push(line);
    }

    /// Prints what one run did.
    pub fn ran(&self, title: &str, interval_s: Option<f64>, store: StoreKind, mode: Mode, outcome: &Outcome) {
        let interval = interval_s.map_or("no checkpoints".to_owned(), |s| format!("every {s} s"));
        let figures = match (mode, outcome.latency_ns) {
            (Mode::Latency { per_second, .. }, Some(ns)) => {
                let us = ns.map(|ns| ns / 1000.0);
                format!(
                    "at {:.0} a second: p50 {:.1} p99 {:.1} p99.9 {:.1} p99.99 {:.1} max {:.0} us",
                    per_second, us[0], us[1], us[2], us[3], us[4]
                )
            }
            _ => format!(
                "{:.0} ns/op + {:.1} s of debt, {} MiB, {} checkpoints, {} MiB uploaded",
                outcome.run_s * 1e9 / outcome.ops.max(1) as f64,
                outcome.settle_s,
                outcome.memory_bytes >> 20,
                outcome.checkpoints.len(),
                outcome.counts.state_bytes >> 20
            ),
        };
        self.progress(format!("{title} {interval} {}: {figures}", store.name()));
    }

    /// Adds rows.
    pub fn add(&mut self, rows: Vec<Row>) {
        self.rows.extend(rows);
    }

    /// Keeps the last run of each store.
    pub fn remember(
        &mut self,
        title: &str,
        interval_s: Option<f64>,
        stores: &[StoreKind],
        runs: &[Vec<Option<Outcome>>],
    ) {
        let last =
            stores.iter().zip(runs).filter_map(|(store, runs)| Some((*store, runs.iter().flatten().last()?.clone())));
        self.remembered.push(Remembered { title: title.to_owned(), interval_s, runs: last.collect() });
    }

    /// Keeps the points of each store.
    pub fn remember_curves(&mut self, title: &str, outcomes: &[(StoreKind, Option<Outcome>)]) {
        let runs = outcomes.iter().filter_map(|(store, outcome)| Some((*store, outcome.clone()?)));
        self.remembered.push(Remembered { title: title.to_owned(), interval_s: None, runs: runs.collect() });
    }

    /// Prints the table and writes what was asked for.
    pub fn finish(&self, args: &Args) -> Result<()> {
        print!("{}", table::of(&self.rows, &self.notes));
        if let Some(path) = &args.json {
            std::fs::write(path, json::of(&self.rows, &self.notes)?)?;
        }
        if let Some(directory) = &args.plot {
            plots::write(directory, &self.rows, &self.remembered)?;
        }
        if let Some(page) = &args.results {
            results::write(page, self)?;
        }
        Ok(())
    }
}
