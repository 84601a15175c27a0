//! The command line: what can be typed, its defaults, and what is refused before anything is opened.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit::{Failure, Outcome};
use crate::units::{nanos, parse_duration, parse_positive_duration, parse_size};
use crate::window::WindowKind;

/// The greatest max parallelism a job can have.
pub const MAX_PARALLELISM_LIMIT: u32 = 32_768;

/// Keyed state that survives: run a streaming job on Highwater, watch it crash and come back, look into checkpoints.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a generated workload with two crashes and a rescale, and check every result.
    Demo(DemoArgs),
    /// Aggregate a CSV by key and event time; killed at any moment, `--resume` carries on exactly.
    Run(Box<RunArgs>),
    /// Look into the checkpoints of a store.
    Checkpoints {
        /// What to do with them.
        #[command(subcommand)]
        command: CheckpointsCommand,
    },
}

/// What `highwater demo` takes.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// How long events are generated.
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(3..=86_400))]
    pub seconds: u64,
    /// Subtasks at the start; the job is rescaled to one more while it runs.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub parallelism: u32,
    /// Where checkpoints go [default: a temporary directory].
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Serve metrics as Prometheus text over HTTP at this address, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// For tests of the demo's own check: change one digit of this row of the output before it is compared.
    #[arg(long, hide = true, value_name = "ROW")]
    pub corrupt_row: Option<u64>,
}

/// What `highwater run` takes.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The CSV file to read; its first row names the columns.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// The column to group by.
    #[arg(long, value_name = "COLUMN")]
    pub key: String,
    /// The column that holds the event time: RFC 3339 (a leap second, `23:59:60`, counts as `23:59:59`), or seconds or milliseconds since 1970.
    #[arg(long, value_name = "COLUMN")]
    pub time: String,
    /// The column to aggregate: a decimal number, `NA` or empty. A sum of decimals beyond 1.8e308 ends the run.
    #[arg(long, value_name = "COLUMN")]
    pub value: String,
    /// The file to write results to.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,

    /// Which windows to aggregate over.
    #[command(flatten)]
    pub windows: WindowArgs,

    /// How far times may run behind the latest one before a record is late.
    #[arg(long, default_value = "0s", value_name = "D", value_parser = parse_duration)]
    pub out_of_orderness: Duration,
    /// The unit of epoch times; `auto` takes magnitudes from 1e11 for milliseconds.
    #[arg(long, default_value = "auto", value_name = "UNIT")]
    pub time_unit: TimeUnit,

    /// Subtasks that keep state.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub parallelism: u32,
    /// Key groups, and so the most subtasks the job can ever have.
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_parallelism: u32,

    /// Where checkpoints go: a path, file://, s3://, gs://, az:// [default: DIR/checkpoints].
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// The working directory, a cache that may be lost [default: OUTPUT.highwater].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The memory budget of the state.
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = parse_size)]
    pub memory: u64,
    /// The budget for local files [default: nine tenths of what is free].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub disk: Option<u64>,

    /// The time between checkpoints.
    #[arg(long, default_value = "1s", value_name = "D", value_parser = parse_positive_duration)]
    pub interval: Duration,
    /// When a checkpoint that hasn't completed is given up.
    #[arg(long, default_value = "60s", value_name = "D", value_parser = parse_positive_duration)]
    pub checkpoint_timeout: Duration,
    /// Completed checkpoints that are kept.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub retain: u32,
    /// Older ones are kept for so long after they completed, too.
    #[arg(long, default_value = "0s", value_name = "D", value_parser = parse_duration)]
    pub retain_for: Duration,
    /// How long an unreferenced object is kept before it is deleted.
    #[arg(long, default_value = "1h", value_name = "D", value_parser = parse_duration)]
    pub grace: Duration,

    /// Serve metrics as Prometheus text over HTTP at this address, such as 127.0.0.1:9464.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The most records to read in a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// Go on from the newest completed checkpoint.
    #[arg(long)]
    pub resume: bool,
    /// Begin a new job on the state of another, by the root of its checkpoints, of a fork or of a copy. The input goes on where that checkpoint was, the output
    /// begins empty and holds what fires after it. The job gets a root of its own.
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
    /// With --from: which checkpoint, `id` or `epoch/id` [default: the newest].
    #[arg(long, value_name = "ID", requires = "from")]
    pub checkpoint: Option<String>,
    /// With --from: take that root over, checkpoints and all, in place of a root of one's own. Whoever runs on it is fenced.
    #[arg(long, requires = "from", conflicts_with = "no_claim")]
    pub claim: bool,
    /// With --from: never delete anything there, and need nothing from there after the first checkpoint of one's own. The default.
    #[arg(long, requires = "from")]
    pub no_claim: bool,
    /// When the job ends, copy its last checkpoint to a new or an empty place, where it stands on its own.
    #[arg(long, value_name = "URL")]
    pub savepoint_at_end: Option<String>,
    /// Count malformed rows and go on, in place of stopping at the first. One of several lines, as a stray quote makes it, is named by a warning, and
    /// each of its lines counts.
    #[arg(long)]
    pub skip_bad_rows: bool,
    /// Print one line of JSON on stdout.
    ///
    /// Of this process's checkpoints, `delta_bytes` is what was uploaded as segments for those that completed (what one that was given up had uploaded serves the
    /// next and doesn't count again), `uploaded_bytes` all that was sent; `full_bytes` is the size of the job's newest completed one, each object counted once.
    #[arg(long)]
    pub json: bool,
}

