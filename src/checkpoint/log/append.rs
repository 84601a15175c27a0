//! Reading the log, and the one protocol by which everybody appends to it.

use std::sync::Arc;

use super::super::claim::Claim;
use super::state::{Change, LineageState, Pin};
use super::{LOG_FOLDER, LogEntry};
use crate::base::clock::Clock;
use crate::base::ids::{CheckpointId, WriterEpoch};
use crate::base::random::Random;
use crate::io::retry::{Cancel, Retry, RetryPolicy, may_pass};
use crate::io::store::{PutMode, Store};
use crate::{Error, ErrorKind, Result};

/// Entries behind the newest that are never folded away.
const KEPT_ENTRIES: u64 = 16;
/// Entries that may pile up before those that needn't be kept go.
const FOLD_FROM_ENTRIES: usize = 32;
/// Races for a number that one append may lose.
const MAX_LOST_RACES: u32 = 1000;
/// How often the newest entry may vanish between listing and reading.
const MAX_REREADS: u32 = 8;

/// A root's log. Cheap to clone; any thread may use it.
#[derive(Debug, Clone)]
pub struct RootLog {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    retry: Retry,
}

impl RootLog {
    /// The log of the root that `store` is. Requests that fail in a way that may pass are repeated for 2 seconds.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let policy = RetryPolicy { deadline: std::time::Duration::from_secs(2), ..RetryPolicy::default() };
        Self::with_retries(store, clock, random, policy, Cancel::new())
    }

    /// As [`RootLog::new`], with other retries.
    #[must_use]
    pub fn with_retries(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        policy: RetryPolicy,
        cancel: Cancel,
    ) -> Self {
        let retry = Retry::new(clock.clone(), random.clone(), policy, cancel);
        Self { store, clock, random, retry }
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(in super::super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The newest entry; `None` when the root holds no job.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported` naming the entry (never an older one in its place); `Unavailable`.
    pub fn newest(&self) -> Result<Option<LogEntry>> {
        self.retry.run("reading the root log", || Ok(self.read()?.0))
    }

    /// The state of the job in this root.
    ///
    /// # Errors
    /// As [`RootLog::newest`]; `NotFound` when the root holds no job.
    pub fn state(&self) -> Result<LineageState> {
        let none = || Error::new(ErrorKind::NotFound, format!("no Highwater job in `{}`", self.store.url()));
        self.newest()?.map(|entry| entry.state).ok_or_else(none)
    }

    /// Claims the root for a new attempt at its job. `parents`: the epochs of checkpoints that the attempt will
    /// restore from other roots.
    ///
    /// # Errors
    /// `Unavailable`; those of [`RootLog::newest`].
    pub fn claim(&self, parents: &[WriterEpoch]) -> Result<Claim> {
        let attempt = self.random.next_u64();
        let entry = self.append_as(None, &Change::Claim { parents: parents.to_vec() }, attempt)?;
        let epoch = entry.state.epoch_of_attempt(attempt);
        let epoch =
            epoch.ok_or_else(|| Error::internal(format!("log entry {} forgot its own attempt", entry.number)))?;
        Ok(Claim { epoch, attempt })
    }

    /// Checks that nobody has claimed the root since `claim`.
    ///
    /// # Errors
    /// `Fenced`; those of [`RootLog::state`].
    pub fn check_claim(&self, claim: &Claim) -> Result<()> {
        claim.check(self.state()?.claim, self.store.url())
    }

    /// Holds checkpoint `id` for whoever goes by `name`, until [`RootLog::unpin`]. Needs no claim.
    ///
    /// # Errors
    /// `NotFound` when it isn't there or is condemned; `AlreadyExists` when the name holds another.
    pub fn pin(&self, name: &str, id: CheckpointId) -> Result<()> {
        self.append(None, &Change::Pin(Pin { name: name.to_owned(), id, restored_by: None })).map(drop)
    }

    /// Drops the pin `name`. An absent one is no error.
    ///
    /// # Errors
    /// `Unavailable`; those of [`RootLog::newest`].
    pub fn unpin(&self, name: &str) -> Result<()> {
        self.append(None, &Change::Unpin { name: name.to_owned() }).map(drop)
    }

    /// Holds checkpoint `id` while the attempt of `claim` lives on what it restored from it: until its first completed
    /// checkpoint that isn't self-contained, or its successor's claim.
    ///
    /// # Errors
    /// `NotFound` when it isn't there or is condemned; `Fenced`.
    pub fn pin_for_restore(&self, claim: &Claim, id: CheckpointId) -> Result<()> {
        let name = format!("restore of epoch {}", claim.epoch);
        self.append(Some(claim), &Change::Pin(Pin { name, id, restored_by: Some(claim.epoch) })).map(drop)
    }

    /// Makes `change`, as the holder of `by` or, for changes that need no claim, as anybody.
    pub(in super::super) fn append(&self, by: Option<&Claim>, change: &Change) -> Result<LogEntry> {
        self.append_as(by, change, self.random.next_u64())
    }

    fn append_as(&self, by: Option<&Claim>, change: &Change, attempt: u64) -> Result<LogEntry> {
        let mut backoff = self.retry.start();
        let mut lost = 0;
        loop {
            match self.try_append(by, change, attempt) {
                Ok(Some(entry)) => return Ok(entry),
                Ok(None) if lost < MAX_LOST_RACES => lost += 1,
                Ok(None) => {
                    let message = format!("appending to the log of `{}`: lost {lost} races", self.store.url());
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                Err(error) if may_pass(&error) => backoff.pause("appending to the root log", error)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// One round of the protocol; `None` when somebody else was faster.
    fn try_append(&self, by: Option<&Claim>, change: &Change, attempt: u64) -> Result<Option<LogEntry>> {
        let (newest, numbers) = self.read()?;
        if let Some(entry) = newest.as_ref().filter(|entry| entry.state.remembers(attempt)) {
            return Ok(Some(entry.clone()));
        }
        let state = newest.as_ref().map(|entry| entry.state.clone()).unwrap_or_default();
        if let Some(claim) = by {
            claim.check(state.claim, self.store.url())?;
        }
        let written_ms = self.clock.now_ms();
        let (entry, last) = match (state.apply(change, attempt, written_ms)?, newest) {
            (None, Some(newest)) => return Ok(Some(newest)),
            (None, None) => {
                return Err(Error::new(ErrorKind::NotFound, format!("no Highwater job in `{}`", self.store.url())));
            }
            (Some((state, action)), newest) => {
                let last = newest.map_or(0, |entry| entry.number);
                (LogEntry { number: last + 1, attempt, written_ms, action, state }, last)
            }
        };
        let name = LogEntry::name_of(entry.number);
        let bytes = entry.to_bytes();
        // An entry that nobody can read would end the lineage.
        LogEntry::from_bytes(&name, &bytes).map_err(|e| Error::internal(format!("unreadable log entry: {e}")))?;
        match self.store.put(&name, bytes.into(), PutMode::Create) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(error),
        }
        let settled = self.settle(entry)?;
        if settled.is_some() {
            self.fold(&numbers, last);
        }
        Ok(settled)
    }

    /// Whether the entry just created counts: nothing newer is there, or what is newest was built on it.
    fn settle(&self, entry: LogEntry) -> Result<Option<LogEntry>> {
        let (newest, _) = self.read()?;
        match newest {
            Some(newest) if newest.number == entry.number && newest.attempt == entry.attempt => Ok(Some(entry)),
            Some(newest) if newest.state.remembers(entry.attempt) => Ok(Some(newest)),
            Some(newest) if newest.number < entry.number => {
                let message = format!("`{}` isn't listed yet after it was written", LogEntry::name_of(entry.number));
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            _ => {
                // It stands in a hole behind the newest, where nobody looks. Only tidiness wants it gone.
                let _ = self.store.delete(&LogEntry::name_of(entry.number));
                Ok(None)
            }
        }
    }

    /// Deletes entries that lie well behind `newest`. Failing is harmless.
    fn fold(&self, numbers: &[u64], newest: u64) {
        if numbers.len() < FOLD_FROM_ENTRIES {
            return;
        }
        for number in numbers.iter().filter(|number| **number + KEPT_ENTRIES < newest) {
            let _ = self.store.delete(&LogEntry::name_of(*number));
        }
    }

    /// The newest entry, and the numbers of all.
    fn read(&self) -> Result<(Option<LogEntry>, Vec<u64>)> {
        let mut vanished = None;
        for _ in 0..MAX_REREADS {
            let listing = self.store.list(LOG_FOLDER)?;
            let numbers: Vec<u64> = listing.iter().filter_map(|object| LogEntry::number_of(&object.name)).collect();
            let Some(newest) = numbers.iter().max() else { return Ok((None, numbers)) };
            let name = LogEntry::name_of(*newest);
            match self.store.get(&name) {
                Ok(bytes) => return Ok((Some(LogEntry::from_bytes(&name, &bytes)?), numbers)),
                // Folded away since: there is a newer one.
                Err(error) if error.kind() == ErrorKind::NotFound => vanished = Some(error),
                Err(error) => return Err(error),
            }
        }
        // A listing that goes on naming an object that can't be read is no answer to build on.
        let error = vanished.unwrap_or_else(|| Error::internal("a root log that was never read"));
        let message = "the newest entry of the root log is listed but can't be read";
        Err(Error::with_source(ErrorKind::Unavailable, format!("{message}: {}", error.message()), error))
    }
}
