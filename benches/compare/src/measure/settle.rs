//! Waiting until background work has nothing left to do, seen from outside and alike for every store.

use std::time::{Duration, Instant};

use super::process::cpu_time;
use crate::Result;
use crate::store::Store;

/// Longest time that background work may go on.
pub const SETTLE_AT_MOST: Duration = Duration::from_secs(900);

/// A process that used less than a twentieth of this over so long is idle, unless its store says otherwise.
const WINDOW: Duration = Duration::from_millis(200);

/// Waits until the process is idle. Returns how long it was busy.
pub fn settle(store: &mut impl Store, most: Duration) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let (began, cpu) = (start.elapsed(), cpu_time());
        let busy = store.poll()?;
        std::thread::sleep(WINDOW);
        if !busy && cpu_time() - cpu < WINDOW / 20 {
            return Ok(began);
        }
        if start.elapsed() > most {
            return Err(format!("background work goes on after {} s", most.as_secs()).into());
        }
    }
}
