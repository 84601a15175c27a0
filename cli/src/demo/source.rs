//! The generated bids as a source.

use std::time::Instant;

use crate::aggregate::Number;
use crate::demo::generator::{bid, event_time};
use crate::exit::Outcome;
use crate::position::Position;
use crate::runtime::{Key, Record, Source};

/// When the generator stops.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// At a point in time.
    Until(Instant),
    /// After so many events.
    Events(u64),
}

/// Events between two looks at the clock.
const CLOCK_EVENTS: u64 = 256;

/// Generates bids; each is a record of stream 0 keyed by auction and one of stream 1 keyed by bidder.
pub struct BidSource {
    seed: u64,
    pace: Pace,
    next: u64,
    bids: u64,
    over: bool,
}

impl BidSource {
    /// Goes on at `position`.
    pub fn new(seed: u64, pace: Pace, position: &Position) -> Self {
        Self { seed, pace, next: position.offset, bids: position.records, over: position.finished }
    }

    fn is_over(&mut self) -> bool {
        self.over |= match self.pace {
            Pace::Events(count) => self.next >= count,
            Pace::Until(end) => self.next.is_multiple_of(CLOCK_EVENTS) && Instant::now() >= end,
        };
        self.over
    }
}

impl Source for BidSource {
    fn next(&mut self, records: &mut Vec<Record>) -> Outcome<Option<i64>> {
        if self.is_over() {
            return Ok(None);
        }
        let time = event_time(self.seed, self.next);
        if let Some(bid) = bid(self.seed, self.next) {
            self.bids += 1;
            for (stream, id) in [(0, bid.auction), (1, bid.bidder)] {
                records.push(Record {
                    stream,
                    key: decimal(id),
                    time,
                    value: Some(Number::Integer(bid.price.into())),
                    watermark: i64::MIN,
                });
            }
        }
        self.next += 1;
        Ok(Some(time))
    }

    fn position(&self) -> Position {
        Position { offset: self.next, records: self.bids, ..Position::start() }
    }
}

fn decimal(id: u64) -> Key {
    id.to_string().as_bytes().into()
}
