//! The thread of a keyed subtask: works through the reader's messages in order and, a step at a time between them, fires what has become due.

use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use crossbeam::select;

use crate::exit::Outcome;
use crate::kill::{self, Point};
use crate::runtime::coordinate::Event;
use crate::runtime::record::{Barrier, ToSink, ToSubtask};
use crate::runtime::{Control, Fired, KeyedOperator, Snapshots};

type TicketOf<K> = <<K as KeyedOperator>::Snapshots as Snapshots>::Ticket;

/// A subtask at work.
struct Work<'a, K: KeyedOperator> {
    operator: K,
    input: &'a Receiver<ToSubtask>,
    controls: &'a Receiver<Control>,
    output: &'a Sender<ToSink>,
    events: &'a Sender<Event<TicketOf<K>>>,
    /// Whether there was a record yet.
    first: bool,
}

/// What a subtask does next.
enum Next {
    Read(ToSubtask),
    /// Nothing has been sent: there is time for what is due.
    Fire,
    /// A channel has closed: the run is over.
    End,
}

pub(super) fn run<K: KeyedOperator>(
    mut operator: K,
    input: &Receiver<ToSubtask>,
    controls: &Receiver<Control>,
    output: &Sender<ToSink>,
    events: &Sender<Event<TicketOf<K>>>,
) {
    operator.snapshots().listen(controls.clone());
    let mut work = Work { operator, input, controls, output, events, first: true };
    if let Err(failure) = work.serve() {
        let _ = events.send(Event::Failed(failure));
    }
}

impl<K: KeyedOperator> Work<'_, K> {
    /// Until a channel closes: then the run is over.
    fn serve(&mut self) -> Outcome<()> {
        let mut all_fired = true;
        let mut watermark = i64::MIN;
        loop {
            let mut fired = Fired::default();
            match self.next(!all_fired)? {
                Next::End => return Ok(()),
                Next::Read(ToSubtask::Barrier(barrier)) => {
                    // What is due and hasn't fired is in the state, as it was: the barrier needn't wait for it.
                    if !self.checkpoint(barrier) {
                        return Ok(());
                    }
                    continue;
                }
                Next::Read(ToSubtask::Batch { records, watermark: now }) => {
                    for record in &records {
                        self.operator.on_record(record, &mut fired)?;
                        if std::mem::take(&mut self.first) {
                            let _ = self.events.send(Event::FirstRecord(Instant::now()));
                        }
                    }
                    watermark = now;
                }
                Next::Fire => {}
            }
            all_fired = self.operator.on_watermark(watermark, &mut fired)?;
            if !all_fired {
                kill::pass(Point::Firing);
            }
            let step = ToSink::Step { rows: fired.rows, late: fired.late, upto: self.operator.fired_upto() };
            if !self.send(step) {
                return Ok(());
            }
        }
    }

    /// The reader's next message. Waits for one unless something is due.
    fn next(&mut self, due: bool) -> Outcome<Next> {
        loop {
            let control = if due {
                match self.controls.try_recv() {
                    Ok(control) => control,
                    Err(TryRecvError::Disconnected) => return Ok(Next::End),
                    Err(TryRecvError::Empty) => {
                        return Ok(match self.input.try_recv() {
                            Ok(message) => Next::Read(message),
                            Err(TryRecvError::Empty) => Next::Fire,
                            Err(TryRecvError::Disconnected) => Next::End,
                        });
                    }
                }
            } else {
                select! {
                    recv(self.controls) -> control => match control {
                        Ok(control) => control,
                        Err(_) => return Ok(Next::End),
                    },
                    recv(self.input) -> message => return Ok(message.map_or(Next::End, Next::Read)),
                }
            };
            self.operator.snapshots().control(control)?;
        }
    }

    fn checkpoint(&mut self, barrier: std::sync::Arc<Barrier>) -> bool {
        let started = Instant::now();
        let ticket = self.operator.snapshots().checkpoint(barrier.id, &[]);
        let done = Instant::now();
        let _ = self.events.send(Event::Ack { id: barrier.id, ticket, sync: done - started });
        self.send(ToSink::Barrier(barrier, done))
    }

    /// False once the run is over.
    fn send(&mut self, message: ToSink) -> bool {
        // What the state read while it waited concerned nobody else.
        while self.operator.snapshots().heard().is_some() {}
        self.output.send(message).is_ok()
    }
}
