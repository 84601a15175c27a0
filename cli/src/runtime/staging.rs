//! The transactional sink: rows wait in the state until a checkpoint that holds them is complete, and only then go to the file. Where they are still
//! held for rows that come before them, [`RowOrder`] has them; here they have their place in the output.
//!
//! ```text
//! output bytes  0 ......... synced ......... committed ......... staged end
//!                 in the file,   in the file,         in the state only
//!                 durable        not yet recorded
//! ```
//!
//! A checkpoint records the synced length and holds all rows from there to its staged end. Rows below the synced length leave the state
//! just before the checkpoint that records it. So a restore can cut the file back to the recorded length and write the rest again, whatever became of the
//! file after the checkpoint.

use std::collections::{BTreeMap, VecDeque};

use crossbeam::channel::Receiver;

use crate::exit::{Failure, Outcome};
use crate::kill::{self, Point};
use crate::output::{OutputFile, ResumableOutput, Synced};
use crate::position::Position;
use crate::runtime::order::RowOrder;
use crate::runtime::{Control, JobMetadata, Row, Snapshots, StagedRows, Totals};

/// Rows are kept in pieces of about this size: one entry a row would cost more than the row. Two or three of them go into a page of the least memory.
const PIECE_BYTES: usize = 24 << 10;

/// The rows of the job, on their way to the output file.
pub struct StagedOutput<R> {
    store: R,
    order: RowOrder,
    file: OutputFile,
    config: BTreeMap<String, String>,
    totals: Totals,
    synced: Synced,
    /// The end of what was written to the file.
    committed: u64,
    /// The end of what is in the state.
    staged_end: u64,
    /// Rows that aren't in the state yet; before a checkpoint they are put there.
    pending: Vec<u8>,
    /// Offset and length of the pieces in the state, in order.
    pieces: VecDeque<(u64, u64)>,
    /// The staged end at each checkpoint under way.
    cuts: BTreeMap<u64, u64>,
}

impl<R: StagedRows + Snapshots> StagedOutput<R> {
    /// The sink of a new job: `header` is its first line.
    ///
    /// # Errors
    ///
    /// The state can't be read.
    pub fn new(mut store: R, file: OutputFile, config: BTreeMap<String, String>, header: &[u8]) -> Outcome<Self> {
        Ok(Self {
            order: RowOrder::new(&mut store)?,
            store,
            file,
            config,
            totals: Totals::default(),
            synced: Synced::nothing(),
            committed: 0,
            staged_end: 0,
            pending: header.to_vec(),
            pieces: VecDeque::new(),
            cuts: BTreeMap::new(),
        })
    }

    /// The sink of a job that goes on from a checkpoint, whose staged rows `store` holds: brings the file to where the checkpoint commits it.
    ///
    /// # Errors
    ///
    /// Staged rows are missing (exit code 3); the file can't be written.
    pub fn resume(mut store: R, file: ResumableOutput, metadata: &JobMetadata) -> Outcome<Self> {
        let mut pieces = VecDeque::new();
        let mut offset = metadata.synced.length;
        while offset < metadata.staged_end {
            let bytes = store.staged(offset)?.filter(|bytes| !bytes.is_empty()).ok_or_else(|| missing(offset))?;
            pieces.push_back((offset, bytes.len() as u64));
            offset += bytes.len() as u64;
        }
        if offset != metadata.staged_end {
            return Err(missing(metadata.staged_end));
        }
        // Only now: nothing is touched when the checkpoint doesn't hold what it should.
        let mut sink = Self {
            order: RowOrder::new(&mut store)?,
            store,
            file: file.cut()?,
            config: metadata.config.clone(),
            totals: metadata.totals,
            synced: metadata.synced,
            committed: metadata.synced.length,
            staged_end: metadata.staged_end,
            pending: Vec::new(),
            pieces,
            cuts: BTreeMap::new(),
        };
        sink.commit(metadata.staged_end)?;
        Ok(sink)
    }

    /// Lets the state hear news about checkpoints while it waits.
    pub(super) fn listen(&mut self, controls: Receiver<Control>) {
        self.store.listen(controls);
    }

    /// Takes in rows in any order, and how many records were late.
    pub(super) fn take(&mut self, rows: Vec<Row>, late: u64) -> Outcome<()> {
        self.totals.late += late;
        rows.into_iter().try_for_each(|row| self.order.add(row, &mut self.store))
    }

    /// All rows of windows that end by `upto` have been taken in.
    pub(super) fn advance(&mut self, upto: i64) {
        self.order.advance(upto);
    }

    /// Whether there is something to [pass on](Self::pass_on).
    pub(super) fn has_ready_rows(&self) -> bool {
        self.order.is_ready()
    }

    /// Whether every row that there will be has its place in the output.
    pub(super) fn is_over(&self) -> bool {
        self.order.is_over()
    }

