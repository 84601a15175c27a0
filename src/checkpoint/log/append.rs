//! Reading the log, and the one protocol by which everybody appends to it.
//!
//! What was last read or written is remembered, so that an append is two requests made one after the other: the put at the
//! next number, and a look whether the entry before still stands. Both rest on one rule: entries are deleted from the
//! oldest on, each only after those before it are gone. So as long as an entry stands, none after it was ever deleted:
//! whoever created one right behind it created it at the log's end, not in a hole.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::super::claim::Claim;
use super::super::frame::HEADER_BYTES;
use super::state::{Change, LineageState, Pin};
use super::{Companion, LOG_FOLDER, LogEntry, promises};
use crate::base::clock::Clock;
use crate::base::ids::{CheckpointId, WriterEpoch};
use crate::base::random::Random;
use crate::io::retry::{Cancel, Retry, RetryPolicy, may_pass};
use crate::io::store::{PutMode, Request, Store};
use crate::{Error, ErrorKind, Result};

/// Entries behind the newest that are never folded away.
const KEPT_ENTRIES: u64 = 16;
/// Entries from which on one goes with each append.
const FOLD_FROM_ENTRIES: usize = 32;
/// Entries from which on more of them go, since something kept them from going: so many with each append.
const FOLD_MORE_FROM_ENTRIES: usize = 40;
const FOLD_MORE: usize = 4;
/// Races for a number that one append may lose.
const MAX_LOST_RACES: u32 = 1000;
/// How often the newest entry may vanish between listing and reading.
const MAX_REREADS: u32 = 8;

/// The newest entry as of the last request about it.
#[derive(Debug)]
struct Known {
    entry: LogEntry,
    /// The first bytes of its object, a checksum among them: they tell it from any other entry of that number.
    head: [u8; HEADER_BYTES],
    /// Numbers of the entries that stand, this one the last.
    numbers: VecDeque<u64>,
}

