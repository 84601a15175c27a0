//! The simulated object store behind the library's own seam for stores.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use highwater::io::store::{ObjectEntry, PutMode, Request, Store};
use highwater::{Error, ErrorKind, Result};

use super::Status;
use super::client::{Ask, Client};

/// See the module.
#[derive(Debug)]
pub struct SimulatedStore(pub Arc<Client>);

impl SimulatedStore {
    fn check(name: &str, status: Status) -> Result<()> {
        let kind = match status {
            Status::Ok => return Ok(()),
            Status::NotFound => ErrorKind::NotFound,
            Status::AlreadyExists => ErrorKind::AlreadyExists,
            Status::TooShort => ErrorKind::Corruption,
            Status::Failed => ErrorKind::Unavailable,
        };
        Err(Error::new(kind, format!("object `{name}`: {status:?}")))
    }
}

fn unavailable(error: crate::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(ours) => *ours,
        Err(other) => Error::new(ErrorKind::Unavailable, format!("simulated store: {other}")),
    }
}

fn is_state(name: &str) -> bool {
    name.ends_with(".seg")
}

impl Store for SimulatedStore {
    fn url(&self) -> &str {
        "simulated:///"
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.put_stream(name, &mut std::iter::once(Ok(bytes)), mode)
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        let status = self.0.put(name, chunks, mode == PutMode::Create, is_state(name)).map_err(unavailable)?;
        Self::check(name, status)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        let (status, bytes) = self.0.get(name, None).map_err(unavailable)?;
        Self::check(name, status)?;
        Ok(bytes.into())
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let (status, bytes) = self.0.get(name, Some((range.start, range.end))).map_err(unavailable)?;
        Self::check(name, status)?;
        Ok(bytes.into())
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        let ask = |request| match request {
            &Request::Put(ref name, ref bytes, mode) => Ask::Put { name, bytes, create: mode == PutMode::Create },
            Request::Get(name) => Ask::Get { name, range: None },
            Request::GetRange(name, range) => Ask::Get { name, range: Some((range.start, range.end)) },
            Request::Delete(name) => Ask::Delete { name },
        };
        let asks: Vec<_> = requests.iter().map(ask).collect();
        let answers = self.0.together(&asks).into_iter().zip(&requests).map(|(answer, request)| {
            let (status, bytes) = answer.map_err(unavailable)?;
            match (request, status) {
                (Request::Delete(_), Status::NotFound) => Ok(Bytes::new()),
                (
                    Request::Put(name, ..) | Request::Get(name) | Request::GetRange(name, _) | Request::Delete(name),
                    status,
                ) => Self::check(name, status).map(|()| bytes.into()),
            }
        });
        answers.collect()
    }

    fn length(&self, name: &str) -> Result<u64> {
        let (status, length) = self.0.length(name).map_err(unavailable)?;
        Self::check(name, status)?;
        Ok(length)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        let listed = self.0.list(prefix).map_err(unavailable)?;
        let entry = |(name, length_bytes, modified_ms)| ObjectEntry { name, length_bytes, modified_ms };
        Ok(listed.into_iter().map(entry).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        match self.0.delete(name).map_err(unavailable)? {
            Status::NotFound => Ok(()),
            status => Self::check(name, status),
        }
    }
}
