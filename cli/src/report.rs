//! What `--json` prints: one object on one line, with these field names.

use std::time::Duration;

use serde::Serialize;

use crate::lifecycle::CopyReport;
use crate::runtime::{CheckpointStats, Ended, Quantiles};

/// What `run --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// Well-formed records of the whole job, late ones included.
    pub records: u64,
    /// How long this process took.
    pub seconds: f64,
    /// Malformed rows of the whole job; one of several lines counts for each.
    pub skipped: u64,
    /// Late records of the whole job.
    pub late: u64,
    /// Rows of the output, its header not counted.
    pub output_rows: u64,
    /// This process's checkpoints.
    pub checkpoints: CheckpointReport,
    /// The last restore of this process.
    pub restore: Option<RestoreReport>,
    /// All restores of this process.
    pub restores: Vec<RestoreReport>,
    /// With `--savepoint-at-end`: where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub savepoint: Option<CopyReport>,
}

/// What `demo --json` prints: the report of a run, and what came of the check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DemoReport {
    /// As `run` reports it; `records` are bids.
    #[serde(flatten)]
    pub run: RunReport,
    /// Events generated, of which bids are a part.
    pub events: u64,
    /// How often everything in memory and the working directory was thrown away.
    pub crashes: u64,
    /// Rows that were compared with the recomputation.
    pub compared: u64,
    /// Rows that differ, are missing or are too many.
    pub differences: u64,
}

/// What checkpoints took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointReport {
    /// Completed ones.
    pub completed: u64,
    /// Those given up.
    pub aborted: u64,
    /// Those that were due while too many were under way.
    pub skipped: u64,
    /// How long the owner of a part waited for `checkpoint()`, in microseconds.
    pub sync_us: Quantiles,
    /// How long the sink waited from the first barrier to the last, in milliseconds.
    pub alignment_ms: Quantiles,
    /// From the trigger to completion, in milliseconds.
    pub duration_ms: Quantiles,
    /// Bytes of the segments that were uploaded for those that completed. What one that was given up had uploaded serves the next, where it doesn't
    /// count again: it is in `uploaded_bytes` alone, and `delta_bytes` may be 0 then.
    pub delta_bytes: u64,
    /// Everything uploaded: manifests, retries and what was uploaded for those that were given up included.
    pub uploaded_bytes: u64,
    /// Bytes of all objects that the job's newest completed one reaches, be it of an earlier process; each object counts once.
    pub full_bytes: u64,
}

/// A restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// The id of the checkpoint.
    pub from_checkpoint: u64,
    /// Subtasks that wrote it.
    pub parallelism_from: u32,
    /// Subtasks that read it.
    pub parallelism_to: u32,
    /// From the start of the restore until the first record had been processed; null when there was none.
    pub first_record_ms: Option<u64>,
}

/// What `checkpoints list --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListReport {
    /// Oldest first.
    pub checkpoints: Vec<ListedCheckpoint>,
    /// Of a fork: where it began.
    pub forked_from: Option<OriginReport>,
}

/// Where a fork began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginReport {
    /// The root.
    pub url: String,
    /// The checkpoint there.
    pub checkpoint: String,
    /// The checkpoint that it became here.
    pub forked: String,
    /// Whether a checkpoint here still reaches into that root.
    pub needed: bool,
    /// The pin that holds it there; null once it has been released.
    pub pin: Option<String>,
}

/// One completed checkpoint of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedCheckpoint {
    /// Its id.
    pub id: u64,
    /// The writer epoch it belongs to.
    pub epoch: u64,
    /// When it completed, RFC 3339.
    pub completed: String,
    /// Subtasks that wrote it.
    pub parallelism: u32,
    /// Bytes that it reaches.
    pub bytes: u64,
    /// Names of the pins that hold it.
    pub pins: Vec<String>,
}

/// What `checkpoints show --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShowReport {
    /// Its id.
    pub id: u64,
    /// The writer epoch it belongs to.
    pub epoch: u64,
    /// When it completed, RFC 3339.
    pub completed: String,
    /// Subtasks that wrote it.
    pub parallelism: u32,
    /// Key groups.
    pub max_parallelism: u32,
    /// What the job put in: JSON where it is that, else hex.
    pub metadata: serde_json::Value,
    /// What it holds.
    pub states: Vec<StateReport>,
    /// In which files.
    pub segments: Vec<SegmentReport>,
    /// Where the bytes lie.
    pub key_groups: Vec<KeyGroupReport>,
}

