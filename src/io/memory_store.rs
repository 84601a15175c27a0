//! A store in memory, for `memory:///` and for tests. Private to whoever opened it; gone with it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;

use super::names;
use super::store::{ObjectEntry, PutMode, Store};
use crate::base::clock::Clock;
use crate::{Error, ErrorKind, Result};

#[derive(Debug, Clone)]
struct Object {
    bytes: Bytes,
    modified_ms: i64,
}

/// See the module.
#[derive(Debug)]
pub struct MemoryStore {
    objects: RwLock<BTreeMap<String, Object>>,
    clock: Arc<dyn Clock>,
    url: String,
}

impl MemoryStore {
    /// An empty store whose objects are dated by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::named("", clock)
    }

    /// As [`MemoryStore::new`], with a URL of its own, `memory:///<name>`, that tells it from others. No URL opens it.
    #[must_use]
    pub fn named(name: &str, clock: Arc<dyn Clock>) -> Self {
        Self { objects: RwLock::default(), clock, url: format!("memory:///{name}") }
    }

    fn find(&self, name: &str) -> Result<Bytes> {
        names::check_name(name)?;
        let found = self.objects.read().get(name).map(|object| object.bytes.clone());
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("object `{name}` in `{}`", self.url())))
    }
}

impl Store for MemoryStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        names::check_name(name)?;
        let object = Object { bytes, modified_ms: self.clock.now_ms() };
        let mut objects = self.objects.write();
        if mode == PutMode::Create && objects.contains_key(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("object `{name}` in `{}`", self.url())));
        }
        objects.insert(name.to_owned(), object);
        Ok(())
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        names::check_name(name)?;
        let mut whole = BytesMut::new();
        for chunk in chunks {
            whole.extend_from_slice(&chunk?);
        }
        self.put(name, whole.freeze(), mode)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.find(name)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.find(name)?;
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        match bounds.filter(|(start, end)| start <= end && *end <= bytes.len()) {
            Some((start, end)) => Ok(bytes.slice(start..end)),
            None => Err(Error::corruption(format!(
                "object `{name}`: bytes {}..{} expected, {} found",
                range.start,
                range.end,
                bytes.len()
            ))),
        }
    }

    fn length(&self, name: &str) -> Result<u64> {
        Ok(self.find(name)?.len() as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        names::check_prefix(prefix)?;
        let objects = self.objects.read();
        let below = objects.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
        Ok(below
            .map(|(name, object)| ObjectEntry {
                name: name.clone(),
                length_bytes: object.bytes.len() as u64,
                modified_ms: object.modified_ms,
            })
            .collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        names::check_name(name)?;
        self.objects.write().remove(name);
        Ok(())
    }
}
