//! Pins, deletes and garbage with the real binary, on roots whose job is at rest and on one whose job runs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use serde_json::Value;
use support::{Ended, Job, SESSIONS, WINDOWS, highwater, start};

fn checkpoints(line: &str, store: &Path, rest: &[&str]) -> Ended {
    start(highwater(&format!("checkpoints {line}")).arg(store).args(rest)).wait()
}

fn listed(store: &Path) -> Vec<Value> {
    checkpoints("list --json", store, &[]).expect(0).json()["checkpoints"].as_array().unwrap().clone()
}

fn name_of(checkpoint: &Value) -> String {
    format!("{}/{}", checkpoint["epoch"], checkpoint["id"])
}

/// Every object named is checked, and none missing.
fn assert_sound(store: &Path) {
    checkpoints("verify", store, &[]).expect(0);
}

#[test]
fn what_is_pinned_outlives_retention_and_what_is_deleted_goes_with_its_bytes() {
    let job = Job::new(SESSIONS);
    let store = job.path("store");
    let mut running = job.start_and_see_rows("--rate 1500 --retain 3");
    running.until("three checkpoints", |_| listed(&store).len() >= 3);
    running.signal("KILL");
    running.wait().expect(-9);
    let before = listed(&store);
    let [oldest, middle, .., newest] = &before[..] else { panic!("{before:?}") };
    let (oldest, middle, newest) = (name_of(oldest), name_of(middle), name_of(newest));

    let pinned = checkpoints("pin --json", &store, &[&oldest, "audit"]).expect(0).json();
    assert_eq!((&pinned["checkpoint"], &pinned["pin"]), (&oldest.clone().into(), &"audit".into()));
    checkpoints("pin", &store, &[&oldest, "audit"]).expect(0);
    assert_eq!(listed(&store)[0]["pins"][0], "audit");

    // Each refusal has a reason, a code, nothing on stdout, and changes nothing.
    let files = job.files();
    for (line, rest, code, reason) in [
        ("pin", &[&middle[..], "audit"][..], 2, "holds checkpoint"),
        ("pin", &["9/9", "x"], 3, "9/9"),
        ("pin", &[&middle, ""], 2, "name"),
        ("unpin", &[&oldest, "other"], 2, "no pin `other`"),
        ("unpin", &[&middle, "audit"], 2, "holds checkpoint"),
        ("delete", &[&oldest], 2, "pinned by `audit`"),
        ("delete", &[&newest], 2, "the newest"),
        ("delete", &["77"], 3, "77"),
        ("gc --retain 0", &[], 2, "--retain"),
    ] {
        let ended = checkpoints(line, &store, rest).expect(code);
        assert!(ended.stderr.contains(reason) && ended.stdout.is_empty(), "{line}: {ended:?}");
    }
    assert!(job.files() == files);

    assert_eq!(checkpoints("delete --json", &store, &[&middle]).expect(0).json()["condemned"], middle);
    assert_eq!(listed(&store).len(), before.len() - 1);
    checkpoints("delete", &store, &[&middle]).expect(3);
    let kept = checkpoints("gc --json --grace 1h", &store, &[]).expect(0).json();
    assert_eq!((&kept["objects"], &kept["condemned"]), (&0.into(), &Value::Array(vec![])), "in the grace period");
    let files = job.files();
    let planned = checkpoints("gc --json --grace 0s --dry-run", &store, &[]).expect(0).json();
    assert!(job.files() == files && planned["dry_run"] == true, "{planned}");
    let done = checkpoints("gc --json --grace 0s", &store, &[]).expect(0).json();
    let deleted = done["deleted"].as_array().unwrap();
    assert_eq!(planned["deleted"], done["deleted"]);
    assert!(!deleted.is_empty() && done["objects"].as_u64() == Some(deleted.len() as u64), "{done}");
    for object in deleted {
        let path = store.join(object["name"].as_str().unwrap());
        assert!(!path.exists() && files[&path].len() as u64 == object["bytes"].as_u64().unwrap(), "{object}");
    }
    assert_sound(&store);

    // The pin stands against retention, and without it the checkpoint goes.
    assert_eq!(checkpoints("gc --json --retain 1", &store, &[]).expect(0).json()["condemned"], Value::Array(vec![]));
    let said = checkpoints("unpin", &store, &[&oldest, "audit"]).expect(0).stdout;
    assert!(said.contains(&oldest) && said.contains("audit"), "{said}");
    let said = checkpoints("gc --retain 1 --dry-run", &store, &[]).expect(0).stdout;
    assert!(said.contains(&format!("would condemn checkpoint {oldest}")), "{said}");
    checkpoints("gc --retain 1 --grace 0s", &store, &[]).expect(0);
    assert_eq!(listed(&store).iter().map(name_of).collect::<Vec<_>>(), [newest]);
    assert_sound(&store);
    job.check(&job.run("--resume"));
}

