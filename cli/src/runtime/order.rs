//! Brings the rows of all subtasks into the one order of the output: by end, stream and key.
//!
//! A row may go out once no row before it can come, which is when all windows that end by its own end have fired in every subtask: that time is the
//! *frontier*. Until then rows wait in memory, and when there are more of them than fit, or a checkpoint is to hold them, in the state, which has them in order.

use std::collections::BTreeMap;

use crate::exit::Outcome;
use crate::kill::{self, Point};
use crate::runtime::{Key, Row, StagedRows, StreamId};

/// Rows that wait in memory.
const MEMORY_BYTES: usize = 1 << 20;

/// Rows that wait for those before them.
#[derive(Debug)]
pub(super) struct RowOrder {
    frontier: i64,
    waiting: BTreeMap<(i64, StreamId, Key), Row>,
    bytes: usize,
    /// The end of the first row that waits in the state.
    held: Option<i64>,
}

impl RowOrder {
    /// Goes on with the rows that `store` holds.
    pub fn new(store: &mut impl StagedRows) -> Outcome<Self> {
        Ok(Self { frontier: i64::MIN, waiting: BTreeMap::new(), bytes: 0, held: store.first_held()? })
    }

    /// Takes in a row.
    pub fn add(&mut self, row: Row, store: &mut impl StagedRows) -> Outcome<()> {
        self.bytes += row.bytes();
        self.waiting.insert((row.end, row.stream, row.key.clone()), row);
        if self.bytes > MEMORY_BYTES { self.hold(store) } else { Ok(()) }
    }

    /// Puts what waits in memory into the state.
    pub fn hold(&mut self, store: &mut impl StagedRows) -> Outcome<()> {
        if let Some(first) = self.first_waiting() {
            self.held = Some(self.held.map_or(first, |held| held.min(first)));
        }
        while let Some((_, row)) = self.waiting.pop_first() {
            store.hold(&row)?;
            kill::pass(Point::Holding);
        }
        self.bytes = 0;
        Ok(())
    }

    /// All rows that end by `frontier` have come.
    pub fn advance(&mut self, frontier: i64) {
        self.frontier = self.frontier.max(frontier);
    }

    /// Whether rows may go out.
    pub fn is_ready(&self) -> bool {
        [self.held, self.first_waiting()].into_iter().flatten().any(|end| end <= self.frontier)
    }

    /// Whether rows that may go out are in memory alone.
    pub fn is_ready_in_memory(&self) -> bool {
        self.is_ready() && self.held.is_none_or(|end| end > self.frontier)
    }

    /// Whether all rows there will ever be have gone out.
    pub fn is_over(&self) -> bool {
        self.frontier == i64::MAX && self.held.is_none() && self.waiting.is_empty()
    }

    /// Appends the lines of the next rows that may go out to `out`, about `bytes` of them, and returns how many.
    pub fn take(&mut self, bytes: usize, out: &mut Vec<u8>, store: &mut impl StagedRows) -> Outcome<u64> {
        if self.held.is_none_or(|end| end > self.frontier) {
            return Ok(self.take_waiting(bytes, out));
        }
        // What is in memory may belong before, between or behind.
        if self.first_waiting().is_some_and(|end| end <= self.frontier) {
            self.hold(store)?;
        }
        let rows = store.release(self.frontier, bytes, out)?;
        self.held = store.first_held()?;
        kill::pass(Point::Releasing);
        Ok(rows)
    }

    fn take_waiting(&mut self, bytes: usize, out: &mut Vec<u8>) -> u64 {
        let (mut rows, end) = (0, out.len() + bytes);
        while out.len() < end
            && let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= self.frontier)
        {
            let row = first.remove();
            self.bytes -= row.bytes();
            out.extend_from_slice(&row.line);
            rows += 1;
        }
        rows
    }

    fn first_waiting(&self) -> Option<i64> {
        self.waiting.first_key_value().map(|((end, ..), _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryState;
    use proptest::prelude::*;

    fn row(end: i64, key: u32, length: usize) -> Row {
        let line = format!("{end} {key:08} {}\n", "x".repeat(length)).into_bytes();
        Row { end, stream: 0, key: key.to_be_bytes()[..].into(), line }
    }

    /// Takes all that may go out, in steps.
    fn drain(order: &mut RowOrder, store: &mut MemoryState, out: &mut Vec<u8>) -> u64 {
        let mut rows = 0;
        while order.is_ready() {
            let before = out.len();
            rows += order.take(100, out, store).unwrap();
            assert!(out.len() > before && out.len() - before < 100 + (2 << 20), "steps move on and are bounded");
        }
        rows
    }

    #[test]
    fn rows_wait_for_the_frontier() {
        let mut store = MemoryState::default();
        let mut order = RowOrder::new(&mut store).unwrap();
        order.add(row(20, 1, 0), &mut store).unwrap();
        order.add(row(10, 2, 0), &mut store).unwrap();
        order.advance(9);
        assert!(!order.is_ready());
        order.advance(10);
        let mut out = Vec::new();
        assert_eq!(drain(&mut order, &mut store, &mut out), 1);
        assert_eq!(out, b"10 00000002 \n");
        assert!(!order.is_over());
        order.advance(i64::MAX);
        assert_eq!((drain(&mut order, &mut store, &mut out), order.is_over()), (1, true));
    }

    proptest! {
        #[test]
        fn however_rows_come_and_whatever_is_cut_they_go_out_in_order(
            rows in prop::collection::btree_map((0i64..30, any::<u32>()), 0usize..40, 0..40).prop_map(|rows| rows.into_iter().collect::<Vec<_>>()),
            seed in any::<u64>(),
        ) {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            // Two subtasks, each with its rows by end, as timers go off; the keys of one end in any order.
            let rows: Vec<Row> = rows.into_iter().map(|((end, key), size)| row(end, key, if size == 0 { 400_000 } else { 0 })).collect();
            let mut sides: [Vec<Row>; 2] = Default::default();
            for one in &rows {
                sides[random(2) as usize].push(one.clone());
            }
            for side in &mut sides {
                side.sort_by_cached_key(|row| (row.end, random(1000)));
                side.reverse();
            }
            let mut store = MemoryState::default();
            let mut order = RowOrder::new(&mut store).unwrap();
            let mut out = Vec::new();
            while sides.iter().any(|side| !side.is_empty()) {
                if let Some(row) = sides[random(2) as usize].pop() {
                    order.add(row, &mut store).unwrap();
                }
                let upto = sides.iter().map(|side| side.last().map_or(i64::MAX, |row| row.end - 1)).min().unwrap();
                if random(3) > 0 {
                    order.advance(upto);
                }
                if order.is_ready() && random(2) > 0 {
                    order.take(random(500_000) as usize + 1, &mut out, &mut store).unwrap();
                }
                if random(10) == 0 {
                    // A checkpoint, and a restore of it.
                    order.hold(&mut store).unwrap();
                    order = RowOrder::new(&mut store).unwrap();
                }
            }
            order.advance(i64::MAX);
            drain(&mut order, &mut store, &mut out);
            prop_assert!(order.is_over() && store.is_empty());
            let want: Vec<u8> = rows.iter().flat_map(|row| row.line.clone()).collect();
            prop_assert!(out == want);
        }
    }
}
