//! Jobs that begin on another job's checkpoint, a fork or a copy of it, and the savepoints that others leave.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use serde_json::Value;
use support::{Ended, Job, SESSIONS, WINDOWS, expected, highwater, start};

fn checkpoints(line: &str, store: &Path, rest: &[&str]) -> Ended {
    start(highwater(&format!("checkpoints {line}")).arg(store).args(rest)).wait()
}

fn newest(store: &Path) -> Value {
    checkpoints("show --json", store, &[]).expect(0).json()
}

fn name_of(checkpoint: &Value) -> String {
    format!("{}/{}", checkpoint["epoch"], checkpoint["id"])
}

/// A job that was killed with some rows in its output, at `store`.
fn killed(aggregation: &'static str) -> Job {
    let job = Job::new(aggregation);
    job.run_killed_at("in-append:4", "--rate 8000").expect(-9);
    job
}

/// The options of a new job in the same folder, with a name of its own.
fn named(job: &Job, name: &str, more: &str) -> String {
    let path = |what: &str| job.path(&format!("{name}-{what}")).display().to_string();
    let store = if more.contains("--claim") { String::new() } else { format!("--store {}", path("store")) };
    format!("--output {} --dir {} {store} {more}", path("out.csv"), path("dir"))
}

/// Checks that what the old job had committed at `checkpoint` and what the new one wrote are together what a whole run writes.
#[track_caller]
fn assert_goes_on(job: &Job, checkpoint: &Value, name: &str) {
    let (want, out) =
        (expected(job.aggregation), std::fs::read_to_string(job.path(&format!("{name}-out.csv"))).unwrap());
    let committed = checkpoint["metadata"]["staged_end"].as_u64().unwrap() as usize;
    let header = want.output.split_inclusive('\n').next().unwrap();
    let ours = out.strip_prefix(header).unwrap();
    assert!(committed == 0 || committed >= header.len());
    let before = &want.output[..committed.max(header.len())];
    assert!(format!("{before}{ours}") == want.output, "{before}\n+\n{ours}");
    assert!(ours.lines().count() > 3);
}

/// `highwater run` without the defaults of the job's own store, for `--claim`.
fn run_claiming(job: &Job, line: &str) -> Ended {
    let mut command = highwater("run --json --interval 10ms");
    command.arg("--input").arg(&job.input).args(job.aggregation.split_whitespace()).args(line.split_whitespace());
    start(&mut command).wait()
}

#[test]
fn a_job_that_begins_on_anothers_checkpoint_writes_what_fires_after_it_and_soon_needs_it_no_more() {
    for (aggregation, parallelism) in [(WINDOWS, 3), (SESSIONS, 1)] {
        let job = killed(aggregation);
        let store = job.path("store");
        let from = newest(&store);
        let line = named(&job, "b", &format!("--from {} --parallelism {parallelism} --grace 0s", store.display()));
        let ended = job.run(&line).expect(0).json();
        assert_goes_on(&job, &from, "b");
        let want = expected(aggregation);
        // Records and late ones are those of the state's whole life, rows those of this output.
        assert_eq!((&ended["records"], &ended["late"]), (&want.records.into(), &want.late.into()), "{ended}");
        assert_eq!(ended["restore"]["from_checkpoint"], from["id"]);
        checkpoints("gc --grace 0s", &job.path("b-store"), &[]).expect(0);
        let list = checkpoints("list --json", &job.path("b-store"), &[]).expect(0).json();
        assert_eq!(
            (&list["forked_from"]["needed"], &list["forked_from"]["pin"]),
            (&false.into(), &Value::Null),
            "{list}"
        );
        let pins: Vec<Value> = checkpoints("list --json", &store, &[]).json()["checkpoints"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|c| c["pins"].as_array().unwrap().clone())
            .collect();
        assert!(pins.is_empty(), "{pins:?}");
        // The old job goes on as if nothing had been; the new one's root stands without it.
        job.check(&job.run("--resume"));
        std::fs::rename(&store, job.path("away")).unwrap();
        checkpoints("verify", &job.path("b-store"), &[]).expect(0);
    }
}

#[test]
fn killed_at_any_point_such_a_job_resumes_with_the_same_command_and_writes_the_same() {
    let job = killed(WINDOWS);
    let store = job.path("store");
    let from = newest(&store);
    for (at, point) in ["before-append:1", "in-append:1", "before-sync:1", "in-append:3"].iter().enumerate() {
        let name = format!("b{at}");
        let line = named(&job, &name, &format!("--from {} --rate 8000", store.display()));
        job.run_killed_at(point, &line).expect(-9);
        let refused = job.run(&line).expect(2);
        assert!(refused.stderr.contains("--resume"), "{refused:?}");
        std::fs::remove_dir_all(job.path(&format!("{name}-dir"))).unwrap();
        job.run(&format!("{line} --resume")).expect(0);
        assert_goes_on(&job, &from, &name);
    }
}

