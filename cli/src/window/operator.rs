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

    fn fire_due(&mut self, id: StreamId, watermark: i64, fired: &mut Fired) -> Outcome<()> {
        let stream = &mut self.streams[usize::from(id)];
        if stream.next_timer.is_none_or(|time| time > watermark) {
            return Ok(());
        }
        while let Some(timer) = self.store.pop_timer(id, watermark)? {
            let line = stream.spec.label.as_bytes().to_vec();
            match stream.spec.kind {
                WindowKind::Tumbling { size } => {
                    fired.rows.push(tumbling::fire(&mut self.store, id, timer, size, line)?)
                }
                WindowKind::Session { .. } => {
                    fired.rows.extend(session::fire(&mut self.store, id, timer, watermark, line)?);
                }
            }
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
                (session::add(store, id, key, event, gap, self.watermark)?, record.time + gap)
            }
        };
        if taken {
            stream.next_timer = Some(stream.next_timer.map_or(timer, |next| next.min(timer)));
        } else {
            fired.late += 1;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, fired: &mut Fired) -> Outcome<()> {
        if watermark <= self.watermark {
            return Ok(());
        }
        self.watermark = watermark;
        for id in (0..).take(self.streams.len()) {
            self.fire_due(id, watermark, fired)?;
        }
        Ok(())
    }

    fn snapshots(&mut self) -> &mut S {
        &mut self.store
    }
}
