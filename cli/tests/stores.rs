//! The real binary on real stores, whose servers `tests/stores/servers` starts: killed, resumed elsewhere, and its output exact. Without
//! the servers these tests say on stderr why they are skipped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use support::{Ended, Job, KILL, SESSIONS, WINDOWS, start};

/// As `tests/stores/servers` has them.
const ACCESS_KEY: &str = "highwater-tests";
const SECRET_KEY: &str = "not-a-secret-of-anybody";
/// No tokens are asked for with it, and so nobody but the server.
const GOOGLE_KEY: &str =
    r#"{"private_key": "none", "private_key_id": "none", "client_email": "none", "disable_oauth": true}"#;
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

struct Server {
    scheme: &'static str,
    variables: Vec<(&'static str, String)>,
}

/// The server of that kind, or nothing and a word why.
fn server(kind: &str) -> Option<Server> {
    let found = match kind {
        "s3" => address("HIGHWATER_TEST_S3", "aws", cfg!(feature = "aws")).map(|address| Server {
            scheme: "s3://highwater",
            variables: vec![
                ("AWS_ENDPOINT_URL", address),
                ("AWS_ALLOW_HTTP", "true".into()),
                ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
                ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.into()),
            ],
        }),
        "azure" => address("HIGHWATER_TEST_AZURE", "azure", cfg!(feature = "azure")).map(|address| Server {
            scheme: "az://highwater",
            variables: vec![
                ("AZURE_STORAGE_ENDPOINT", address),
                ("AZURE_ALLOW_HTTP", "true".into()),
                ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1".into()),
                ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY.into()),
            ],
        }),
        "gcs" => address("HIGHWATER_TEST_GCS", "gcp", cfg!(feature = "gcp")).map(|address| Server {
            scheme: "gs://highwater",
            variables: vec![
                ("GOOGLE_BASE_URL", address),
                ("GOOGLE_ALLOW_HTTP", "true".into()),
                ("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY.into()),
            ],
        }),
        _ => address("HIGHWATER_TEST_HDFS", "hdfs", cfg!(feature = "hdfs"))
            .map(|address| Server { scheme: String::leak(address), variables: Vec::new() }),
    };
    found.map_err(|why| skip(kind, &why)).ok()
}

fn address(variable: &str, feature: &str, built: bool) -> Result<String, String> {
    if !built {
        return Err(format!("built without the cargo feature `{feature}`"));
    }
    std::env::var(variable).map_err(|_| format!("{variable} isn't set; run this by `tests/stores/servers run`"))
}

fn skip(kind: &str, why: &str) {
    let required = std::env::var("HIGHWATER_TEST_STORES_REQUIRED").unwrap_or_default();
    assert!(!required.split(',').any(|required| required == kind), "no {kind}: {why}");
    // Straight to the stream: the test harness keeps what is printed.
    let _ = writeln!(std::io::stderr(), "the command on {kind} is skipped: {why}");
}

impl Server {
    fn root(&self) -> String {
        static ROOTS: AtomicU32 = AtomicU32::new(0);
        format!("{}/cli-{}-{}", self.scheme, std::process::id(), ROOTS.fetch_add(1, Ordering::Relaxed))
    }

    fn command(&self, job: &Job, root: &str, more: &str) -> Command {
        let mut command = job.command(&format!("{more} --store {root}"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run(&self, job: &Job, root: &str, more: &str) -> Ended {
        start(&mut self.command(job, root, more)).wait()
    }

    fn run_killed_at(&self, job: &Job, root: &str, point: &str, more: &str) -> Ended {
        start(self.command(job, root, more).env(KILL, point)).wait()
    }
}

/// Killed from outside, killed at a point of a checkpoint's way into the store, resumed each time without the working directory.
fn killed_and_resumed(kind: &str) {
    let Some(server) = server(kind) else { return };
    for (number, point) in ["after-manifest:1", "before-log-entry:1", "after-log-entry:1"].into_iter().enumerate() {
        let (job, root) = (Job::new([WINDOWS, SESSIONS][number % 2]), server.root());
        let slowly = "--retain 1 --grace 0s --rate 1000";
        let mut running = start(&mut server.command(&job, &root, slowly));
        running.until("rows in the output", |_| job.output().lines().count() > 5);
        running.signal("KILL");
        running.wait().expect(-9);
        job.lose_dir();
        let more = format!("{slowly} --resume --parallelism 3");
        server.run_killed_at(&job, &root, point, &more).expect(-9);
        job.lose_dir();
        let ended = server.run(&job, &root, "--resume --parallelism 4");
        job.check(&ended);
        for secret in [SECRET_KEY, AZURE_KEY] {
            assert!(!format!("{ended:?}").contains(secret), "{ended:?}");
        }
    }
}

#[test]
fn killed_and_resumed_on_s3() {
    killed_and_resumed("s3");
}

#[test]
fn killed_and_resumed_on_azure() {
    killed_and_resumed("azure");
}

#[test]
fn killed_and_resumed_on_googles_storage() {
    killed_and_resumed("gcs");
}

#[test]
fn killed_and_resumed_on_hdfs() {
    killed_and_resumed("hdfs");
}

#[test]
fn plain_http_that_nobody_asked_for_is_a_usage_error_that_says_what_allows_it() {
    let Some(server) = server("s3") else { return };
    let job = Job::new(WINDOWS);
    let mut command = server.command(&job, &server.root(), "");
    let ended = start(command.env_remove("AWS_ALLOW_HTTP")).wait().expect(2);
    assert!(ended.stderr.contains("AWS_ALLOW_HTTP=true"), "{}", ended.stderr);
    assert!(!job.path("out.csv").exists());
}
