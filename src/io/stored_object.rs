//! An object of a store as something to read ranges of.

use std::sync::Arc;

use super::files::ReadAt;
use super::store::Store;
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
