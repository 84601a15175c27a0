//! What a log needs of its store, checked when a process first claims a root: that a create-only put of a name that exists fails, and that
//! a get sees what was put before. Without the first, two writers could both believe that their entry is the log's.
//!
//! The check puts the claim's own entry once more, byte for byte, and reads its beginning. So it harms nothing where the promise
//! isn't kept, costs no wait beside the look that every append takes, and two small requests in a process.

use bytes::Bytes;

use super::super::frame::HEADER_BYTES;
use crate::io::store::{PutMode, Request};
use crate::{Error, ErrorKind, Result};

/// What to ask for once the entry `name` of these bytes was created.
pub(super) fn ask(name: &str, bytes: &Bytes) -> Vec<Request> {
    vec![
        Request::Put(name.to_owned(), bytes.clone(), PutMode::Create),
        Request::GetRange(name.to_owned(), 0..HEADER_BYTES as u64),
    ]
}

/// By the answers, what the store hasn't kept. Empty: it keeps all.
///
/// # Errors
/// Those of requests that failed for other reasons: nothing is known then.
pub(super) fn broken(answers: Vec<Result<Bytes>>, head: &[u8]) -> Result<Vec<&'static str>> {
    let mut answers = answers.into_iter();
    let (put, get) = (answers.next(), answers.next());
    let mut broken = Vec::new();
    match put {
        Some(Ok(_)) => broken.push("a create-only put replaced an object that exists"),
        Some(Err(error)) if error.kind() == ErrorKind::AlreadyExists => {}
        Some(Err(error)) => return Err(error),
        None => return Err(Error::internal("a put to the root log without an answer")),
    }
    match get {
        Some(Ok(found)) if found == head => {}
        Some(Ok(_)) => broken.push("an object that was just written has other bytes"),
        Some(Err(error)) if error.kind() == ErrorKind::NotFound => {
            broken.push("an object that was just written isn't there")
        }
        Some(Err(error)) => return Err(error),
        None => return Err(Error::internal("a get from the root log without an answer")),
    }
    Ok(broken)
}

/// The error for a store that hasn't kept them.
pub(super) fn refusal(url: &str, name: &str, broken: &[&str]) -> Error {
    let message = format!(
        "store `{url}` can't hold a job: {} (`{name}`); writers couldn't be told apart there",
        broken.join(", and ")
    );
    Error::new(ErrorKind::Unsupported, message)
}
