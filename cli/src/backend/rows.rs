//! The sink's staged rows.

use highwater::base::cursor::Direction;
use highwater::{Backend, Error, ErrorKind, KeyedState, MapState, ValueState};

use crate::backend::Context;
use crate::backend::subtask::{OnSubtask, Subtask};
use crate::exit::{Failure, Outcome};
use crate::runtime::{Row, StagedRows};

/// How hard pieces are compressed: text is easy, and the sink has other things to do.
const PIECE_LEVEL: i32 = 1;

/// Rows that are held in their order, and compressed pieces of output by their offset.
#[derive(Debug)]
pub struct SinkRows {
    subtask: Subtask,
    /// One map, under no key in particular, from the order of a row to its line.
    held: MapState<(), Vec<u8>, Vec<u8>>,
    /// The row that was released last: looking from there on passes over the deletes of all that were.
    released: Vec<u8>,
    pieces: ValueState<u64, Vec<u8>>,
}

impl SinkRows {
    /// The rows in `backend`.
    ///
    /// # Errors
    ///
    /// The backend holds another state under this name.
    pub fn new(mut backend: Backend) -> Outcome<Self> {
        let held = backend.map_state("held rows").outcome()?;
        let pieces = backend.value_state("staged rows").outcome()?;
        Ok(Self { subtask: Subtask::new(backend), held, released: Vec::new(), pieces })
    }
}

/// Bytes in the order of (end, stream, key).
fn order_of(row: &Row) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + row.key.len());
    // As unsigned, with the sign bit flipped, times are ordered as bytes too.
    bytes.extend_from_slice(&(row.end.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    bytes.push(row.stream);
    bytes.extend_from_slice(&row.key);
    bytes
}

fn end_of(order: &[u8]) -> highwater::Result<i64> {
    let end = order.first_chunk().ok_or_else(|| Error::new(ErrorKind::Corruption, "a held row without its end"))?;
    Ok((u64::from_be_bytes(*end) ^ (1 << 63)).cast_signed())
}

impl StagedRows for SinkRows {
    fn hold(&mut self, row: &Row) -> Outcome<()> {
        let (held, order) = (self.held, order_of(row));
        self.subtask.call(|backend| held.put(backend, &(), &order, &row.line))
    }

    fn first_held(&mut self) -> Outcome<Option<i64>> {
        let (held, from) = (self.held, &self.released);
        self.subtask.call(|backend| {
            let first = held.range::<Vec<u8>>(backend, &(), from.., Direction::Forward)?.next().transpose()?;
            first.map(|(order, _)| end_of(&order)).transpose()
        })
    }

    fn release(&mut self, upto: i64, bytes: usize, out: &mut Vec<u8>) -> Outcome<u64> {
        let (held, from) = (self.held, &self.released);
        let (mut rows, lines) = self.subtask.call(|backend| {
            let (mut rows, mut lines) = (Vec::new(), Vec::new());
            for row in held.range::<Vec<u8>>(backend, &(), from.., Direction::Forward)? {
                let (order, line) = row?;
                if end_of(&order)? > upto || lines.len() >= bytes {
                    break;
                }
                lines.extend(line);
                rows.push(order);
            }
            Ok((rows, lines))
        })?;
        for order in &rows {
            self.subtask.call(|backend| held.remove(backend, &(), order))?;
        }
        out.extend(lines);
        let count = rows.len() as u64;
        if let Some(last) = rows.pop() {
            self.released = last;
        }
        Ok(count)
    }

    // Every piece goes to the store once: as text it would be several times as long.
    fn stage(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()> {
        let pieces = self.pieces;
        let bytes = zstd::bulk::compress(bytes, PIECE_LEVEL)
            .map_err(|error| Failure::internal(format!("cannot compress rows: {error}")))?;
        self.subtask.call(|backend| pieces.put(backend, &offset, &bytes))
    }

    fn staged(&mut self, offset: u64) -> Outcome<Option<Vec<u8>>> {
        let pieces = self.pieces;
        let Some(bytes) = self.subtask.call(|backend| pieces.get(backend, &offset))? else { return Ok(None) };
        let rows = zstd::decode_all(&bytes[..]).map_err(|error| {
            Failure::checkpoint(format!("the rows for offset {offset} of the output can't be read: {error}"))
        })?;
        Ok(Some(rows))
    }

    fn unstage(&mut self, offset: u64) -> Outcome<()> {
        let pieces = self.pieces;
        self.subtask.call(|backend| pieces.clear(backend, &offset))
    }
}

impl OnSubtask for SinkRows {
    fn subtask(&mut self) -> &mut Subtask {
        &mut self.subtask
    }
}
