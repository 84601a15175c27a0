//! The thread of the source: reads records, attaches watermarks, deals them out to subtasks by key, sends barriers between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError};

use crate::exit::Outcome;
use crate::kill::{self, Point};
use crate::position::Position;
use crate::runtime::coordinate::Event;
use crate::runtime::record::{Barrier, ToSubtask};
use crate::runtime::throttle::Throttle;
use crate::runtime::{Record, Settings, Source, subtask_of};

/// Events that are read before all subtasks hear of them.
const BATCH_EVENTS: usize = 512;

/// Bytes of keys that are read before all subtasks hear of them.
const BATCH_BYTES: usize = 256 << 10;

/// Events between two looks at the commands.
const COMMAND_EVENTS: usize = 32;

/// What the coordinator tells the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Send a barrier.
    Barrier(u64),
    /// Read no further.
    Stop,
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Flow {
    GoOn,
    Stop,
    /// The run is over: nobody listens.
    Over,
}

pub(super) struct Reader<S> {
    source: S,
    watermark: i64,
    out_of_orderness: i64,
    max_parallelism: u32,
    throttle: Throttle,
    started: Instant,
    subtasks: Vec<Sender<ToSubtask>>,
    batches: Vec<Vec<Record>>,
    batched: usize,
    batched_bytes: usize,
    read: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    finished: bool,
}

impl<S: Source> Reader<S> {
    pub fn new(
        source: S,
        position: &Position,
        settings: &Settings,
        subtasks: Vec<Sender<ToSubtask>>,
        read: Arc<AtomicU64>,
        ended: Arc<AtomicBool>,
    ) -> Self {
        Self {
            source,
            watermark: position.watermark,
            out_of_orderness: settings.out_of_orderness,
            max_parallelism: settings.max_parallelism,
            throttle: Throttle::new(settings.rate),
            started: Instant::now(),
            batches: subtasks.iter().map(|_| Vec::new()).collect(),
            batched: 0,
            batched_bytes: 0,
            subtasks,
            read,
            ended,
            finished: position.finished,
        }
    }

    pub fn run<T>(mut self, commands: &Receiver<Command>, events: &Sender<Event<T>>) {
        if let Err(failure) = self.read_and_wait(commands, events) {
            // Nobody listens once the run is over.
            let _ = events.send(Event::Failed(failure));
        }
    }

    fn read_and_wait<T>(&mut self, commands: &Receiver<Command>, events: &Sender<Event<T>>) -> Outcome<()> {
        // An input that had ended before a resume is read no further, whatever was added to it since.
        let mut flow = if self.finished { Flow::GoOn } else { self.read(commands, events)? };
        if flow == Flow::GoOn {
            self.finished = true;
            self.watermark = i64::MAX;
            flow = self.flush();
        }
        // Nothing is left to read, but barriers still go out.
        while flow != Flow::Over {
            let Ok(command) = commands.recv() else {
                return Ok(());
            };
            if let Command::Barrier(id) = command {
                flow = self.send_barrier(id, true, events);
            }
        }
        Ok(())
    }

    /// Reads up to the end of the input, or until told to stop.
    fn read<T>(&mut self, commands: &Receiver<Command>, events: &Sender<Event<T>>) -> Outcome<Flow> {
        let mut records = Vec::new();
        let mut until_commands = 0;
        loop {
            if let Some(wait) = self.throttle.wait(self.started.elapsed()) {
                // What has been read must not wait along.
                let flow = match self.flush() {
                    Flow::GoOn => self.wait_for_command(wait, commands, events),
                    over => over,
                };
                if flow != Flow::GoOn {
                    return Ok(flow);
                }
                continue;
            }
            if until_commands == 0 {
                until_commands = COMMAND_EVENTS;
                let flow = self.take_commands(commands, events);
                if flow != Flow::GoOn {
                    return Ok(flow);
                }
            }
            until_commands -= 1;
            let Some(time) = self.source.next(&mut records)? else {
                return Ok(Flow::GoOn);
            };
            kill::pass(Point::Event);
            for mut record in records.drain(..) {
                record.watermark = self.watermark;
                self.batched_bytes += record.key.len();
                let parallelism = self.subtasks.len() as u32;
                let subtask = subtask_of(&record.key, parallelism, self.max_parallelism);
                self.batches[subtask as usize].push(record);
            }
            self.watermark = self.watermark.max(time.saturating_sub(self.out_of_orderness));
            self.throttle.pass();
            self.batched += 1;
            let full = self.batched >= BATCH_EVENTS || self.batched_bytes >= BATCH_BYTES;
            if full && self.flush() == Flow::Over {
                return Ok(Flow::Over);
            }
        }
    }

    fn take_commands<T>(&mut self, commands: &Receiver<Command>, events: &Sender<Event<T>>) -> Flow {
        loop {
            let flow = match commands.try_recv() {
                Ok(command) => self.obey(command, events),
                Err(TryRecvError::Empty) => return Flow::GoOn,
                Err(TryRecvError::Disconnected) => Flow::Over,
            };
            if flow != Flow::GoOn {
                return flow;
            }
        }
    }

    fn wait_for_command<T>(&mut self, wait: Duration, commands: &Receiver<Command>, events: &Sender<Event<T>>) -> Flow {
        match commands.recv_timeout(wait) {
            Ok(command) => self.obey(command, events),
            Err(crossbeam::channel::RecvTimeoutError::Timeout) => Flow::GoOn,
            Err(crossbeam::channel::RecvTimeoutError::Disconnected) => Flow::Over,
        }
    }

    fn obey<T>(&mut self, command: Command, events: &Sender<Event<T>>) -> Flow {
        match command {
            Command::Barrier(id) => self.send_barrier(id, false, events),
            Command::Stop => match self.flush() {
                Flow::GoOn => Flow::Stop,
                over => over,
            },
        }
    }

    fn send_barrier<T>(&mut self, id: u64, last: bool, events: &Sender<Event<T>>) -> Flow {
        if self.flush() == Flow::Over {
            return Flow::Over;
        }
        let position = Position { watermark: self.watermark, finished: self.finished, ..self.source.position() };
        let barrier = Arc::new(Barrier { id, position: position.clone() });
        let _ = events.send(Event::BarrierSent { id, last, position });
        self.broadcast(|_| ToSubtask::Barrier(barrier.clone()))
    }

    /// Sends what has been batched, and the watermark, to every subtask.
    fn flush(&mut self) -> Flow {
        if self.ended.load(Ordering::Acquire) {
            return Flow::Over;
        }
        self.read.fetch_add(self.batched as u64, Ordering::Relaxed);
        (self.batched, self.batched_bytes) = (0, 0);
        let watermark = self.watermark;
        let mut batches = std::mem::take(&mut self.batches);
        let flow =
            self.broadcast(|subtask| ToSubtask::Batch { records: std::mem::take(&mut batches[subtask]), watermark });
        self.batches = batches;
        flow
    }

    fn broadcast(&self, mut message: impl FnMut(usize) -> ToSubtask) -> Flow {
        for (index, subtask) in self.subtasks.iter().enumerate() {
            if subtask.send(message(index)).is_err() {
                return Flow::Over;
            }
        }
        Flow::GoOn
    }
}
