//! Keys as long as they may be, and one byte longer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::Job;

const LONGEST: usize = 64 << 10;
const WINDOWS: &str = "--key k --time t --value v --window 10s";
const SESSIONS: &str = "--key k --time t --value v --gap 10s";

/// Rows of each key at seconds 1 and 2, the keys taking turns.
fn input(keys: &[Vec<u8>]) -> Vec<u8> {
    let mut input = b"k,t,v\n".to_vec();
    for second in ["1", "2"] {
        for key in keys {
            input.extend_from_slice(&[key, &b","[..], second.as_bytes(), b",", second.as_bytes(), b"\n"].concat());
        }
    }
    input
}

#[test]
fn keys_of_64_kib_and_of_nothing_but_nuls_have_windows_that_fire() {
    let keys = [vec![b'a'; LONGEST], vec![0; LONGEST], vec![0; 33 << 10], b"short".to_vec()];
    for aggregation in [WINDOWS, SESSIONS] {
        let mut job = Job::new(aggregation);
        job.input = job.path("in.csv");
        std::fs::write(&job.input, input(&keys)).unwrap();
        let ended = job.run("").expect(0);
        let json = ended.json();
        assert_eq!((&json["records"], &json["skipped"], &json["output_rows"]), (&8.into(), &0.into(), &4.into()));
        let output = job.output();
        for key in &keys {
            let row = format!("{},2,2,3,1,2", String::from_utf8_lossy(key));
            assert!(output.lines().any(|line| line.ends_with(&row)), "no row of a key of {} bytes", key.len());
        }
    }
}

#[test]
fn a_key_of_a_byte_more_is_a_bad_row_with_line_and_column_or_is_counted() {
    let mut job = Job::new(WINDOWS);
    job.input = job.path("in.csv");
    std::fs::write(&job.input, input(&[b"short".to_vec(), vec![b'a'; LONGEST + 1]])).unwrap();
    let ended = job.run("").expect(2);
    assert!(ended.stderr.contains("line 3, column 1 (k): a key of 65537 bytes is over the limit"), "{}", ended.stderr);
    let mut job = Job::new(WINDOWS);
    job.input = job.path("in.csv");
    std::fs::write(&job.input, input(&[b"short".to_vec(), vec![b'a'; LONGEST + 1]])).unwrap();
    let json = job.run("--skip-bad-rows").expect(0).json();
    assert_eq!((&json["records"], &json["skipped"], &json["output_rows"]), (&2.into(), &2.into(), &1.into()));
}
