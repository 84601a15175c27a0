//! Retrying requests that may be repeated, and cancelling the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::meters;
use crate::base::random::Random;
use crate::{Error, ErrorKind, Result};

/// Longest sleep between two looks at the cancel flag.
const SLICE: Duration = Duration::from_millis(50);

/// Tells work that is under way elsewhere to stop.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True once cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How long to go on, and how long to pause between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Pause after the first failure; it doubles with each further one.
    pub first_pause: Duration,
    /// Longest pause.
    pub longest_pause: Duration,
    /// No attempt begins later than this after the first. Zero: one attempt.
    pub deadline: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
            deadline: Duration::from_secs(60),
        }
    }
}

/// Repeats what failed with `Unavailable` or `Timeout`. Only for requests that may be repeated.
#[derive(Debug, Clone)]
pub struct Retry {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    policy: RetryPolicy,
    cancel: Cancel,
}

impl Retry {
    /// Retries under `policy`, until `cancel` is cancelled.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>, policy: RetryPolicy, cancel: Cancel) -> Self {
        Self { clock, random, policy, cancel }
    }

    /// Calls `attempt` until it succeeds, fails for good, or time is up. `what` names the request in errors.
    ///
    /// # Errors
    /// The attempt's own error when it isn't one that may pass; the last one when the deadline is over; `Aborted`
    /// when cancelled.
    pub fn run<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut backoff = self.start();
        loop {
            self.check_cancelled(what)?;
            match attempt() {
                Err(error) if may_pass(&error) => backoff.pause(what, error)?,
                settled => return settled,
            }
        }
    }

    /// For loops that [`Retry::run`] doesn't fit: the pauses alone.
    #[must_use]
    pub fn start(&self) -> Backoff<'_> {
        Backoff { retry: self, started_ns: self.clock.monotonic_ns(), pause: self.policy.first_pause }
    }

    fn check_cancelled(&self, what: &str) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Aborted, format!("{what}: cancelled")));
        }
        Ok(())
    }
}

/// The pauses of one request's attempts.
#[derive(Debug)]
pub struct Backoff<'a> {
    retry: &'a Retry,
    started_ns: u64,
    pause: Duration,
}

impl Backoff<'_> {
    /// Pauses after an attempt that failed with `error`: between half of the current pause and all of it.
    ///
    /// # Errors
    /// `error` itself, with `what` in front, when the pause would end after the deadline; `Aborted` when cancelled.
    pub fn pause(&mut self, what: &str, error: Error) -> Result<()> {
        let half = self.pause / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        let jitter = Duration::from_nanos(self.retry.random.next_u64() % spread.saturating_add(1));
        let mut left = half + jitter;
        let elapsed = Duration::from_nanos(self.retry.clock.monotonic_ns().saturating_sub(self.started_ns));
        if elapsed + left > self.retry.policy.deadline {
            return Err(error.context(format!("{what}, given up after {} ms", elapsed.as_millis())));
        }
        meters::STORE_RETRIES.counter(&[]).increment(1);
        while !left.is_zero() {
            self.retry.check_cancelled(what)?;
            let slice = left.min(SLICE);
            self.retry.clock.sleep(slice);
            left -= slice;
        }
        self.pause = (self.pause * 2).min(self.retry.policy.longest_pause);
        Ok(())
    }
}

/// True for errors that a retry may cure.
#[must_use]
pub fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::random::SeededRandom;

    fn retry(deadline_ms: u64, cancel: Cancel) -> (Retry, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at_ms(0));
        let policy = RetryPolicy { deadline: Duration::from_millis(deadline_ms), ..RetryPolicy::default() };
        (Retry::new(clock.clone(), Arc::new(SeededRandom::new(1)), policy, cancel), clock)
    }

    #[test]
    fn retries_what_may_pass_and_nothing_else() {
        let (retry, _) = retry(10_000, Cancel::new());
        let mut calls = 0;
        let third = retry.run("get", || {
            calls += 1;
            if calls < 3 { Err(Error::new(ErrorKind::Unavailable, "503")) } else { Ok(calls) }
        });
        assert_eq!(third.unwrap(), 3);
        let mut calls = 0;
        let error = retry.run("get", || -> Result<()> {
            calls += 1;
            Err(Error::new(ErrorKind::NotFound, "a"))
        });
        assert_eq!((error.unwrap_err().kind(), calls), (ErrorKind::NotFound, 1));
    }

    #[test]
    fn ends_at_the_deadline_with_the_last_error_and_pauses_grow() {
        let (retry, clock) = retry(10_000, Cancel::new());
        let mut times = Vec::new();
        let error = retry
            .run("put `x`", || -> Result<()> {
                times.push(clock.monotonic_ns() / 1_000_000);
                Err(Error::new(ErrorKind::Timeout, "slow"))
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("put `x`"), "{error}");
        assert!(*times.last().unwrap() <= 10_000 && times.len() > 5 && times.len() < 14, "{times:?}");
    }

    #[test]
    fn cancelled_while_pausing() {
        let cancel = Cancel::new();
        let (retry, _) = retry(10_000, cancel.clone());
        let error = retry.run("get", || -> Result<()> {
            cancel.cancel();
            Err(Error::new(ErrorKind::Unavailable, "503"))
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Aborted);
    }
}
