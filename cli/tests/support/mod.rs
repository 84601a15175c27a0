//! The real binary on the fixture, and what its output has to be.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

pub mod naive;

pub const HOUR: i64 = 3_600_000_000_000;
pub const KILL: &str = "HIGHWATER_TEST_KILL";

/// Long enough for the busiest machine; no test waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// The aggregations that most tests run. Both have late records.
pub const WINDOWS: &str = "--key carrier --time time_hour --value dep_delay --window 1h --out-of-orderness 1h";
pub const SESSIONS: &str = "--key tailnum --time time_hour --value dep_delay --gap 6h --out-of-orderness 1h";

pub fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/flights-small.csv")
}

/// What a job has to come to.
#[derive(Clone)]
pub struct Expected {
    pub output: String,
    pub records: u64,
    pub late: u64,
    pub rows: u64,
}

pub fn expected(aggregation: &str) -> Expected {
    let sessions = aggregation == SESSIONS;
    let events = naive::read_csv(&fixture(), if sessions { "tailnum" } else { "carrier" }, "time_hour", "dep_delay");
    let (header, (rows, late)) = if sessions {
        ("session_start,session_end,key,rows,count,sum,min,max\n", naive::sessions(&events, 6 * HOUR, HOUR))
    } else {
        ("window_start,key,rows,count,sum,min,max\n", naive::windows(&events, HOUR, HOUR))
    };
    assert!(late > 0);
    Expected {
        output: format!("{header}{}", rows.concat()),
        records: events.len() as u64,
        late,
        rows: rows.len() as u64,
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code, or minus the signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// A process that runs.
pub struct Running {
    child: Child,
    stderr: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

pub fn start(command: &mut Command) -> Running {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stderr, lines) = (Arc::<Mutex<String>>::default(), BufReader::new(child.stderr.take().unwrap()).lines());
    let seen = stderr.clone();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            *seen.lock().unwrap() += &(line + "\n");
        }
    });
    Running { child, stderr, reader: Some(reader) }
}

impl Running {
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits for progress.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(self.child.try_wait().unwrap().is_none(), "ended before {what}: {}", self.stderr());
            assert!(begun.elapsed() < PATIENCE, "no {what}: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Anonymous memory of the process now; `None` once it has ended.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
        Some(line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10)
    }

    /// Waits, and looks at the memory every few milliseconds: with the end comes the most there was.
    #[track_caller]
    pub fn wait_and_watch_memory(mut self) -> (Ended, u64) {
        let (begun, mut most) = (Instant::now(), 0);
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "never ends: {}", self.stderr());
            most = most.max(self.resident_bytes().unwrap_or_default());
            std::thread::sleep(Duration::from_millis(2));
        }
        (self.wait(), most)
    }

    pub fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    #[track_caller]
    pub fn wait(mut self) -> Ended {
        use std::io::Read;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "never ends: {}", self.stderr());
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.reader.take().unwrap().join().unwrap();
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
        Ended { code, stdout, stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job with files of its own.
pub struct Job {
    pub folder: tempfile::TempDir,
    pub aggregation: &'static str,
    pub input: PathBuf,
}

impl Job {
    pub fn new(aggregation: &'static str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), aggregation, input: fixture() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn output(&self) -> String {
        std::fs::read_to_string(self.path("out.csv")).unwrap_or_default()
    }

    /// `highwater run` of this job, with checkpoints as often as they get done.
    pub fn command(&self, more: &str) -> Command {
        let mut command = highwater("run --json");
        let path = |name: &str| self.path(name).into_os_string();
        let mut defaults: Vec<(&str, OsString)> = vec![
            ("--interval", "10ms".into()),
            ("--input", self.input.clone().into()),
            ("--output", path("out.csv")),
            ("--store", path("store")),
            ("--dir", path("dir")),
        ];
        let mut options = self.aggregation.split_whitespace();
        while let (Some(option), Some(value)) = (options.next(), options.next()) {
            defaults.push((option, value.into()));
        }
        for (option, value) in defaults {
            if !more.split_whitespace().any(|word| word == option) {
                command.arg(option).arg(value);
            }
        }
        command.args(more.split_whitespace());
        command
    }

    pub fn start(&self, more: &str) -> Running {
        start(&mut self.command(more))
    }

    #[track_caller]
    pub fn run(&self, more: &str) -> Ended {
        self.start(more).wait()
    }

    /// Runs until the process kills itself at `point`, or to its end.
    #[track_caller]
    pub fn run_killed_at(&self, point: &str, more: &str) -> Ended {
        start(self.command(more).env(KILL, point)).wait()
    }

    /// Runs until rows have reached the output of a job that has a good way to go.
    pub fn start_and_see_rows(&self, more: &str) -> Running {
        let mut running = self.start(more);
        running.until("rows in the output", |_| self.output().lines().count() > 5);
        running
    }

    pub fn lose_dir(&self) {
        std::fs::remove_dir_all(self.path("dir")).unwrap();
    }

    /// Every file below the job's folder with its content, to see that nothing was touched.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        walk(self.folder.path(), &mut files);
        files
    }

    #[track_caller]
    pub fn check(&self, ended: &Ended) {
        let want = expected(self.aggregation);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(self.output() == want.output, "the output differs: {}\n{}", self.output(), ended.stderr);
        let json = ended.json();
        assert_eq!((&json["records"], &json["late"]), (&want.records.into(), &want.late.into()), "{json}");
        assert_eq!((&json["output_rows"], &json["skipped"]), (&want.rows.into(), &0.into()), "{json}");
    }
}

fn walk(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    files.insert(folder.to_owned(), Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
}

pub fn highwater(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.args(line.split_whitespace()).env_remove(KILL).env_remove("RUST_LOG");
    command
}
