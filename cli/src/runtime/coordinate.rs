//! The coordinator's loop: triggers checkpoints, collects their parts, tells everyone how they ended, and ends the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use highwater::base::clock::Clock;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};

use crate::console;
use crate::exit::{Code, Failure, Outcome};
use crate::position::Position;
use crate::runtime::reader::Command;
use crate::runtime::{Action, CheckpointSchedule, Completed, Control, Coordinator, Standing, Stop, Ticket, Totals};

/// Between two looks at the tickets, the clock and the signals.
const TICK: Duration = Duration::from_millis(2);

/// Between two calls of the observer.
const OBSERVE: Duration = Duration::from_millis(200);

/// What the threads tell the coordinator.
pub(super) enum Event<T> {
    /// The input has ended, and all its results have their place in the output.
    AllRowsStaged,
    /// A barrier went out; after the `last` one nothing more will be read.
    BarrierSent { id: u64, last: bool, position: Position },
    /// A subtask has taken its part of a checkpoint.
    Ack { id: u64, ticket: Outcome<T>, sync: Duration },
    /// The barrier has reached the sink on all ways.
    Aligned { id: u64, waited: Duration, totals: Totals, complete: bool, metadata: Vec<u8> },
    /// The rows of a completed checkpoint are in the file.
    Written(u64),
    /// The first record has been processed.
    FirstRecord(Instant),
    /// The run can't go on.
    Failed(Failure),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The input has ended and all results are in the output.
    Finished,
    /// Asked to stop.
    Stopped(Stopped),
    /// Dropped as it was.
    Crashed,
}

/// What a resume of a job that was asked to stop goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The last checkpoint, whose rows are in the output.
    Complete,
    /// The last checkpoint, whose rows aren't all in the output yet: a resume writes them.
    Unwritten,
    /// An earlier one, as the last did not complete; without any, the beginning.
    Incomplete {
        /// The newest completed checkpoint of the job.
        newest: Option<u64>,
    },
}

/// How a run is doing.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the run began.
    pub elapsed: Duration,
    /// Events read in this run.
    pub events: u64,
    /// Rows that have fired in it.
    pub rows: u64,
    /// Completed checkpoints of this run.
    pub completed: u64,
    /// Those given up.
    pub aborted: u64,
    /// The newest completed checkpoint and how long it took.
    pub last: Option<(Completed, Duration)>,
}

pub(super) struct Coordination<C, T> {
    pub events: Receiver<Event<T>>,
    pub commands: Sender<Command>,
    pub controls: Vec<Sender<Control>>,
    pub coordinator: C,
    pub schedule: CheckpointSchedule,
    pub clock: Arc<dyn Clock>,
    /// What is to be said of the run, now and at its end.
    pub standing: Standing,
    /// The checkpoint that the job went on from.
    pub restored: Option<u64>,
    /// Tells the reader that the run is over.
    pub ended: Arc<AtomicBool>,
    /// Events read so far.
    pub read: Arc<AtomicU64>,
    /// Rows that the sink has taken in.
    pub fired: Arc<AtomicU64>,
}

/// What is known of a barrier.
#[derive(Default)]
struct Seen {
    position: Option<Position>,
    /// The totals where it reached the sink, and whether the job was complete there.
    aligned: Option<(Totals, bool)>,
}

/// What is known while a run lasts.
struct State<T> {
    clock: Arc<dyn Clock>,
    /// When it began, by the clock.
    started: Duration,
    observed: Duration,
    tickets: Vec<(u64, T)>,
    /// What is known of each barrier, to report it of the newest that is complete.
    seen: BTreeMap<u64, Seen>,
    /// The first completed checkpoint at whose barrier the job was complete.
    complete_from: Option<u64>,
    /// The first barrier after which nothing is read: from it on, each one covers everything.
    last_from: Option<u64>,
    stopping: bool,
    /// The input has ended: completing a last checkpoint is all that is left to do.
    input_ended: bool,
    /// Since when checkpoints have been refused for good, each since the last one that was or just took too long.
    refused_since: Option<Duration>,
    warned_of_pace: bool,
    newest: Option<(Completed, Duration)>,
    /// The newest completed checkpoint of the job.
    newest_id: Option<u64>,
    standing: Standing,
}

