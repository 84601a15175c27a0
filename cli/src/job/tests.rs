//! The whole of `run` but the backend: real files, state in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;

use crate::args::{Cli, Command, RunArgs};
use crate::exit::{Code, Outcome};
use crate::job::{Account, Engine};
use crate::report::RunReport;
use crate::runtime::Stop;
use crate::testing::{MemoryEngine, naive};

const HOUR: i64 = 3_600_000_000_000;

struct Case {
    dir: tempfile::TempDir,
    engine: MemoryEngine,
    input: PathBuf,
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/flights-small.csv")
}

impl Case {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), engine: MemoryEngine::default(), input: fixture() }
    }

    fn of(text: &str) -> Self {
        let mut case = Self::new();
        case.input = case.dir.path().join("in.csv");
        std::fs::write(&case.input, text).unwrap();
        case
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join("out.csv")
    }

    fn content(&self) -> String {
        std::fs::read_to_string(self.output()).unwrap()
    }

    fn args(&self, more: &str) -> RunArgs {
        let (input, output) = (self.input.display(), self.output());
        let line = format!("highwater run --input {input} --output {} --interval 10ms {more}", output.display());
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, more: &str) -> Outcome<RunReport> {
        let account = Account::open();
        let ended = crate::job::run(&self.args(more), &mut self.engine, &Stop::default(), &account)?;
        Ok(account.report(&ended))
    }

    /// Runs until a checkpoint has completed, then is asked to stop or crashes.
    fn run_to_a_checkpoint(&mut self, how: fn(&Stop), more: &str) -> RunReport {
        let (stop, account, over) = (Stop::default(), Account::open(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let completed = || account.standing().now().is_some_and(|ended| ended.checkpoints.completed > 0);
                while !completed() && !over.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                how(&stop);
            });
            let ended = crate::job::run(&self.args(more), &mut self.engine, &stop, &account);
            over.store(true, Ordering::Release);
            account.report(&ended.unwrap())
        })
    }
}

const WINDOWS: &str = "--key carrier --time time_hour --value dep_delay --window 1h";
const SESSIONS: &str = "--key tailnum --time time_hour --value dep_delay --gap 6h --out-of-orderness 24h";
const WINDOWS_HEADER: &str = "window_start,key,rows,count,sum,min,max\n";
const SESSIONS_HEADER: &str = "session_start,session_end,key,rows,count,sum,min,max\n";

#[test]
fn the_flights_by_carrier_and_hour_are_those_of_the_naive_recount() {
    let events = naive::read_csv(&fixture(), "carrier", "time_hour", "dep_delay");
    for (bound, hours) in [("24h", 24), ("4h", 4), ("1h", 1), ("0s", 0)] {
        let (rows, late) = naive::windows(&events, HOUR, hours * HOUR);
        assert_eq!(late == 0, hours == 24);
        for parallelism in [1, 4] {
            let mut case = Case::new();
            let report =
                case.run(&format!("{WINDOWS} --out-of-orderness {bound} --parallelism {parallelism}")).unwrap();
            assert_eq!(case.content(), format!("{WINDOWS_HEADER}{}", rows.concat()));
            assert_eq!(
                (report.records, report.late, report.output_rows),
                (events.len() as u64, late, rows.len() as u64)
            );
            assert!(report.restore.is_none() && report.checkpoints.completed > 0);
        }
    }
}

#[test]
fn the_flights_by_tail_number_are_those_of_the_naive_recount() {
    let events = naive::read_csv(&fixture(), "tailnum", "time_hour", "dep_delay");
    assert!(events.iter().any(|event| event.key == b"NA") && events.iter().any(|event| event.value.is_none()));
    let (rows, _) = naive::sessions(&events, 6 * HOUR, 24 * HOUR);
    let mut case = Case::new();
    case.run(SESSIONS).unwrap();
    assert_eq!(case.content(), format!("{SESSIONS_HEADER}{}", rows.concat()));
}