#[test]
fn pins_and_garbage_beside_a_running_job_neither_fence_it_nor_take_what_it_needs() {
    let job = Job::new(WINDOWS);
    let running = job.start_and_see_rows("--rate 1500 --retain 5");
    let store = job.path("store");
    let mut deleted = 0;
    for round in 0..12 {
        let name = format!("pin {round}");
        // It may have fallen out of retention between the two.
        let first = name_of(&listed(&store)[0]);
        let pinned = checkpoints("pin", &store, &[&first, &name]).code;
        assert!(pinned == 0 || pinned == 3);
        let gc = checkpoints("gc --json --retain 1 --grace 0s", &store, &[]).expect(0).json();
        deleted += gc["objects"].as_u64().unwrap();
        if pinned == 0 {
            checkpoints("show", &store, &[&first]).expect(0);
            checkpoints("unpin", &store, &[&first, &name]).expect(0);
        }
    }
    assert!(deleted > 0);
    assert_sound(&store);
    job.check(&running.wait());
    assert_sound(&store);
}

#[test]
fn bad_input_gc_pin_and_delete_on_what_is_no_root_change_nothing() {
    let job = Job::new(WINDOWS);
    std::fs::create_dir(job.path("photos")).unwrap();
    std::fs::write(job.path("photos/cat.jpg"), "x").unwrap();
    let before = job.files();
    for name in ["missing", "photos"] {
        for (line, rest) in [
            ("gc --retain 1 --grace 0s", &[][..]),
            ("gc --dry-run --json", &[]),
            ("pin", &["1", "x"]),
            ("unpin", &["1", "x"]),
            ("delete --json", &["1"]),
        ] {
            let ended = checkpoints(line, &job.path(name), rest).expect(3);
            assert!(ended.stderr.contains("no Highwater job") && ended.stdout.is_empty(), "{line}: {ended:?}");
        }
    }
    assert!(job.files() == before);
}

