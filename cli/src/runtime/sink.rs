//! The thread of the sink: takes one message from each subtask in turn, so that barriers are aligned and rows of one stretch of the input meet.

use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use crossbeam::select;

use crate::exit::{Failure, Outcome};
use crate::runtime::coordinate::Event;
use crate::runtime::record::ToSink;
use crate::runtime::{Control, Row, Snapshots, StagedOutput, StagedRows};

pub(super) fn run<R: StagedRows + Snapshots>(
    mut sink: StagedOutput<R>,
    inputs: &[Receiver<ToSink>],
    controls: &Receiver<Control>,
    events: &Sender<Event<R::Ticket>>,
) {
    sink.listen(controls.clone());
    if let Err(failure) = serve(&mut sink, inputs, controls, events) {
        let _ = events.send(Event::Failed(failure));
    }
}

/// Until a channel closes: then the run is over.
fn serve<R: StagedRows + Snapshots>(
    sink: &mut StagedOutput<R>,
    inputs: &[Receiver<ToSink>],
    controls: &Receiver<Control>,
    events: &Sender<Event<R::Ticket>>,
) -> Outcome<()> {
    let mut rows: Vec<Row> = Vec::new();
    loop {
        let mut late = 0;
        let mut barriers = Vec::with_capacity(inputs.len());
        for input in inputs {
            match next(sink, input, controls, events)? {
                None => return Ok(()),
                Some(ToSink::Batch(fired)) => {
                    rows.extend(fired.rows);
                    late += fired.late;
                }
                Some(ToSink::Barrier(barrier, done)) => barriers.push((barrier, done)),
            }
        }
        match barriers.first() {
            None => {
                // All ends in here lie after those of earlier stretches: what is late doesn't fire again.
                rows.sort_unstable_by(|a, b| (a.end, a.stream, &a.key).cmp(&(b.end, b.stream, &b.key)));
                sink.take(&rows, late)?;
                rows.clear();
            }
            Some((barrier, _)) if barriers.len() == inputs.len() => {
                let metadata = sink.prepare(barrier.id, &barrier.position)?;
                let _ = events.send(Event::Aligned {
                    id: barrier.id,
                    waited: spread(barriers.iter().map(|(_, done)| *done)),
                    totals: sink.totals(),
                    metadata: metadata.clone(),
                });
                let started = Instant::now();
                let ticket = sink.checkpoint(barrier.id, &metadata);
                let _ = events.send(Event::Ack { id: barrier.id, ticket, sync: started.elapsed() });
            }
            Some(_) => {
                return Err(Failure::internal("the subtasks disagree on where a barrier lies"));
            }
        }
        while let Some(control) = sink.heard()? {
            tell_written(control, events);
        }
    }
}

/// The next message of one subtask; news about checkpoints are acted on meanwhile.
fn next<R: StagedRows + Snapshots>(
    sink: &mut StagedOutput<R>,
    input: &Receiver<ToSink>,
    controls: &Receiver<Control>,
    events: &Sender<Event<R::Ticket>>,
) -> Outcome<Option<ToSink>> {
    loop {
        let control = select! {
            recv(input) -> message => return Ok(message.ok()),
            recv(controls) -> control => control,
        };
        let Ok(control) = control else {
            return Ok(None);
        };
        sink.control(control)?;
        tell_written(control, events);
    }
}

fn tell_written<T>(control: Control, events: &Sender<Event<T>>) {
    if let Control::Confirm(id) = control {
        let _ = events.send(Event::Written(id));
    }
}

fn spread(times: impl Iterator<Item = Instant> + Clone) -> Duration {
    match (times.clone().min(), times.max()) {
        (Some(first), Some(last)) => last - first,
        _ => Duration::ZERO,
    }
}
