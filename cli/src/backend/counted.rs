//! A store that counts what is sent to it, and in which tests can have the process killed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use highwater::Result;
use highwater::checkpoint::log::LogEntry;
use highwater::io::store::{ObjectEntry, PutMode, Request, Store};

use crate::kill::{self, Point};

/// Passes everything on to another store.
#[derive(Debug)]
pub struct CountedStore {
    inner: Arc<dyn Store>,
    uploaded_bytes: AtomicU64,
}

impl CountedStore {
    /// Counts what goes to `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, uploaded_bytes: AtomicU64::new(0) }
    }

    /// Bytes sent so far, in writes that failed too.
    pub fn uploaded_bytes(&self) -> u64 {
        self.uploaded_bytes.load(Ordering::Relaxed)
    }

    fn count(&self, bytes: usize) {
        self.uploaded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn is_log_entry(name: &str) -> bool {
    LogEntry::number_of(name).is_some()
}

/// Where a process may be killed before and after the put of an object that isn't a segment.
fn points_of(name: &str) -> (Point, Point) {
    match is_log_entry(name) {
        true => (Point::BeforeLogEntry, Point::AfterLogEntry),
        false => (Point::BeforeManifest, Point::AfterManifest),
    }
}

impl Store for CountedStore {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        let (before, after) = points_of(name);
        kill::pass(before);
        self.count(bytes.len());
        self.inner.put(name, bytes, mode)?;
        kill::pass(after);
        Ok(())
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        kill::pass(Point::BeforeSegment);
        let mut counted = chunks.inspect(|chunk| {
            self.count(chunk.as_ref().map_or(0, Bytes::len));
            kill::pass(Point::InSegment);
        });
        self.inner.put_stream(name, &mut counted, mode)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        if !is_log_entry(name) {
            kill::pass(Point::ReadManifest);
        }
        self.inner.get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        kill::pass(Point::ReadSegment);
        self.inner.get_range(name, range)
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        let mut after = Vec::new();
        for request in &requests {
            match request {
                Request::Put(name, bytes, _) => {
                    let (before, then) = points_of(name);
                    kill::pass(before);
                    self.count(bytes.len());
                    after.push(Some(then));
                }
                Request::Get(name) if !is_log_entry(name) => {
                    kill::pass(Point::ReadManifest);
                    after.push(None);
                }
                Request::GetRange(..) => {
                    kill::pass(Point::ReadSegment);
                    after.push(None);
                }
                Request::Get(_) => after.push(None),
                Request::Delete(_) => after.push(Some(Point::AfterDelete)),
            }
        }
        let answers = self.inner.together(requests);
        for (point, _) in after.into_iter().zip(&answers).filter(|(_, answer)| answer.is_ok()) {
            point.into_iter().for_each(kill::pass);
        }
        answers
    }

    fn length(&self, name: &str) -> Result<u64> {
        self.inner.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        self.inner.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)?;
        kill::pass(Point::AfterDelete);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        self.inner.leftovers()
    }

    fn delete_leftover(&self, name: &str) -> Result<()> {
        self.inner.delete_leftover(name)
    }
}
