//! How a run is asked to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use highwater::base::clock::Clock;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{Failure, Outcome};
use crate::runtime::time_of;

/// A wish that the run sees a few times a second.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    gently: Arc<AtomicBool>,
    /// When somebody first saw that.
    requested: Arc<OnceLock<Duration>>,
    crash: Arc<AtomicBool>,
}

impl Stop {
    /// Wishes to stop at SIGINT and SIGTERM; the second one ends the process at once, as if they had never been caught.
    ///
    /// # Errors
    ///
    /// The signals can't be caught.
    pub fn on_signals() -> Outcome<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the default is restored only if the flag had been set by an earlier signal.
            signal_hook::flag::register_conditional_default(signal, stop.gently.clone())
                .and_then(|_| signal_hook::flag::register(signal, stop.gently.clone()))
                .map_err(|error| Failure::internal(format!("cannot catch signals: {error}")))?;
        }
        Ok(stop)
    }

    /// Asks for a last checkpoint and an orderly end.
    pub fn gently(&self) {
        self.gently.store(true, Ordering::Release);
    }

    /// Asks to drop everything as it is, as a crash would.
    pub fn crash(&self) {
        self.crash.store(true, Ordering::Release);
    }

    /// For the next run of the same process, which a crash of the last one doesn't concern.
    pub fn revived(&self) -> Self {
        Self { crash: Arc::default(), ..self.clone() }
    }

    /// When the orderly end was asked for, by `clock`: all who look have the same time, whoever was the first to see the wish.
    pub fn requested(&self, clock: &dyn Clock) -> Option<Duration> {
        self.gently.load(Ordering::Acquire).then(|| *self.requested.get_or_init(|| time_of(clock)))
    }

    pub(super) fn wants_crash(&self) -> bool {
        self.crash.load(Ordering::Acquire)
    }
}
