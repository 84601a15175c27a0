//! The stores of roots other than one's own, which a fork's checkpoints reach into.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::open_store::open_store;
use super::store::Store;
use crate::base::clock::Clock;
use crate::{Error, ErrorKind, Result};

/// Opens other roots by their URLs, each once. Cheap to clone; clones share what is open.
#[derive(Debug, Clone)]
pub struct OtherRoots {
    open: Arc<Mutex<BTreeMap<String, Arc<dyn Store>>>>,
    clock: Arc<dyn Clock>,
}

impl OtherRoots {
    /// None is open yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { open: Arc::default(), clock }
    }

    /// As [`OtherRoots::new`], with these [added](OtherRoots::add).
    #[must_use]
    pub fn with(clock: Arc<dyn Clock>, stores: Vec<Arc<dyn Store>>) -> Self {
        let others = Self::new(clock);
        stores.into_iter().for_each(|store| others.add(store));
        others
    }

    /// From now on `store` is the root of its URL. For stores of one's own and those in memory, which no URL can open.
    pub fn add(&self, store: Arc<dyn Store>) {
        self.open.lock().insert(store.url().to_owned(), store);
    }

    /// The root at `url`.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable` and others that name it.
    pub fn get(&self, url: &str) -> Result<Arc<dyn Store>> {
        let mut open = self.open.lock();
        if let Some(store) = open.get(url) {
            return Ok(store.clone());
        }
        let opened = if url.starts_with("memory:") {
            Err(Error::new(ErrorKind::NotFound, "a store in memory ends with its process"))
        } else {
            open_store(url, false, self.clock.clone())
        };
        let store = opened.map_err(|error| error.context(format_args!("the data of a fork lies in `{url}`")))?;
        open.insert(url.to_owned(), store.clone());
        Ok(store)
    }
}
