//! The seam for object stores: what a root needs of its store, and nothing tokio-shaped.
//!
//! Calls block; they are made from worker threads (and by the owner only for reads of state that isn't
//! resident). What a store must promise: a put is atomic (the whole object or none), a create-only put
//! fails when the name exists, a get or list that starts after a put or delete returned sees what it did.

use std::ops::Range;

use bytes::Bytes;

use crate::Result;

/// Whether a put may meet an object of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// Fail with `AlreadyExists` when the name exists.
    Create,
    /// Replace what is there.
    Overwrite,
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Name relative to the root, parts separated by `/`.
    pub name: String,
    /// Length in bytes.
    pub length_bytes: u64,
    /// When it was last written, wall milliseconds.
    pub modified_ms: i64,
}

/// One of several requests that are made together.
#[derive(Debug, Clone)]
pub enum Request {
    /// [`Store::put`].
    Put(String, Bytes, PutMode),
    /// [`Store::get`].
    Get(String),
    /// [`Store::get_range`].
    GetRange(String, Range<u64>),
    /// [`Store::delete`].
    Delete(String),
}

/// A root in an object store. All names are relative to it, `/`-separated, each part of
/// `[A-Za-z0-9._~=-]+` and none of `.` or `..`; anything else is refused.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The root as the user would write it, without credentials.
    fn url(&self) -> &str;

    /// Stores `bytes`.
    ///
    /// # Errors
    /// `AlreadyExists` in [`PutMode::Create`]; `Unavailable` when a retry may help.
    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()>;

    /// Stores an object that comes in pieces; an error from `chunks` leaves nothing behind and is returned.
    ///
    /// # Errors
    /// As [`Store::put`].
    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()>;

    /// The whole object.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`.
    fn get(&self, name: &str) -> Result<Bytes>;

    /// Exactly the bytes of `range`.
    ///
    /// # Errors
    /// `NotFound`; `Corruption` when the object is shorter; `Unavailable`.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes>;

    /// Makes several requests, which don't wait for one another where the store can have several under way, and may take
    /// effect in any order. The answers are in the order of the requests; those to puts and deletes
    /// are empty.
    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        requests.into_iter().map(|request| answer(self, request)).collect()
    }

    /// Length of the object.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable`.
    fn length(&self, name: &str) -> Result<u64>;

    /// All objects whose name starts with the folder `prefix` (ending in `/`, or empty for all), sorted by name.
    ///
    /// # Errors
    /// `Unavailable`.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>>;

    /// Deletes an object. An absent one is no error.
    ///
    /// # Errors
    /// `Unavailable`.
    fn delete(&self, name: &str) -> Result<()>;

    /// What interrupted writes left behind, sorted by name. Their names (`name#N`) are none that an object can have,
    /// and [`Store::list`] doesn't show them. Stores that never leave any have none to list.
    ///
    /// # Errors
    /// `Unavailable`.
    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        Ok(Vec::new())
    }

    /// Deletes one of [`Store::leftovers`]. An absent one is no error; the name of an object is refused.
    ///
    /// # Errors
    /// `InvalidArgument`; `Unavailable`.
    fn delete_leftover(&self, name: &str) -> Result<()> {
        Err(crate::Error::invalid(format!("`{name}` is no leftover of an interrupted write")))
    }
}

/// The answer to one request.
pub(super) fn answer<S: Store + ?Sized>(store: &S, request: Request) -> Result<Bytes> {
    match request {
        Request::Put(name, bytes, mode) => store.put(&name, bytes, mode).map(|()| Bytes::new()),
        Request::Get(name) => store.get(&name),
        Request::GetRange(name, range) => store.get_range(&name, range),
        Request::Delete(name) => store.delete(&name).map(|()| Bytes::new()),
    }
}
