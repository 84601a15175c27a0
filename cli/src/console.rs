//! The one place that writes to the terminal: results on stdout, everything that is told to people on stderr.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::exit::{Failure, Outcome};

/// Writes `value` as the one line that `--json` promises on stdout.
///
/// # Errors
///
/// Stdout is closed or full.
pub fn json_line(value: &impl Serialize) -> Outcome<()> {
    let mut line =
        serde_json::to_vec(value).map_err(|error| Failure::internal(format!("cannot write JSON: {error}")))?;
    line.push(b'\n');
    stdout(&line)
}

/// Writes text to stdout, for the commands whose result is a table.
///
/// # Errors
///
/// Stdout is closed or full.
pub fn table(text: &str) -> Outcome<()> {
    stdout(text.as_bytes())
}

fn stdout(bytes: &[u8]) -> Outcome<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::internal(format!("cannot write to stdout: {error}")))
}

/// Tells people something. A closed stderr is nothing to fail for.
pub fn note(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// Warns people of something.
pub fn warn(message: impl Display) {
    note(format_args!("warning: {message}"));
}
