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
    assert!(ended.stderr.contains("the same command with --resume goes on from checkpoint "), "{}", ended.stderr);
    assert!(!dir.exists());
    job.check(&job.run("--resume"));
}

#[test]
fn the_least_disk_that_is_not_refused_is_enough_for_a_small_state() {
    for parallelism in [1, 3] {
        let job = Job::new(WINDOWS);
        job.check(&job.run(&format!("--rate 8000 --parallelism {parallelism} --disk {}KiB", (parallelism + 1) * 16)));
    }
}

#[test]
fn a_store_that_refuses_every_checkpoint_for_good_ends_a_run_that_has_read_its_input_with_5_and_the_reason() {
    let job = Job::new(WINDOWS);
    let mut running = job.start_and_see_rows("--rate 2000 --checkpoint-timeout 2s");
    // A file where the operator's folder was: even root can't write below it.
    let (folder, aside) = (job.path("store").join("windows"), job.path("aside"));
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    running.until("the reason", |running| running.stderr().contains("was given up"));
    let ended = running.wait().expect(5);
    let last = ended.stderr.lines().last().unwrap();
    for part in ["can't be committed", "Not a directory", "--resume"] {
        assert!(last.contains(part), "no `{part}`: {}", ended.stderr);
    }
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    job.check(&job.run("--resume"));
}

#[test]
fn a_disk_budget_below_the_state_costs_nothing_but_time() {
    let job = Job::new(SESSIONS);
    job.check(&job.run("--rate 2000 --disk 128KiB"));
    let killed = Job::new(SESSIONS);
    killed.run_killed_at("after-log-entry:9", "--rate 2000 --disk 128KiB").expect(-9);
    killed.check(&killed.run("--rate 2000 --disk 128KiB --parallelism 3 --resume"));
}

#[test]
fn a_disk_budget_that_holds_nothing_ends_the_run_with_5_and_a_resume_with_more_is_exact() {
    let mut job = Job::new("--key k --time t --value v --window 10s");
    job.input = job.path("in.csv");
    // Keys that can't be compressed to less than the budget.
    let mut state = 1u64;
    let rows = (0..5000).map(|n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{state:016x}{:016x},{n},1\n", state.rotate_left(32) ^ state.wrapping_mul(state | 1))
    });
    std::fs::write(&job.input, format!("k,t,v\n{}", rows.collect::<String>())).unwrap();
    // The least that is taken, for rows of which all wait for the only flush.
    let ended = job.run("--disk 48KiB --checkpoint-timeout 1s --interval 1h").expect(5);
    let last = ended.stderr.lines().last().unwrap();
    for part in ["out of local disk: used ", " of 49152 bytes", "--disk", "the same command starts from the beginning"]
    {
        assert!(last.contains(part), "no `{part}`: {}", ended.stderr);
    }
    job.run("--resume").expect(0);
    let other = Job { input: job.input.clone(), ..Job::new(job.aggregation) };
    other.run("").expect(0);
    assert!(job.output().lines().count() == 5001 && job.output() == other.output());
}
