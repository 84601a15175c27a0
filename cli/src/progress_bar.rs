//! How far a command is whose amount of work is known: a bar on a terminal, a plain line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console;

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows progress on stderr.
pub struct Bar {
    what: &'static str,
    unit: &'static str,
    quiet: bool,
    bar: Option<ProgressBar>,
    total: u64,
    done: u64,
    told: Instant,
}

impl Bar {
    /// Of `what` is done to so many of `unit`; nothing is shown when `quiet`.
    pub fn new(what: &'static str, unit: &'static str, quiet: bool) -> Self {
        Self { what, unit, quiet, bar: None, total: 0, done: 0, told: Instant::now() }
    }

    /// The amount is known.
    pub fn begin(&mut self, total: u64) {
        self.total = total;
        if self.quiet || total == 0 || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let template = format!("{} {{wide_bar}} {{pos}}/{{len}} {}", self.what, self.unit);
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        self.bar = Some(bar);
    }

    /// So much more is done.
    pub fn advance(&mut self, more: u64) {
        self.done += more;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if !self.quiet && self.told.elapsed() >= PLAIN_EVERY {
            self.told = Instant::now();
            console::note(format_args!("{}: {} of {} {}", self.what, self.done, self.total, self.unit));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
