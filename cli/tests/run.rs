//! `highwater run` on real files: exact output however it is interrupted, exit codes, and what is left alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::Write;

use support::{Job, SESSIONS, WINDOWS, expected};

#[test]
fn the_output_is_the_same_at_every_parallelism() {
    for aggregation in [WINDOWS, SESSIONS] {
        for parallelism in 1..=4 {
            let job = Job::new(aggregation);
            let ended = job.run(&format!("--parallelism {parallelism}"));
            job.check(&ended);
            let json = ended.json();
            assert!(json["restore"].is_null() && json["checkpoints"]["completed"].as_u64().unwrap() > 0, "{json}");
            for count in ["uploaded_bytes", "full_bytes"] {
                assert!(json["checkpoints"][count].as_u64().unwrap() > 0, "{json}");
            }
        }
    }
}

#[test]
fn many_keys_in_the_least_memory_have_the_same_output() {
    let job = Job::new(SESSIONS);
    // The same flights again and again under other tail numbers.
    let fixture = std::fs::read_to_string(support::fixture()).unwrap();
    let (heading, rows) = fixture.split_once('\n').unwrap();
    let tail_number = heading.split(',').position(|name| name == "tailnum").unwrap();
    let mut input = format!("{heading}\n");
    for row in rows.lines() {
        let mut fields: Vec<String> = row.split(',').map(str::to_owned).collect();
        for copy in 0..20 {
            fields[tail_number].insert_str(0, &format!("{copy} "));
            input += &format!("{}\n", fields.join(","));
        }
    }
    let big = Job { input: job.path("big.csv"), ..Job::new(SESSIONS) };
    std::fs::write(&big.input, input).unwrap();
    big.run("--memory 16MiB --parallelism 3").expect(0);
    let other = Job { input: job.path("big.csv"), ..Job::new(SESSIONS) };
    other.run("--parallelism 1 --interval 10s").expect(0);
    assert!(big.output().lines().count() > 20_000 && big.output() == other.output());
}

#[test]
fn killed_and_resumed_on_another_machine_at_another_parallelism_the_output_is_that_of_an_unkilled_run() {
    for (aggregation, parallelism) in [(WINDOWS, 1), (SESSIONS, 3)] {
        let job = Job::new(aggregation);
        // At a point of its progress: by a clock, a busy machine lets it end before the signal.
        job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
        assert!(job.output().len() < expected(aggregation).output.len());
        job.lose_dir();
        let ended = job.run(&format!("--resume --parallelism {parallelism}"));
        job.check(&ended);
        let restore = &ended.json()["restore"];
        assert_eq!((&restore["parallelism_from"], &restore["parallelism_to"]), (&2.into(), &parallelism.into()));
        assert!(restore["first_record_ms"].is_u64(), "{restore}");
    }
}

#[test]
fn a_paused_process_that_wakes_after_its_job_was_taken_over_exits_4_and_the_output_is_exact() {
    let job = Job::new(WINDOWS);
    let zombie = job.start_and_see_rows("--rate 2000");
    zombie.signal("STOP");
    let successor = job.run(&format!("--resume --parallelism 3 --dir {}", job.path("other").display()));
    job.check(&successor);
    zombie.signal("CONT");
    let zombie = zombie.wait().expect(4);
    assert!(zombie.stderr.contains("superseded") && zombie.stdout.is_empty(), "{zombie:?}");
    assert_eq!(job.output(), expected(WINDOWS).output);
}

#[test]
fn a_directory_in_use_is_refused_with_4_before_its_job_is_fenced() {
    let job = Job::new(WINDOWS);
    let running = job.start_and_see_rows("--rate 2000");
    let second = job.run("--resume").expect(4);
    assert!(second.stderr.contains("dir"), "{second:?}");
    // Nor is anything left of a new job that was refused for the same reason.
    let (store, output) = (job.path("other-store"), job.path("other.csv"));
    let other = job.run(&format!("--store {} --output {}", store.display(), output.display())).expect(4);
    assert!(!store.exists() && !output.exists(), "{other:?}");
    job.check(&running.wait());
}

#[test]
fn junk_that_was_appended_to_the_output_is_cut_off_by_a_resume() {
    let job = Job::new(WINDOWS);
    job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
    let mut output = std::fs::File::options().append(true).open(job.path("out.csv")).unwrap();
    output.write_all(b"junk\n\xff,,,").unwrap();
    let ended = job.run("--resume");
    job.check(&ended);
}

#[test]
fn checkpoints_are_given_up_while_the_store_is_away_and_complete_once_it_is_back() {
    let job = Job::new(WINDOWS);
    let mut running = job.start_and_see_rows("--rate 1500 --checkpoint-timeout 300ms");
    std::fs::rename(job.path("store"), job.path("away")).unwrap();
    running.until("checkpoints given up", |running| running.stderr().matches("given up").count() >= 3);
    assert!(!job.path("store").exists(), "a root that was opened is never made anew");
    std::fs::rename(job.path("away"), job.path("store")).unwrap();
    let ended = running.wait();
    job.check(&ended);
    assert!(ended.json()["checkpoints"]["aborted"].as_u64().unwrap() >= 3);
}

