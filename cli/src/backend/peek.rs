//! Looking at a root without claiming, creating or changing anything.

use std::sync::Arc;

use highwater::base::clock::{Clock, SystemClock};
use highwater::base::random::SeededRandom;
use highwater::checkpoint::log::{LineageState, RootLog};
use highwater::io::open_store::open_store;
use highwater::io::store::Store;
use highwater::{CompletedCheckpoint, ErrorKind};

use crate::backend::Context;
use crate::exit::{Failure, Outcome};

/// A root that may not be there.
#[derive(Debug)]
pub struct Peek {
    /// As the user wrote it.
    pub url: String,
    store: Option<Arc<dyn Store>>,
}

/// The clock of this process.
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// The root log of `store`.
pub fn root_log(store: &Arc<dyn Store>) -> RootLog {
    RootLog::new(store.clone(), clock(), Arc::new(SeededRandom::from_system()))
}

impl Peek {
    /// Opens the root at `url` if it is there. A store in memory is never there yet.
    ///
    /// # Errors
    ///
    /// `url` names no store (2).
    pub fn at(url: &str) -> Outcome<Self> {
        let store = match open_store(url, false, clock()) {
            Ok(store) => Some(store).filter(|_| !in_memory(url)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).opening(),
        };
        Ok(Self { url: url.to_owned(), store })
    }

    /// Whether it is a store in memory.
    pub fn ends_with_process(&self) -> bool {
        in_memory(&self.url)
    }

    /// The store, where it is there.
    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.as_ref()
    }

    /// The state of the job in the root; `None` when there is none.
    ///
    /// # Errors
    ///
    /// The store can't be read, or the newest entry of its log can't (3).
    pub fn state(&self) -> Outcome<Option<LineageState>> {
        let Some(store) = &self.store else { return Ok(None) };
        Ok(root_log(store).newest().outcome()?.map(|entry| entry.state))
    }

    /// The newest completed checkpoint.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state).
    pub fn newest(&self) -> Outcome<Option<CompletedCheckpoint>> {
        Ok(self.state()?.and_then(|mut state| state.checkpoints.pop()))
    }

    /// The state of the job, which must be there.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state); there is no job (3).
    pub fn job(&self) -> Outcome<(&Arc<dyn Store>, LineageState)> {
        match (&self.store, self.state()?) {
            (Some(store), Some(state)) => Ok((store, state)),
            _ => Err(Failure::checkpoint(format!("there is no Highwater job in {}", self.url))),
        }
    }

    /// Refuses a root that holds something else than a job: no new job should be mixed with it. It was named by `option`.
    ///
    /// # Errors
    ///
    /// It does (2).
    pub fn check_not_foreign(&self, option: &str) -> Outcome<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if self.state()?.is_some() {
            return Ok(());
        }
        match store.list("").outcome()?.first() {
            None => Ok(()),
            Some(object) => Err(Failure::usage(format!(
                "{} holds no Highwater job but other files, such as `{}`: name a new or an empty place with {option}",
                self.url, object.name
            ))),
        }
    }
}

/// Whether `url` means a store in memory, which ends with the process.
pub(super) fn in_memory(url: &str) -> bool {
    url.starts_with("memory:")
}
