//! `highwater demo` as a user runs it, only shorter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{highwater, start};

#[test]
fn every_result_is_right_after_two_crashes_and_a_rescale() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let ended = start(highwater("demo --seconds 4 --json --store").arg(&store)).wait().expect(0);
    let json = ended.json();
    assert_eq!((&json["crashes"], &json["differences"]), (&2.into(), &0.into()), "{json}");
    assert!(json["compared"].as_u64().unwrap() > 100 && json["compared"] == json["output_rows"], "{json}");
    let restores = json["restores"].as_array().unwrap();
    assert_eq!(restores.len(), 2);
    assert_eq!((&restores[1]["parallelism_from"], &restores[1]["parallelism_to"]), (&2.into(), &3.into()), "{json}");
    // Its checkpoints can be looked into afterwards, and another demo doesn't mix with them.
    start(highwater("checkpoints verify").arg(&store)).wait().expect(0);
    let again = start(highwater("demo --seconds 3 --store").arg(&store)).wait().expect(2);
    assert!(again.stderr.contains("holds a job already"), "{again:?}");
}

#[test]
fn a_corrupt_row_is_found_and_the_exit_code_is_1() {
    let ended = start(&mut highwater("demo --seconds 3 --corrupt-row 3")).wait().expect(1);
    assert!(ended.stderr.contains("row 3"), "{ended:?}");
    assert!(ended.stdout.contains("differences"), "{ended:?}");
}
