//! Very many windows that become due at once: bounded memory, and a job that can be stopped, killed and resumed in the middle of it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write;

use support::{Ended, Job, Running};

const MIB: u64 = 1 << 20;

/// All windows stay open until the input ends.
const WINDOWS: &str = "--key k --time t --value v --window 10s --out-of-orderness 10000h";
const SESSIONS: &str = "--key k --time t --value v --gap 10s --out-of-orderness 10000h";

/// A job whose windows all fire at the end, and what its output has to be.
struct Mass {
    job: Job,
    want: String,
    windows: usize,
}

/// `keys` windows (or sessions) at each of `ends` times.
fn mass(aggregation: &'static str, keys: u64, ends: u64) -> Mass {
    let mut job = Job::new(aggregation);
    job.input = job.path("in.csv");
    let mut input = "k,t,v\n".to_owned();
    // A prime that is greater: every key once for each time, in no order.
    let key = |n: u64| (n * 1_000_003) % keys;
    for n in 0..keys * ends {
        writeln!(input, "key-{:06},{},{}", key(n), n / keys * 20, n % 10).unwrap();
    }
    std::fs::write(&job.input, input).unwrap();
    let sessions = aggregation == SESSIONS;
    let mut rows: Vec<(u64, u64, u64)> = (0..keys * ends).map(|n| (n / keys * 20, key(n), n % 10)).collect();
    rows.sort_unstable();
    let columns = if sessions { "session_start,session_end" } else { "window_start" };
    let mut want = format!("{columns},key,rows,count,sum,min,max\n");
    let time = |seconds: u64| format!("1970-01-01T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
    for (start, key, value) in rows {
        let end = if sessions { time(start + 10) + "," } else { String::new() };
        writeln!(want, "{},{end}key-{key:06},1,1,{value},{value},{value}", time(start)).unwrap();
    }
    Mass { job, want, windows: (keys * ends) as usize }
}

impl Mass {
    fn start(&self, more: &str) -> Running {
        self.job.start(&format!("--memory 16MiB {more}"))
    }

    fn killed_at(&self, point: &str, more: &str) -> Ended {
        self.job.run_killed_at(point, &format!("--memory 16MiB {more}"))
    }

    #[track_caller]
    fn check(&self, ended: &Ended) {
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(ended.json()["output_rows"], self.windows, "{ended:?}");
        assert!(self.job.output() == self.want, "the output differs");
    }
}

#[test]
fn memory_stays_in_the_budget_when_everything_fires_at_the_end_of_the_input() {
    // One window of all keys, which only the state can bring into order; many windows of fewer keys; sessions.
    for (aggregation, keys, ends, parallelism) in
        [(WINDOWS, 300_000, 1, 2), (WINDOWS, 1_000, 50, 3), (SESSIONS, 25_000, 2, 1)]
    {
        let mass = mass(aggregation, keys, ends);
        let running = mass.start(&format!("--interval 200ms --parallelism {parallelism}"));
        let (ended, most) = running.wait_and_watch_memory();
        mass.check(&ended);
        // As for the library: the budget and a tenth of it, and 32 MiB for what isn't state: threads, their allocators' caches, buffers of
        // input and output, and the batches and steps under way.
        let bound = 16 * MIB + 16 * MIB / 10 + 32 * MIB;
        assert!(most < bound, "{} MiB at the height of {keys} times {ends}", most / MIB);
    }
}

#[test]
fn killed_in_the_middle_of_a_mass_firing_the_output_is_exact() {
    for (aggregation, keys, ends, points) in [
        (WINDOWS, 40_000, 1, ["firing:9", "holding:30000", "releasing:7"]),
        (SESSIONS, 2_000, 20, ["firing:30", "firing:3", "in-append:3"]),
    ] {
        let mass = mass(aggregation, keys, ends);
        for (life, point) in points.into_iter().enumerate() {
            let resume = if life == 0 { "" } else { "--resume" };
            mass.killed_at(point, &format!("{resume} --parallelism {}", life + 1)).expect(-9);
            assert!(mass.job.output().len() < mass.want.len());
            if life == 1 {
                mass.job.lose_dir();
            }
        }
        mass.check(&mass.start("--resume --parallelism 4").wait());
    }
}

#[test]
fn asked_to_stop_in_the_middle_of_a_mass_firing_it_takes_a_last_checkpoint_there() {
    for (aggregation, keys, ends) in [(WINDOWS, 40_000, 1), (SESSIONS, 2_000, 20)] {
        let mass = mass(aggregation, keys, ends);
        // Without checkpoints in between, so that the last one is that of the stop.
        for (life, point) in ["firing:5:term", "firing:9:term"].into_iter().enumerate() {
            let resume = if life == 0 { "" } else { "--resume" };
            let stopped =
                mass.killed_at(point, &format!("{resume} --interval 1h --parallelism {}", life + 1)).expect(0);
            assert!(stopped.stderr.contains("stopped after a last checkpoint"), "{stopped:?}");
            let json = stopped.json();
            assert_eq!(
                (&json["records"], &json["checkpoints"]["completed"]),
                (&mass.windows.into(), &1.into()),
                "{json}"
            );
            assert!(json["output_rows"].as_u64().unwrap() < mass.windows as u64, "not in the middle: {json}");
        }
        // What is added to an input that had ended isn't read.
        let mut input = std::fs::read_to_string(&mass.job.input).unwrap();
        input += "later,1,1\n";
        std::fs::write(&mass.job.input, input).unwrap();
        mass.check(&mass.start("--resume --parallelism 3").wait());
        mass.check(&mass.start("--resume").wait());
    }
}

#[test]
fn records_that_come_while_a_mass_fires_have_the_same_results() {
    // The watermark jumps in the middle of the input: late ones, ones in open windows, and ones that touch sessions that are due come behind.
    for aggregation in ["--key k --time t --value v --window 10s", "--key k --time t --value v --gap 10s"] {
        let mut job = Job::new(aggregation);
        job.input = job.path("in.csv");
        let mut input = "k,t,v\n".to_owned();
        for n in 0..20_000 {
            writeln!(input, "key-{n:06},0,1").unwrap();
        }
        input += "z,12,1\n";
        for n in 0..20_000 {
            writeln!(input, "key-{:06},{},1", n * 7 % 20_000, if n % 2 == 0 { 8 } else { 1 }).unwrap();
            writeln!(input, "key-{:06},{},1", n * 7 % 20_000, if n % 4 == 0 { 0 } else { 30 }).unwrap();
        }
        std::fs::write(&job.input, input).unwrap();
        // Slow enough that all has fired before the next record comes; and as fast as it goes, with checkpoints and without.
        let slow = job.run("--parallelism 1 --rate 60000").expect(0);
        let want = job.output();
        assert!(slow.json()["late"].as_u64() > Some(0) && want.lines().count() > 30_000, "{slow:?}");
        for (more, kill) in [("--parallelism 3", false), ("--parallelism 2", true)] {
            let other = Job { input: job.input.clone(), ..Job::new(aggregation) };
            if kill {
                other.run_killed_at("firing:6", more).expect(-9);
            }
            let ended = other.run(&format!("{more} --resume")).expect(0);
            assert!(other.output() == want, "{aggregation} {more}");
            assert_eq!(ended.json()["late"], slow.json()["late"]);
        }
    }
}
