//! The place that a fork or a copy is made in: what may be there already, and what may not.

use super::completed::CompletedCheckpoint;
use super::log::{LineageState, LogEntry, RootLog};
use super::object_name::ObjectName;
use crate::base::ids::CheckpointId;
use crate::{Error, ErrorKind, Result};

/// How often the newest checkpoint may be condemned before it is pinned.
const MAX_TRIES: u32 = 100;
/// Longest URL in the name of a pin.
const MAX_URL_BYTES: usize = 900;

/// Name of the pin by which `what` of a checkpoint holds it in its root, while or because it is made at `url`.
pub(super) fn pin_name(what: &str, url: &str) -> Result<String> {
    if url.len() > MAX_URL_BYTES {
        return Err(Error::invalid(format!("a URL of {} bytes is over {MAX_URL_BYTES}", url.len())));
    }
    Ok(format!("{what} {url}"))
}

/// Makes something of the newest checkpoint of `source`, and of the one after it where that is condemned before it is pinned: a job
/// that runs may complete others meanwhile.
pub(super) fn of_newest<T>(source: &RootLog, mut make: impl FnMut(CheckpointId) -> Result<T>) -> Result<T> {
    let url = source.store().url();
    for _ in 0..MAX_TRIES {
        let newest = source.state()?.latest().map(CompletedCheckpoint::id);
        let none = || Error::new(ErrorKind::NotFound, format!("the job in `{url}` has no completed checkpoint"));
        let id = newest.ok_or_else(none)?;
        match make(id) {
            Err(error) if error.kind() == ErrorKind::NotFound && source.state()?.checkpoint(id).is_err() => {}
            made => return made,
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        format!("the job in `{url}` condemns its checkpoints before they can be pinned"),
    ))
}

/// The state of what is at `target`, if anything. Refuses the root `source` itself, and a place that holds other files than those
/// that an attempt of ours could have left: objects for which `ours` is true.
pub(super) fn look(
    source: &RootLog,
    target: &RootLog,
    ours: &dyn Fn(&ObjectName) -> bool,
) -> Result<Option<LineageState>> {
    let url = target.store().url();
    if url == source.store().url() {
        return Err(Error::invalid(format!("`{url}` can't be made from itself")));
    }
    let state = target.newest()?.map(|entry| entry.state);
    if state.as_ref().is_some_and(|state| state.greatest_completed.is_some()) {
        return Ok(state);
    }
    let is_ours =
        |name: &str| LogEntry::number_of(name).is_some() || ObjectName::parse(name).is_some_and(|name| ours(&name));
    match target.store().list("")?.into_iter().find(|object| !is_ours(&object.name)) {
        None => Ok(state),
        Some(object) => Err(Error::invalid(format!(
            "`{url}` isn't empty: it holds `{}`; name a new or an empty place",
            object.name
        ))),
    }
}

/// That `url` holds something else.
pub(super) fn taken(url: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("`{url}` holds a job already; name a new or an empty place"))
}
