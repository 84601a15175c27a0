//! For tests: wrappers of both seams that fail or hang where a test says so.
//!
//! Every call is numbered from 0 in the order of arrival, over all wrappers that share one [`Faults`], and asks the
//! plan what becomes of it. [`Fault::ErrorAfter`] is the lost answer: the call took effect and reports failure all the
//! same.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::files::{DirectoryLock, FileWriter, Files, ReadAt};
use super::store::{ObjectEntry, PutMode, Store};
use crate::{Error, ErrorKind, Result};

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails without effect.
    ErrorBefore(ErrorKind),
    /// It takes effect and fails.
    ErrorAfter(ErrorKind),
    /// It waits for [`Faults::release`], then goes on as if nothing had been.
    Hang,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Number of calls before it.
    pub index: u64,
    /// The seam's function: `put`, `put_stream`, `get`, `get_range`, `length`, `list`, `delete`, `leftovers`,
    /// `delete_leftover`; `create`, `append`, `finish`, `open`, `read_at`, `rename`, `remove`, ...
    pub operation: &'static str,
    /// Object's name or file's path.
    pub name: &'a str,
}

type Decide = Box<dyn FnMut(&Call<'_>) -> Option<Fault> + Send>;

/// The plan that wrappers ask, and the count of calls.
pub struct Faults {
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    decide: Decide,
    calls: u64,
    hanging: u64,
    releases: u64,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faults({} calls)", self.calls())
    }
}

impl Faults {
    /// A plan under which nothing fails.
    #[must_use]
    pub fn none() -> Arc<Self> {
        Self::when(|_| None)
    }

    /// A plan under which the call numbered `index` meets `fault`.
    #[must_use]
    pub fn nth(index: u64, fault: Fault) -> Arc<Self> {
        Self::when(move |call| (call.index == index).then_some(fault))
    }

