//! The one place that writes to the terminal: results on stdout, everything that is told to people on stderr.

use std::fmt::{self, Display};
use std::io::{self, Write};

use serde::Serialize;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

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

/// Writes what the library logs in the style of the command's own lines: `warning: what happened error=why`.
#[derive(Clone, Copy, Debug)]
pub struct LogLine;

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        write!(writer, "{level}: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_the_library_logs_looks_like_the_commands_own_warnings() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt().event_format(LogLine).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = %"no such file", "a flush failed");
        });
        let written = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written, "warning: a flush failed error=no such file\n");
    }
}
