//! The rows as JSON, with the machine and the commit.

use std::process::Command;

use serde_json::json;

use crate::Result;
use crate::rows::Row;

/// `{machine, commit, rows, notes}`.
pub fn of(rows: &[Row], notes: &[String]) -> Result<String> {
    Ok(serde_json::to_string_pretty(&json!({
        "machine": machine(),
        "commit": commit(),
        "rows": rows,
        "notes": notes,
    }))?)
}

/// Load over one, five and fifteen minutes.
pub fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Processor, cores and memory.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("{}, {cores} cores, {} memory", field(&cpu, "model name"), field(&memory, "MemTotal"))
}

/// The commit that is checked out.
pub fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
