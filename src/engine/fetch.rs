//! Copying objects of the store into local files, several ranges at a time.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::disk::LocalFile;
use crate::base::checksum::Hasher;
use crate::io::files::FileWriter;
use crate::io::store::{Request, Store};
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, ErrorKind, Result};

/// Requests that are under way at one time.
pub const MOST_RANGES: usize = 8;

/// How much is asked for at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtATime {
    /// Bytes of all ranges.
    pub bytes: u64,
    /// Bytes of one.
    pub range_bytes: u64,
}

impl AtATime {
    /// For one of `backends` that share a memory budget: together a thirty-second of it, which is within the share of
    /// background work.
    pub fn within(memory_bytes: u64, backends: usize) -> Self {
        let bytes = (memory_bytes / 32 / backends.max(1) as u64).clamp(256 << 10, 32 << 20);
        Self { bytes, range_bytes: bytes / MOST_RANGES as u64 }
    }
}

/// A segment on its way from the store into a file.
pub struct Fetch {
    /// What it is.
    pub meta: Arc<SegmentMeta>,
    /// Its object.
    pub object: String,
    /// The file while it is incomplete.
    pub partial: PathBuf,
    /// The claim on the file that it becomes.
    pub hold: LocalFile,
    writer: Box<dyn FileWriter>,
    hasher: Hasher,
    asked: u64,
    failed: Option<Error>,
}

impl Fetch {
    /// Begins to fetch `object` into `partial`, which `writer` writes.
    pub fn new(
        meta: Arc<SegmentMeta>,
        object: &str,
        partial: PathBuf,
        hold: LocalFile,
        writer: Box<dyn FileWriter>,
    ) -> Self {
        let (object, hasher) = (object.to_owned(), Hasher::new());
        Self { meta, object, partial, hold, writer, hasher, asked: 0, failed: None }
    }

    /// The next range to ask for, of at most so many bytes.
    fn next_range(&mut self, most: u64) -> Option<Range<u64>> {
        let start = self.asked;
        let end = start.saturating_add(most).min(self.meta.length_bytes);
        if self.failed.is_some() || start >= end {
            return None;
        }
        self.asked = end;
        Some(start..end)
    }

    /// Takes the answer to the range asked for next after those taken.
    fn take(&mut self, range: &Range<u64>, answer: Result<Bytes>) {
        if self.failed.is_some() {
            return;
        }
        let taken = answer.and_then(|bytes| {
            if bytes.len() as u64 != range.end - range.start {
                let message = format!("object `{}`: {range:?} asked for, {} bytes came", self.object, bytes.len());
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            self.hasher.update(&bytes);
            self.writer.append(&bytes)
        });
        self.failed = taken.err();
    }

    /// Ends the file. Returns the hash of what is in it, the unfinished file's name and the claim on the finished one.
    ///
    /// # Errors
    /// What fetching or writing failed with, and the unfinished file's name.
    pub fn finish(self) -> (PathBuf, LocalFile, Result<u64>) {
        let written = match self.failed {
            Some(error) => Err(error),
            None => self.writer.finish(false).map(|()| self.hasher.finish()),
        };
        (self.partial, self.hold, written)
    }
}

/// Fetches all of them, ranges of the first before those of the next. One that fails doesn't keep the others.
pub fn copy(store: &dyn Store, fetches: &mut [Fetch], at_a_time: AtATime, cancelled: &dyn Fn() -> bool) {
    loop {
        let mut asked = Vec::new();
        let mut bytes = 0;
        for (at, fetch) in fetches.iter_mut().enumerate() {
            while asked.len() < MOST_RANGES && bytes < at_a_time.bytes {
                let Some(range) = fetch.next_range(at_a_time.range_bytes) else { break };
                bytes += range.end - range.start;
                asked.push((at, range));
            }
        }
        if asked.is_empty() {
            return;
        }
        if cancelled() {
            for fetch in fetches.iter_mut() {
                let message = format!("fetching {} was cancelled", fetch.object);
                fetch.failed.get_or_insert_with(|| Error::new(ErrorKind::Aborted, message));
            }
            return;
        }
        let object = |at: &usize| fetches.get(*at).map(|fetch| fetch.object.clone()).unwrap_or_default();
        let requests = asked.iter().map(|(at, range)| Request::GetRange(object(at), range.clone())).collect();
        for ((at, range), answer) in asked.iter().zip(store.together(requests)) {
            if let Some(fetch) = fetches.get_mut(*at) {
                fetch.take(range, answer);
            }
        }
    }
}
