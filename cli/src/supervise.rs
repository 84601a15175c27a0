//! Ends the process in time after it was asked to stop, whatever hangs in it.
//!
//! The runtime hears a stop in all its waits; a call into the kernel that never returns, on a file system that is away, it can't leave. So the work is done
//! on a thread of its own, and is left behind where it outstays its time: what it holds is no more than a kill would leave, which a resume is made for.

use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, bounded};
use highwater::base::clock::Clock;

use crate::exit::{Code, Failure, Outcome};
use crate::runtime::{Stop, time_of};

/// Between two looks at the clock and the wish to stop.
const TICK: Duration = Duration::from_millis(10);

/// What is left to the threads, once the time of a last checkpoint is over, to end by themselves.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Does `work`; `None` where it hasn't ended `patience`, and a little more, after the stop was asked for.
///
/// # Errors
///
/// No thread can be started (5); the work panicked (1).
pub fn supervise<T: Send + 'static>(
    stop: &Stop,
    patience: Duration,
    clock: &dyn Clock,
    work: impl FnOnce() -> T + Send + 'static,
) -> Outcome<Option<T>> {
    let (done, ended) = bounded(1);
    let body = move || {
        let _ = done.send(work());
    };
    std::thread::Builder::new()
        .name("job".to_owned())
        .spawn(body)
        .map_err(|error| Failure::new(Code::Resource, format!("cannot start a thread: {error}")))?;
    let patience = patience.saturating_add(LAST_WORDS);
    loop {
        match ended.recv_timeout(TICK) {
            Ok(outcome) => return Ok(Some(outcome)),
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::internal("the job ended by a panic")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.requested(clock).is_some_and(|at| time_of(clock) >= at.saturating_add(patience)) {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::PassingClock;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn work_that_hangs_for_ever_is_left_behind_only_when_its_time_after_a_stop_is_over() {
        let clock = PassingClock::default();
        let (stop, (never, waits)) = (Stop::default(), bounded::<()>(0));
        stop.gently();
        let left = supervise(&stop, PATIENCE, &clock, move || waits.recv().is_ok()).unwrap();
        assert_eq!(left, None);
        assert!(time_of(&clock) >= stop.requested(&clock).unwrap() + PATIENCE);
        drop(never);
    }

    #[test]
    fn work_that_ends_is_what_comes_of_it_stop_or_no_stop() {
        let stop = Stop::default();
        for _ in 0..2 {
            assert_eq!(supervise(&stop, PATIENCE, &PassingClock::default(), || 7), Ok(Some(7)));
            stop.gently();
        }
        let panicked = supervise(&stop, PATIENCE, &PassingClock::default(), || panic!("seen"));
        assert_eq!(panicked.map(|_: Option<()>| ()).unwrap_err().code, Code::Internal);
    }
}
