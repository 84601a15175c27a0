//! What the window logic asks of the state that it lives in.

use crate::exit::Outcome;
use crate::runtime::{Key, StreamId};

/// A point in event time at which a key wants to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// In nanoseconds since 1970.
    pub time: i64,
    /// The key that registered it.
    pub key: Key,
}

/// Keyed state and timers of one subtask.
///
/// Windows of a key are told apart by their start. A timer is the pair of its time and key: registering it twice is the same as once.
/// Every call either takes effect or fails; an implementation that has to wait for room in the state waits within the call.
pub trait WindowStore {
    /// What is kept of the window of `key` that begins at `start`.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    fn get(&mut self, stream: StreamId, key: &[u8], start: i64) -> Outcome<Option<Vec<u8>>>;

    /// Keeps `window` for the window of `key` that begins at `start`.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn put(&mut self, stream: StreamId, key: &[u8], start: i64, window: &[u8]) -> Outcome<()>;

    /// Forgets the window of `key` that begins at `start`.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn remove(&mut self, stream: StreamId, key: &[u8], start: i64) -> Outcome<()>;

    /// All windows of `key`, by start, in that order.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    fn windows(&mut self, stream: StreamId, key: &[u8]) -> Outcome<Vec<(i64, Vec<u8>)>>;

    /// Asks to be called for `key` at `time`.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn register_timer(&mut self, stream: StreamId, key: &[u8], time: i64) -> Outcome<()>;

    /// Takes a timer back.
    ///
    /// # Errors
    ///
    /// The state can't be written.
    fn delete_timer(&mut self, stream: StreamId, key: &[u8], time: i64) -> Outcome<()>;

    /// The time of the earliest timer.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    fn next_timer(&mut self, stream: StreamId) -> Outcome<Option<i64>>;

    /// Removes and returns the earliest timer whose time is at or before `upto`.
    ///
    /// # Errors
    ///
    /// The state can't be read or written.
    fn pop_timer(&mut self, stream: StreamId, upto: i64) -> Outcome<Option<Timer>>;
}
