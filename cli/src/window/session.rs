//! Sessions: a record at `t` spans `[t, t + gap]`; records whose spans touch share a session (exactly one gap apart touches).
//!
//! ```text
//! stored under the session's start:
//! byte 0       format version, 1
//! bytes 1..9   end of the session, little-endian
//! bytes 9..17  the timer that stands for it, little-endian
//! rest         its aggregate
//! ```
//!
//! A session that grows keeps the timer it has. When that goes off early it is moved to the session's end, which costs one write per gap
//! and not two per record. A session's timer lies within the session, so two sessions of a key never share one.

use crate::aggregate::{Accumulator, Number};
use crate::exit::{Failure, Outcome};
use crate::output::write_session;
use crate::runtime::{Fired, Key, Row, StreamId};
use crate::window::{Timer, WindowStore};

const VERSION: u8 = 1;

struct Session {
    start: i64,
    end: i64,
    timer: i64,
    aggregate: Accumulator,
}

/// Takes a record in; false where it is late.
///
/// All sessions of its key in the state are open: those that the watermark has reached have fired, see [`fire_due`]. So a record is late when it
/// touches none of them and its own end has been reached; one that touches only a fired session, but whose own end lies ahead, begins a new one.
pub fn add(
    store: &mut impl WindowStore,
    stream: StreamId,
    key: &[u8],
    (time, value): (i64, Option<Number>),
    gap: i64,
    watermark: i64,
) -> Outcome<bool> {
    let end = time + gap;
    let mut touched = open_sessions(store, stream, key)?;
    touched.retain(|session| session.start <= end && time <= session.end);
    let mut touched = touched.into_iter();
    let Some(mut session) = touched.next() else {
        if end <= watermark {
            return Ok(false);
        }
        let mut session = Session { start: time, end, timer: end, aggregate: Accumulator::default() };
        session.aggregate.add(value);
        store.register_timer(stream, key, end)?;
        put(store, stream, key, &session)?;
        return Ok(true);
    };
    let stored_at = session.start;
    // At most two: the record closes the gap between them. The earlier one's sum comes first, the record's value last.
    for later in touched {
        store.remove(stream, key, later.start)?;
        store.delete_timer(stream, key, later.timer)?;
        session.end = later.end;
        session.aggregate.merge(later.aggregate);
    }
    session.aggregate.add(value);
    session.start = session.start.min(time);
    session.end = session.end.max(end);
    if session.start != stored_at {
        store.remove(stream, key, stored_at)?;
    }
    put(store, stream, key, &session)?;
    Ok(true)
}

/// Fires the sessions of `key` that the watermark has reached and whose timers haven't had their turn yet.
pub fn fire_due(
    store: &mut impl WindowStore,
    (stream, key): (StreamId, &[u8]),
    watermark: i64,
    label: &str,
    fired: &mut Fired,
) -> Outcome<()> {
    for session in open_sessions(store, stream, key)? {
        if session.end <= watermark {
            store.delete_timer(stream, key, session.timer)?;
            fired.push(take_out(store, stream, key.into(), &session, label.as_bytes().to_vec())?);
        }
    }
    Ok(())
}

/// Takes the session that `timer` stands for out of the state as a row that begins with `line`, or moves its timer on if it has grown: to
/// its end, be that due too, so that sessions fire in the order of their ends.
pub fn fire(store: &mut impl WindowStore, stream: StreamId, timer: Timer, line: Vec<u8>) -> Outcome<Option<Row>> {
    let mut session = open_sessions(store, stream, &timer.key)?
        .into_iter()
        .find(|session| session.timer == timer.time)
        .ok_or_else(|| Failure::internal("a timer without its session: the state is inconsistent"))?;
    if session.end > timer.time {
        session.timer = session.end;
        store.register_timer(stream, &timer.key, session.timer)?;
        put(store, stream, &timer.key, &session)?;
        return Ok(None);
    }
    take_out(store, stream, timer.key, &session, line).map(Some)
}

fn take_out(
    store: &mut impl WindowStore,
    stream: StreamId,
    key: Key,
    session: &Session,
    mut line: Vec<u8>,
) -> Outcome<Row> {
    store.remove(stream, &key, session.start)?;
    write_session(session.start, session.end, &key, &session.aggregate, &mut line)?;
    Ok(Row { end: session.end, stream, key, line })
}

fn open_sessions(store: &mut impl WindowStore, stream: StreamId, key: &[u8]) -> Outcome<Vec<Session>> {
    store.windows(stream, key)?.into_iter().map(|(start, bytes)| decode(start, &bytes)).collect()
}

fn put(store: &mut impl WindowStore, stream: StreamId, key: &[u8], session: &Session) -> Outcome<()> {
    let mut bytes = Vec::with_capacity(48);
    bytes.push(VERSION);
    bytes.extend_from_slice(&session.end.to_le_bytes());
    bytes.extend_from_slice(&session.timer.to_le_bytes());
    session.aggregate.encode(&mut bytes);
    store.put(stream, key, session.start, &bytes)
}

/// The end and the aggregate of a session as it is stored.
///
/// # Errors
///
/// The bytes aren't one (3).
pub fn stored(bytes: &[u8]) -> Outcome<(i64, Accumulator)> {
    decode(0, bytes).map(|session| (session.end, session.aggregate))
}

fn decode(start: i64, bytes: &[u8]) -> Outcome<Session> {
    let damaged = || Failure::checkpoint("a stored session is damaged");
    let (version, rest) = bytes.split_first().ok_or_else(damaged)?;
    if *version != VERSION {
        return Err(Failure::checkpoint(format!(
            "a stored session has format {version}; this version reads {VERSION}"
        )));
    }
    let (end, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let (timer, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    Ok(Session {
        start,
        end: i64::from_le_bytes(*end),
        timer: i64::from_le_bytes(*timer),
        aggregate: Accumulator::decode(rest)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn damaged_sessions_are_errors() {
        for bytes in [&[][..], &[1], &[2; 20], &[1; 17]] {
            assert!(decode(0, bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(0, &bytes);
        }
    }
}
