//! A store that counts what is asked of it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::store::{ObjectEntry, PutMode, Request, Store};
use crate::Result;
use crate::base::clock::Clock;
use crate::base::meters::{self, Counter, Histogram};

/// Dollars a put or list, and a get or head: list prices of S3, standard class, us-east-1, as of 2026. Deletes are free.
const PUT_USD: f64 = 5e-6;
const GET_USD: f64 = 4e-7;

/// What was asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreRequests {
    /// Objects written, in one request or in parts.
    pub puts: u64,
    /// Objects or ranges read.
    pub gets: u64,
    /// Lengths asked for.
    pub heads: u64,
    /// Listings.
    pub lists: u64,
    /// Deletes.
    pub deletes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl StoreRequests {
    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.puts + self.gets + self.heads + self.lists + self.deletes
    }

    /// What they cost in dollars at list prices of S3 (standard class, us-east-1): 5 for a million puts or lists, 0.4 for
    /// a million gets. Traffic and storage come on top.
    #[must_use]
    pub fn cost_usd(&self) -> f64 {
        (self.puts + self.lists) as f64 * PUT_USD + (self.gets + self.heads) as f64 * GET_USD
    }

    /// What came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            puts: self.puts - earlier.puts,
            gets: self.gets - earlier.gets,
            heads: self.heads - earlier.heads,
            lists: self.lists - earlier.lists,
            deletes: self.deletes - earlier.deletes,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            received_bytes: self.received_bytes - earlier.received_bytes,
        }
    }
}

/// One kind of request.
#[derive(Debug)]
struct Asked {
    name: &'static str,
    count: AtomicU64,
    requests: Counter,
    seconds: Histogram,
}

impl Asked {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            count: AtomicU64::new(0),
            requests: meters::STORE_REQUESTS.counter(&[name]),
            seconds: meters::STORE_SECONDS.histogram(&[name]),
        }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Bytes that went one way.
#[derive(Debug)]
struct Moved {
    count: AtomicU64,
    bytes: Counter,
}

impl Moved {
    fn new(direction: &str) -> Self {
        Self { count: AtomicU64::new(0), bytes: meters::STORE_BYTES.counter(&[direction]) }
    }

    fn add(&self, bytes: usize) {
        self.count.fetch_add(bytes as u64, Ordering::Relaxed);
        self.bytes.increment(bytes as u64);
    }
}

/// Passes everything on to another store, and counts it.
#[derive(Debug)]
pub struct MeteredStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    put: Asked,
    get: Asked,
    head: Asked,
    list: Asked,
    delete: Asked,
    sent: Moved,
    received: Moved,
}

impl MeteredStore {
    /// Counts what is asked of `inner`, by the time of `clock`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner,
            clock,
            put: Asked::new("put"),
            get: Asked::new("get"),
            head: Asked::new("head"),
            list: Asked::new("list"),
            delete: Asked::new("delete"),
            sent: Moved::new("sent"),
            received: Moved::new("received"),
        }
    }

    /// What was asked so far.
    #[must_use]
    pub fn requests(&self) -> StoreRequests {
        StoreRequests {
            puts: self.put.count(),
            gets: self.get.count(),
            heads: self.head.count(),
            lists: self.list.count(),
            deletes: self.delete.count(),
            sent_bytes: self.sent.count.load(Ordering::Relaxed),
            received_bytes: self.received.count.load(Ordering::Relaxed),
        }
    }

    /// Makes a request and notes how it went.
    fn ask<T>(&self, asked: &Asked, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let began_ns = self.clock.monotonic_ns();
        let outcome = request();
        self.note(asked, began_ns, &outcome);
        outcome
    }

    fn note<T>(&self, asked: &Asked, began_ns: u64, outcome: &Result<T>) {
        asked.count.fetch_add(1, Ordering::Relaxed);
        asked.requests.increment(1);
        asked.seconds.record(self.clock.monotonic_ns().saturating_sub(began_ns) as f64 / 1e9);
        if let Err(error) = outcome {
            meters::STORE_FAILURES.counter(&[asked.name, &error.kind().to_string()]).increment(1);
        }
    }

    fn receive(&self, answer: Result<Bytes>) -> Result<Bytes> {
        answer.inspect(|bytes| self.received.add(bytes.len()))
    }

    /// What a request of several is counted as, and the bytes it sends.
    fn kind_of(&self, request: &Request) -> (&Asked, usize) {
        match request {
            Request::Put(_, bytes, _) => (&self.put, bytes.len()),
            Request::Get(_) | Request::GetRange(..) => (&self.get, 0),
            Request::Delete(_) => (&self.delete, 0),
        }
    }
}

impl Store for MeteredStore {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.sent.add(bytes.len());
        self.ask(&self.put, || self.inner.put(name, bytes, mode))
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        let sent = |chunk: &Result<Bytes>| self.sent.add(chunk.as_ref().map_or(0, Bytes::len));
        self.ask(&self.put, || self.inner.put_stream(name, &mut chunks.inspect(sent), mode))
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.receive(self.ask(&self.get, || self.inner.get(name)))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.receive(self.ask(&self.get, || self.inner.get_range(name, range)))
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        let kinds: Vec<_> = requests.iter().map(|request| self.kind_of(request)).collect();
        kinds.iter().for_each(|(_, sent)| self.sent.add(*sent));
        let began_ns = self.clock.monotonic_ns();
        let answers = self.inner.together(requests);
        let noted = kinds.into_iter().zip(answers).map(|((asked, _), answer)| {
            self.note(asked, began_ns, &answer);
            self.receive(answer)
        });
        noted.collect()
    }

    fn length(&self, name: &str) -> Result<u64> {
        self.ask(&self.head, || self.inner.length(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        self.ask(&self.list, || self.inner.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.ask(&self.delete, || self.inner.delete(name))
    }

    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        self.ask(&self.list, || self.inner.leftovers())
    }

    fn delete_leftover(&self, name: &str) -> Result<()> {
        self.ask(&self.delete, || self.inner.delete_leftover(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::io::memory_store::MemoryStore;

    #[test]
    fn counts_each_request_and_what_it_moved() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let store = MeteredStore::new(Arc::new(MemoryStore::new(clock.clone())), clock);
        store.put("a", Bytes::from_static(b"12345"), PutMode::Create).unwrap();
        store.put_stream("b", &mut [Ok(Bytes::from_static(b"678"))].into_iter(), PutMode::Create).unwrap();
        let before = store.requests();
        assert!(store.put("a", Bytes::from_static(b"1"), PutMode::Create).is_err());
        let answers = store.together(vec![
            Request::Get("a".into()),
            Request::GetRange("b".into(), 0..2),
            Request::Get("c".into()),
            Request::Delete("a".into()),
        ]);
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
        store.list("").unwrap();
        store.length("b").unwrap();
        let asked = store.requests().since(&before);
        let sums = (asked.puts, asked.gets, asked.heads, asked.lists, asked.deletes);
        assert_eq!((sums, asked.sent_bytes, asked.received_bytes), ((1, 3, 1, 1, 1), 1, 7));
        assert_eq!((before.puts, before.sent_bytes, asked.total()), (2, 8, 7));
        assert!((asked.cost_usd() - (2.0 * 5e-6 + 4.0 * 4e-7)).abs() < 1e-12);
    }
}
