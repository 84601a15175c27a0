//! What scripts see of the binary when it is used wrongly: the exit code, an empty stdout, a reason on stderr.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn highwater(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater")).args(line.split_whitespace()).output().unwrap()
}

#[test]
fn wrong_usage_exits_2_with_a_reason_and_an_empty_stdout() {
    let run = "run --input i.csv --key k --time t --value v --output o.csv";
    for (line, reason) in [
        ("".to_owned(), "Usage"),
        ("nonsense".to_owned(), "nonsense"),
        (run.to_owned(), "--window"),
        (format!("{run} --window 1h --gap 1h"), "--gap"),
        (format!("{run} --window 1h --parallelism 9 --max-parallelism 8"), "--max-parallelism 8"),
        (format!("{run} --window 1h --retain 0"), "--retain"),
        ("checkpoints show".to_owned(), "URL"),
    ] {
        let output = highwater(&line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(reason), "{line}: {stderr}");
    }
}