/// One state of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateReport {
    /// Its name.
    pub name: String,
    /// Value, list, map, timers and so on.
    pub kind: String,
    /// Records in segments, older versions of a key included.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One segment of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// Its object name, below the root.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its records.
    pub entries: u64,
    /// Its level.
    pub level: u32,
}

/// One key group of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyGroupReport {
    /// The operator it belongs to: each has groups of its own.
    pub operator: String,
    /// Its number.
    pub group: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// What `checkpoints verify --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Objects checked, referenced or not.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are damaged or missing.
    pub bad: Vec<BadObject>,
    /// Remains of interrupted writes: reported, not failed.
    pub leftovers: u64,
}

/// An object whose checksums don't hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadObject {
    /// Its name, below the root.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl RunReport {
    /// The report of a process whose last run ended as `ended`; its figures have been merged with those of earlier runs.
    pub fn new(ended: &Ended, checkpoints: &CheckpointStats, took: Duration, restores: Vec<RestoreReport>) -> Self {
        Self {
            records: ended.position.records,
            seconds: (took.as_secs_f64() * 1e3).round() / 1e3,
            skipped: ended.position.skipped,
            late: ended.totals.late,
            output_rows: ended.totals.output_rows,
            checkpoints: CheckpointReport::new(checkpoints),
            restore: restores.last().cloned(),
            restores,
            savepoint: None,
        }
    }
}

impl CheckpointReport {
    fn new(stats: &CheckpointStats) -> Self {
        Self {
            completed: stats.completed,
            aborted: stats.aborted,
            skipped: stats.skipped,
            sync_us: stats.sync_us(),
            alignment_ms: stats.alignment_ms(),
            duration_ms: stats.duration_ms(),
            delta_bytes: stats.delta_bytes,
            uploaded_bytes: stats.uploaded_bytes,
            full_bytes: stats.full_bytes,
        }
    }
}

/// A caller's metadata for people: its JSON where it is JSON, text in hex otherwise.
pub fn readable_metadata(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Position;
    use crate::runtime::{Ending, Totals};

    #[test]
    fn the_field_names_are_those_scripts_rely_on() {
        let ended = Ended {
            ending: Ending::Finished,
            newest: None,
            position: Position { records: 9, skipped: 1, ..Position::start() },
            totals: Totals { late: 2, output_rows: 3 },
            checkpoints: CheckpointStats::default(),
            first_record: None,
        };
        let restore =
            RestoreReport { from_checkpoint: 4, parallelism_from: 2, parallelism_to: 3, first_record_ms: Some(5) };
        let report = RunReport::new(&ended, &ended.checkpoints, Duration::from_millis(1500), vec![restore]);
        let quantiles = r#"{"p50":0.0,"p99":0.0,"max":0.0}"#;
        let restore = r#"{"from_checkpoint":4,"parallelism_from":2,"parallelism_to":3,"first_record_ms":5}"#;
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            format!(
                r#"{{"records":9,"seconds":1.5,"skipped":1,"late":2,"output_rows":3,"checkpoints":{{"completed":0,"aborted":0,"skipped":0,"sync_us":{quantiles},"alignment_ms":{quantiles},"duration_ms":{quantiles},"delta_bytes":0,"uploaded_bytes":0,"full_bytes":0}},"restore":{restore},"restores":[{restore}]}}"#
            )
        );
        let report = RunReport::new(&ended, &ended.checkpoints, Duration::ZERO, Vec::new());
        assert!(serde_json::to_string(&report).unwrap().ends_with(r#""restore":null,"restores":[]}"#));
    }

    #[test]
    fn metadata_is_shown_as_json_or_hex() {
        assert_eq!(readable_metadata(b"{\"a\":1}"), serde_json::json!({"a": 1}));
        assert_eq!(readable_metadata(b"\xff\x00"), serde_json::json!("ff00"));
    }
}
