//! Windows and timers of a keyed subtask.

use highwater::base::cursor::Direction;
use highwater::{Backend, KeyedState, MapState, TimeDomain, TimerService};

use crate::backend::Context;
use crate::backend::subtask::{OnSubtask, Subtask};
use crate::exit::{Failure, Outcome};
use crate::runtime::StreamId;
use crate::window::{Timer, WindowStore};

/// A subtask's windows: for each stream a map from a window's start to what is kept of it, a key, and the timers.
#[derive(Debug)]
pub struct KeyedWindows {
    subtask: Subtask,
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    windows: MapState<Vec<u8>, i64, Vec<u8>>,
    /// In nanoseconds: the service only compares.
    timers: TimerService<Vec<u8>>,
}

impl KeyedWindows {
    /// The state of `streams`, by their names, in `backend`.
    ///
    /// # Errors
    ///
    /// The backend holds other states under these names.
    pub fn new(mut backend: Backend, streams: &[String]) -> Outcome<Self> {
        let streams = streams.iter().map(|name| {
            let windows = backend.map_state(name).outcome()?;
            let timers = backend.timers(&format!("{name} timers")).outcome()?;
            Ok(Stream { windows, timers })
        });
        let streams = streams.collect::<Outcome<_>>()?;
        Ok(Self { subtask: Subtask::new(backend), streams })
    }

    fn at(&mut self, stream: StreamId) -> Outcome<(&mut Subtask, &mut Stream)> {
        match self.streams.get_mut(usize::from(stream)) {
            Some(found) => Ok((&mut self.subtask, found)),
            None => Err(Failure::internal(format!("a record of stream {stream}, which the job doesn't have"))),
        }
    }
}

impl WindowStore for KeyedWindows {
    fn get(&mut self, stream: StreamId, key: &[u8], start: i64) -> Outcome<Option<Vec<u8>>> {
        let (subtask, stream) = self.at(stream)?;
        subtask.call(|backend| stream.windows.get(backend, key, &start))
    }

    fn put(&mut self, stream: StreamId, key: &[u8], start: i64, window: &[u8]) -> Outcome<()> {
        let (subtask, stream) = self.at(stream)?;
        let window = window.to_vec();
        subtask.call(|backend| stream.windows.put(backend, key, &start, &window))
    }

    fn remove(&mut self, stream: StreamId, key: &[u8], start: i64) -> Outcome<()> {
        let (subtask, stream) = self.at(stream)?;
        subtask.call(|backend| stream.windows.remove(backend, key, &start))
    }

    fn windows(&mut self, stream: StreamId, key: &[u8]) -> Outcome<Vec<(i64, Vec<u8>)>> {
        let (subtask, stream) = self.at(stream)?;
        subtask.call(|backend| stream.windows.iter(backend, key, Direction::Forward)?.collect())
    }

    fn register_timer(&mut self, stream: StreamId, key: &[u8], time: i64) -> Outcome<()> {
        let (subtask, stream) = self.at(stream)?;
        subtask.call(|backend| stream.timers.register(backend, TimeDomain::Event, key, time))
    }

    fn delete_timer(&mut self, stream: StreamId, key: &[u8], time: i64) -> Outcome<()> {
        let (subtask, stream) = self.at(stream)?;
        subtask.call(|backend| stream.timers.delete(backend, TimeDomain::Event, key, time))
    }

    fn next_timer(&mut self, stream: StreamId) -> Outcome<Option<i64>> {
        let (subtask, stream) = self.at(stream)?;
        subtask.call(|backend| stream.timers.next_timestamp(backend, TimeDomain::Event))
    }

    fn pop_timer(&mut self, stream: StreamId, upto: i64) -> Outcome<Option<Timer>> {
        let (subtask, stream) = self.at(stream)?;
        let popped = subtask.call(|backend| stream.timers.pop_until(backend, TimeDomain::Event, upto))?;
        Ok(popped.map(|timer| Timer { time: timer.timestamp_ms, key: timer.key.into() }))
    }
}

impl OnSubtask for KeyedWindows {
    fn subtask(&mut self) -> &mut Subtask {
        &mut self.subtask
    }
}
