//! `kill -9` of the real binary at chosen points of its work, and what a resume makes of what is left.
//!
//! Each job lives three times: a first life that leaves a checkpoint and a half-written output, a second that restores it and is killed at the
//! point in question, a third that runs to the end. The output must be that of a job that was never killed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{Job, SESSIONS, WINDOWS};

/// Garbage is collected all the time; records come slowly enough for a good many checkpoints.
const LIVELY: &str = "--retain 1 --grace 0s --rate 8000";

/// Parallelism of the second life, and of the third.
const PARALLELISMS: [(u32, u32); 4] = [(2, 3), (1, 4), (3, 2), (4, 1)];

#[track_caller]
fn sweep(points: &[&str]) {
    let mut killed = 0;
    for (number, (point, passing)) in points.iter().flat_map(|point| [1, 2, 5].map(|n| (point, n))).enumerate() {
        let job = Job::new([WINDOWS, SESSIONS][number % 2]);
        job.run_killed_at("in-append:2", LIVELY).expect(-9);
        if number % 3 > 0 {
            job.lose_dir();
        }
        let (second, third) = PARALLELISMS[number % 4];
        let at = format!("{point}:{passing}");
        let ended = job.run_killed_at(&at, &format!("{LIVELY} --resume --parallelism {second}"));
        assert!([-9, 0].contains(&ended.code), "{at}: {ended:?}");
        killed += u32::from(ended.code == -9);
        if number % 2 > 0 && job.path("dir").exists() {
            job.lose_dir();
        }
        let ended = job.run(&format!("--resume --parallelism {third}"));
        job.check(&ended);
    }
    // Few passings can be promised of a point, but the first ones come in every life.
    assert!(killed >= points.len() as u32 * 2, "only {killed} were killed at {points:?}");
}

#[test]
fn killed_in_the_middle_of_an_epoch() {
    for at in ["event:1", "event:700", "event:1500", "event:2100"] {
        let job = Job::new(WINDOWS);
        job.run_killed_at(at, LIVELY).expect(-9);
        job.run_killed_at("event:500", &format!("{LIVELY} --resume")).expect(-9);
        job.lose_dir();
        job.check(&job.run("--resume --parallelism 3"));
    }
}

#[test]
fn killed_between_freeze_and_upload() {
    sweep(&["before-segment", "in-segment", "before-manifest"]);
}

#[test]
fn killed_between_upload_and_completion() {
    sweep(&["after-manifest", "before-log-entry"]);
}

#[test]
fn killed_between_completion_and_the_sinks_append() {
    sweep(&["after-log-entry", "before-append", "in-append", "before-sync"]);
}

#[test]
fn killed_during_restore_and_while_garbage_is_collected() {
    sweep(&["read-manifest", "read-segment", "after-delete"]);
}

#[test]
fn killed_again_and_again_at_seeded_points() {
    const POINTS: [&str; 8] = [
        "before-segment",
        "before-manifest",
        "after-manifest",
        "before-log-entry",
        "after-log-entry",
        "in-append",
        "read-manifest",
        "event",
    ];
    for seed in 1..=5_u64 {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let job = Job::new([WINDOWS, SESSIONS][seed as usize % 2]);
        for _ in 0..6 {
            let point = POINTS[random(POINTS.len() as u64) as usize];
            let passing = if point == "event" { random(900) } else { random(9) } + 1;
            let parallelism = random(4) + 1;
            let more = format!("{LIVELY} --resume --parallelism {parallelism}");
            let ended = job.run_killed_at(&format!("{point}:{passing}"), &more);
            assert!([-9, 0].contains(&ended.code), "seed {seed}, {point}:{passing}: {ended:?}");
            if random(2) == 0 && job.path("dir").exists() {
                job.lose_dir();
            }
        }
        job.check(&job.run("--resume"));
    }
}
