//! W5: counts in sessions that end after 10 s of silence, of 100K users. For each event: get the user's set of sessions, get, put
//! and, when the set changed, put the set. A late event may open a session that a later one merges: get, merge, delete.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::{Generate, Workload, counters, state};
use crate::Result;
use crate::ops::{Kind, Lap, Op, StreamWriter};
use crate::store::StateKind;
use crate::values::Rng;

const GAP_MS: u64 = 10_000;

/// Mean time between a user's events.
const MEAN_MS: f64 = 5_000.0;

/// Bytes of a session in the set: its start, its end and the namespace of its state.
const SESSION_BYTES: usize = 24;

/// Sets of more sessions don't fit into a value here; later ones aren't counted in it.
const MOST: usize = 9;

/// See the module.
pub const WORKLOADS: [Workload; 1] = [Workload {
    name: "W5",
    variant: "",
    states: &[state("sessions", StateKind::Value), counters("counts", StateKind::Windowed)],
    points: true,
    io: false,
    generate: |scale| Box::new(Sessions { users: scale.of(100_000), events: scale.of(3_000_000) }),
}];

struct Sessions {
    users: u64,
    events: u64,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    start: u64,
    end: u64,
    /// Where its count is kept, whatever was merged into it.
    namespace: u64,
}

fn set(id: u64, sessions: &[Session]) -> Op {
    if sessions.is_empty() {
        return Op::new(Kind::Delete, 0, id);
    }
    let bytes = sessions.len().min(MOST) * SESSION_BYTES;
    Op::new(Kind::Put, 0, id).value(bytes as u16, sessions[0].start)
}

/// The operations of one event at `time`.
fn event(out: &mut StreamWriter, id: u64, time: u64, sessions: &mut Vec<Session>) -> Result<()> {
    out.push(Op::new(Kind::Get, 0, id))?;
    let mut own = Session { start: time, end: time + GAP_MS, namespace: time };
    let (touched, rest): (Vec<_>, Vec<_>) =
        sessions.iter().copied().partition(|s| s.start <= own.end && own.start <= s.end);
    if let Some(first) = touched.first() {
        own.namespace = first.namespace;
    }
    for absorbed in &touched {
        own.start = own.start.min(absorbed.start);
        own.end = own.end.max(absorbed.end);
    }
    let count = |kind, namespace| Op::new(kind, 1, id).at(namespace).value(8, 0);
    for absorbed in touched.iter().skip(1) {
        out.push(count(Kind::Get, absorbed.namespace))?;
        out.push(count(Kind::Add, own.namespace))?;
        out.push(count(Kind::Delete, absorbed.namespace))?;
    }
    out.push(count(Kind::Add, own.namespace))?;
    let unchanged = touched.len() == 1 && touched[0].start == own.start && touched[0].end == own.end;
    *sessions = rest;
    sessions.push(own);
    if unchanged { Ok(()) } else { out.push(set(id, sessions)) }
}

impl Generate for Sessions {
    fn load(&mut self, _: &mut StreamWriter) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, out: &mut StreamWriter) -> Result<Lap> {
        let mut rng = Rng::new(5);
        let gap = MEAN_MS / self.users as f64;
        let mut now = 100_000.0;
        let mut users = HashMap::<u64, Vec<Session>>::new();
        let mut ends = BinaryHeap::new();
        let fire = |out: &mut StreamWriter, users: &mut HashMap<u64, Vec<Session>>, end: u64, id: u64| {
            let Some(sessions) = users.get_mut(&id) else { return Ok(()) };
            // It was extended since.
            let Some(at) = sessions.iter().position(|s| s.end == end) else { return Ok(()) };
            let session = sessions.swap_remove(at);
            out.push(Op::new(Kind::Get, 1, id).at(session.namespace))?;
            out.push(Op::new(Kind::Delete, 1, id).at(session.namespace))?;
            out.push(set(id, sessions))?;
            if sessions.is_empty() {
                users.remove(&id);
            }
            Ok::<(), crate::Error>(())
        };
        for _ in 0..self.events {
            now += rng.exponential(gap);
            let id = rng.below(self.users);
            // Up to 25 s late: before the user's session that is open, so that a third event may join both.
            let late = if rng.below(50) == 0 { rng.below(25_000) } else { 0 };
            let sessions = users.entry(id).or_default();
            event(out, id, now as u64 - late, sessions)?;
            ends.extend(sessions.last().map(|session| Reverse((session.end, id))));
            while let Some(Reverse((end, id))) =
                ends.peek().copied().filter(|Reverse((end, _))| end + 25_000 < now as u64)
            {
                ends.pop();
                fire(out, &mut users, end, id)?;
            }
        }
        while let Some(Reverse((end, id))) = ends.pop() {
            fire(out, &mut users, end, id)?;
        }
        Ok(Lap { id: 0, arg: now as u64 + 100_000, repeats: true })
    }
}
