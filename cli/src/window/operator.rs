//! One subtask's windows: takes records and watermarks in order, gives rows and late counts.

use crate::exit::Outcome;
use crate::runtime::{Fired, KeyedOperator, Record, Snapshots, StreamId};
use crate::window::{WindowKind, WindowStore, session, tumbling};

/// The windows of one subtask, over any number of streams.
pub struct WindowOperator<S> {
    store: S,
    streams: Vec<Stream>,
    watermark: i64,
}

/// One of a job's aggregations.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// How its records are put into windows.
    pub kind: WindowKind,
    /// What its rows begin with, to tell them from those of other streams in one output; a whole field with its comma, or nothing.
    pub label: &'static str,
}

struct Stream {
    spec: StreamSpec,
    /// No timer is due before this: spares the state a look at every record.
    next_timer: Option<i64>,
}

impl<S: WindowStore> WindowOperator<S> {
    /// Over `store`, which may hold windows of an earlier run; `specs` says what each stream is.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    pub fn new(mut store: S, specs: &[StreamSpec]) -> Outcome<Self> {
        let streams = specs.iter().zip(0..).map(|(spec, id)| {
            let next_timer = store.next_timer(id)?;
            Ok(Stream { spec: *spec, next_timer })
        });
        let streams = streams.collect::<Outcome<_>>()?;
        Ok(Self { store, streams, watermark: i64::MIN })
    }

    /// The stream whose timer comes first, and when; by time over all streams, so that [`fired_upto`](KeyedOperator::fired_upto) moves on as they fire.
    fn first_timer(&self) -> Option<(i64, StreamId)> {
        let timers = self.streams.iter().zip(0..).filter_map(|(stream, id)| Some((stream.next_timer?, id)));
        timers.min()
    }

    /// Looks at the first timer of a stream that has one that is due.
    fn fire_next(&mut self, id: StreamId, fired: &mut Fired) -> Outcome<()> {
        let stream = &mut self.streams[usize::from(id)];
        if let Some(timer) = self.store.pop_timer(id, self.watermark)? {
            fired.count_timer();
            let line = stream.spec.label.as_bytes().to_vec();
            let row = match stream.spec.kind {
                WindowKind::Tumbling { size } => Some(tumbling::fire(&mut self.store, id, timer, size, line)?),
                WindowKind::Session { .. } => session::fire(&mut self.store, id, timer, line)?,
            };
            row.into_iter().for_each(|row| fired.push(row));
        }
        stream.next_timer = self.store.next_timer(id)?;
        Ok(())
    }
}

impl<S: WindowStore + Snapshots> KeyedOperator for WindowOperator<S> {
    type Snapshots = S;

    fn on_record(&mut self, record: &Record, fired: &mut Fired) -> Outcome<()> {
        self.on_watermark(record.watermark, fired)?;
        let (id, event) = (record.stream, (record.time, record.value));
        let stream = &mut self.streams[usize::from(id)];
        let (store, key) = (&mut self.store, &record.key[..]);
        // A new window's timer is its end; the earliest end a record can bring about is that of the window it would be alone in.
        let (taken, timer) = match stream.spec.kind {
            WindowKind::Tumbling { size } => {
                let end = tumbling::start_of(record.time, size) + size;
                (tumbling::add(store, id, key, event, size, self.watermark)?, end)
            }
            WindowKind::Session { gap } => {
                if stream.next_timer.is_some_and(|time| time <= self.watermark) {
                    session::fire_due(store, (id, key), self.watermark, stream.spec.label, fired)?;
                }
                (session::add(store, id, key, event, gap, self.watermark)?, record.time + gap)
            }
        };
        if taken {
            // A session that the record only made longer has its timer, which isn't due; the record's own end may be.
            let timer = timer.max(self.watermark.saturating_add(1));
            stream.next_timer = Some(stream.next_timer.map_or(timer, |next| next.min(timer)));
        } else {
            fired.late += 1;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, fired: &mut Fired) -> Outcome<bool> {
        self.watermark = self.watermark.max(watermark);
        while let Some((_, id)) = self.first_timer().filter(|(time, _)| *time <= self.watermark) {
            if fired.is_full() {
                return Ok(false);
            }
            self.fire_next(id, fired)?;
        }
        Ok(true)
    }

    fn fired_upto(&self) -> i64 {
        // A window ends when its timer goes off, or later.
        self.first_timer().map_or(self.watermark, |(time, _)| self.watermark.min(time.saturating_sub(1)))
    }

    fn snapshots(&mut self) -> &mut S {
        &mut self.store
    }
}
