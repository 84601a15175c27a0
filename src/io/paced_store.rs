//! A bound on the bandwidth that segments take on their way to a store.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::store::{ObjectEntry, PutMode, Request, Store};
use crate::Result;
use crate::base::clock::Clock;

/// A store whose streams of bytes ([`Store::put_stream`]) wait for their turn. Single puts are counted and delay the streams, but
/// don't wait themselves: manifests and log entries are small, and others wait for them.
#[derive(Debug)]
pub struct PacedStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    bytes_per_second: u64,
    /// When what was sent so far is through at the allowed rate, monotonic nanoseconds.
    free_at_ns: Mutex<u64>,
}

impl PacedStore {
    /// `inner`, to which at most `bytes_per_second` go, one at the least.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, bytes_per_second: u64) -> Self {
        Self { inner, clock, bytes_per_second: bytes_per_second.max(1), free_at_ns: Mutex::new(0) }
    }

    /// Counts `length` bytes; how long they must wait. What wasn't used isn't saved up.
    fn take(&self, length: usize) -> Duration {
        let now = self.clock.monotonic_ns();
        let takes = (length as u128 * 1_000_000_000 / u128::from(self.bytes_per_second)).min(u128::from(u64::MAX));
        let mut free_at = self.free_at_ns.lock();
        let start = (*free_at).max(now);
        *free_at = start.saturating_add(takes as u64);
        Duration::from_nanos(start - now)
    }
}

impl Store for PacedStore {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.take(bytes.len());
        self.inner.put(name, bytes, mode)
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        let mut paced = chunks.inspect(|chunk| {
            if let Ok(bytes) = chunk {
                self.clock.sleep(self.take(bytes.len()));
            }
        });
        self.inner.put_stream(name, &mut paced, mode)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.inner.get(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner.get_range(name, range)
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        for request in &requests {
            if let Request::Put(_, bytes, _) = request {
                self.take(bytes.len());
            }
        }
        self.inner.together(requests)
    }

    fn length(&self, name: &str) -> Result<u64> {
        self.inner.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        self.inner.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        self.inner.leftovers()
    }

    fn delete_leftover(&self, name: &str) -> Result<()> {
        self.inner.delete_leftover(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::io::memory_store::MemoryStore;

    #[test]
    fn streams_wait_for_their_turn_and_single_puts_only_count() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let store = PacedStore::new(Arc::new(MemoryStore::new(clock.clone())), clock.clone(), 1000);
        let start = clock.monotonic_ns();
        let mut chunks = (0..10).map(|_| Ok(Bytes::from(vec![1; 500])));
        store.put_stream("a", &mut chunks, PutMode::Create).unwrap();
        // The last chunk leaves when the nine before it are through.
        assert_eq!(clock.monotonic_ns() - start, 4_500_000_000);
        store.put("b", Bytes::from(vec![1; 1000]), PutMode::Create).unwrap();
        assert_eq!(clock.monotonic_ns() - start, 4_500_000_000);
        store.put_stream("c", &mut [Ok(Bytes::from_static(b"c"))].into_iter(), PutMode::Create).unwrap();
        assert_eq!(clock.monotonic_ns() - start, 6_000_000_000);
    }
}