#[test]
fn crashed_and_stopped_and_resumed_at_other_parallelisms_the_output_is_the_same() {
    let events = naive::read_csv(&fixture(), "carrier", "time_hour", "dep_delay");
    let (rows, late) = naive::windows(&events, HOUR, HOUR);
    let mut case = Case::new();
    let slow = format!("{WINDOWS} --out-of-orderness 1h --rate 12000 --resume");
    case.run_to_a_checkpoint(Stop::crash, &format!("{slow} --parallelism 3"));
    let report = case.run_to_a_checkpoint(Stop::gently, &format!("{slow} --parallelism 1"));
    assert!(report.records > 0 && report.records < events.len() as u64);
    let restore = report.restore.unwrap();
    assert_eq!((restore.parallelism_from, restore.parallelism_to), (3, 1));
    assert!(restore.first_record_ms.is_some());
    case.run_to_a_checkpoint(Stop::crash, &format!("{slow} --parallelism 5"));
    // Junk that a user's hand has left at the end goes.
    let mut content = std::fs::read(case.output()).unwrap();
    content.extend_from_slice(b"junk");
    std::fs::write(case.output(), content).unwrap();
    let report = case.run(&slow).unwrap();
    assert_eq!(case.content(), format!("{WINDOWS_HEADER}{}", rows.concat()));
    assert_eq!((report.records, report.late, report.output_rows), (events.len() as u64, late, rows.len() as u64));
}

#[test]
fn a_resume_of_a_finished_job_changes_nothing() {
    let mut case = Case::new();
    let report = case.run(WINDOWS).unwrap();
    let content = case.content();
    let again = case.run(&format!("{WINDOWS} --resume")).unwrap();
    assert_eq!(case.content(), content);
    assert_eq!((again.records, again.late, again.output_rows), (report.records, report.late, report.output_rows));
    assert_eq!(again.checkpoints.completed, 0);
}

#[test]
fn a_resume_without_a_checkpoint_starts_from_the_beginning() {
    let mut case = Case::new();
    let report = case.run(&format!("{WINDOWS} --resume")).unwrap();
    assert!(report.restore.is_none() && report.restores.is_empty());
    assert!(case.content().starts_with(WINDOWS_HEADER));
}

#[test]
fn what_would_overwrite_something_is_refused_and_nothing_touched() {
    let mut case = Case::new();
    std::fs::write(case.output(), "precious").unwrap();
    for more in ["", " --resume"] {
        let error = case.run(&format!("{WINDOWS}{more}")).unwrap_err();
        assert_eq!(error.code, Code::Usage);
        assert!(error.message.contains("isn't empty"), "{error}");
        assert_eq!(case.content(), "precious");
        assert_eq!(case.engine.claims, 0);
    }
    std::fs::remove_file(case.output()).unwrap();
    case.run(WINDOWS).unwrap();
    let content = case.content();
    let error = case.run(WINDOWS).unwrap_err();
    assert_eq!(error.code, Code::Usage);
    assert!(error.message.contains("holds a job already"), "{error}");
    assert_eq!(case.content(), content);
}

#[test]
fn a_resume_of_another_job_is_refused_naming_both() {
    let mut case = Case::new();
    case.run_to_a_checkpoint(Stop::gently, &format!("{WINDOWS} --rate 12000"));
    let content = case.content();
    for (more, parts) in [
        ("--key dest --time time_hour --value dep_delay --window 1h", ["--key carrier", "--key dest"]),
        ("--key carrier --time time_hour --value arr_delay --window 1h", ["--value dep_delay", "--value arr_delay"]),
        ("--key carrier --time time_hour --value dep_delay --window 2h", ["--window 1h", "--window 2h"]),
        ("--key carrier --time time_hour --value dep_delay --gap 1h", ["no --gap", "--gap 1h"]),
        (
            "--key carrier --time time_hour --value dep_delay --window 1h --time-unit s",
            ["--time-unit auto", "--time-unit s"],
        ),
        (
            "--key carrier --time time_hour --value dep_delay --window 1h --out-of-orderness 5s",
            ["--out-of-orderness 0s", "--out-of-orderness 5s"],
        ),
    ] {
        let error = case.run(&format!("{more} --resume")).unwrap_err();
        assert_eq!(error.code, Code::Usage);
        assert!(parts.iter().all(|part| error.message.contains(part)), "{error}");
        assert_eq!(case.content(), content);
    }
    // The same duration in another unit is no other job.
    case.run("--key carrier --time time_hour --value dep_delay --window 60m --resume").unwrap();
}

