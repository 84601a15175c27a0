//! The thread of a keyed subtask: answers each message of the reader with one to the sink.

use std::time::Instant;

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

use crate::exit::Outcome;
use crate::runtime::coordinate::Event;
use crate::runtime::record::{ToSink, ToSubtask};
use crate::runtime::{Control, Fired, KeyedOperator, Snapshots};

pub(super) fn run<K: KeyedOperator>(
    mut operator: K,
    input: &Receiver<ToSubtask>,
    controls: &Receiver<Control>,
    output: &Sender<ToSink>,
    events: &Sender<Event<<K::Snapshots as Snapshots>::Ticket>>,
) {
    operator.snapshots().listen(controls.clone());
    if let Err(failure) = serve(&mut operator, input, controls, output, events) {
        let _ = events.send(Event::Failed(failure));
    }
}

/// Until a channel closes: then the run is over.
fn serve<K: KeyedOperator>(
    operator: &mut K,
    input: &Receiver<ToSubtask>,
    controls: &Receiver<Control>,
    output: &Sender<ToSink>,
    events: &Sender<Event<<K::Snapshots as Snapshots>::Ticket>>,
) -> Outcome<()> {
    let mut first = true;
    loop {
        let message = select! {
            recv(controls) -> control => {
                let Ok(control) = control else { return Ok(()) };
                operator.snapshots().control(control)?;
                continue;
            }
            recv(input) -> message => message,
        };
        let Ok(message) = message else { return Ok(()) };
        let answer = match message {
            ToSubtask::Batch { records, watermark } => {
                let mut fired = Fired::default();
                for record in &records {
                    operator.on_record(record, &mut fired)?;
                    if std::mem::take(&mut first) {
                        let _ = events.send(Event::FirstRecord(Instant::now()));
                    }
                }
                operator.on_watermark(watermark, &mut fired)?;
                ToSink::Batch(fired)
            }
            ToSubtask::Barrier(barrier) => {
                let started = Instant::now();
                let ticket = operator.snapshots().checkpoint(barrier.id, &[]);
                let done = Instant::now();
                let _ = events.send(Event::Ack { id: barrier.id, ticket, sync: done - started });
                ToSink::Barrier(barrier, done)
            }
        };
        // What it read while it waited concerned nobody else.
        while operator.snapshots().heard().is_some() {}
        if output.send(answer).is_err() {
            return Ok(());
        }
    }
}