/// A root's log. Cheap to clone; any thread may use it. Clones share what they know of it.
#[derive(Debug, Clone)]
pub struct RootLog {
    known: Arc<Mutex<Option<Arc<Known>>>>,
    /// Whether the store was seen to keep what the log needs of it.
    keeps_promises: Arc<AtomicBool>,
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
        Self { known: Arc::default(), keeps_promises: Arc::default(), store, clock, random, retry }
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(in super::super) fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }

    pub(in super::super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The newest entry; `None` when the root holds no job.
    ///
    /// # Errors
    /// `Corruption` or `Unsupported` naming the entry (never an older one in its place); `Unavailable`.
    pub fn newest(&self) -> Result<Option<LogEntry>> {
        let known = self.retry.run("reading the root log", || self.read())?;
        Ok(known.map(|known| known.entry.clone()))
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
    /// `Unsupported` for a store that doesn't keep what it must promise; `Unavailable`; those of [`RootLog::newest`].
    pub fn claim(&self, parents: &[WriterEpoch]) -> Result<Claim> {
        let change = Change::Claim { parents: parents.to_vec(), restores: false };
        self.claim_as(&change, &mut ()).map(|(claim, _)| claim)
    }

    /// As [`RootLog::claim`], and pins the newest checkpoint, if there is one, as [`RootLog::pin_for_restore`] does.
    /// Returns the state as of the claim too.
    ///
    /// # Errors
    /// As [`RootLog::claim`]; `Fenced` when a successor has claimed the root meanwhile.
    pub fn claim_and_pin(&self, companion: &mut dyn Companion) -> Result<(Claim, LineageState)> {
        let (claim, state) = self.claim_as(&Change::Claim { parents: Vec::new(), restores: true }, companion)?;
        claim.check(state.claim, self.store.url())?;
        Ok((claim, state))
    }

    fn claim_as(&self, change: &Change, companion: &mut dyn Companion) -> Result<(Claim, LineageState)> {
        let attempt = self.random.next_u64();
        let entry = self.append_as(None, change, attempt, companion)?;
        if !self.keeps_promises.load(Ordering::Relaxed) {
            self.retry.run("looking what the store promises", || self.check_promises(&entry))?;
        }
        let epoch = entry.state.epoch_of_attempt(attempt);
        let epoch =
            epoch.ok_or_else(|| Error::internal(format!("log entry {} forgot its own attempt", entry.number)))?;
        Ok((Claim { epoch, attempt }, entry.state))
    }

    /// Checks what the store promises by an entry that was just found in it, where the append itself hasn't come to it.
    fn check_promises(&self, entry: &LogEntry) -> Result<()> {
        let name = LogEntry::name_of(entry.number);
        let bytes = self.store.get(&name)?;
        let head = head_of(&bytes).ok_or_else(|| Error::corruption(format!("`{name}` has no header")))?;
        let answers = self.store.together(promises::ask(&name, &bytes));
        self.judge(entry, promises::broken(answers, &head)?)
    }

    /// Refuses a store that has broken promises, unless it may be that the entry had been folded away meanwhile.
    fn judge(&self, entry: &LogEntry, broken: Vec<&str>) -> Result<()> {
        if broken.is_empty() {
            self.keeps_promises.store(true, Ordering::Relaxed);
            return Ok(());
        }
        match self.list()? {
            Some(newest) if newest.entry.number > entry.number + KEPT_ENTRIES => Ok(()),
            _ => Err(promises::refusal(self.store.url(), &LogEntry::name_of(entry.number), &broken)),
        }
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
        self.append(None, &Change::Unpin { name: name.to_owned(), of: None }).map(drop)
    }

    /// Drops the pin `name` that holds checkpoint `id`, which somebody [pinned](RootLog::pin).
    ///
    /// # Errors
    /// `NotFound` when there is none; `InvalidArgument` when it holds another checkpoint, or is that of a restore.
    pub fn unpin_from(&self, name: &str, id: CheckpointId) -> Result<()> {
        self.append(None, &Change::Unpin { name: name.to_owned(), of: Some(id) }).map(drop)
    }

    /// Condemns checkpoint `id`: nobody can restore from it any more, and what it alone reaches goes with a collection of garbage
    /// after the grace period. Needs no claim, and is safe beside a running job.
    ///
    /// # Errors
    /// `NotFound` when it isn't there or is condemned already; `InvalidArgument` when it is pinned, the newest, or the newest
    /// that later ones build on: whoever needs neither job nor checkpoints any more deletes the root itself.
    pub fn condemn(&self, id: CheckpointId) -> Result<()> {
        self.append(None, &Change::Condemn(id)).map(drop)
    }

    /// Holds checkpoint `id` while the attempt of `claim` lives on what it restored from it: until its first completed
    /// checkpoint that isn't self-contained, or its successor's claim.
    ///
    /// # Errors
    /// `NotFound` when it isn't there or is condemned; `Fenced`.
    pub fn pin_for_restore(&self, claim: &Claim, id: CheckpointId) -> Result<()> {
        let pin = Pin::of_restore(claim.epoch, id);
        // As far as we know, which is as of our claim or of what this job has appended since: who else would drop it is
        // a successor, and then nothing that we do counts.
        let known = self.known.lock().clone();
        if known.is_some_and(|known| known.entry.state.claim == Some(*claim) && known.entry.state.pins.contains(&pin)) {
            return Ok(());
        }
        self.append(Some(claim), &Change::Pin(pin)).map(drop)
    }

    /// Makes `change`, as the holder of `by` or, for changes that need no claim, as anybody.
    pub(in super::super) fn append(&self, by: Option<&Claim>, change: &Change) -> Result<LogEntry> {
        self.append_as(by, change, self.random.next_u64(), &mut ())
    }

    fn append_as(
        &self,
        by: Option<&Claim>,
        change: &Change,
        attempt: u64,
        companion: &mut dyn Companion,
    ) -> Result<LogEntry> {
        let mut backoff = self.retry.start();
        let (mut lost, mut written_ms) = (0, i64::MIN);
        loop {
            // No two tries write the same bytes: each is told from the others by the look whether it still stands.
            written_ms = self.clock.now_ms().max(written_ms.saturating_add(1));
            let tried = self.try_append(by, change, attempt, written_ms, companion);
            if !matches!(tried, Ok(Some(_))) {
                *self.known.lock() = None;
            }
            match tried {
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
    fn try_append(
        &self,
        by: Option<&Claim>,
        change: &Change,
        attempt: u64,
        written_ms: i64,
        companion: &mut dyn Companion,
    ) -> Result<Option<LogEntry>> {
        let remembered = self.known.lock().clone();
        // A put at the number after it fails if it isn't the newest; whatever else follows from it may be out of date.
        let planned = remembered.and_then(|known| {
            let next = self.next(by, Some(&known.entry), change, attempt, written_ms).ok().flatten()?;
            Some((Some(known), next))
        });
        let (known, entry) = match planned {
            Some(planned) => planned,
            None => {
                let known = self.read()?;
                let newest = known.as_ref().map(|known| &known.entry);
                if let Some(entry) = newest.filter(|entry| entry.state.remembers(attempt)) {
                    return Ok(Some(entry.clone()));
                }
                match self.next(by, newest, change, attempt, written_ms)? {
                    Some(entry) => (known, entry),
                    None => return Ok(newest.cloned()),
                }
            }
        };
        let name = LogEntry::name_of(entry.number);
        let bytes = Bytes::from(entry.to_bytes());
        // An entry that nobody can read would end the lineage.
        LogEntry::from_bytes(&name, &bytes).map_err(|e| Error::internal(format!("unreadable log entry: {e}")))?;
        let head = head_of(&bytes).ok_or_else(|| Error::internal("a log entry without its header"))?;

        let check = matches!(change, Change::Claim { .. }) && !self.keeps_promises.load(Ordering::Relaxed);
        let probe = if check { promises::ask(&name, &bytes) } else { Vec::new() };
        let mut numbers = known.as_ref().map(|known| known.numbers.clone()).unwrap_or_default();
        let oldest = numbers.front().copied().filter(|_| numbers.len() >= FOLD_FROM_ENTRIES);
        let mut requests = vec![Request::Put(name, bytes, PutMode::Create)];
        requests.extend(oldest.map(|oldest| Request::Delete(LogEntry::name_of(oldest))));
        let own = requests.len();
        requests.extend(companion.with_put(&entry.state));
        let mut answers = self.store.together(requests);
        let theirs = answers.split_off(own.min(answers.len()));
        let mut answers = answers.into_iter();
        match answers.next() {
            Some(Ok(_)) => {}
            Some(Err(error)) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            Some(Err(error)) => return Err(error),
            None => return Err(Error::internal("a put to the root log without an answer")),
        }
        if answers.next().is_some_and(|deleted| deleted.is_ok()) {
            numbers.pop_front();
        }
        let (follows, probed) = self.follows(known.as_deref(), companion, theirs, probe)?;
        // Where they failed for other reasons, whoever claims asks once more.
        if let Some(Ok(broken)) = check.then(|| promises::broken(probed, &head)) {
            self.judge(&entry, broken)?;
        }
        if !follows {
            return self.settle(entry);
        }
        numbers.push_back(entry.number);
        self.fold_more(&mut numbers);
        *self.known.lock() = Some(Arc::new(Known { entry: entry.clone(), head, numbers }));
        Ok(Some(entry))
    }

    /// The entry that makes `change` after `newest`; `None` when it is made already.
    fn next(
        &self,
        by: Option<&Claim>,
        newest: Option<&LogEntry>,
        change: &Change,
        attempt: u64,
        written_ms: i64,
    ) -> Result<Option<LogEntry>> {
        let nothing = LineageState::default();
        let state = newest.map_or(&nothing, |entry| &entry.state);
        if let Some(claim) = by {
            claim.check(state.claim, self.store.url())?;
        }
        let number = newest.map_or(0, |entry| entry.number) + 1;
        match state.apply(change, attempt, written_ms)? {
            Some((state, action)) => Ok(Some(LogEntry { number, attempt, written_ms, action, state })),
            None if newest.is_some() => Ok(None),
            None => Err(Error::new(ErrorKind::NotFound, format!("no Highwater job in `{}`", self.store.url()))),
        }
    }

    /// Whether an entry just created right behind `before` was created at the end of the log. False when that can't be
    /// told from here. Makes the requests of `probe` too, and returns their answers.
    fn follows(
        &self,
        before: Option<&Known>,
        companion: &mut dyn Companion,
        theirs: Vec<Result<Bytes>>,
        probe: Vec<Request>,
    ) -> Result<(bool, Vec<Result<Bytes>>)> {
        let look = before.map(Known::look);
        let (looks, probes) = (usize::from(look.is_some()), probe.len());
        let requests: Vec<_> = look.into_iter().chain(probe).chain(companion.with_look(theirs)).collect();
        let mut answers = if requests.is_empty() { Vec::new() } else { self.store.together(requests) };
        companion.end(answers.split_off((looks + probes).min(answers.len())));
        let probed = answers.split_off(looks.min(answers.len()));
        let Some(before) = before else { return Ok((false, probed)) };
        let look = answers.pop().ok_or_else(|| Error::internal("a look at the root log without an answer"))?;
        Ok((before.stands(look)?, probed))
    }

    /// Whether the entry just created, maybe behind the newest, counts: nothing newer is there, or what is newest was
    /// built on it.
    fn settle(&self, entry: LogEntry) -> Result<Option<LogEntry>> {
        match self.list()? {
            Some(newest) if newest.entry.number == entry.number && newest.entry.attempt == entry.attempt => {
                Ok(Some(entry))
            }
            Some(newest) if newest.entry.state.remembers(entry.attempt) => Ok(Some(newest.entry.clone())),
            Some(newest) if newest.entry.number < entry.number => {
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

    /// Deletes more entries that lie well behind the newest, from the oldest on. Failing is harmless.
    fn fold_more(&self, numbers: &mut VecDeque<u64>) {
        for _ in 0..FOLD_MORE {
            let (Some(oldest), Some(newest)) = (numbers.front(), numbers.back()) else { return };
            let surplus = numbers.len() > FOLD_MORE_FROM_ENTRIES && oldest + KEPT_ENTRIES < *newest;
            if !surplus || self.store.delete(&LogEntry::name_of(*oldest)).is_err() {
                return;
            }
            numbers.pop_front();
        }
    }

    /// The newest entry. What is remembered of it is looked at first: nothing comes after it, and it stands.
    fn read(&self) -> Result<Option<Arc<Known>>> {
        let remembered = self.known.lock().clone();
        if let Some(known) = remembered {
            let after = LogEntry::name_of(known.entry.number + 1);
            match self.store.length(&after) {
                // In this order: had one come after it and gone again, it would be gone too by now.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let look = self.store.together(vec![known.look()]).pop();
                    let look = look.ok_or_else(|| Error::internal("a look at the root log without an answer"))?;
                    if known.stands(look)? {
                        return Ok(Some(known));
                    }
                }
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        self.list()
    }

    /// The newest entry, found by listing.
    fn list(&self) -> Result<Option<Arc<Known>>> {
        let mut vanished = None;
        for _ in 0..MAX_REREADS {
            let listing = self.store.list(LOG_FOLDER)?;
            let mut numbers: Vec<u64> = listing.iter().filter_map(|object| LogEntry::number_of(&object.name)).collect();
            numbers.sort_unstable();
            let Some(newest) = numbers.last() else {
                *self.known.lock() = None;
                return Ok(None);
            };
            let name = LogEntry::name_of(*newest);
            match self.store.get(&name) {
                Ok(bytes) => {
                    let entry = LogEntry::from_bytes(&name, &bytes)?;
                    let head = head_of(&bytes).ok_or_else(|| Error::corruption(format!("`{name}` has no header")))?;
                    let known = Arc::new(Known { entry, head, numbers: numbers.into() });
                    *self.known.lock() = Some(known.clone());
                    return Ok(Some(known));
                }
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

impl Known {
    /// The request that shows whether it stands.
    fn look(&self) -> Request {
        Request::GetRange(LogEntry::name_of(self.entry.number), 0..HEADER_BYTES as u64)
    }

    /// Whether it does, by the answer to [`Known::look`].
    fn stands(&self, look: Result<Bytes>) -> Result<bool> {
        match look {
            Ok(head) => Ok(head == self.head[..]),
            // Gone, or shorter than any entry.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn head_of(bytes: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    bytes.first_chunk::<HEADER_BYTES>().copied()
}
