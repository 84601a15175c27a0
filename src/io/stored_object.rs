//! An object of a store as something to read ranges of.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::files::ReadAt;
use super::store::{Request, Store};
use crate::{Error, ErrorKind, Result};

/// An immutable object whose length is known; each read is one request.
#[derive(Debug, Clone)]
pub struct StoredObject {
    store: Arc<dyn Store>,
    name: String,
    length_bytes: u64,
}

impl StoredObject {
    /// The object called `name`, which whoever refers to it says is `length_bytes` long.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, name: impl Into<String>, length_bytes: u64) -> Self {
        Self { store, name: name.into(), length_bytes }
    }
}

impl ReadAt for StoredObject {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length_bytes
    }

    fn object(&self) -> Option<&StoredObject> {
        Some(self)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let name = &self.name;
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.length_bytes).ok_or_else(|| {
            Error::corruption(format!("{name}: read of {} bytes at {offset} goes beyond the end", buffer.len()))
        })?;
        let bytes = self.store.get_range(name, offset..end)?;
        if bytes.len() != buffer.len() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{name}: {} bytes asked for at {offset}, {} came", buffer.len(), bytes.len()),
            ));
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

/// Reads ranges of several objects at one time, each of which lies within its object. Objects of different stores are
/// read a store after the other.
#[must_use]
pub fn read_together(wanted: &[(&StoredObject, Range<u64>)]) -> Vec<Result<Bytes>> {
    let mut answers: Vec<Option<Result<Bytes>>> = wanted.iter().map(|_| None).collect();
    while let Some(first) = answers.iter().position(Option::is_none) {
        let Some((object, _)) = wanted.get(first) else { break };
        let same: Vec<usize> = wanted
            .iter()
            .enumerate()
            .filter(|(at, (other, _))| *at >= first && Arc::ptr_eq(&other.store, &object.store))
            .map(|(at, _)| at)
            .collect();
        let requests = same.iter().filter_map(|at| wanted.get(*at));
        let requests = requests.map(|(object, range)| Request::GetRange(object.name.clone(), range.clone()));
        for (at, answer) in same.iter().zip(object.store.together(requests.collect())) {
            if let Some(slot) = answers.get_mut(*at) {
                *slot = Some(answer);
            }
        }
        // A store that answers too little must not keep us here.
        if let Some(slot @ None) = answers.get_mut(first) {
            *slot = Some(Err(Error::internal(format!("no answer to a read of {}", object.name))));
        }
    }
    answers.into_iter().flatten().collect()
}
