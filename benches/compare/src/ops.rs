//! What operators do to their state, as a stream of small fixed records made ahead and read from a file, so that
//! every store does the same and none pays for the generator.
//!
//! ```text
//! kind u8 | state u8 | value length u16 | extra u32 | id u64 | arg u64      little-endian, 24 bytes
//! ```

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::Result;

/// Bytes of an encoded operation.
const OP_BYTES: usize = 24;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Get a counter, put it plus one: two operations.
    Add = 0,
    /// As `Add`, many keys read by one batched call, then put one by one.
    AddBatched,
    /// Get a value.
    Get,
    /// Put a value.
    Put,
    /// Delete a value.
    Delete,
    /// Append to a list.
    Append,
    /// Read a list.
    ReadList,
    /// Read a list and clear it: two operations.
    TakeList,
    /// Put an entry of a map; `arg` is its key there.
    MapPut,
    /// Get an entry.
    MapGet,
    /// Ask whether an entry is there.
    MapContains,
    /// Remove an entry.
    MapRemove,
    /// Walk over all entries of a map.
    MapScan,
    /// Walk over the entries from `arg` to `arg + extra`, both included.
    MapRange,
    /// Register a timer at `arg`.
    TimerAdd,
    /// Delete the timer at `arg`.
    TimerDelete,
    /// Take the next timer that is due at `arg`.
    TimerPop,
}

const KINDS: [Kind; 17] = [
    Kind::Add,
    Kind::AddBatched,
    Kind::Get,
    Kind::Put,
    Kind::Delete,
    Kind::Append,
    Kind::ReadList,
    Kind::TakeList,
    Kind::MapPut,
    Kind::MapGet,
    Kind::MapContains,
    Kind::MapRemove,
    Kind::MapScan,
    Kind::MapRange,
    Kind::TimerAdd,
    Kind::TimerDelete,
    Kind::TimerPop,
];

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// What is done.
    pub kind: Kind,
    /// To which of the workload's states.
    pub state: u8,
    /// Length of the value that is written.
    pub len: u16,
    /// Seed of the value; the width of a range.
    pub extra: u32,
    /// Number of the key.
    pub id: u64,
    /// Namespace, key in a map, or time.
    pub arg: u64,
}

impl Op {
    /// An operation on `state` and key `id`, everything else zero.
    pub fn new(kind: Kind, state: u8, id: u64) -> Self {
        Self { kind, state, len: 0, extra: 0, id, arg: 0 }
    }

    /// The same with a namespace, a key in a map, or a time.
    pub fn at(self, arg: u64) -> Self {
        Self { arg, ..self }
    }

    /// The same with a value of `len` bytes.
    pub fn value(self, len: u16, seed: u64) -> Self {
        Self { len, extra: seed as u32, ..self }
    }

    /// Operations it counts for.
    pub fn weight(&self) -> u64 {
        if matches!(self.kind, Kind::Add | Kind::AddBatched | Kind::TakeList) { 2 } else { 1 }
    }

    /// True for those that walk over many entries, which are timed apart.
    pub fn is_scan(&self) -> bool {
        matches!(self.kind, Kind::ReadList | Kind::TakeList | Kind::MapScan | Kind::MapRange)
    }

    fn encode(&self) -> [u8; OP_BYTES] {
        let mut bytes = [0; OP_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.state;
        bytes[2..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.extra.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..].copy_from_slice(&self.arg.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let word = |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
        Ok(Self {
            kind: *KINDS.get(usize::from(bytes[0])).ok_or("an operation of unknown kind")?,
            state: bytes[1],
            len: word(2, 2) as u16,
            extra: word(4, 4) as u32,
            id: word(8, 8),
            arg: word(16, 8),
        })
    }
}

/// What is added to ids and args when a stream is gone through again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lap {
    /// To each id.
    pub id: u64,
    /// To each namespace, map key or time.
    pub arg: u64,
    /// False when the stream can't be gone through twice: its state would grow or its times go back.
    pub repeats: bool,
}

/// Writes a stream: first what is loaded before measuring, then what is measured.
#[derive(Debug)]
pub struct StreamWriter {
    file: BufWriter<File>,
    written: u64,
}

impl StreamWriter {
    /// A new file.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { file: BufWriter::with_capacity(1 << 20, File::create(path)?), written: 0 })
    }

    /// Appends an operation.
    pub fn push(&mut self, op: Op) -> Result<()> {
        self.written += 1;
        Ok(self.file.write_all(&op.encode())?)
    }

    /// Operations so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<u64> {
        self.file.flush()?;
        Ok(self.written)
    }
}

/// Reads a part of a stream in chunks, once or in laps.
#[derive(Debug)]
pub struct StreamReader {
    file: File,
    first: u64,
    end: u64,
    next: u64,
    lap: Lap,
    laps: u64,
    bytes: Vec<u8>,
}

impl StreamReader {
    /// The operations `first..end` of the file at `path`.
    pub fn open(path: &Path, first: u64, end: u64, lap: Lap) -> Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(first * OP_BYTES as u64))?;
        Ok(Self { file, first, end, next: first, lap, laps: 0, bytes: Vec::new() })
    }

    /// Replaces `ops` by the next ones, at most `most`. None left after the last lap.
    pub fn fill(&mut self, ops: &mut Vec<Op>, most: u64) -> Result<()> {
        ops.clear();
        if self.next == self.end && self.lap.repeats && self.end > self.first {
            self.file.seek(SeekFrom::Start(self.first * OP_BYTES as u64))?;
            self.next = self.first;
            self.laps += 1;
        }
        let count = most.min(self.end - self.next);
        self.bytes.resize(count as usize * OP_BYTES, 0);
        self.file.read_exact(&mut self.bytes)?;
        self.next += count;
        for bytes in self.bytes.chunks_exact(OP_BYTES) {
            let mut op = Op::decode(bytes)?;
            op.id = op.id.wrapping_add(self.laps * self.lap.id);
            op.arg = op.arg.wrapping_add(self.laps * self.lap.arg);
            ops.push(op);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_kind_comes_back_and_laps_move_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stream");
        let mut writer = StreamWriter::create(&path).unwrap();
        let ops: Vec<Op> = KINDS.iter().map(|k| Op::new(*k, 3, 7).at(u64::MAX - 5).value(300, 9)).collect();
        ops.iter().for_each(|op| writer.push(*op).unwrap());
        assert_eq!(writer.finish().unwrap(), 17);
        let lap = Lap { id: 100, arg: 1, repeats: true };
        let mut reader = StreamReader::open(&path, 1, 17, lap).unwrap();
        let mut read = Vec::new();
        reader.fill(&mut read, 1000).unwrap();
        assert_eq!(read, ops[1..]);
        reader.fill(&mut read, 2).unwrap();
        assert_eq!((read.len(), read[0].id, read[0].arg), (2, 107, u64::MAX - 4));
        let mut once = StreamReader::open(&path, 0, 17, Lap::default()).unwrap();
        once.fill(&mut read, 17).unwrap();
        once.fill(&mut read, 17).unwrap();
        assert!(read.is_empty());
    }
}