#[test]
fn a_beginning_whose_source_was_away_is_made_again_by_the_same_command() {
    let job = killed(WINDOWS);
    let (store, fork) = (job.path("store"), job.path("fork"));
    let from = newest(&store);
    checkpoints("fork", &store, &[&name_of(&from), fork.to_str().unwrap()]).expect(0);
    let line = named(&job, "b", &format!("--from {}", fork.display()));
    std::fs::rename(&store, job.path("away")).unwrap();
    let ended = job.run(&line).expect(3);
    assert!(ended.stderr.contains(store.to_str().unwrap()), "{ended:?}");
    std::fs::rename(job.path("away"), &store).unwrap();
    job.run(&line).expect(0);
    assert_goes_on(&job, &from, "b");
    let refused = job.run(&line).expect(2);
    assert!(refused.stderr.contains("holds a job already"), "{refused:?}");
}

#[test]
fn a_pin_that_is_not_there_is_not_given_up() {
    let job = killed(WINDOWS);
    let (store, at) = (job.path("store"), name_of(&newest(&job.path("store"))));
    checkpoints("pin", &store, &[&at, "kept"]).expect(0);
    let ended = checkpoints("unpin", &store, &[&at, "nope"]).expect(2);
    assert!(ended.stderr.contains("no pin `nope`"), "{ended:?}");
    checkpoints("unpin", &store, &[&at, "kept"]).expect(0);
}

#[test]
fn a_job_begins_on_a_fork_or_a_copy_as_on_the_checkpoint_itself_and_a_fork_is_resumed_with_an_output_of_its_own() {
    let job = killed(WINDOWS);
    let store = job.path("store");
    let from = newest(&store);
    let (fork, copy) = (job.path("fork"), job.path("copy"));
    checkpoints("fork", &store, &[&name_of(&from), fork.to_str().unwrap()]).expect(0);
    let copied = checkpoints("copy --json", &store, &[copy.to_str().unwrap()]).expect(0).json();
    assert_eq!(copied["checkpoint"], name_of(&from));
    let again =
        checkpoints("copy --json", &store, &[copy.to_str().unwrap(), "--checkpoint", &name_of(&from)]).expect(0).json();
    assert_eq!((&again["sent_objects"], &again["kept_objects"]), (&0.into(), &copied["sent_objects"]), "{again}");
    for (name, root) in [("f", &fork), ("c", &copy)] {
        job.run(&named(&job, name, &format!("--from {}", root.display()))).expect(0);
        assert_goes_on(&job, &from, name);
    }
    // In the fork itself. Its state is that of another job, so an output with that one's rows is refused.
    let line = format!("--store {} --dir {} --resume", fork.display(), job.path("g-dir").display());
    let before = job.files();
    let ended = job.run(&line).expect(2);
    assert!(ended.stderr.contains("output of its own"), "{ended:?}");
    assert!(job.files() == before);
    job.run(&format!("{line} --output {}", job.path("g-out.csv").display())).expect(0);
    assert_goes_on(&job, &from, "g");
    // A copy is a backup: the very job goes on there, with its output.
    std::fs::remove_dir_all(&store).unwrap();
    job.check(&job.run(&format!("--store {} --dir {} --resume", copy.display(), job.path("h-dir").display())));
}

#[test]
fn a_job_that_claims_takes_the_root_over_and_fences_whoever_runs_on_it() {
    let job = Job::new(WINDOWS);
    let old = job.start_and_see_rows("--rate 1000");
    let store = job.path("store");
    let line = named(&job, "b", &format!("--from {} --claim", store.display()));
    let ended = run_claiming(&job, &line).expect(0).json();
    let fenced = old.wait().expect(4);
    assert!(fenced.stderr.contains("superseded"), "{fenced:?}");
    let list = checkpoints("list --json", &store, &[]).expect(0).json();
    let last = list["checkpoints"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["epoch"], &list["forked_from"]), (&2.into(), &Value::Null));
    assert!(ended["restore"]["from_checkpoint"].as_u64() < last["id"].as_u64(), "{ended}");
    checkpoints("verify", &store, &[]).expect(0);
    // Its own output, whole together with what the old one had committed there.
    let (want, old) = (expected(WINDOWS).output, job.output());
    let ours = std::fs::read_to_string(job.path("b-out.csv")).unwrap();
    let (first, _) = ours.split_once('\n').map(|(_, rest)| rest).unwrap().split_once('\n').unwrap();
    let at = want.find(first).unwrap();
    assert!(want[at..] == ours[ours.find('\n').unwrap() + 1..] && at > 0, "{ours}");
    assert!(want.starts_with(&old[..old.len().min(at)]));
    // Finished, and resumed as the job that it is now.
    run_claiming(&job, &format!("{line} --resume")).expect(0);
}

