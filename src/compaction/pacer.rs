//! How hard background work may press: pure functions of debt.
//!
//! Debt is what [`super::picker::debt_bytes`] says, or unflushed bytes, against a limit at which the work
//! should run without pause. Nothing here has a step at which everything stops.

/// Rest for each nanosecond of work when there is no debt.
const REST_AT_EASE: u64 = 3;

/// Longest delay of one write, in nanoseconds.
pub const MAX_WRITE_DELAY_NS: u64 = 1_000_000;

/// How long a worker rests after `worked_ns` of work: three times as long without debt, not at all from
/// `limit_bytes` on, in proportion between, give or take a quarter by `jitter` (any random number), so that
/// many backends don't press at one moment.
#[must_use]
pub fn rest_ns(worked_ns: u64, debt_bytes: u64, limit_bytes: u64, jitter: u64) -> u64 {
    let full = worked_ns.saturating_mul(REST_AT_EASE);
    let rest = full - share_of(full, debt_bytes, limit_bytes);
    let quarter = rest / 4;
    rest - quarter + jitter % (2 * quarter + 1)
}

/// How long a write waits: not at all up to `soft_bytes` of debt, [`MAX_WRITE_DELAY_NS`] from `hard_bytes` on, in
/// proportion between.
#[must_use]
pub fn write_delay_ns(debt_bytes: u64, soft_bytes: u64, hard_bytes: u64) -> u64 {
    if debt_bytes <= soft_bytes {
        return 0;
    }
    share_of(MAX_WRITE_DELAY_NS, debt_bytes - soft_bytes, hard_bytes.saturating_sub(soft_bytes))
}

/// `whole * part / of`, at most `whole`.
fn share_of(whole: u64, part: u64, of: u64) -> u64 {
    if part >= of {
        return whole;
    }
    let share = u128::from(whole) * u128::from(part) / u128::from(of);
    u64::try_from(share).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_shrinks_in_proportion_to_debt() {
        for (debt, least, most) in [(0, 225, 375), (50, 113, 187), (99, 3, 4), (100, 0, 0), (1_000, 0, 0)] {
            for jitter in [0, 1, 77, u64::MAX] {
                let rest = rest_ns(100, debt, 100, jitter);
                assert!((least..=most).contains(&rest), "debt {debt}: {rest}");
            }
        }
        assert_eq!(rest_ns(100, 0, 0, 5), 0, "without a limit everything is urgent");
        assert!(rest_ns(u64::MAX, 0, 100, 0) > 0);
    }

    #[test]
    fn writes_slow_down_without_a_cliff() {
        let table = [(0, 0), (10, 0), (11, 11_111), (55, 500_000), (100, 1_000_000), (u64::MAX, 1_000_000)];
        for (debt, delay) in table {
            assert_eq!(write_delay_ns(debt, 10, 100), delay, "debt {debt}");
        }
        assert_eq!(write_delay_ns(11, 10, 10), MAX_WRITE_DELAY_NS);
    }
}
