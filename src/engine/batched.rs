//! Reads of many keys at a time.
//!
//! What memory knows is answered on the way. The rest is read by the owner and a few reading threads side by side: each
//! takes the next key of a round until none is left, so that reads overlap, and the owner waits for no more than
//! the one key that each helper has in hand.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::backend::Backend;
use super::states::RawState;
use crate::base::executor::{Executor, ThreadPool};
use crate::base::key::KeyParts;
use crate::memtable::Probe;
use crate::read::{Lookup as Newer, Resolver, Tree, Visible};
use crate::{Error, Result};

/// Threads that help, started when first needed: two for each core but the owner's, since they wait for disks too.
fn readers() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    (2 * (cores - 1)).clamp(1, MOST_READERS)
}

const MOST_READERS: usize = 8;

/// Keys that are worth a helper: waking one costs about as much as reading a few.
const KEYS_PER_HELPER: usize = 8;

/// Keys of a round, and bytes of values after which it ends early: so much may be held at a time.
const ROUND_KEYS: usize = 256;
const ROUND_BYTES: u64 = 1 << 20;

/// The threads that help with batches.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// In place of threads of its own.
    given: Option<Arc<dyn Executor>>,
    pool: OnceLock<Option<ThreadPool>>,
}

impl Readers {
    /// Helpers that run on `executor`.
    pub fn on(executor: Arc<dyn Executor>) -> Self {
        Self { given: Some(executor), pool: OnceLock::new() }
    }

    /// Has helpers work on `round`. Without threads the owner reads alone.
    fn help(&self, round: &Arc<Round>) {
        let helpers = (round.keys.len() / KEYS_PER_HELPER).min(readers());
        if helpers == 0 {
            return;
        }
        let own = || self.pool.get_or_init(|| ThreadPool::start("highwater-read", readers()).ok());
        let executor = match &self.given {
            Some(given) => Some(&**given),
            None => own().as_ref().map(|pool| pool as &dyn Executor),
        };
        for _ in 0..helpers {
            let round = Arc::clone(round);
            if let Some(executor) = executor {
                executor.spawn(Box::new(move || while round.read_next() {}));
            }
        }
    }
}

/// A key that memory knows nothing of.
struct Cold {
    /// Where it stands among the keys that were asked for.
    index: usize,
    bytes: Vec<u8>,
    prefix_len: Option<usize>,
}

/// Keys that are read side by side.
struct Round {
    tree: Arc<Tree>,
    resolver: Resolver,
    keys: Vec<Cold>,
    answers: Vec<OnceLock<Result<Option<Visible>>>>,
    next: AtomicUsize,
    value_bytes: AtomicU64,
    answered: Mutex<usize>,
    progress: Condvar,
}

impl Round {
    fn new(tree: &Arc<Tree>, resolver: &Resolver, keys: Vec<Cold>) -> Self {
        Self {
            tree: Arc::clone(tree),
            resolver: resolver.clone(),
            answers: keys.iter().map(|_| OnceLock::new()).collect(),
            keys,
            next: AtomicUsize::new(0),
            value_bytes: AtomicU64::new(0),
            answered: Mutex::new(0),
            progress: Condvar::new(),
        }
    }

    /// Reads the next key, if one is left and there is room for its value.
    fn read_next(&self) -> bool {
        // A sum that is out of date lets a helper take one key more.
        if self.value_bytes.load(Ordering::Relaxed) >= ROUND_BYTES {
            return false;
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(key) = self.keys.get(at) else { return false };
        let claimed = Claimed { round: self, at };
        let found = self.tree.get(&key.bytes, key.prefix_len, Newer::default(), &self.resolver);
        if let Ok(Some(visible)) = &found {
            self.value_bytes.fetch_add(visible.value.len() as u64, Ordering::Relaxed);
        }
        claimed.answer(found);
        true
    }

    /// Waits until all keys that were taken are answered, and says how many those are. None is taken afterwards.
    fn finish(&self) -> usize {
        let taken = self.next.fetch_add(self.keys.len(), Ordering::Relaxed).min(self.keys.len());
        let mut answered = self.answered.lock();
        while *answered < taken {
            self.progress.wait(&mut answered);
        }
        taken
    }
}

/// A key that has been taken: it gets an answer whatever happens, since the owner waits for it.
struct Claimed<'a> {
    round: &'a Round,
    at: usize,
}

impl Claimed<'_> {
    fn answer(&self, found: Result<Option<Visible>>) {
        if let Some(answer) = self.round.answers.get(self.at) {
            let _ = answer.set(found);
        }
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // Does nothing where there is an answer already.
        self.answer(Err(Error::internal("reading a key of a batch panicked")));
        *self.round.answered.lock() += 1;
        self.round.progress.notify_one();
    }
}

impl Backend {
    /// The values of many keys of one state, handed to `visit` with the key's index, in no order that may be
    /// relied on. Keys that aren't in memory are read side by side, by this thread and a few others.
    ///
    /// # Errors
    /// As [`Backend::get`], and whatever `visit` returns; some keys have been visited then.
    pub fn get_many(
        &mut self,
        state: RawState,
        keys: &[KeyParts<'_>],
        mut visit: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut cold = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            self.shared.check()?;
            self.take_key(state, *key)?;
            if matches!(self.memtable.probe(self.key.mem_key()), Probe::Unknown) {
                let prefix_len = self.key.group_prefix();
                cold.push(Cold { index, bytes: self.key.bytes().to_vec(), prefix_len });
            } else {
                let value = self.get(state, *key)?;
                visit(index, value.as_deref())?;
            }
            if cold.len() == ROUND_KEYS {
                self.read_cold(state, keys, std::mem::take(&mut cold), &mut visit)?;
            }
        }
        self.read_cold(state, keys, cold, &mut visit)
    }

    fn read_cold(
        &mut self,
        state: RawState,
        keys: &[KeyParts<'_>],
        mut cold: Vec<Cold>,
        visit: &mut impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        self.resolver.now_ms = self.shared.now_ms();
        while !cold.is_empty() {
            let round = Arc::new(Round::new(&self.tree, &self.resolver, cold));
            self.env().readers.help(&round);
            while round.read_next() {}
            let taken = round.finish();
            for (key, answer) in round.keys.iter().zip(&round.answers).take(taken) {
                let Some(parts) = keys.get(key.index) else { continue };
                let found = match answer.get() {
                    Some(Ok(found)) => found.clone(),
                    // With its own words, and in its own time: reading it once more is what a single read would do.
                    _ => {
                        let value = self.get(state, *parts)?;
                        visit(key.index, value.as_deref())?;
                        continue;
                    }
                };
                self.take_key(state, *parts)?;
                // The same key may have come up before in this round.
                if matches!(self.memtable.probe(self.key.mem_key()), Probe::Unknown) {
                    self.keep_found(found.as_ref());
                }
                visit(key.index, found.as_ref().map(|visible| &*visible.value))?;
            }
            cold = round.keys.iter().skip(taken).map(Cold::again).collect();
        }
        Ok(())
    }
}

impl Cold {
    fn again(&self) -> Self {
        Self { index: self.index, bytes: self.bytes.clone(), prefix_len: self.prefix_len }
    }
}
