//! Holds the reader to so many events a second.

use std::time::Duration;

/// Events are let through in bursts of this length: sleeping between single events would cost more than they do.
const BURST: Duration = Duration::from_millis(10);

/// Counts events against a rate.
#[derive(Debug)]
pub(super) struct Throttle {
    rate: Option<u64>,
    passed: u64,
}

impl Throttle {
    pub fn new(rate: Option<u64>) -> Self {
        Self { rate, passed: 0 }
    }

    pub fn pass(&mut self) {
        self.passed += 1;
    }

    /// How long to wait before the next event, `elapsed` after the start.
    pub fn wait(&self, elapsed: Duration) -> Option<Duration> {
        let rate = self.rate?;
        // The burst in progress may be used up to its end.
        let bursts = elapsed.as_nanos() / BURST.as_nanos() + 1;
        let allowed = bursts * BURST.as_nanos() * u128::from(rate) / 1_000_000_000;
        if u128::from(self.passed) < allowed {
            return None;
        }
        let due = u128::from(self.passed + 1) * 1_000_000_000 / u128::from(rate);
        let next_burst = bursts * BURST.as_nanos();
        let until = due.saturating_sub(BURST.as_nanos()).max(next_burst);
        let wait = until.saturating_sub(elapsed.as_nanos()).max(1);
        Some(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events let through in simulated time.
    fn passed(rate: u64, run: Duration) -> u64 {
        let mut throttle = Throttle::new(Some(rate));
        let mut now = Duration::ZERO;
        while now < run {
            match throttle.wait(now) {
                Some(wait) => now += wait,
                None => throttle.pass(),
            }
        }
        throttle.passed
    }

    #[test]
    fn a_rate_is_kept_over_time() {
        for rate in [1, 3, 99, 100, 1000, 40_000, 1_000_000] {
            let count = passed(rate, Duration::from_secs(4));
            let want = rate * 4;
            assert!(count <= want + rate / 100 + 1 && count + rate / 100 + 1 >= want, "{rate}: {count}");
        }
    }

    #[test]
    fn no_rate_never_waits() {
        assert_eq!(Throttle::new(None).wait(Duration::ZERO), None);
    }
}
