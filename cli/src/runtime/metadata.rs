//! What the sink's part of every checkpoint says about the whole job, as JSON so that `checkpoints show` can print it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exit::{Failure, Outcome};
use crate::output::Synced;
use crate::position::Position;

const FORMAT: u32 = 1;

/// Totals of a job, across resumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Records that came too late.
    pub late: u64,
    /// Rows of the output, its header not counted.
    pub output_rows: u64,
}

/// Where a job stands at a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMetadata {
    /// The version of this structure.
    pub format: u32,
    /// The options that make the job what it is, as they would be typed.
    pub config: BTreeMap<String, String>,
    /// How far the input has been read.
    pub position: Position,
    /// Whether all results of an input that has ended are in the output that the checkpoint commits: nothing is left to do.
    pub complete: bool,
    /// How much of the output was synced before the checkpoint.
    pub synced: Synced,
    /// Where the output ends that the checkpoint commits; the rows from the synced length to here are in the state.
    pub staged_end: u64,
    /// The job's totals.
    pub totals: Totals,
}

impl JobMetadata {
    /// The metadata of a job of this version of the program.
    pub fn new(
        config: BTreeMap<String, String>,
        position: Position,
        complete: bool,
        synced: Synced,
        staged_end: u64,
        totals: Totals,
    ) -> Self {
        Self { format: FORMAT, config, position, complete, synced, staged_end, totals }
    }

    /// The bytes that ride in the checkpoint.
    ///
    /// # Errors
    ///
    /// A fault of the program.
    pub fn encode(&self) -> Outcome<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Failure::internal(format!("cannot encode the job's metadata: {error}")))
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// The bytes are no job's metadata, or a newer version's (exit code 3).
    pub fn decode(bytes: &[u8]) -> Outcome<Self> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let unreadable =
            |error| Failure::checkpoint(format!("the checkpoint's metadata is not that of a job: {error}"));
        let Version { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Failure::checkpoint(format!(
                "the checkpoint's metadata has format {format}; this version reads {FORMAT}"
            )));
        }
        serde_json::from_slice(bytes).map_err(unreadable)
    }

    /// Refuses to go on from the checkpoint, be it another's, with options that make its state something else.
    ///
    /// # Errors
    ///
    /// An option differs (exit code 2, naming both values).
    pub fn check_config(&self, now: &BTreeMap<String, String>) -> Outcome<()> {
        let shown = |config: &BTreeMap<String, String>, option: &String| match config.get(option) {
            Some(value) => format!("--{option} {value}"),
            None => format!("no --{option}"),
        };
        let options: std::collections::BTreeSet<_> = self.config.keys().chain(now.keys()).collect();
        let differences: Vec<String> = options
            .into_iter()
            .filter(|option| self.config.get(*option) != now.get(*option))
            .map(|option| {
                format!("the checkpoint has {}, the command line {}", shown(&self.config, option), shown(now, option))
            })
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "a checkpoint is gone on from with the same options only: {}",
            differences.join("; ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Code;

    fn config(options: &[(&str, &str)]) -> BTreeMap<String, String> {
        options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn metadata() -> JobMetadata {
        let config = config(&[("key", "carrier"), ("window", "1h")]);
        JobMetadata::new(config, Position::start(), false, Synced::nothing(), 7, Totals { late: 1, output_rows: 2 })
    }

    #[test]
    fn metadata_reads_back_and_other_formats_are_refused() {
        let bytes = metadata().encode().unwrap();
        assert_eq!(JobMetadata::decode(&bytes), Ok(metadata()));
        for (bytes, part) in [
            (&b""[..], "not that of a job"),
            (b"{}", "not that of a job"),
            (b"{\"format\":1}", "not that of a job"),
            (b"{\"format\":2}", "format 2"),
        ] {
            let error = JobMetadata::decode(bytes).unwrap_err();
            assert_eq!(error.code, Code::Checkpoint);
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn another_job_is_refused_naming_both_values() {
        let metadata = metadata();
        assert_eq!(metadata.check_config(&metadata.config), Ok(()));
        let error = metadata.check_config(&config(&[("key", "carrier"), ("gap", "2h")])).unwrap_err();
        assert_eq!(error.code, Code::Usage);
        for part in ["has no --gap, the command line --gap 2h", "has --window 1h, the command line no --window"] {
            assert!(error.message.contains(part), "{error}");
        }
        let error = metadata.check_config(&config(&[("key", "dest"), ("window", "1h")])).unwrap_err();
        assert!(error.message.contains("--key carrier") && error.message.contains("--key dest"), "{error}");
    }
}
