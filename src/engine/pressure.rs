//! How far writes are slowed down, as a function of how far storage is behind.

use std::time::Duration;

/// The longest that one write is made to wait.
pub const MAX_DELAY: Duration = Duration::from_millis(1);

/// What a write has to bear now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pressure {
    /// Nothing.
    #[default]
    None,
    /// Wait so long before each write.
    Delay(Duration),
    /// Refused: memory is full of what storage hasn't taken.
    Full,
}

/// Pressure when `waiting_bytes` of sealed, unflushed state stand against `share_bytes` of memory.
///
/// Up to a half nothing is felt; from there the delay grows with the square of the debt, so that a short burst
/// costs little and a lasting one meets no cliff; at nine tenths writes are refused.
#[must_use]
pub fn pressure(waiting_bytes: u64, share_bytes: u64) -> Pressure {
    let (free, full) = (share_bytes / 2, share_bytes / 10 * 9);
    if waiting_bytes <= free {
        return Pressure::None;
    }
    if waiting_bytes >= full {
        return Pressure::Full;
    }
    let span = u128::from(full - free);
    let debt = u128::from(waiting_bytes - free);
    let nanos = MAX_DELAY.as_nanos() * debt * debt / (span * span);
    Pressure::Delay(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_without_a_cliff_up_to_the_limit() {
        let share = 1_000_000;
        assert_eq!(pressure(0, share), Pressure::None);
        assert_eq!(pressure(500_000, share), Pressure::None);
        assert_eq!(pressure(900_000, share), Pressure::Full);
        let mut last = Duration::ZERO;
        for waiting in (500_001..900_000).step_by(1000) {
            let Pressure::Delay(delay) = pressure(waiting, share) else { panic!("no delay at {waiting}") };
            assert!(delay >= last && delay <= MAX_DELAY && delay - last < Duration::from_micros(10));
            last = delay;
        }
    }
}