    /// A plan that asks `decide` at each call.
    #[must_use]
    pub fn when(decide: impl FnMut(&Call<'_>) -> Option<Fault> + Send + 'static) -> Arc<Self> {
        let state = State { decide: Box::new(decide), calls: 0, hanging: 0, releases: 0 };
        Arc::new(Self { state: Mutex::new(state), released: Condvar::new() })
    }

    /// Asks `decide` from now on. Calls go on being counted.
    pub fn set(&self, decide: impl FnMut(&Call<'_>) -> Option<Fault> + Send + 'static) {
        self.state.lock().decide = Box::new(decide);
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Calls that hang now.
    #[must_use]
    pub fn hanging(&self) -> u64 {
        self.state.lock().hanging
    }

    /// Lets all go on that hang now.
    pub fn release(&self) {
        self.state.lock().releases += 1;
        self.released.notify_all();
    }

    fn meet<T>(&self, operation: &'static str, name: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let fault = {
            let mut state = self.state.lock();
            let index = state.calls;
            state.calls += 1;
            let fault = (state.decide)(&Call { index, operation, name });
            if fault == Some(Fault::Hang) {
                let seen = state.releases;
                state.hanging += 1;
                while state.releases == seen {
                    self.released.wait(&mut state);
                }
                state.hanging -= 1;
            }
            fault
        };
        let failed = |kind| Error::new(kind, format!("injected into {operation} of `{name}`"));
        match fault {
            Some(Fault::ErrorBefore(kind)) => Err(failed(kind)),
            Some(Fault::ErrorAfter(kind)) => call().and(Err(failed(kind))),
            Some(Fault::Hang) | None => call(),
        }
    }
}

/// A store under a plan of faults.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
}

impl FaultyStore {
    /// `inner` under `faults`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

impl Store for FaultyStore {
    fn url(&self) -> &str {
        self.inner.url()
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.faults.meet("put", name, || self.inner.put(name, bytes, mode))
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        self.faults.meet("put_stream", name, || self.inner.put_stream(name, chunks, mode))
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.faults.meet("get", name, || self.inner.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.faults.meet("get_range", name, || self.inner.get_range(name, range))
    }

    fn length(&self, name: &str) -> Result<u64> {
        self.faults.meet("length", name, || self.inner.length(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        self.faults.meet("list", prefix, || self.inner.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.faults.meet("delete", name, || self.inner.delete(name))
    }

    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        self.faults.meet("leftovers", "", || self.inner.leftovers())
    }

    fn delete_leftover(&self, name: &str) -> Result<()> {
        self.faults.meet("delete_leftover", name, || self.inner.delete_leftover(name))
    }
}

/// Local files under a plan of faults; so are the files opened and written through them.
#[derive(Debug)]
pub struct FaultyFiles {
    inner: Arc<dyn Files>,
    faults: Arc<Faults>,
}

impl FaultyFiles {
    /// `inner` under `faults`.
    #[must_use]
    pub fn new(inner: Arc<dyn Files>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }

    fn meet<T>(&self, operation: &'static str, path: &Path, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.faults.meet(operation, &path.display().to_string(), call)
    }
}

impl Files for FaultyFiles {
    fn create(&self, path: &Path) -> Result<Box<dyn FileWriter>> {
        let inner = self.meet("create", path, || self.inner.create(path))?;
        let name = path.display().to_string();
        Ok(Box::new(FaultyWriter { inner, name, faults: self.faults.clone() }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        let inner = self.meet("open", path, || self.inner.open(path))?;
        Ok(Arc::new(FaultyReader { inner, faults: self.faults.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.meet("rename", from, || self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.meet("remove", path, || self.inner.remove(path))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.meet("create_directory", path, || self.inner.create_directory(path))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.meet("remove_directory", path, || self.inner.remove_directory(path))
    }

    fn list(&self, directory: &Path) -> Result<Vec<(PathBuf, u64)>> {
        self.meet("list", directory, || self.inner.list(directory))
    }

    fn list_directories(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.meet("list_directories", directory, || self.inner.list_directories(directory))
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.meet("sync_directory", directory, || self.inner.sync_directory(directory))
    }

    fn lock(&self, directory: &Path) -> Result<Box<dyn DirectoryLock>> {
        self.meet("lock", directory, || self.inner.lock(directory))
    }

    fn free_bytes(&self, directory: &Path) -> Result<u64> {
        self.meet("free_bytes", directory, || self.inner.free_bytes(directory))
    }
}

struct FaultyWriter {
    inner: Box<dyn FileWriter>,
    name: String,
    faults: Arc<Faults>,
}

impl FileWriter for FaultyWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.faults.meet("append", &self.name, || self.inner.append(bytes))
    }

    fn finish(self: Box<Self>, sync: bool) -> Result<()> {
        let Self { inner, name, faults } = *self;
        faults.meet("finish", &name, || inner.finish(sync))
    }
}

#[derive(Debug)]
struct FaultyReader {
    inner: Arc<dyn ReadAt>,
    faults: Arc<Faults>,
}

impl ReadAt for FaultyReader {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.faults.meet("read_at", self.inner.name(), || self.inner.read_at(offset, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::io::memory_store::MemoryStore;

    #[test]
    fn an_error_after_took_effect_and_an_error_before_did_not() {
        let inner = Arc::new(MemoryStore::new(Arc::new(ManualClock::at_ms(0))));
        let faults = Faults::nth(0, Fault::ErrorBefore(ErrorKind::Unavailable));
        let store = FaultyStore::new(inner.clone(), faults.clone());
        assert!(store.put("a", Bytes::new(), PutMode::Create).is_err());
        assert!(inner.list("").unwrap().is_empty());
        faults.set(|call| (call.operation == "put").then_some(Fault::ErrorAfter(ErrorKind::Timeout)));
        assert_eq!(store.put("a", Bytes::new(), PutMode::Create).unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(store.put("a", Bytes::new(), PutMode::Create).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!((inner.list("").unwrap().len(), faults.calls()), (1, 3));
    }

    #[test]
    fn a_hanging_call_goes_on_when_released() {
        let inner = Arc::new(MemoryStore::new(Arc::new(ManualClock::at_ms(0))));
        let faults = Faults::nth(0, Fault::Hang);
        let store = FaultyStore::new(inner.clone(), faults.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| store.put("a", Bytes::new(), PutMode::Create).unwrap());
            while faults.hanging() == 0 {
                std::thread::yield_now();
            }
            assert!(inner.list("").unwrap().is_empty());
            faults.release();
        });
        assert_eq!(inner.list("").unwrap().len(), 1);
    }
}
