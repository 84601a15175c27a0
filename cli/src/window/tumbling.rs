//! Tumbling windows: `[n * size, (n + 1) * size)`, before 1970 too.

use crate::aggregate::{Accumulator, Number};
use crate::exit::{Failure, Outcome};
use crate::output::write_window;
use crate::runtime::{Row, StreamId};
use crate::window::{Timer, WindowStore};

/// The start of the window that holds `time`. The reader refused times whose window would be out of range.
pub fn start_of(time: i64, size: i64) -> i64 {
    time - time.rem_euclid(size)
}

/// Takes a record in; false where it is late.
pub fn add(
    store: &mut impl WindowStore,
    stream: StreamId,
    key: &[u8],
    (time, value): (i64, Option<Number>),
    size: i64,
    watermark: i64,
) -> Outcome<bool> {
    let start = start_of(time, size);
    let end = start + size;
    if end <= watermark {
        return Ok(false);
    }
    let mut aggregate = match store.get(stream, key, start)? {
        Some(bytes) => Accumulator::decode(&bytes)?,
        None => {
            store.register_timer(stream, key, end)?;
            Accumulator::default()
        }
    };
    aggregate.add(value);
    let mut bytes = Vec::with_capacity(32);
    aggregate.encode(&mut bytes);
    store.put(stream, key, start, &bytes)?;
    Ok(true)
}

/// Takes the window whose end `timer` stands for out of the state, as a row that begins with `line`.
pub fn fire(
    store: &mut impl WindowStore,
    stream: StreamId,
    timer: Timer,
    size: i64,
    mut line: Vec<u8>,
) -> Outcome<Row> {
    let start = timer.time - size;
    let bytes = store
        .get(stream, &timer.key, start)?
        .ok_or_else(|| Failure::internal("a timer without its window: the state is inconsistent"))?;
    let aggregate = Accumulator::decode(&bytes)?;
    store.remove(stream, &timer.key, start)?;
    write_window(start, &timer.key, &aggregate, &mut line)?;
    Ok(Row { end: timer.time, stream, key: timer.key, line })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_before_1970_are_aligned_downward() {
        for (time, start) in [(0, 0), (9, 0), (10, 10), (-1, -10), (-10, -10), (-11, -20)] {
            assert_eq!(start_of(time, 10), start, "{time}");
        }
    }
}
