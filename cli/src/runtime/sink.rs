//! The thread of the sink: takes in what the subtasks send, holds back those whose barrier has come until all have, and passes rows on a step at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Select, Sender};

use crate::exit::{Failure, Outcome};
use crate::runtime::coordinate::Event;
use crate::runtime::record::{Barrier, ToSink};
use crate::runtime::{Control, Snapshots, StagedOutput, StagedRows};

pub(super) fn run<R: StagedRows + Snapshots>(
    mut sink: StagedOutput<R>,
    inputs: &[Receiver<ToSink>],
    controls: &Receiver<Control>,
    events: &Sender<Event<R::Ticket>>,
    fired: &AtomicU64,
) {
    sink.listen(controls.clone());
    if let Err(failure) = serve(&mut sink, inputs, controls, events, fired) {
        let _ = events.send(Event::Failed(failure));
    }
}

/// A subtask, as the sink sees it.
struct Input<'a> {
    messages: &'a Receiver<ToSink>,
    /// All its windows that end by then have come.
    upto: i64,
    /// Its barrier, while others' are still to come.
    barrier: Option<(Arc<Barrier>, Instant)>,
}

enum Received {
    Message(usize, ToSink),
    Control(Control),
    Nothing,
    /// A channel has closed: the run is over.
    End,
}

/// Until a channel closes.
fn serve<R: StagedRows + Snapshots>(
    sink: &mut StagedOutput<R>,
    inputs: &[Receiver<ToSink>],
    controls: &Receiver<Control>,
    events: &Sender<Event<R::Ticket>>,
    fired: &AtomicU64,
) -> Outcome<()> {
    let mut inputs: Vec<Input<'_>> =
        inputs.iter().map(|messages| Input { messages, upto: i64::MIN, barrier: None }).collect();
    let mut told_of_end = false;
    loop {
        match receive(&inputs, controls, !sink.has_ready_rows()) {
            Received::End => return Ok(()),
            Received::Nothing => {}
            Received::Control(control) => {
                sink.control(control)?;
                tell_written(control, events);
            }
            Received::Message(index, ToSink::Step { rows, late, upto }) => {
                inputs[index].upto = upto;
                fired.fetch_add(rows.len() as u64, Ordering::Relaxed);
                sink.take(rows, late)?;
                sink.advance(inputs.iter().map(|input| input.upto).min().unwrap_or(i64::MAX));
            }
            Received::Message(index, ToSink::Barrier(barrier, done)) => {
                inputs[index].barrier = Some((barrier, done));
                if inputs.iter().all(|input| input.barrier.is_some()) {
                    let barriers: Vec<_> = inputs.iter_mut().filter_map(|input| input.barrier.take()).collect();
                    cut(sink, &barriers, events)?;
                }
            }
        }
        if sink.has_ready_rows() {
            sink.pass_on()?;
        }
        if sink.is_over() && !told_of_end {
            told_of_end = true;
            let _ = events.send(Event::AllRowsStaged);
        }
        while let Some(control) = sink.heard()? {
            tell_written(control, events);
        }
    }
}

/// News about checkpoints or the next message of a subtask that isn't held back; `wait` says whether to wait for it.
fn receive(inputs: &[Input<'_>], controls: &Receiver<Control>, wait: bool) -> Received {
    let mut select = Select::new();
    select.recv(controls);
    let open: Vec<_> = inputs.iter().enumerate().filter(|(_, input)| input.barrier.is_none()).collect();
    for (_, input) in &open {
        select.recv(input.messages);
    }
    let ready = match (wait, select.try_select()) {
        (_, Ok(ready)) => ready,
        (false, Err(_)) => return Received::Nothing,
        (true, Err(_)) => select.select(),
    };
    match ready.index().checked_sub(1) {
        None => ready.recv(controls).map_or(Received::End, Received::Control),
        Some(at) => {
            let (index, input) = open[at];
            ready.recv(input.messages).map_or(Received::End, |message| Received::Message(index, message))
        }
    }
}

/// All barriers have come: takes the sink's part of the checkpoint.
fn cut<R: StagedRows + Snapshots>(
    sink: &mut StagedOutput<R>,
    barriers: &[(Arc<Barrier>, Instant)],
    events: &Sender<Event<R::Ticket>>,
) -> Outcome<()> {
    let Some((barrier, _)) = barriers.first() else { return Ok(()) };
    if barriers.iter().any(|(other, _)| other.id != barrier.id) {
        return Err(Failure::internal("the subtasks disagree on where a barrier lies"));
    }
    let metadata = sink.prepare(barrier.id, &barrier.position)?;
    let encoded = metadata.encode()?;
    let waited = spread(barriers.iter().map(|(_, done)| *done));
    sink.aligned(waited);
    let _ = events.send(Event::Aligned {
        id: barrier.id,
        waited,
        totals: sink.totals(),
        complete: metadata.complete,
        metadata: encoded.clone(),
    });
    let started = Instant::now();
    let ticket = sink.checkpoint(barrier.id, &encoded);
    let _ = events.send(Event::Ack { id: barrier.id, ticket, sync: started.elapsed() });
    Ok(())
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