#[test]
fn a_savepoint_at_the_end_stands_on_its_own_wherever_it_is_moved() {
    for stopped in [false, true] {
        let job = Job::new(WINDOWS);
        let save = job.path("save");
        let more = format!("--savepoint-at-end {}", save.display());
        let report = if stopped {
            let running = job.start_and_see_rows(&format!("--rate 1500 {more}"));
            running.signal("TERM");
            running.wait().expect(0).json()
        } else {
            job.run(&more).expect(0).json()
        };
        let from = newest(&job.path("store"));
        assert_eq!(report["savepoint"]["checkpoint"], name_of(&from), "{report}");
        std::fs::remove_dir_all(job.path("store")).unwrap();
        std::fs::rename(&save, job.path("moved")).unwrap();
        checkpoints("verify", &job.path("moved"), &[]).expect(0);
        let line = named(&job, "b", &format!("--from {}", job.path("moved").display()));
        let ended = job.run(&line).expect(0).json();
        if stopped {
            assert_goes_on(&job, &from, "b");
        } else {
            assert_eq!(ended["output_rows"], 0, "nothing fires after the end");
        }
        let taken =
            job.run(&named(&job, "c", &format!("--savepoint-at-end {}", job.path("moved").display()))).expect(2);
        assert!(taken.stderr.contains("holds a job already"), "{taken:?}");
        assert!(!job.path("c-store").exists() && !job.path("c-out.csv").exists());
    }
}

#[test]
fn bad_input_a_beginning_that_cannot_be_is_refused_and_nothing_is_touched() {
    let job = killed(WINDOWS);
    let store = job.path("store");
    let own = store.display();
    std::fs::write(job.path("full.csv"), "rows of somebody\n").unwrap();
    let before = job.files();
    let missing = job.path("missing").display().to_string();
    for (more, code, parts) in [
        (format!("--from {own} --max-parallelism 64"), 2, &["--max-parallelism 128", "--max-parallelism 64"][..]),
        (format!("--from {own} --checkpoint 9/9"), 3, &["9/9"]),
        (format!("--from {missing}"), 3, &["no Highwater job"]),
        ("--checkpoint 1".to_owned(), 2, &["--from"]),
        ("--claim".to_owned(), 2, &["--from"]),
        (format!("--from {own} --claim --no-claim"), 2, &["--no-claim"]),
        ("--from memory:///".to_owned(), 2, &["memory:///"]),
        (format!("--from {own} --savepoint-at-end memory:///"), 2, &["memory:///"]),
    ] {
        let mut line = named(&job, "b", &more);
        if more.contains("--claim") {
            line += &format!(" --store {}", job.path("b-store").display());
        }
        let ended = job.run(&line).expect(code);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{more}: {ended:?}");
        assert!(job.files() == before, "{more}");
    }
    let line = format!("--from {own} --store {own} --output {}", job.path("x.csv").display());
    assert!(job.run(&line).expect(2).stderr.contains("--claim"));
    let line = named(&job, "b", &format!("--from {own}")).replace("b-out.csv", "full.csv");
    assert!(job.run(&line).expect(2).stderr.contains("isn't empty"));
    // Another job: the options that make it what it is are those of the checkpoint.
    let line = named(&job, "b", &format!("--from {own} --value arr_delay"));
    let ended = job.run(&line).expect(2);
    assert!(ended.stderr.contains("--value dep_delay") && ended.stderr.contains("--value arr_delay"), "{ended:?}");
    assert!(job.files() == before);
}

#[test]
fn a_job_begins_on_another_that_goes_on_running_and_neither_disturbs_the_other() {
    let job = Job::new(WINDOWS);
    let old = job.start_and_see_rows("--rate 1500 --grace 0s --retain 1");
    let line = named(&job, "b", &format!("--from {} --rate 8000 --grace 0s", job.path("store").display()));
    job.run(&line).expect(0);
    job.check(&old.wait());
    let (want, ours) = (expected(WINDOWS).output, std::fs::read_to_string(job.path("b-out.csv")).unwrap());
    let (header, ours) = ours.split_once('\n').unwrap();
    assert!(want.starts_with(header) && want.ends_with(ours) && ours.lines().count() > 3, "{ours}");
    for store in ["store", "b-store"] {
        checkpoints("verify", &job.path(store), &[]).expect(0);
    }
}
