//! Local disk and store that are lost, full or closed to us under a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{Job, SESSIONS, WINDOWS};

#[test]
fn a_working_directory_deleted_under_a_run_ends_it_with_1_and_a_resume_is_exact() {
    let job = Job::new(SESSIONS);
    let running = job.start_and_see_rows("--rate 2000");
    job.lose_dir();
    let ended = running.wait().expect(1);
    let dir = job.path("dir");
    assert!(ended.stderr.contains(&*dir.to_string_lossy()), "{}", ended.stderr);
    assert!(ended.stderr.contains("was deleted, moved or replaced while in use"), "{}", ended.stderr);
    assert!(!dir.exists());
    job.check(&job.run("--resume"));
}

#[test]
fn a_store_that_refuses_every_checkpoint_for_good_ends_a_run_that_has_read_its_input_with_5_and_the_reason() {
    let job = Job::new(WINDOWS);
    // A file where the operator's folder would be: also root can't write below it.
    std::fs::create_dir(job.path("store")).unwrap();
    std::fs::write(job.path("store").join("windows"), "in the way").unwrap();
    let ended = job.run("--checkpoint-timeout 1s").expect(5);
    for part in ["Not a directory", "was given up", "--resume"] {
        assert!(ended.stderr.contains(part), "no `{part}`: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("took longer"), "the cause, not a timeout: {}", ended.stderr);
    std::fs::remove_file(job.path("store").join("windows")).unwrap();
    job.check(&job.run("--resume"));
}

#[test]
fn a_disk_budget_far_below_the_state_costs_nothing_but_time() {
    let job = Job::new(SESSIONS);
    job.check(&job.run("--disk 64KiB"));
    let killed = Job::new(SESSIONS);
    killed.run_killed_at("after-log-entry:9", "--disk 64KiB");
    killed.check(&killed.run("--resume --disk 64KiB --parallelism 3"));
}