#[test]
fn an_input_or_output_that_was_changed_is_refused() {
    let mut case = Case::of("k,t,v\na,1,1\nb,100,2\nc,200,3\n");
    let more = "--key k --time t --value v --window 10s";
    case.run(more).unwrap();
    let content = case.content();
    std::fs::write(&case.input, "k,t,v\na,1,9\nb,100,2\nc,200,3\n").unwrap();
    let error = case.run(&format!("{more} --resume")).unwrap_err();
    assert!(error.code == Code::Usage && error.message.contains("hash"), "{error}");
    assert_eq!(case.content(), content);
}

#[test]
fn malformed_rows_stop_the_job_or_are_counted() {
    let text = "k,t,v\na,1,1\nb,nonsense,2\nb,2,x\nc,3,2.5\nc,4,1\n";
    let more = "--key k --time t --value v --window 10s";
    let error = Case::of(text).run(more).unwrap_err();
    assert_eq!(error.code, Code::Usage);
    assert!(error.message.contains("line 3, column 2 (t)"), "{error}");
    let mut case = Case::of(text);
    let report = case.run(&format!("{more} --skip-bad-rows")).unwrap();
    assert_eq!((report.records, report.skipped, report.late, report.output_rows), (3, 2, 0, 2));
    assert_eq!(
        case.content(),
        format!("{WINDOWS_HEADER}1970-01-01T00:00:00Z,a,1,1,1,1,1\n1970-01-01T00:00:00Z,c,2,2,3.5,1.0,2.5\n")
    );
}

#[test]
fn an_input_without_rows_gives_the_header() {
    let mut case = Case::of("k,t,v\n");
    let report = case.run("--key k --time t --value v --gap 10s").unwrap();
    assert_eq!((report.records, report.output_rows), (0, 0));
    assert_eq!(case.content(), SESSIONS_HEADER);
}

#[test]
fn a_start_without_resume_that_finds_a_checkpoint_completed_while_it_claimed_leaves_the_job_alone() {
    let mut case = Case::new();
    case.run_to_a_checkpoint(Stop::gently, &format!("{WINDOWS} --rate 12000"));
    let (completed, content) = (case.engine.root.clone(), case.content());
    let parts = std::mem::take(&mut *completed.0.lock().unwrap());
    std::fs::write(case.output(), "").unwrap();
    static PARTS: std::sync::Mutex<Vec<(u64, Vec<crate::testing::MemoryPart>)>> = std::sync::Mutex::new(Vec::new());
    PARTS.lock().unwrap().extend(parts);
    case.engine.on_claim = Some(|root| root.0.lock().unwrap().extend(PARTS.lock().unwrap().drain(..)));
    let error = case.run(WINDOWS).unwrap_err();
    assert!(error.code == Code::Usage && error.message.contains("holds a job already"), "{error}");
    assert_eq!(case.content(), "", "not touched");
    std::fs::write(case.output(), content).unwrap();
    case.run(&format!("{WINDOWS} --resume")).unwrap();
}

#[test]
fn a_checkpoint_that_a_predecessor_completes_just_before_it_is_fenced_is_the_one_to_go_on_from() {
    let mut case = Case::new();
    let slow = format!("{WINDOWS} --rate 12000 --resume");
    case.run_to_a_checkpoint(Stop::gently, &slow);
    let newest = case.engine.newest().unwrap().unwrap().id;
    case.engine.on_claim = Some(|root| {
        let mut root = root.0.lock().unwrap();
        let (id, parts) = root.last_key_value().map(|(id, parts)| (*id, parts.clone())).unwrap();
        root.insert(id + 1, parts);
    });
    let report = case.run(&slow).unwrap();
    assert_eq!(report.restore.unwrap().from_checkpoint, newest + 1);
}