/// Either tumbling windows or sessions.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct WindowArgs {
    /// Tumbling windows of this size.
    #[arg(long, value_name = "D", value_parser = parse_positive_duration)]
    pub window: Option<Duration>,
    /// Sessions that end when a key is quiet for this long.
    #[arg(long, value_name = "D", value_parser = parse_positive_duration)]
    pub gap: Option<Duration>,
}

/// The unit of times that are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Milliseconds where the magnitude is 1e11 or more, else seconds.
    Auto,
    /// Seconds since 1970.
    S,
    /// Milliseconds since 1970.
    Ms,
}

impl TimeUnit {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::S => "s",
            Self::Ms => "ms",
        }
    }
}

/// What `highwater checkpoints` does.
#[derive(Debug, Subcommand)]
pub enum CheckpointsCommand {
    /// List the completed checkpoints by id, the newest last.
    List(StoreArgs),
    /// Show what a checkpoint holds: states, segments, key groups, metadata.
    Show(CheckpointArgs),
    /// Check every checksum; exits 3 and names the object when one doesn't hold.
    Verify(CheckpointArgs),
    /// Read one key out of a checkpoint.
    Get(GetArgs),
    /// Hold a checkpoint, whatever retention says, until it is unpinned. Works beside a running job.
    Pin(PinArgs),
    /// Give up a pin.
    Unpin(PinArgs),
    /// Condemn a checkpoint: nobody can go on from it any more, and what it alone needs goes with the next gc after the grace period. Refused for one
    /// that is pinned, for the newest, and for the newest that later ones build on. (A job that isn't needed at all goes by deleting its root.)
    Delete(OneCheckpointArgs),
    /// Begin a new lineage in another root on a checkpoint of this one, copying no data: what it shares is pinned here until the new lineage's first own
    /// checkpoint. Run a job on it with `run --store NEW_URL --resume` or `run --from NEW_URL`.
    Fork(ForkArgs),
    /// Copy a checkpoint with all that it needs to another place, on any store, where it stands on its own. Taken up where it broke off by the same command.
    Copy(CopyArgs),
    /// Delete what no checkpoint needs any more: condemned ones after the grace period, and what was left behind. Works beside a running job.
    Gc(GcArgs),
}

/// What `checkpoints get` takes.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// `id` or `epoch/id`.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The state, by the name that `show` gives.
    #[arg(long, value_name = "NAME")]
    pub state: String,
    /// The key as it stands in the input; for other jobs, its encoded bytes.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: String,
    /// The key is given in hex.
    #[arg(long)]
    pub hex: bool,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// A checkpoint and the name of a pin on it.
#[derive(Debug, Args)]
pub struct PinArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// `id` or `epoch/id`.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The pin, by any name that isn't taken in this root.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// One checkpoint.
#[derive(Debug, Args)]
pub struct OneCheckpointArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// `id` or `epoch/id`.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// What `checkpoints fork` takes.
#[derive(Debug, Args)]
pub struct ForkArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// `id` or `epoch/id`.
    #[arg(value_name = "ID")]
    pub id: String,
    /// The root of the new lineage: a new or an empty place.
    #[arg(value_name = "NEW_URL")]
    pub new_url: String,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// What `checkpoints copy` takes.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The job's root.
    #[arg(value_name = "FROM_URL")]
    pub from_url: String,
    /// The root of the copy: a new or an empty place, or an earlier copy of the same checkpoint.
    #[arg(value_name = "TO_URL")]
    pub to_url: String,
    /// `id` or `epoch/id` [default: the newest].
    #[arg(long, value_name = "ID")]
    pub checkpoint: Option<String>,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// What `checkpoints gc` takes.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// Condemn all checkpoints but the newest N, those that are young enough and pinned ones first [default: condemn none].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub retain: Option<u32>,
    /// With --retain (1 unless given): keep older ones for so long after they completed too.
    #[arg(long, value_name = "D", value_parser = parse_positive_duration)]
    pub retain_for: Option<Duration>,
    /// How long what nobody needs is kept before it is deleted. No shorter than the --grace of a job that runs: it may be reading.
    #[arg(long, default_value = "1h", value_name = "D", value_parser = parse_duration)]
    pub grace: Duration,
    /// Say what would be condemned and deleted, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// A store.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// A store and, if one is meant, a checkpoint in it.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// The job's root.
    #[arg(value_name = "URL")]
    pub url: String,
    /// `id` or `epoch/id` [default: the newest (show), everything (verify)].
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Print one line of JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