    /// Gives the next rows their places in the output: about a piece of them.
    pub(super) fn pass_on(&mut self) -> Outcome<()> {
        self.totals.output_rows += self.order.take(PIECE_BYTES, &mut self.pending, &mut self.store)?;
        if self.pending.len() >= PIECE_BYTES { self.stage_pending() } else { Ok(()) }
    }

    /// Cuts the stream here: the rows that have been passed on go to the file if this checkpoint completes, the others stay in it. Returns the
    /// job's metadata for it.
    pub(super) fn prepare(&mut self, id: u64, position: &Position) -> Outcome<JobMetadata> {
        while self.order.is_ready_in_memory() {
            self.pass_on()?;
        }
        self.order.hold(&mut self.store)?;
        self.stage_pending()?;
        while let Some((offset, length)) = self.pieces.front().copied()
            && offset + length <= self.synced.length
        {
            self.store.unstage(offset)?;
            self.pieces.pop_front();
        }
        self.cuts.insert(id, self.staged_end);
        let (config, position) = (self.config.clone(), position.clone());
        let complete = position.finished && self.order.is_over();
        Ok(JobMetadata::new(config, position, complete, self.synced, self.staged_end, self.totals))
    }

    /// Takes down how long the barrier was waited for.
    pub(super) fn aligned(&mut self, waited: std::time::Duration) {
        self.store.aligned(waited);
    }

    /// Takes the checkpoint that was prepared.
    pub(super) fn checkpoint(&mut self, id: u64, metadata: &[u8]) -> Outcome<R::Ticket> {
        self.store.checkpoint(id, metadata)
    }

    /// Writes the rows of a completed checkpoint, or forgets a failed one (its rows go with the next).
    pub(super) fn control(&mut self, control: Control) -> Outcome<()> {
        self.store.control(control)?;
        self.follow(control)
    }

    /// The next of the news that the state read while it waited; now acted on here too.
    pub(super) fn heard(&mut self) -> Outcome<Option<Control>> {
        let heard = self.store.heard();
        heard.map(|control| self.follow(control).map(|()| control)).transpose()
    }

    fn follow(&mut self, control: Control) -> Outcome<()> {
        match control {
            Control::Abort(id) => {
                self.cuts.remove(&id);
                Ok(())
            }
            Control::Confirm(id) => match self.cuts.remove(&id) {
                Some(upto) => self.commit(upto),
                None => Ok(()),
            },
        }
    }

    /// The job's totals so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn stage_pending(&mut self) -> Outcome<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.store.stage(self.staged_end, &self.pending)?;
        let length = self.pending.len() as u64;
        self.pieces.push_back((self.staged_end, length));
        self.staged_end += length;
        self.pending.clear();
        Ok(())
    }

    /// Writes and syncs all pieces up to `upto`. Checkpoints may complete out of order: an older one may find it done.
    fn commit(&mut self, upto: u64) -> Outcome<()> {
        if upto <= self.committed {
            return Ok(());
        }
        kill::pass(Point::BeforeAppend);
        let first = self.pieces.partition_point(|(offset, _)| *offset < self.committed);
        for (offset, _) in self.pieces.range(first..) {
            if *offset >= upto {
                break;
            }
            let bytes = self.store.staged(*offset)?.ok_or_else(|| missing(*offset))?;
            self.file.write_at(*offset, &bytes)?;
            kill::pass(Point::InAppend);
        }
        kill::pass(Point::BeforeSync);
        self.synced = self.file.sync()?;
        self.committed = self.synced.length;
        Ok(())
    }
}

