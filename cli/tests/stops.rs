//! Asked to stop while something hangs, waits or is away: the process ends, says what a resume goes on from, and that is so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{Job, KILL, Running, WINDOWS, start};

const SLOW: &str = "--rate 2000 --checkpoint-timeout 1s";

/// A job in which every thread that passes `point` hangs from the named passing on.
fn hanging(job: &Job, point: &str, more: &str) -> Running {
    start(job.command(more).env(KILL, format!("{point}:hang")))
}

#[test]
fn uploads_that_hang_leave_the_beginning_to_go_on_from() {
    let job = Job::new(WINDOWS);
    let mut running = hanging(&job, "before-segment:1", SLOW);
    running.until("a checkpoint given up", |running| running.stderr().contains("was given up"));
    running.signal("TERM");
    let stopped = running.wait().expect(0);
    for part in ["last checkpoint was not completed", "there is none before it", "starts from the beginning"] {
        assert!(stopped.stderr.contains(part), "no `{part}`: {}", stopped.stderr);
    }
    assert_eq!(stopped.json()["records"], 0, "{stopped:?}");
    // That is so, without --resume too.
    job.check(&job.run(""));
}

#[test]
fn a_root_log_an_output_or_an_input_that_hangs_doesnt_keep_the_process_alive() {
    // Entries before it: the claim, the claim once more to see that it isn't replaced, and the first checkpoint.
    for point in ["before-log-entry:4", "in-append:1", "event:1200"] {
        let job = Job::new(WINDOWS);
        let mut running = hanging(&job, point, SLOW);
        running.until("rows", |_| !job.output().is_empty());
        if point.starts_with("event") {
            running.until("a checkpoint given up", |running| running.stderr().contains("was given up"));
        }
        running.signal("TERM");
        let stopped = running.wait().expect(0);
        for part in ["last checkpoint was not completed", "--resume goes on from checkpoint "] {
            assert!(stopped.stderr.contains(part), "{point}, no `{part}`: {}", stopped.stderr);
        }
        let (_, told) = stopped.stderr.split_once("goes on from checkpoint ").unwrap();
        let resumed = job.run("--resume");
        job.check(&resumed);
        let from = resumed.json()["restore"]["from_checkpoint"].to_string();
        assert!(told.starts_with(&format!("{from},")), "{point}: from {from}, told {told}");
    }
}

#[test]
fn a_restore_that_hangs_doesnt_keep_the_process_alive() {
    let job = Job::new(WINDOWS);
    job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
    let mut running = hanging(&job, "read-manifest:1", &format!("{SLOW} --resume"));
    running.until("the claim", |running| running.stderr().contains("on the same disk"));
    running.signal("INT");
    let stopped = running.wait().expect(0);
    assert!(stopped.stderr.contains("stopped before the job had begun"), "{stopped:?}");
    job.check(&job.run("--resume"));
}

#[test]
fn a_store_that_is_away_at_a_stop_is_waited_for_no_longer_than_a_checkpoint_may_take() {
    let job = Job::new(WINDOWS);
    let running = job.start_and_see_rows(SLOW);
    std::fs::rename(job.path("store"), job.path("away")).unwrap();
    running.signal("TERM");
    let stopped = running.wait().expect(0);
    assert!(stopped.stderr.contains("--resume goes on from checkpoint "), "{stopped:?}");
    std::fs::rename(job.path("away"), job.path("store")).unwrap();
    job.check(&job.run("--resume"));
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let job = Job::new(WINDOWS);
    let mut running = hanging(&job, "before-segment:1", "--rate 500 --checkpoint-timeout 1h");
    running.until("the claim", |running| running.stderr().contains("on the same disk"));
    running.signal("TERM");
    running.until("the first signal", |running| running.stderr().contains("stopping: a last checkpoint"));
    running.signal("TERM");
    running.wait().expect(-15);
}
