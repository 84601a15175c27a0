//! Tables of the index's shards, and where their memory comes from.
//!
//! Tables that shards have for good are cut from the pieces that pages are made of, since they too lie on huge pages;
//! what is smaller, or larger, comes from the allocator.

#![expect(unsafe_code, reason = "many tables lie in one piece of memory; `cargo bench --bench w1` shows what for")]

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::io::memory::{Memory, PIECE_BYTES, Slabs};

use super::location::Slot;

/// Slots of a line.
pub(super) const WIDTH: usize = 8;
/// Lines of a table that a shard has for good.
pub(super) const FULL_LINES: usize = 256;
const FULL_BYTES: usize = FULL_LINES * size_of::<Line>();
const _: () = assert!(PIECE_BYTES.is_multiple_of(FULL_BYTES) && align_of::<Line>() <= FULL_BYTES);

/// A cache line of slots, those in use first.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [Cell<Slot>; WIDTH]);

impl Line {
    fn empty() -> Self {
        Self([const { Cell::new(Slot::EMPTY) }; WIDTH])
    }
}

/// A power of two of lines, or none.
#[derive(Debug)]
pub(super) struct Table(Lines);

#[derive(Debug)]
enum Lines {
    Own(Box<[Line]>),
    /// `FULL_LINES` of them in a piece.
    Cut {
        start: NonNull<Line>,
        _piece: Arc<Memory>,
    },
}

// SAFETY: a table owns its lines: no two tables have been cut from one place.
unsafe impl Send for Table {}

impl Deref for Table {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        match &self.0 {
            Lines::Own(lines) => lines,
            // SAFETY: `cut` made sure of the room, the alignment and that each line is initialized; nobody else has
            // them, and the piece lives as long as the table.
            Lines::Cut { start, .. } => unsafe { std::slice::from_raw_parts(start.as_ptr(), FULL_LINES) },
        }
    }
}

impl Table {
    /// Bytes that it has from the allocator.
    pub(super) fn own_bytes(&self) -> u64 {
        match &self.0 {
            Lines::Own(lines) => size_of_val(&**lines) as u64,
            Lines::Cut { .. } => 0,
        }
    }

    /// No lines and no memory.
    pub(super) fn none() -> Self {
        Self(Lines::Own(Box::default()))
    }
}

/// Makes tables.
#[derive(Debug)]
pub(super) struct Tables {
    slabs: Option<Slabs>,
    /// The piece that is being cut, and the bytes of it that are used.
    piece: Option<(Arc<Memory>, usize)>,
    pieces_bytes: u64,
}

impl Tables {
    /// With full tables cut from pieces of `slabs`; `None` where a whole piece at a time is too much.
    pub(super) fn new(slabs: Option<Slabs>) -> Self {
        Self { slabs, piece: None, pieces_bytes: 0 }
    }

    /// Bytes of the pieces taken so far, cut or not.
    pub(super) fn pieces_bytes(&self) -> u64 {
        self.pieces_bytes
    }

    /// A table of empty lines.
    pub(super) fn make(&mut self, lines: usize) -> Table {
        match &self.slabs {
            Some(slabs) if lines == FULL_LINES => {
                let piece = self.piece.take().filter(|(_, used)| *used < PIECE_BYTES);
                let (piece, used) = piece.unwrap_or_else(|| {
                    self.pieces_bytes += PIECE_BYTES as u64;
                    (Arc::new(slabs.piece()), 0)
                });
                let table = cut(&piece, used);
                self.piece = Some((piece, used + FULL_BYTES));
                table
            }
            _ => Table(Lines::Own((0..lines).map(|_| Line::empty()).collect())),
        }
    }
}

/// The table at `offset` of a piece, where none has been cut before.
fn cut(piece: &Arc<Memory>, offset: usize) -> Table {
    assert!(offset + FULL_BYTES <= piece.len(), "the piece is used up");
    let start = piece.view().start().cast::<Line>();
    let offset = offset / size_of::<Line>();
    assert!(start.as_ptr().is_aligned(), "pieces are aligned to more than a line");
    // SAFETY: the piece is long enough (asserted), and no reference to these bytes of it is ever made but the table's.
    let start = unsafe {
        let start = start.add(offset);
        for line in 0..FULL_LINES {
            start.add(line).write(Line::empty());
        }
        start
    };
    Table(Lines::Cut { start, _piece: piece.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::location::Location;

    #[test]
    fn tables_cut_from_one_piece_are_empty_disjoint_and_outlive_their_maker() {
        let slabs = Slabs::default();
        let mut tables = Tables::new(Some(slabs));
        let made: Vec<Table> = (0..40).map(|_| tables.make(FULL_LINES)).collect();
        drop(tables);
        for (number, table) in made.iter().enumerate() {
            assert_eq!(table.len(), FULL_LINES);
            for slot in table.iter().flat_map(|line| &line.0) {
                assert_eq!(slot.get(), Slot::EMPTY, "fresh, or written by another table");
                slot.set(Slot::new(0, Location::new(number as u32, 8)));
            }
        }
        let moved = std::thread::spawn(move || made);
        for (number, table) in moved.join().unwrap().iter().enumerate() {
            let own = Location::new(number as u32, 8);
            assert!(table.iter().flat_map(|line| &line.0).all(|slot| slot.get().location() == own));
        }
    }
}