fn missing(offset: u64) -> Failure {
    Failure::checkpoint(format!("the checkpoint's rows for offset {offset} of the output are missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryState;

    fn row(text: &str) -> Row {
        Row { end: 0, stream: 0, key: text.as_bytes().into(), line: format!("{text}\n").into_bytes() }
    }

    struct Case {
        _dir: tempfile::TempDir,
        path: std::path::PathBuf,
        sink: StagedOutput<MemoryState>,
    }

    fn case() -> Case {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let file = OutputFile::create(&path).unwrap();
        let sink = StagedOutput::new(MemoryState::default(), file, BTreeMap::new(), b"h\n").unwrap();
        Case { _dir: dir, path, sink }
    }

    impl Case {
        /// Takes rows that nothing comes before.
        fn take(&mut self, rows: &[Row], late: u64) {
            self.sink.take(rows.to_vec(), late).unwrap();
            self.sink.advance(0);
            while self.sink.has_ready_rows() {
                self.sink.pass_on().unwrap();
            }
        }

        fn content(&self) -> String {
            std::fs::read_to_string(&self.path).unwrap()
        }

        fn checkpoint(&mut self, id: u64) -> (MemoryState, JobMetadata) {
            let metadata = self.sink.prepare(id, &Position::start()).unwrap();
            let part = self.sink.checkpoint(id, &metadata.encode().unwrap()).unwrap().poll_part();
            (part.state, JobMetadata::decode(&part.metadata).unwrap())
        }

        fn resume(&mut self, (state, metadata): (MemoryState, JobMetadata)) -> Outcome<()> {
            let file = OutputFile::check_resume(&self.path, metadata.synced)?;
            self.sink = StagedOutput::resume(state, file, &metadata)?;
            Ok(())
        }
    }

    #[test]
    fn rows_reach_the_file_only_with_a_completed_checkpoint() {
        let mut case = case();
        case.take(&[row("a")], 0);
        let _ = case.checkpoint(1);
        case.take(&[row("b")], 0);
        assert_eq!(case.content(), "");
        case.sink.control(Control::Confirm(1)).unwrap();
        assert_eq!(case.content(), "h\na\n");
        let _ = case.checkpoint(2);
        case.sink.control(Control::Abort(2)).unwrap();
        assert_eq!(case.content(), "h\na\n");
        let _ = case.checkpoint(3);
        case.sink.control(Control::Confirm(3)).unwrap();
        assert_eq!(case.content(), "h\na\nb\n");
    }

    #[test]
    fn checkpoints_that_complete_out_of_order_write_nothing_twice() {
        let mut case = case();
        for (id, text) in [(1, "a"), (2, "b"), (3, "c")] {
            case.take(&[row(text)], 0);
            let _ = case.checkpoint(id);
        }
        for (id, want) in [(2, "h\na\nb\n"), (1, "h\na\nb\n"), (3, "h\na\nb\nc\n")] {
            case.sink.control(Control::Confirm(id)).unwrap();
            assert_eq!(case.content(), want);
        }
    }

    #[test]
    fn rows_stay_in_the_state_until_a_checkpoint_has_recorded_them_as_synced() {
        let mut case = case();
        case.take(&[row("a")], 0);
        let (state, metadata) = case.checkpoint(1);
        assert_eq!((metadata.synced.length, metadata.staged_end, state.pieces()), (0, 4, 1));
        case.sink.control(Control::Confirm(1)).unwrap();
        case.take(&[row("b")], 0);
        let (state, metadata) = case.checkpoint(2);
        assert_eq!((metadata.synced.length, metadata.staged_end, state.pieces()), (4, 6, 1));
    }

    #[test]
    fn a_resume_brings_the_file_to_where_its_checkpoint_commits_it() {
        let mut case = case();
        case.take(&[row("a")], 0);
        let first = case.checkpoint(1);
        // Killed between completion and the sink's append.
        case.resume(first.clone()).unwrap();
        assert_eq!(case.content(), "h\na\n");
        // Killed after it had written more, which only a later checkpoint had committed.
        case.take(&[row("b")], 3);
        let second = case.checkpoint(2);
        case.sink.control(Control::Confirm(2)).unwrap();
        case.take(&[row("c")], 0);
        let _ = case.checkpoint(3);
        case.sink.control(Control::Confirm(3)).unwrap();
        assert_eq!(case.content(), "h\na\nb\nc\n");
        let fourth = case.checkpoint(4);
        case.resume(second).unwrap();
        assert_eq!(case.content(), "h\na\nb\n");
        assert_eq!(case.sink.totals(), Totals { late: 3, output_rows: 2 });
        case.resume(fourth).unwrap_err();
        assert_eq!(case.content(), "h\na\nb\n", "shorter than what was synced: nothing is touched");
    }

    #[test]
    fn missing_rows_are_found_before_the_file_is_touched() {
        let mut case = case();
        case.take(&[row("a")], 0);
        let (_, metadata) = case.checkpoint(1);
        std::fs::write(&case.path, "junk").unwrap();
        let error = case.resume((MemoryState::default(), metadata)).unwrap_err();
        assert_eq!(error.code, crate::exit::Code::Checkpoint);
        assert_eq!(case.content(), "junk");
    }

    #[test]
    fn rows_that_others_may_come_before_are_in_the_checkpoint_but_not_in_the_output() {
        let mut case = case();
        case.take(&[row("a")], 0);
        case.sink.take(vec![Row { end: 7, ..row("c") }], 0).unwrap();
        let (state, metadata) = case.checkpoint(1);
        assert_eq!(metadata.totals.output_rows, 1);
        case.resume((state, metadata)).unwrap();
        assert_eq!(case.content(), "h\na\n");
        case.sink.take(vec![Row { end: 7, ..row("b") }], 0).unwrap();
        case.sink.advance(i64::MAX);
        while case.sink.has_ready_rows() {
            case.sink.pass_on().unwrap();
        }
        let _ = case.checkpoint(2);
        case.sink.control(Control::Confirm(2)).unwrap();
        assert_eq!(case.content(), "h\na\nb\nc\n");
    }

    #[test]
    fn many_rows_are_kept_in_few_pieces() {
        let mut case = case();
        let rows: Vec<Row> = (0..10_000).map(|i| row(&format!("row {i:06}"))).collect();
        case.take(&rows, 0);
        let (state, metadata) = case.checkpoint(1);
        assert_eq!((metadata.staged_end, state.pieces()), (110_002, 5));
        case.sink.control(Control::Confirm(1)).unwrap();
        assert_eq!(case.content().lines().count(), 10_001);
    }
}
