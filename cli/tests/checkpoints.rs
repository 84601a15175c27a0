//! `highwater checkpoints` on the root of a real job.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};

use support::{Ended, Job, SESSIONS, WINDOWS, highwater, start};

fn checkpoints(line: &str, store: &Path, more: &str) -> Ended {
    let mut command = highwater("checkpoints");
    start(command.args(line.split_whitespace()).arg(store).args(more.split_whitespace())).wait()
}

/// A job at parallelism 2 with some retained checkpoints.
fn job() -> Job {
    let job = Job::new(SESSIONS);
    job.run_killed_at("in-append:5", "--rate 8000").expect(-9);
    job
}

fn objects(folder: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            objects(&path, suffix, found);
        } else if path.to_str().unwrap().ends_with(suffix) {
            found.push(path);
        }
    }
}

#[test]
fn list_names_the_retained_checkpoints_oldest_first() {
    let job = job();
    let before = job.files();
    let json = checkpoints("list --json", &job.path("store"), "").expect(0).json();
    let listed = json["checkpoints"].as_array().unwrap();
    assert_eq!(listed.len(), 3, "{json}");
    let ids: Vec<u64> = listed.iter().map(|c| c["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted() && listed.iter().all(|c| c["epoch"] == 1 && c["parallelism"] == 2), "{json}");
    assert!(listed.iter().all(|c| c["completed"].as_str().unwrap().ends_with('Z') && c["bytes"].as_u64() > Some(0)));
    let table = checkpoints("list", &job.path("store"), "").expect(0).stdout;
    assert!(table.lines().count() == 4 && table.contains(&format!("1/{}", ids[0])), "{table}");
    assert!(job.files() == before, "looking changes nothing");
}

#[test]
fn show_tells_what_a_checkpoint_holds() {
    let job = job();
    let store = job.path("store");
    let json = checkpoints("show --json", &store, "").expect(0).json();
    assert_eq!((&json["parallelism"], &json["max_parallelism"]), (&2.into(), &128.into()), "{json}");
    assert_eq!(json["metadata"]["config"]["gap"], "6h", "{json}");
    let states = json["states"].as_array().unwrap();
    let kinds: Vec<_> = states.iter().map(|s| (s["name"].as_str().unwrap(), s["kind"].as_str().unwrap())).collect();
    assert_eq!(
        kinds,
        [("held rows", "map"), ("staged rows", "value"), ("sessions", "map"), ("sessions timers", "timers")]
    );
    assert!(states.iter().any(|s| s["name"] == "sessions" && s["entries"].as_u64() > Some(0)), "{json}");
    let segments = json["segments"].as_array().unwrap();
    assert!(segments.iter().all(|s| store.join(s["name"].as_str().unwrap()).is_file()), "{json}");
    let groups = json["key_groups"].as_array().unwrap();
    let of = |operator: &str| groups.iter().filter(|group| group["operator"] == operator).count();
    assert!(of("windows") > 10 && of("output") <= 1 && of("windows") + of("output") == groups.len(), "{json}");
    // By id, by epoch and id, and one that isn't there.
    let id = checkpoints("list --json", &store, "").json()["checkpoints"][0]["id"].to_string();
    for name in [id.clone(), format!("1/{id}")] {
        assert_eq!(checkpoints("show --json", &store, &name).expect(0).json()["id"].to_string(), id);
    }
    assert!(checkpoints("show", &store, "9/9").expect(3).stderr.contains("9/9"));
    assert_eq!(checkpoints("show", &store, "x").code, 2);
    assert!(checkpoints("show", &store, "").expect(0).stdout.contains("sessions timers"));
}

#[test]
fn the_size_of_a_checkpoint_counts_what_parts_share_after_a_rescale_once() {
    let job = Job::new(SESSIONS);
    // The one subtask's segments are then read by four, until compactions have rewritten them.
    job.run_killed_at("in-append:5", "--rate 8000 --parallelism 1").expect(-9);
    job.run_killed_at("in-append:2", "--rate 8000 --parallelism 4 --resume").expect(-9);
    let store = job.path("store");
    let shown = checkpoints("show --json", &store, "").expect(0).json();
    let id = format!("{}/{}", shown["epoch"], shown["id"]);
    let list = checkpoints("list --json", &store, "").expect(0).json();
    let listed = list["checkpoints"].as_array().unwrap().last().unwrap()["bytes"].as_u64().unwrap();
    let on_disk = |name: &serde_json::Value| std::fs::metadata(store.join(name.as_str().unwrap())).unwrap().len();
    let segments: u64 = shown["segments"].as_array().unwrap().iter().map(|s| on_disk(&s["name"])).sum();
    let verified = checkpoints("verify --json", &store, &id).expect(0).json();
    assert_eq!(verified["bytes"].as_u64(), Some(listed), "{list}");
    // What is left are the manifests of four subtasks and the sink.
    assert!(segments < listed && listed - segments < 5 * 16_384, "{segments} of {listed}");
}

#[test]
fn verify_names_the_object_in_which_one_bit_has_flipped() {
    let job = job();
    let store = job.path("store");
    let good = checkpoints("verify --json", &store, "").expect(0).json();
    assert!(good["objects"].as_u64() > Some(5) && good["bad"].as_array().unwrap().is_empty(), "{good}");
    let newest = checkpoints("show --json", &store, "").json();
    let name = newest["segments"][0]["name"].as_str().unwrap().to_owned();
    let path = store.join(&name);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for id in ["", newest["id"].to_string().as_str()] {
        let ended = checkpoints("verify --json", &store, id).expect(3);
        let bad = ended.json()["bad"].as_array().unwrap().clone();
        assert_eq!((bad.len(), &bad[0]["name"]), (1, &name.clone().into()));
        assert!(ended.stderr.contains(&name), "{ended:?}");
    }
    std::fs::remove_file(&path).unwrap();
    let missing = checkpoints("verify", &store, "").expect(3);
    assert!(missing.stdout.contains(&name) && missing.stdout.contains("missing"), "{missing:?}");
}

#[test]
fn a_damaged_checkpoint_is_never_passed_over_in_silence() {
    let job = Job::new(WINDOWS);
    job.run_killed_at("in-append:3", "--rate 8000").expect(-9);
    let mut manifests = Vec::new();
    objects(&job.path("store"), ".man", &mut manifests);
    for path in &manifests {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let ended = job.run("--resume").expect(3);
    assert!(ended.stderr.contains(".man"), "{ended:?}");
    assert_eq!(checkpoints("verify", &job.path("store"), "").code, 3);
}

#[test]
fn a_root_without_a_job_is_an_error_and_nothing_is_created() {
    let job = Job::new(WINDOWS);
    std::fs::create_dir(job.path("empty")).unwrap();
    let before = job.files();
    for name in ["missing", "empty"] {
        for line in ["list", "show", "verify", "list --json", "verify --json"] {
            let ended = checkpoints(line, &job.path(name), "").expect(3);
            assert!(ended.stderr.contains("no Highwater job") && ended.stdout.is_empty(), "{line} {name}: {ended:?}");
        }
    }
    assert!(job.files() == before);
}