#[test]
fn at_a_signal_a_last_checkpoint_is_taken_and_a_resume_goes_on_exactly_there() {
    for signal in ["INT", "TERM"] {
        let job = Job::new(WINDOWS);
        let running = job.start_and_see_rows("--rate 2000");
        running.signal(signal);
        let stopped = running.wait().expect(0);
        assert!(stopped.stderr.contains("--resume"), "{stopped:?}");
        let records = stopped.json()["records"].as_u64().unwrap();
        assert!(records < expected(WINDOWS).records);
        let ended = job.run("--resume");
        job.check(&ended);
        assert!(ended.json()["restore"]["from_checkpoint"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_resume_of_a_finished_job_changes_nothing() {
    let job = Job::new(SESSIONS);
    let first = job.run("").expect(0).json();
    let again = job.run("--resume");
    job.check(&again);
    // It has no checkpoint of its own, but the job has one.
    let again = again.json();
    assert_eq!((&again["checkpoints"]["completed"], &again["checkpoints"]["delta_bytes"]), (&0.into(), &0.into()));
    assert!(again["checkpoints"]["full_bytes"].as_u64() > Some(0), "{again}");
    assert_eq!(again["checkpoints"]["full_bytes"], first["checkpoints"]["full_bytes"]);
}

/// The fixture with a malformed row as the line of this number.
fn malformed_at(job: &Job, line: usize) -> String {
    let content = std::fs::read_to_string(support::fixture()).unwrap();
    let mut lines: Vec<&str> = content.lines().collect();
    lines.insert(line - 1, "nonsense");
    std::fs::write(&job.input, lines.join("\n") + "\n").unwrap();
    content
}

#[test]
fn a_malformed_first_row_stops_a_run_before_anything_is_touched() {
    let mut job = Job::new(WINDOWS);
    job.input = job.path("in.csv");
    let content = malformed_at(&job, 2);
    let before = job.files();
    for more in ["", "--resume", "--skip-bad-rows --key nothing"] {
        let ended = job.run(more).expect(2);
        assert!(more.contains("nothing") || ended.stderr.contains("line 2, column "), "{ended:?}");
        assert!(job.files() == before, "{more}");
    }
    std::fs::write(&job.input, content).unwrap();
    job.check(&job.run(""));
}

#[test]
fn a_run_that_stops_at_a_malformed_row_before_its_first_checkpoint_can_be_started_again_as_it_was() {
    let mut job = Job::new(WINDOWS);
    job.input = job.path("in.csv");
    let content = malformed_at(&job, 1500);
    let ended = job.run("--interval 1h").expect(2);
    for part in ["line 1500, column ", "the same command starts from the beginning"] {
        assert!(ended.stderr.contains(part), "no `{part}`: {}", ended.stderr);
    }
    std::fs::write(&job.input, content).unwrap();
    job.check(&job.run("--interval 1h"));
}

#[test]
fn a_run_that_stops_at_a_malformed_row_after_a_checkpoint_goes_on_with_resume_alone() {
    let mut job = Job::new(WINDOWS);
    job.input = job.path("in.csv");
    let content = malformed_at(&job, 2100);
    let ended = job.run("--rate 2000").expect(2);
    for part in ["line 2100, column ", "the same command with --resume goes on from checkpoint "] {
        assert!(ended.stderr.contains(part), "no `{part}`: {}", ended.stderr);
    }
    std::fs::write(&job.input, content).unwrap();
    assert!(job.run("").expect(2).stderr.contains("holds a job already"));
    job.check(&job.run("--resume"));
}

#[test]
fn a_sum_out_of_range_ends_the_run_and_inf_is_never_written() {
    let mut job = Job::new("--key k --time t --value v --window 10s");
    job.input = job.path("in.csv");
    std::fs::write(&job.input, "k,t,v\nfine,1,1e308\nbig,1,1e308\nbig,2,1e308\n").unwrap();
    let ended = job.run("").expect(2);
    assert!(ended.stderr.contains("key `big` in the window that begins at 1970-01-01T00:00:00Z"), "{ended:?}");
    assert!(!job.output().contains("inf"));
}

#[test]
fn a_resume_of_a_job_that_isnt_there_starts_from_the_beginning_and_says_so() {
    let job = Job::new(WINDOWS);
    let ended = job.run("--resume");
    assert!(ended.stderr.contains("starting from the beginning"), "{ended:?}");
    job.check(&ended);
    // Neither is there a checkpoint when the first was never completed: nothing is lost by starting without --resume either.
    for more in ["--resume", ""] {
        let job = Job::new(WINDOWS);
        job.run_killed_at("before-log-entry:2", "--rate 8000").expect(-9);
        let ended = job.run(more);
        assert_eq!(ended.stderr.contains("starting from the beginning"), more == "--resume", "{ended:?}");
        job.check(&ended);
    }
}

#[test]
fn a_job_without_a_checkpoint_that_another_start_takes_over_is_fenced_and_the_output_is_the_others() {
    let job = Job::new(WINDOWS);
    let mut zombie = job.start("--rate 500 --interval 3s");
    zombie.until("the claim", |_| job.path("out.csv").exists());
    zombie.signal("STOP");
    let successor = job.run(&format!("--parallelism 3 --dir {}", job.path("other").display()));
    job.check(&successor);
    zombie.signal("CONT");
    let zombie = zombie.wait().expect(4);
    assert!(zombie.stderr.contains("superseded") && zombie.stdout.is_empty(), "{zombie:?}");
    assert_eq!(job.output(), expected(WINDOWS).output);
}

#[test]
fn a_store_in_memory_works_for_one_process_and_cant_be_resumed() {
    let job = Job::new(WINDOWS);
    let ended = job.run("--store memory:///");
    assert!(ended.stderr.contains("in memory"), "{ended:?}");
    job.check(&ended);
    let before = job.files();
    let refused = job.run("--store memory:/// --resume").expect(2);
    assert!(refused.stderr.contains("memory:///"), "{refused:?}");
    assert!(job.files() == before);
}
