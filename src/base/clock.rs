//! The seam for time.

use std::time::Duration;

/// Where time comes from. Tests put their own behind it.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Wall time, milliseconds since 1970. May jump or run backwards.
    fn now_ms(&self) -> i64;

    /// Monotonic time since some fixed point, nanoseconds.
    fn monotonic_ns(&self) -> u64;

    /// Waits for `duration`.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one door to the machine's wall clock")]
    fn now_ms(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "the one door to the machine's monotonic clock")]
    fn monotonic_ns(&self) -> u64 {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "the one door to sleeping")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that only moves when told to, or when somebody sleeps on it.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_ms: std::sync::atomic::AtomicI64,
    monotonic_ns: std::sync::atomic::AtomicU64,
}

impl ManualClock {
    /// A clock that shows `wall_ms`.
    #[must_use]
    pub fn at_ms(wall_ms: i64) -> Self {
        let clock = Self::default();
        clock.set_ms(wall_ms);
        clock
    }

    /// Sets the wall time, forwards or backwards. Monotonic time stays.
    pub fn set_ms(&self, wall_ms: i64) {
        self.wall_ms.store(wall_ms, std::sync::atomic::Ordering::SeqCst);
    }

    /// Moves both times on.
    pub fn advance(&self, duration: Duration) {
        use std::sync::atomic::Ordering::SeqCst;
        self.wall_ms.fetch_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX), SeqCst);
        self.monotonic_ns.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}
