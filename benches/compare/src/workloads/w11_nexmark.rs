//! W11: the state accesses of NEXMark's queries 4, 5, 7, 11, 12, 18 and 20 over one stream of events: of 50 one is a person, three
//! are auctions and 46 are bids; half of the bids go to a hot auction, three quarters come from a hot bidder. 10,000 events a
//! second of event time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::{Generate, Workload, counters, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::{StateKind, StateSpec};
use crate::values::{Rng, mix};

const EVENTS_PER_MS: u64 = 10;
const AUCTION_MS: u64 = 20_000;
const WINDOW_MS: u64 = 10_000;
const SLIDE_MS: u64 = 2_000;
const SESSION_GAP_MS: u64 = 10_000;
const CATEGORIES: u64 = 10;

const STATES: &[StateSpec] = &[
    state("q4-auctions", StateKind::Value),
    state("q4-bids", StateKind::List),
    counters("q4-averages", StateKind::Value),
    counters("q5-counts", StateKind::Windowed),
    counters("q7-highest", StateKind::Windowed),
    state("q11-sessions", StateKind::Value),
    counters("q11-counts", StateKind::Windowed),
    counters("q12-counts", StateKind::Windowed),
    state("q18-last-bids", StateKind::Value),
    state("q20-auctions", StateKind::Value),
    state("q20-bids", StateKind::List),
];

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W11",
    variant: "",
    states: STATES,
    points: false,
    io: false,
    generate: |scale| Box::new(Nexmark { events: scale.of(1_000_000), ..Nexmark::default() }),
}];

/// The generator and what the queries have open.
#[derive(Default)]
struct Nexmark {
    events: u64,
    auctions: VecDeque<(u64, u64)>,
    next_auction: u64,
    next_person: u64,
    hops: BTreeMap<u64, HashSet<u64>>,
    highest: BTreeMap<u64, ()>,
    /// Start and end of each bidder's session.
    sessions: HashMap<u64, (u64, u64)>,
    session_ends: VecDeque<(u64, u64)>,
    per_bidder: BTreeMap<u64, HashSet<u64>>,
}

fn counter(kind: Kind, state: u8, id: u64, namespace: u64) -> Op {
    Op::new(kind, state, id).at(namespace).value(8, 0)
}

fn fire(out: &mut StreamWriter, state: u8, namespace: u64, ids: HashSet<u64>) -> Result<()> {
    let mut ids: Vec<u64> = ids.into_iter().collect();
    ids.sort_unstable();
    for id in ids {
        out.push(counter(Kind::Get, state, id, namespace))?;
        out.push(counter(Kind::Delete, state, id, namespace))?;
    }
    Ok(())
}

impl Nexmark {
    fn auction(&mut self, out: &mut StreamWriter, now_ms: u64) -> Result<()> {
        let id = self.next_auction;
        self.next_auction += 1;
        self.auctions.push_back((now_ms + AUCTION_MS, id));
        out.push(Op::new(Kind::Put, 0, id).value(100, id))?;
        out.push(Op::new(Kind::Put, 9, id).value(100, id))?;
        out.push(Op::new(Kind::ReadList, 10, id).value(32, 0))
    }

    fn bid(&mut self, out: &mut StreamWriter, now_ms: u64, rng: &mut Rng) -> Result<()> {
        let recent = |next: u64, among: u64, rng: &mut Rng| next.saturating_sub(1 + rng.below(among));
        let auction = match rng.below(2) {
            0 => self.next_auction / 100 * 100,
            _ => recent(self.next_auction, 100, rng),
        };
        let bidder = match rng.below(4) {
            0..3 => self.next_person / 100 * 100 + 1,
            _ => recent(self.next_person, 1000, rng),
        };
        let seed = rng.next();
        out.push(Op::new(Kind::Append, 1, auction).value(16, seed))?;
        for hop in 0..WINDOW_MS / SLIDE_MS {
            let window = now_ms / SLIDE_MS + hop;
            out.push(counter(Kind::Add, 3, auction, window))?;
            self.hops.entry(window).or_default().insert(auction);
        }
        out.push(counter(Kind::Add, 4, 0, now_ms / WINDOW_MS))?;
        self.highest.insert(now_ms / WINDOW_MS, ());
        self.session(out, now_ms, bidder)?;
        out.push(counter(Kind::Add, 7, bidder, now_ms / WINDOW_MS))?;
        self.per_bidder.entry(now_ms / WINDOW_MS).or_default().insert(bidder);
        let pair = mix(bidder) ^ auction;
        out.push(Op::new(Kind::Get, 8, pair))?;
        out.push(Op::new(Kind::Put, 8, pair).value(100, seed))?;
        out.push(Op::new(Kind::Get, 9, auction))?;
        out.push(Op::new(Kind::Append, 10, auction).value(32, seed))
    }

    fn session(&mut self, out: &mut StreamWriter, now_ms: u64, bidder: u64) -> Result<()> {
        let end = now_ms + SESSION_GAP_MS;
        let session = self.sessions.entry(bidder).or_insert((now_ms, 0));
        session.1 = end;
        out.push(Op::new(Kind::Get, 5, bidder))?;
        out.push(counter(Kind::Add, 6, bidder, session.0))?;
        self.session_ends.push_back((end, bidder));
        out.push(Op::new(Kind::Put, 5, bidder).value(24, end))
    }

    fn expire(&mut self, out: &mut StreamWriter, now_ms: u64) -> Result<()> {
        while let Some((_, id)) = self.auctions.pop_front_if(|(end, _)| *end < now_ms) {
            out.push(Op::new(Kind::TakeList, 1, id).value(16, 0))?;
            out.push(Op::new(Kind::Get, 0, id))?;
            out.push(Op::new(Kind::Delete, 0, id))?;
            out.push(counter(Kind::Add, 2, id % CATEGORIES, 0))?;
        }
        while let Some(entry) = self.hops.first_entry().filter(|entry| *entry.key() < now_ms / SLIDE_MS) {
            let (window, ids) = entry.remove_entry();
            fire(out, 3, window, ids)?;
        }
        while let Some(entry) = self.highest.first_entry().filter(|entry| *entry.key() < now_ms / WINDOW_MS) {
            fire(out, 4, *entry.key(), HashSet::from([0]))?;
            entry.remove();
        }
        while let Some((end, bidder)) = self.session_ends.pop_front_if(|(end, _)| *end < now_ms) {
            // Unless it was extended since.
            if let Some((start, _)) = self.sessions.get(&bidder).copied().filter(|session| session.1 == end) {
                self.sessions.remove(&bidder);
                fire(out, 6, start, HashSet::from([bidder]))?;
                out.push(Op::new(Kind::Delete, 5, bidder))?;
            }
        }
        while let Some(entry) = self.per_bidder.first_entry().filter(|entry| *entry.key() < now_ms / WINDOW_MS) {
            let (window, ids) = entry.remove_entry();
            fire(out, 7, window, ids)?;
        }
        Ok(())
    }
}

impl Generate for Nexmark {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(11);
        for event in 0..self.events {
            let now_ms = event / EVENTS_PER_MS;
            match event % 50 {
                0 => self.next_person += 1,
                1..4 => self.auction(out, now_ms)?,
                _ => self.bid(out, now_ms, &mut rng)?,
            }
            if event % EVENTS_PER_MS == 0 {
                self.expire(out, now_ms)?;
            }
        }
        Ok(Lap::default())
    }
}
