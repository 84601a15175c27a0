//! The transactional sink: rows wait in the state until a checkpoint that holds them is complete, and only then go to the file.
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
use crate::runtime::{Control, JobMetadata, Row, Snapshots, StagedRows, Totals};

/// Rows are kept in pieces of about this size: one entry a row would cost more than the row.
const PIECE_BYTES: usize = 64 << 10;

/// The rows of the job, on their way to the output file.
pub struct StagedOutput<R> {
    store: R,
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
    pub fn new(store: R, file: OutputFile, config: BTreeMap<String, String>, header: &[u8]) -> Self {
        Self {
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
        }
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

    /// Takes rows in output order.
    pub(super) fn take(&mut self, rows: &[Row], late: u64) -> Outcome<()> {
        self.totals.late += late;
        self.totals.output_rows += rows.len() as u64;
        for row in rows {
            self.pending.extend_from_slice(&row.line);
            if self.pending.len() >= PIECE_BYTES {
                self.stage_pending()?;
            }
        }
        Ok(())
    }

    /// Cuts the stream here: what has been taken goes to the file if this checkpoint completes. Returns the job's metadata for it.
    pub(super) fn prepare(&mut self, id: u64, position: &Position) -> Outcome<Vec<u8>> {
        self.stage_pending()?;
        while let Some((offset, length)) = self.pieces.front().copied()
            && offset + length <= self.synced.length
        {
            self.store.unstage(offset)?;
            self.pieces.pop_front();
        }
        self.cuts.insert(id, self.staged_end);
        let (config, position) = (self.config.clone(), position.clone());
        JobMetadata::new(config, position, self.synced, self.staged_end, self.totals).encode()
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
        let sink =
            StagedOutput::new(MemoryState::default(), OutputFile::create(&path).unwrap(), BTreeMap::new(), b"h\n");
        Case { _dir: dir, path, sink }
    }

    impl Case {
        fn content(&self) -> String {
            std::fs::read_to_string(&self.path).unwrap()
        }

        fn checkpoint(&mut self, id: u64) -> (MemoryState, JobMetadata) {
            let metadata = self.sink.prepare(id, &Position::start()).unwrap();
            let part = self.sink.checkpoint(id, &metadata).unwrap().poll_part();
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
        case.sink.take(&[row("a")], 0).unwrap();
        let _ = case.checkpoint(1);
        case.sink.take(&[row("b")], 0).unwrap();
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
            case.sink.take(&[row(text)], 0).unwrap();
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
        case.sink.take(&[row("a")], 0).unwrap();
        let (state, metadata) = case.checkpoint(1);
        assert_eq!((metadata.synced.length, metadata.staged_end, state.pieces()), (0, 4, 1));
        case.sink.control(Control::Confirm(1)).unwrap();
        case.sink.take(&[row("b")], 0).unwrap();
        let (state, metadata) = case.checkpoint(2);
        assert_eq!((metadata.synced.length, metadata.staged_end, state.pieces()), (4, 6, 1));
    }

    #[test]
    fn a_resume_brings_the_file_to_where_its_checkpoint_commits_it() {
        let mut case = case();
        case.sink.take(&[row("a")], 0).unwrap();
        let first = case.checkpoint(1);
        // Killed between completion and the sink's append.
        case.resume(first.clone()).unwrap();
        assert_eq!(case.content(), "h\na\n");
        // Killed after it had written more, which only a later checkpoint had committed.
        case.sink.take(&[row("b")], 3).unwrap();
        let second = case.checkpoint(2);
        case.sink.control(Control::Confirm(2)).unwrap();
        case.sink.take(&[row("c")], 0).unwrap();
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
        case.sink.take(&[row("a")], 0).unwrap();
        let (_, metadata) = case.checkpoint(1);
        std::fs::write(&case.path, "junk").unwrap();
        let error = case.resume((MemoryState::default(), metadata)).unwrap_err();
        assert_eq!(error.code, crate::exit::Code::Checkpoint);
        assert_eq!(case.content(), "junk");
    }

    #[test]
    fn many_rows_are_kept_in_few_pieces() {
        let mut case = case();
        let rows: Vec<Row> = (0..10_000).map(|i| row(&format!("row {i:06}"))).collect();
        case.sink.take(&rows, 0).unwrap();
        let (state, metadata) = case.checkpoint(1);
        assert_eq!((metadata.staged_end, state.pieces()), (110_002, 2));
        case.sink.control(Control::Confirm(1)).unwrap();
        assert_eq!(case.content().lines().count(), 10_001);
    }
}
