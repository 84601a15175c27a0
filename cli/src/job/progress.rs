//! Live progress on stderr: one moving line on a terminal, a plain line now and then elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console;
use crate::runtime::Progress;
use crate::units::format_size;

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// What was shown last: when, and the events and rows by then.
#[derive(Clone, Copy, Default)]
struct Seen {
    elapsed: Duration,
    events: u64,
    rows: u64,
}

impl Seen {
    fn of(progress: &Progress) -> Self {
        Self { elapsed: progress.elapsed, events: progress.events, rows: progress.rows }
    }
}

/// Shows how a run is doing.
pub struct Display {
    bar: Option<ProgressBar>,
    last: Seen,
    told: Duration,
    quiet: bool,
}

impl Display {
    /// On a terminal, unless `quiet`; plain lines elsewhere.
    pub fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, last: Seen::default(), told: Duration::ZERO, quiet }
    }

    /// Takes in news.
    pub fn show(&mut self, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.set_message(line(progress, self.last));
            self.last = Seen::of(progress);
            bar.tick();
        } else if !self.quiet && progress.elapsed.saturating_sub(self.told) >= PLAIN_EVERY {
            self.told = progress.elapsed;
            console::note(line(progress, self.last));
            self.last = Seen::of(progress);
        }
    }

    /// Clears the moving line.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.finish();
    }
}

fn line(progress: &Progress, before: Seen) -> String {
    let seconds = progress.elapsed.saturating_sub(before.elapsed).as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = |count: u64| count as f64 / seconds;
    let events = progress.events;
    // While many windows fire at once nothing is read.
    let moving = if events == before.events && progress.rows > before.rows {
        format!("{events} events; {} rows fired, {:.0}/s", progress.rows, rate(progress.rows - before.rows))
    } else {
        format!("{events} events, {:.0}/s", rate(events - before.events))
    };
    let checkpoints = match progress.last {
        None => "no checkpoint yet".to_owned(),
        Some((completed, took)) => format!(
            "{} checkpoints, the last in {:.0} ms: {} new of {}",
            progress.completed,
            took.as_secs_f64() * 1e3,
            format_size(completed.delta_bytes),
            format_size(completed.full_bytes)
        ),
    };
    let aborted = match progress.aborted {
        0 => String::new(),
        count => format!(", {count} aborted"),
    };
    format!("{:.0} s: {moving}; {checkpoints}{aborted}", progress.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Completed;

    #[test]
    fn a_line_tells_rate_and_checkpoints() {
        let mut progress =
            Progress { elapsed: Duration::from_secs(3), events: 50_000, rows: 7, completed: 0, aborted: 0, last: None };
        let before = Seen { elapsed: Duration::from_secs(1), events: 10_000, rows: 0 };
        assert_eq!(line(&progress, before), "3 s: 50000 events, 20000/s; no checkpoint yet");
        progress.completed = 2;
        progress.aborted = 1;
        progress.last = Some((Completed { delta_bytes: 2048, full_bytes: 1 << 20 }, Duration::from_millis(12)));
        assert_eq!(
            line(&progress, Seen::default()),
            "3 s: 50000 events, 16667/s; 2 checkpoints, the last in 12 ms: 2.0 KiB new of 1.0 MiB, 1 aborted"
        );
        progress.last = None;
        let before = Seen { elapsed: Duration::from_secs(1), events: 50_000, rows: 3 };
        assert_eq!(line(&progress, before), "3 s: 50000 events; 7 rows fired, 2/s; no checkpoint yet, 1 aborted");
    }
}
