//! The recomputation: the same events once more, in time order, aggregated by plain counting, and compared with the job's output row by row.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::demo::generator::{Bid, bid, event_time};
use crate::demo::{GAP_NANOS, OUT_OF_ORDERNESS_NANOS, WINDOW_NANOS};
use crate::exit::{Failure, Outcome};

/// How many differences are told one by one.
const SHOWN: usize = 5;

/// What came of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Rows of the output that were looked at.
    pub compared: u64,
    /// Rows that are wrong, missing, or too many.
    pub differences: u64,
    /// The first few of them, for people.
    pub shown: Vec<String>,
}

/// What a window should hold: the fields that follow its key.
#[derive(Clone, Copy)]
struct Total {
    bids: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Total {
    fn of(price: u64) -> Self {
        Self { bids: 1, sum: price, min: price, max: price }
    }

    fn add(&mut self, price: u64) {
        self.bids += 1;
        self.sum += price;
        self.min = self.min.min(price);
        self.max = self.max.max(price);
    }
}

/// Every row that the output should have, and what it should say.
#[derive(Default)]
struct Expected {
    /// By auction and number of the ten-second slot since 1970.
    slots: HashMap<(u64, i64), Total>,
    /// By bidder and time of the first and last bid.
    visits: HashMap<(u64, i64, i64), Total>,
    /// The visit that is going on, by bidder.
    current: HashMap<u64, (i64, i64, Total)>,
}

impl Expected {
    fn compute(seed: u64, events: u64) -> Self {
        let mut expected = Self::default();
        // Events come out of turn by less than a known time, so a small heap puts them in order.
        let mut ahead = BinaryHeap::new();
        for n in 0..events {
            let time = event_time(seed, n);
            while let Some(Reverse((earliest, _))) = ahead.peek()
                && *earliest < time - OUT_OF_ORDERNESS_NANOS
            {
                expected.take_earliest(seed, &mut ahead);
            }
            ahead.push(Reverse((time, n)));
        }
        while !ahead.is_empty() {
            expected.take_earliest(seed, &mut ahead);
        }
        for (bidder, (first, last, total)) in expected.current.drain() {
            expected.visits.insert((bidder, first, last), total);
        }
        expected
    }

    fn take_earliest(&mut self, seed: u64, ahead: &mut BinaryHeap<Reverse<(i64, u64)>>) {
        if let Some(Reverse((time, n))) = ahead.pop()
            && let Some(bid) = bid(seed, n)
        {
            self.count(time, bid);
        }
    }

    fn count(&mut self, time: i64, Bid { auction, bidder, price }: Bid) {
        let slot = (auction, time / WINDOW_NANOS);
        self.slots.entry(slot).and_modify(|total| total.add(price)).or_insert(Total::of(price));
        match self.current.get_mut(&bidder) {
            Some((_, last, total)) if time - *last <= GAP_NANOS => {
                *last = time;
                total.add(price);
            }
            _ => {
                let begun = (time, time, Total::of(price));
                if let Some((first, last, total)) = self.current.insert(bidder, begun) {
                    self.visits.insert((bidder, first, last), total);
                }
            }
        }
    }

    /// Takes the total that a row of the output should show; `None` where there should be no such row.
    fn take(&mut self, row: &[&str]) -> Option<Total> {
        match row {
            ["window", start, auction, ..] => {
                let key = (auction.parse().ok()?, nanos(start)? / WINDOW_NANOS);
                self.slots.remove(&key).filter(|_| nanos(start) == Some(key.1 * WINDOW_NANOS))
            }
            ["session", start, end, bidder, ..] => {
                self.visits.remove(&(bidder.parse().ok()?, nanos(start)?, nanos(end)? - GAP_NANOS))
            }
            _ => None,
        }
    }
}

/// Compares `output` with a recomputation of the first `events` events.
///
/// # Errors
///
/// The output can't be read. Differences are no errors: they are in the verdict.
pub fn check(output: &Path, seed: u64, events: u64) -> Outcome<Verdict> {
    let mut expected = Expected::compute(seed, events);
    let file = std::fs::File::open(output).map_err(|error| Failure::io("open the demo's output", output, &error))?;
    let mut verdict = Verdict::default();
    let mut order: Option<(i64, bool, String)> = None;
    for (line, number) in BufReader::new(file).lines().zip(1u64..) {
        let line = line.map_err(|error| Failure::io("read the demo's output", output, &error))?;
        verdict.compared += 1;
        let row: Vec<&str> = line.split(',').collect();
        let want = expected
            .take(&row)
            .map(|total| format!("{0},{0},{1},{2},{3}", total.bids, total.sum, total.min, total.max));
        let skipped = if row.first() == Some(&"window") { 3 } else { 4 };
        let got = row.get(skipped..).unwrap_or_default().join(",");
        match want {
            None => verdict.differ(format!("row {number} should not be there: {line}")),
            Some(want) if want != got => verdict.differ(format!("row {number} should end in {want}: {line}")),
            Some(_) => {}
        }
        let place = place(&row);
        if place.is_some() {
            if order > place {
                verdict.differ(format!("row {number} is out of order: {line}"));
            }
            order = place;
        }
    }
    for (auction, slot) in expected.slots.keys() {
        verdict.differ(format!("the window of auction {auction} at {slot}0 s is missing"));
    }
    for (bidder, first, last) in expected.visits.keys() {
        verdict.differ(format!("the session of bidder {bidder} from {first} to {last} is missing"));
    }
    Ok(verdict)
}

impl Verdict {
    fn differ(&mut self, what: String) {
        self.differences += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(what);
        }
    }
}

/// Where a row belongs: by end, windows before sessions, then by key.
fn place(row: &[&str]) -> Option<(i64, bool, String)> {
    match row {
        ["window", start, key, ..] => Some((nanos(start)? + WINDOW_NANOS, false, (*key).to_owned())),
        ["session", _, end, key, ..] => Some((nanos(end)?, true, (*key).to_owned())),
        _ => None,
    }
}

fn nanos(text: &str) -> Option<i64> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}