impl<C, T> Coordination<C, T>
where
    T: Ticket,
    C: Coordinator<Part = T::Part>,
{
    /// Runs until the end; the channels close as this returns.
    pub fn run(mut self, stop: &Stop, observe: &mut dyn FnMut(&Progress)) -> Outcome<()> {
        let mut state = State::new(&self);
        let ending = loop {
            match self.step(&mut state, stop, observe) {
                Ok(None) => {}
                Ok(Some(ending)) => break Ok(ending),
                Err(failure) => break Err(failure),
            }
        };
        self.ended.store(true, Ordering::Release);
        if !matches!(ending, Ok(Ending::Crashed)) {
            for id in self.schedule.in_flight().collect::<Vec<_>>() {
                self.coordinator.abort(id);
            }
        }
        let ending = ending?;
        self.keep_standing();
        self.standing.update(|ended| ended.ending = ending);
        // Where the store was there a moment ago; whoever waits for one that isn't would be late.
        if matches!(ending, Ending::Finished | Ending::Stopped(Stopped::Complete)) {
            self.coordinator.settle();
        }
        Ok(())
    }

    fn step(
        &mut self,
        state: &mut State<T>,
        stop: &Stop,
        observe: &mut dyn FnMut(&Progress),
    ) -> Outcome<Option<Ending>> {
        if stop.wants_crash() {
            return Ok(Some(Ending::Crashed));
        }
        if self.heed(state, stop) {
            return Ok(Some(Ending::Stopped(state.stopped())));
        }
        for action in self.schedule.poll(state.now()) {
            match action {
                Action::Trigger(id) => {
                    self.coordinator.begin(id)?;
                    let _ = self.commands.send(Command::Barrier(id));
                }
                Action::Expire(id) => {
                    state.refused_since = None;
                    self.give_up(state, id, "it took longer than --checkpoint-timeout");
                }
            }
        }
        if let Some(ending) = self.collect(state)? {
            return Ok(Some(ending));
        }
        if state.now().saturating_sub(state.observed) >= OBSERVE {
            state.observed = state.now();
            for (id, completed) in self.coordinator.retry()? {
                self.complete(state, id, completed);
            }
            self.keep_standing();
            observe(&state.progress(self.read.load(Ordering::Relaxed), self.fired.load(Ordering::Relaxed)));
        }
        match self.events.recv_timeout(TICK) {
            Ok(event) => self.handle(state, event),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Failure::internal("all threads of the job ended without a word"))
            }
        }
    }

    /// Looks whether the run is to stop: then it reads no further and takes a last checkpoint. True once the time for that is over.
    fn heed(&mut self, state: &mut State<T>, stop: &Stop) -> bool {
        let Some(requested) = stop.requested(&*self.clock) else { return false };
        if !state.stopping {
            state.stopping = true;
            let _ = self.commands.send(Command::Stop);
            self.schedule.wind_down();
            console::note(format_args!(
                "stopping: a last checkpoint is taken first, for which there are {:?}; a second signal ends the process at once",
                self.schedule.timeout()
            ));
        }
        time_of(&*self.clock) >= requested.saturating_add(self.schedule.timeout())
    }

    /// Brings up to date what nobody tells of.
    fn keep_standing(&self) {
        let (skipped, uploaded_bytes) = (self.schedule.skipped(), self.coordinator.uploaded_bytes());
        self.standing.update(|ended| {
            ended.checkpoints.skipped = skipped;
            ended.checkpoints.uploaded_bytes = uploaded_bytes;
        });
    }

    fn handle(&mut self, state: &mut State<T>, event: Event<T>) -> Outcome<Option<Ending>> {
        match event {
            Event::Failed(failure) => return Err(failure),
            Event::AllRowsStaged => {
                state.input_ended = true;
                self.schedule.hurry();
            }
            Event::FirstRecord(at) => {
                self.standing.update(|ended| {
                    ended.first_record = Some(ended.first_record.map_or(at, |first| first.min(at)));
                });
            }
            Event::BarrierSent { id, last, position } => {
                if last {
                    state.last_from.get_or_insert(id);
                }
                state.seen.entry(id).or_default().position = Some(position);
            }
            Event::Aligned { id, waited, totals, complete, metadata } => {
                self.standing.update(|ended| ended.checkpoints.record_alignment(waited));
                state.seen.entry(id).or_default().aligned = Some((totals, complete));
                if self.schedule.is_in_flight(id)
                    && let Err(failure) = self.coordinator.describe(id, metadata)
                {
                    return self.failed(state, id, failure);
                }
            }
            Event::Ack { id, ticket, sync } => {
                self.standing.update(|ended| ended.checkpoints.record_sync(sync));
                match ticket {
                    _ if !self.schedule.is_in_flight(id) => {}
                    Ok(ticket) => state.tickets.push((id, ticket)),
                    Err(failure) => return self.failed(state, id, failure),
                }
            }
            Event::Written(id) => return Ok(self.written(state, id)),
        }
        Ok(None)
    }

    /// Looks at every part on its way.
    fn collect(&mut self, state: &mut State<T>) -> Outcome<Option<Ending>> {
        let mut index = 0;
        while index < state.tickets.len() {
            let (id, ticket) = &mut state.tickets[index];
            let Some(part) = ticket.poll() else {
                index += 1;
                continue;
            };
            let (id, _) = (*id, state.tickets.swap_remove(index));
            if !self.schedule.is_in_flight(id) {
                continue;
            }
            match part.and_then(|part| self.coordinator.add(id, part)) {
                Ok(None) => {}
                Ok(Some(completed)) => self.complete(state, id, completed),
                Err(failure) => {
                    let ending = self.failed(state, id, failure)?;
                    if ending.is_some() {
                        return Ok(ending);
                    }
                }
            }
        }
        Ok(None)
    }

    fn complete(&mut self, state: &mut State<T>, id: u64, completed: Completed) {
        let Some(duration) = self.schedule.completed(id, state.now()) else {
            return;
        };
        state.newest = Some((completed, duration));
        state.settle(id);
        self.standing.update(|ended| {
            ended.checkpoints.record_completed(completed, duration);
            ended.newest = state.newest_id;
            ended.ending = Ending::Stopped(state.stopped());
        });
        state.refused_since = None;
        if duration > self.schedule.interval() && !state.warned_of_pace && !state.is_last(id) {
            state.warned_of_pace = true;
            console::warn(format_args!(
                "checkpoint {id} took {duration:.1?}, longer than the interval of {:?} between them: a longer --interval would do less work",
                self.schedule.interval()
            ));
        }
        self.tell(Control::Confirm(id));
    }

    /// A checkpoint has failed: a warning, unless this job is no longer the one that may write, or nothing is left to do but what is
    /// refused for good.
    fn failed(&mut self, state: &mut State<T>, id: u64, failure: Failure) -> Outcome<Option<Ending>> {
        if failure.code == Code::Locked {
            return Err(failure);
        }
        if !self.schedule.failed(id) {
            return Ok(None);
        }
        if let Some(end) = state.hopeless(&failure, self.schedule.timeout()) {
            return Err(end);
        }
        self.give_up(state, id, &failure.message);
        // What is refused for good now will be at the deadline.
        let refused = state.stopping && failure.code == Code::Resource && state.is_last(id);
        Ok(refused.then(|| Ending::Stopped(state.stopped())))
    }

    /// The schedule tries again, soon where nothing else is left to do: the results of an ended input must get out, and a job that is to stop has little time
    /// for its last checkpoint.
    fn give_up(&mut self, state: &mut State<T>, id: u64, why: &str) {
        console::warn(format_args!("checkpoint {id} was given up: {why}"));
        self.standing.update(|ended| ended.checkpoints.aborted += 1);
        state.tickets.retain(|(of, _)| *of != id);
        self.coordinator.abort(id);
        self.tell(Control::Abort(id));
        if state.input_ended || state.stopping {
            self.schedule.again(state.now());
        }
    }

    fn written(&mut self, state: &mut State<T>, id: u64) -> Option<Ending> {
        if state.complete_from.is_some_and(|first| id >= first) {
            return Some(Ending::Finished);
        }
        (state.stopping && state.is_last(id)).then_some(Ending::Stopped(Stopped::Complete))
    }

    fn tell(&self, control: Control) {
        for receiver in &self.controls {
            // A thread that is gone has said why, or soon will.
            let _ = receiver.send(control);
        }
    }
}