impl WindowArgs {
    /// The windows to aggregate over.
    ///
    /// # Errors
    ///
    /// Neither or both were given, which the parser has refused already.
    pub fn kind(&self) -> Outcome<WindowKind> {
        match (self.window, self.gap) {
            (Some(size), None) => Ok(WindowKind::Tumbling { size: nanos(size) }),
            (None, Some(gap)) => Ok(WindowKind::Session { gap: nanos(gap) }),
            _ => Err(Failure::usage("one of --window and --gap is needed")),
        }
    }
}

impl RunArgs {
    /// Refuses what no single option could show to be wrong.
    ///
    /// # Errors
    ///
    /// Usage (exit code 2), naming both values.
    pub fn validate(&self) -> Outcome<()> {
        if self.max_parallelism > MAX_PARALLELISM_LIMIT {
            return Err(Failure::usage(format!(
                "--max-parallelism {} is over the limit of {MAX_PARALLELISM_LIMIT}",
                self.max_parallelism
            )));
        }
        if self.parallelism > self.max_parallelism {
            return Err(Failure::usage(format!(
                "--parallelism {} is more than --max-parallelism {}",
                self.parallelism, self.max_parallelism
            )));
        }
        match (&self.from, &self.store) {
            (Some(from), Some(store)) if self.claim && from != store => {
                return Err(Failure::usage(format!(
                    "--claim goes on in {from} itself: leave out --store {store}, or --claim"
                )));
            }
            (Some(from), Some(store)) if !self.claim && from == store => {
                return Err(Failure::usage(format!(
                    "--from and --store are both {from}: --claim goes on in it, and --resume with its own job"
                )));
            }
            (Some(from), _) if from.starts_with("memory:") => {
                return Err(Failure::usage("--from needs a place that outlives a process, and memory:/// doesn't"));
            }
            _ => {}
        }
        if self.savepoint_at_end.as_ref().is_some_and(|url| url.starts_with("memory:")) {
            return Err(Failure::usage(
                "--savepoint-at-end needs a place that outlives a process, and memory:/// doesn't",
            ));
        }
        self.windows.kind().map(drop)
    }

    /// Whether there is something to resume once this process has ended.
    pub fn outlives_process(&self) -> bool {
        !self.store.as_ref().is_some_and(|url| url.starts_with("memory:"))
    }

    /// The working directory: what was asked for, or one beside the output.
    pub fn working_dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| {
            let mut name = self.output.clone().into_os_string();
            name.push(".highwater");
            PathBuf::from(name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    const RUN: [&str; 12] =
        ["highwater", "run", "--input", "i", "--key", "k", "--time", "t", "--value", "v", "--output", "o"];

    fn run(more: &[&str]) -> Result<RunArgs, clap::Error> {
        match Cli::try_parse_from(RUN.iter().chain(more))?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let args = run(&["--window", "1h"]).unwrap();
        assert_eq!(args.parallelism, 2);
        assert_eq!(args.max_parallelism, 128);
        assert_eq!(args.memory, 256 << 20);
        assert_eq!(args.interval, Duration::from_secs(1));
        assert_eq!(args.checkpoint_timeout, Duration::from_secs(60));
        assert_eq!(args.retain, 3);
        assert_eq!(args.grace, Duration::from_secs(3600));
        assert_eq!(args.out_of_orderness, Duration::ZERO);
        assert_eq!(args.time_unit, TimeUnit::Auto);
        assert_eq!(args.working_dir(), PathBuf::from("o.highwater"));
        assert!(args.store.is_none() && args.rate.is_none() && !args.resume && !args.skip_bad_rows && !args.json);
    }

    #[test]
    fn wrong_usage_exits_2_and_names_the_option() {
        for (more, part) in [
            (&[][..], "--window"),
            (&["--window", "1h", "--gap", "1h"], "cannot be used with"),
            (&["--window", "0s"], "more than 0"),
            (&["--window", "1"], "1ms, 1s"),
            (&["--window", "1h", "--retain", "0"], "--retain"),
            (&["--window", "1h", "--parallelism", "0"], "--parallelism"),
            (&["--window", "1h", "--rate", "0"], "--rate"),
            (&["--window", "1h", "--memory", "64MB"], "use MiB"),
            (&["--window", "1h", "--time-unit", "us"], "--time-unit"),
        ] {
            let error = run(more).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{more:?}");
            assert!(error.to_string().contains(part), "{more:?}: {error}");
        }
    }

    #[test]
    fn parallelism_over_max_names_both_values() {
        let error =
            run(&["--gap", "1h", "--parallelism", "9", "--max-parallelism", "8"]).unwrap().validate().unwrap_err();
        assert!(error.message.contains('9') && error.message.contains('8'), "{error}");
        let error = run(&["--gap", "1h", "--max-parallelism", "40000"]).unwrap().validate().unwrap_err();
        assert!(error.message.contains("40000") && error.message.contains("32768"), "{error}");
    }
}
