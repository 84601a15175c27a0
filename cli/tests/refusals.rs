//! What `highwater run` refuses: exit code 2, both values named, nothing touched.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{Job, WINDOWS};

#[track_caller]
fn refused(job: &Job, more: &str, parts: &[&str]) {
    let before = job.files();
    let ended = job.run(more).expect(2);
    for part in parts {
        assert!(ended.stderr.contains(part), "`{more}` without `{part}`: {}", ended.stderr);
    }
    assert!(ended.stdout.is_empty());
    assert!(job.files() == before, "`{more}` touched something");
}

/// A job that was killed with a good part of its output written.
fn killed() -> Job {
    let job = Job::new(WINDOWS);
    job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
    assert!(!job.output().is_empty());
    job
}

#[test]
fn another_job_than_the_checkpoints() {
    let mut job = killed();
    for (aggregation, parts) in [
        (
            "--key dest --time time_hour --value dep_delay --window 1h --out-of-orderness 1h",
            ["--key carrier", "--key dest"],
        ),
        (
            "--key carrier --time year --value dep_delay --window 1h --out-of-orderness 1h",
            ["--time time_hour", "--time year"],
        ),
        (
            "--key carrier --time time_hour --value month --window 1h --out-of-orderness 1h",
            ["--value dep_delay", "--value month"],
        ),
        (
            "--key carrier --time time_hour --value dep_delay --window 2h --out-of-orderness 1h",
            ["--window 1h", "--window 2h"],
        ),
        (
            "--key carrier --time time_hour --value dep_delay --gap 1h --out-of-orderness 1h",
            ["--window 1h", "--gap 1h"],
        ),
        (
            "--key carrier --time time_hour --value dep_delay --window 1h",
            ["--out-of-orderness 1h", "--out-of-orderness 0s"],
        ),
    ] {
        job.aggregation = aggregation;
        refused(&job, "--resume", &parts);
    }
    job.aggregation = WINDOWS;
    refused(&job, "--resume --time-unit ms", &["--time-unit auto", "--time-unit ms"]);
    refused(&job, "--resume --max-parallelism 64", &["--max-parallelism 128", "--max-parallelism 64"]);
    job.check(&job.run("--resume"));
}

#[test]
fn an_input_whose_consumed_part_was_changed() {
    let mut job = killed();
    let content = std::fs::read_to_string(&job.input).unwrap();
    job.input = job.path("in.csv");
    std::fs::write(&job.input, content.replacen("EWR", "XXX", 1)).unwrap();
    refused(&job, "--resume", &["hash"]);
    std::fs::write(&job.input, &content[..content.len() / 100]).unwrap();
    refused(&job, "--resume", &["bytes"]);
    std::fs::write(&job.input, content).unwrap();
    job.check(&job.run("--resume"));
}

#[test]
fn an_output_that_is_shorter_than_what_was_synced_or_differs() {
    let job = killed();
    let (path, content) = (job.path("out.csv"), job.output());
    // What this kill leaves beyond the synced length isn't known; all of the beginning is within it.
    std::fs::write(&path, &content[..10]).unwrap();
    refused(&job, "--resume", &["bytes were synced, it holds 10"]);
    std::fs::write(&path, content.replacen("window", "Window", 1)).unwrap();
    refused(&job, "--resume", &["was changed", &format!("it holds {} bytes", content.len())]);
    std::fs::remove_file(&path).unwrap();
    refused(&job, "--resume", &["it holds 0"]);
    std::fs::write(&path, content).unwrap();
    job.check(&job.run("--resume"));
}

#[test]
fn a_new_job_where_there_is_one_already() {
    let job = killed();
    refused(&job, "", &["holds a job already"]);
    std::fs::remove_file(job.path("out.csv")).unwrap();
    refused(&job, "", &["holds a job already"]);
}

#[test]
fn an_output_that_isnt_empty() {
    let job = Job::new(WINDOWS);
    std::fs::write(job.path("out.csv"), "precious").unwrap();
    refused(&job, "", &["isn't empty"]);
    refused(
        &job,
        "--resume",
        &["isn't empty", "holds no completed checkpoint", "name the --store of the job that wrote it"],
    );
}

#[test]
fn stores_directories_and_budgets_that_cant_be() {
    let job = Job::new(WINDOWS);
    std::fs::write(job.path("file"), "x").unwrap();
    std::fs::create_dir(job.path("photos")).unwrap();
    std::fs::write(job.path("photos/1.jpg"), "x").unwrap();
    let path = |name: &str| job.path(name).display().to_string();
    for (more, part) in [
        (format!("--store {}", path("file")), "not a directory"),
        (format!("--store {}", path("photos")), "1.jpg"),
        ("--store ftp://host/x".to_owned(), "unknown scheme"),
        ("--store hdfs://host/x".to_owned(), "hdfs"),
        ("--store memory:///x".to_owned(), "memory:///"),
        (format!("--dir {}", path("file")), "not a directory"),
        (format!("--output {}", path("nowhere/out.csv")), "nowhere"),
        ("--memory 1MiB".to_owned(), "1048576"),
        ("--disk 0".to_owned(), "48KiB"),
        ("--disk 1KiB --parallelism 1".to_owned(), "32KiB"),
        ("--output /dev/null".to_owned(), "not a regular file"),
        ("--output same --dir same".to_owned(), "--output and --dir"),
        ("--output same --store same".to_owned(), "--output and --store"),
        ("--store same --dir same".to_owned(), "lies in the checkpoint store"),
        ("--store same --dir same/below".to_owned(), "lies in the checkpoint store"),
        ("--memory 16MiB --parallelism 16".to_owned(), "27MiB"),
        ("--parallelism 9 --max-parallelism 8".to_owned(), "--parallelism 9"),
        ("--max-parallelism 40000".to_owned(), "40000"),
        ("--key nothing".to_owned(), "nothing"),
        (format!("--input {}", path("missing.csv")), "missing.csv"),
    ] {
        refused(&job, &more, &[part]);
        refused(&job, &format!("{more} --resume"), &[part]);
    }
}