impl<T> State<T> {
    fn new<C>(run: &Coordination<C, T>) -> Self {
        Self {
            clock: run.clock.clone(),
            started: time_of(&*run.clock),
            observed: Duration::ZERO,
            tickets: Vec::new(),
            seen: BTreeMap::new(),
            complete_from: None,
            last_from: None,
            stopping: false,
            input_ended: false,
            refused_since: None,
            warned_of_pace: false,
            newest: None,
            newest_id: run.restored,
            standing: run.standing.clone(),
        }
    }

    fn now(&self) -> Duration {
        time_of(&*self.clock).saturating_sub(self.started)
    }

    fn progress(&self, events: u64, rows: u64) -> Progress {
        let checkpoints = self.standing.checkpoints();
        Progress {
            elapsed: self.now(),
            events,
            rows,
            completed: checkpoints.0,
            aborted: checkpoints.1,
            last: self.newest,
        }
    }

    /// A checkpoint is complete: takes over what was seen at its barrier, and forgets older ones. They may complete later; it stays the newest.
    fn settle(&mut self, id: u64) {
        self.newest_id = self.newest_id.max(Some(id));
        let later = self.seen.split_off(&(id + 1));
        if let Some(Seen { position, aligned }) = self.seen.remove(&id) {
            if aligned.is_some_and(|(_, complete)| complete) {
                self.complete_from.get_or_insert(id);
            }
            self.standing.update(|ended| {
                ended.position = position.unwrap_or_else(|| ended.position.clone());
                ended.totals = aligned.map_or(ended.totals, |(totals, _)| totals);
            });
        }
        self.seen = later;
    }

    /// What there is to go on from if the run ends now, with rows that haven't been written.
    fn stopped(&self) -> Stopped {
        match self.newest_id {
            Some(id) if self.is_last(id) => Stopped::Unwritten,
            newest => Stopped::Incomplete { newest },
        }
    }

    /// Waiting for a store that is away may help; waiting for one that has no room, or doesn't let us write, for longer than a checkpoint may
    /// take only hides that from the user.
    fn hopeless(&mut self, failure: &Failure, patience: Duration) -> Option<Failure> {
        if failure.code != Code::Resource {
            self.refused_since = None;
            return None;
        }
        let now = self.now();
        let refused_for = now.saturating_sub(*self.refused_since.get_or_insert(now));
        (self.input_ended && !self.stopping && refused_for >= patience).then(|| {
            let message =
                format!("the input has been read, but its last results can't be committed: {}", failure.message);
            Failure::new(Code::Resource, message)
        })
    }

    fn is_last(&self, id: u64) -> bool {
        self.last_from.is_some_and(|first| id >= first)
    }
}

/// The clock's monotonic time.
pub fn time_of(clock: &dyn Clock) -> Duration {
    Duration::from_nanos(clock.monotonic_ns())
}
