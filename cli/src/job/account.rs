//! What is told of a job at its end, by whoever is left to tell it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::args::RunArgs;
use crate::console;
use crate::job::Newest;
use crate::report::{RestoreReport, RunReport};
use crate::runtime::{Ended, Ending, Standing, Stopped};
use crate::units::format_duration;

/// What a process has to report of its job. Clones are of one and the same.
#[derive(Clone, Debug)]
pub struct Account {
    started: Instant,
    standing: Standing,
    restored: Arc<OnceLock<Restored>>,
}

#[derive(Debug)]
struct Restored {
    from: Newest,
    parallelism: u32,
    began: Instant,
}

impl Account {
    /// Of a process that begins.
    pub fn open() -> Self {
        Self { started: Instant::now(), standing: Standing::default(), restored: Arc::default() }
    }

    /// How the job stands.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Notes that a restore begins.
    pub(super) fn restores(&self, from: Option<&Newest>, parallelism: u32) {
        if let Some(from) = from {
            let _ = self.restored.set(Restored { from: from.clone(), parallelism, began: Instant::now() });
        }
    }

    /// The report of a job that ended so.
    pub fn report(&self, ended: &Ended) -> RunReport {
        let restored = self.restored.get().map(|restored| RestoreReport {
            from_checkpoint: restored.from.id,
            parallelism_from: restored.from.parallelism,
            parallelism_to: restored.parallelism,
            first_record_ms: ended.first_record.map(|at| millis(at.saturating_duration_since(restored.began))),
        });
        RunReport::new(ended, &ended.checkpoints, self.started.elapsed(), restored.into_iter().collect())
    }
}

/// Tells people how a job ended, and how it goes on.
pub fn tell_end(ended: &Ended, args: &RunArgs) {
    let Ended { position, totals, .. } = ended;
    if totals.late > 0 {
        console::warn(format_args!(
            "{} of {} records came too late for --out-of-orderness {} and are in no window",
            totals.late,
            position.records,
            format_duration(args.out_of_orderness)
        ));
    }
    if position.skipped > 0 {
        console::warn(format_args!("{} malformed rows were skipped", position.skipped));
    }
    match ended.ending {
        Ending::Finished => console::note(format_args!(
            "{} records, {} rows in {}",
            position.records,
            totals.output_rows,
            args.output.display()
        )),
        Ending::Stopped(Stopped::Complete) => console::note(stopped(Stopped::Complete, position.records)),
        Ending::Stopped(how) => console::warn(stopped(how, position.records)),
        Ending::Crashed => {}
    }
}

/// How a stopped job goes on.
fn stopped(how: Stopped, records: u64) -> String {
    match how {
        Stopped::Complete => format!(
            "stopped after a last checkpoint, {records} records in: the same command with --resume goes on from there"
        ),
        Stopped::Unwritten => format!(
            "stopped after a last checkpoint, {records} records in, but not all of its rows are in the output yet: the same command with \
             --resume writes them and goes on from there"
        ),
        Stopped::Incomplete { newest: Some(id) } => format!(
            "stopped; the last checkpoint was not completed: the same command with --resume goes on from checkpoint {id}, {records} records in"
        ),
        Stopped::Incomplete { newest: None } => {
            "stopped; the last checkpoint was not completed, and there is none before it: the same command, with --resume or without, \
             starts from the beginning"
                .to_owned()
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_job_says_what_a_resume_goes_on_from() {
        for (how, parts) in [
            (Stopped::Complete, &["after a last checkpoint, 9 records", "--resume goes on from there"][..]),
            (Stopped::Unwritten, &["not all of its rows are in the output", "--resume writes them"]),
            (Stopped::Incomplete { newest: Some(7) }, &["was not completed", "--resume goes on from checkpoint 7"]),
            (Stopped::Incomplete { newest: None }, &["was not completed", "starts from the beginning"]),
        ] {
            let said = stopped(how, 9);
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