#[test]
fn get_tells_the_windows_of_a_key_in_words_and_that_there_are_none() {
    for (aggregation, state, keys) in
        [(WINDOWS, "windows", &["UA", "AA", "B6", "DL", "MQ"][..]), (SESSIONS, "sessions", &[])]
    {
        let job = Job::new(aggregation);
        job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
        let store = job.path("store");
        let id = name_of(listed(&store).last().unwrap());
        let get = |line: &str, rest: &[&str]| {
            checkpoints(&format!("get {line}"), &store, &[&[&id, "--state", state, "--key"], rest].concat())
        };
        let want = support::expected(aggregation).output;
        let keys: Vec<String> = match keys {
            [] => want.lines().skip(1).map(|row| row.split(',').nth(2).unwrap().to_owned()).collect(),
            keys => keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        let mut windows = 0;
        for key in keys.iter().take(60) {
            let json = get("--json", &[key]).expect(0).json();
            assert_eq!(json["found"], !json["entries"].as_array().unwrap().is_empty());
            assert_eq!(json["places"][0]["operator"], "windows", "{json}");
            for entry in json["entries"].as_array().unwrap() {
                windows += 1;
                // It goes on, so what is to come of it has at least as many rows.
                let start = entry["start"].as_str().unwrap();
                if aggregation == WINDOWS {
                    let row = want.lines().find(|row| row.starts_with(&format!("{start},{key},"))).unwrap();
                    let rows: u64 = row.split(',').nth(2).unwrap().parse().unwrap();
                    assert!(
                        entry["rows"].as_u64().is_some_and(|found| (1..=rows).contains(&found)),
                        "{entry} of {row}"
                    );
                }
                let text = get("", &[key]).expect(0).stdout;
                assert!(text.contains(&format!("from {start} to ")) && text.contains(" rows, "), "{text}");
            }
        }
        assert!(windows > 0, "{aggregation}");
        let json = get("--json", &["no such key"]).expect(0).json();
        assert_eq!((&json["found"], &json["entries"]), (&false.into(), &Value::Array(vec![])));
        assert!(get("", &["no such key"]).expect(0).stdout.contains("not found"));
        let hex: String = keys[0].bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            get("--json --hex", &[&hex]).expect(0).json()["entries"],
            get("--json", &[&keys[0]]).json()["entries"]
        );
        assert_eq!(get("--hex", &["xyz"]).code, 2);
        let ended = checkpoints("get", &store, &[&id, "--state", "wind", "--key", "UA"]).expect(2);
        assert!(ended.stderr.contains("`wind`") && ended.stderr.contains(state), "{ended:?}");
        checkpoints("get", &store, &["9/9", "--state", state, "--key", "UA"]).expect(3);
    }
}

#[test]
fn a_fork_shares_the_data_of_its_source_and_says_so() {
    let job = Job::new(WINDOWS);
    job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
    let (store, fork) = (job.path("store"), job.path("fork"));
    let (target, id) = (fork.to_str().unwrap(), name_of(listed(&store).last().unwrap()));
    let before = job.files();
    for (new, code, reason) in
        [(store.to_str().unwrap(), 2, "itself"), ("memory:///", 2, "memory:///"), ("ftp://x/y", 2, "ftp")]
    {
        let ended = checkpoints("fork", &store, &[&id, new]).expect(code);
        assert!(ended.stderr.contains(reason) && ended.stdout.is_empty(), "{ended:?}");
    }
    checkpoints("fork --json", &store, &["9/9", target]).expect(3);
    assert!(job.files() == before);

    let forked = checkpoints("fork --json", &store, &[&id, target]).expect(0).json();
    assert_eq!(forked["from"], id);
    assert!(forked["shared_bytes"].as_u64() > Some(1000));
    assert_eq!(checkpoints("fork --json", &store, &[&id, target]).expect(0).json(), forked, "again");
    let list = checkpoints("list --json", &fork, &[]).expect(0).json();
    assert_eq!(name_of(&list["checkpoints"][0]), forked["forked"]);
    let origin = &list["forked_from"];
    assert!(
        origin["url"].as_str().unwrap().ends_with("/store") && origin["checkpoint"] == id && origin["needed"] == true,
        "{list}"
    );
    assert!(listed(&store).last().unwrap()["pins"][0].as_str().unwrap().starts_with("fork file://"));
    // What can be looked at here can be looked at there.
    let states = |root: &Path| checkpoints("show --json", root, &[]).expect(0).json()["states"].clone();
    assert_eq!(states(&store), states(&fork));
    let get = |root: &Path, id: &str| {
        checkpoints("get --json --state windows --key UA", root, &[id]).expect(0).json()["entries"].clone()
    };
    assert_eq!(get(&store, &id), get(&fork, forked["forked"].as_str().unwrap()));
    assert_sound(&fork);
    checkpoints("gc --retain 1 --grace 0s", &store, &[]).expect(0);
    checkpoints("gc --retain 1 --grace 0s", &fork, &[]).expect(0);
    assert_sound(&fork);
    std::fs::rename(&store, job.path("away")).unwrap();
    let ended = checkpoints("show", &fork, &[]).expect(3);
    assert!(ended.stderr.contains("/store`"), "{ended:?}");
    checkpoints("verify", &fork, &[]).expect(3);
}
