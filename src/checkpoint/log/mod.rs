//! The root log: the one place that decides who writes and what is complete.
//!
//! Enters: changes (claim, complete, pin, unpin, condemn, forget). Leaves: the lineage's state. Always holds:
//!
//! 1. Entries are objects `log/<number, 20 digits>`, each created only if absent, at the number after the newest.
//! 2. Each entry carries the whole state after it, which is small whatever the history, so the newest is all that a reader needs. The newest is never
//!    deleted; older ones are, from the oldest on and each only once those before it are gone, but the 16 before the newest stay.
//! 3. An append whose number is taken starts over from the newest entry. It has succeeded when the state there
//!    remembers its attempt number (a lost answer), is `Fenced` when a higher epoch has been claimed, and
//!    otherwise makes its change again on top.
//! 4. A number may have become free again behind the newest, and a writer that slept may create its entry there. So an
//!    append counts only if, after it was created, the entry that it was built on still stands, bytes for bytes: by 2 no
//!    later number had become free then. Where it doesn't stand, the append counts only if nothing newer is there, or
//!    what is newest remembers it.

mod append;
mod codec;
mod promises;
mod state;

pub use append::RootLog;
pub use codec::MAX_JOB_METADATA_BYTES;
pub(super) use state::{Change, Retention};
pub use state::{Condemned, LineageState, Origin, Pin};

use bytes::Bytes;

use crate::Result;
use crate::base::ids::{CheckpointId, WriterEpoch};
use crate::io::store::Request;

/// Requests that are made together with those of an append, because their answers are wanted next. Asked again for every
/// try; nothing that it brings may be relied on before the append has succeeded.
pub trait Companion {
    /// What to ask for together with the put of an entry after which the state is `state`.
    fn with_put(&mut self, state: &LineageState) -> Vec<Request>;

    /// Takes the answers. What to ask for together with the look whether the entry counts.
    fn with_look(&mut self, answers: Vec<Result<Bytes>>) -> Vec<Request>;

    /// Takes the answers to that.
    fn end(&mut self, answers: Vec<Result<Bytes>>);
}

/// Asks for nothing.
impl Companion for () {
    fn with_put(&mut self, _: &LineageState) -> Vec<Request> {
        Vec::new()
    }

    fn with_look(&mut self, _: Vec<Result<Bytes>>) -> Vec<Request> {
        Vec::new()
    }

    fn end(&mut self, _: Vec<Result<Bytes>>) {}
}

/// Folder of the log's entries below the root.
pub const LOG_FOLDER: &str = "log/";

/// What an entry did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A new attempt at the job has begun.
    Claim {
        /// Its writer epoch.
        epoch: WriterEpoch,
    },
    /// A checkpoint is complete.
    Complete {
        /// The checkpoint.
        id: CheckpointId,
        /// Those that fell out of retention by it.
        condemned: Vec<CheckpointId>,
    },
    /// A checkpoint is held for somebody.
    Pin {
        /// The pin.
        name: String,
        /// The checkpoint.
        id: CheckpointId,
    },
    /// A pin is gone.
    Unpin {
        /// The pin.
        name: String,
    },
    /// Checkpoints may no longer be restored from; they go after the grace period.
    Condemn {
        /// The checkpoints.
        ids: Vec<CheckpointId>,
    },
    /// The first checkpoint of a fork is complete.
    Fork {
        /// The checkpoint.
        id: CheckpointId,
        /// URL of the root that it shares its data with.
        url: String,
    },
    /// What a fork was made from needn't be kept for it any more.
    Release {
        /// URL of that root.
        url: String,
    },
    /// Checkpoints that were in flight when a newer one completed aren't any more.
    Settle,
    /// Condemned checkpoints whose objects are gone.
    Forget {
        /// The checkpoints.
        condemned: Vec<Condemned>,
    },
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its number, from 1.
    pub number: u64,
    /// Random number of the attempt to append it.
    pub attempt: u64,
    /// When it was written, wall milliseconds.
    pub written_ms: i64,
    /// What it did.
    pub action: Action,
    /// The state after it.
    pub state: LineageState,
}

impl LogEntry {
    /// Name of the entry numbered `number`.
    #[must_use]
    pub fn name_of(number: u64) -> String {
        format!("{LOG_FOLDER}{number:020}")
    }

    /// Number of the entry called `name`; `None` when that's no entry's name.
    #[must_use]
    pub fn number_of(name: &str) -> Option<u64> {
        let digits = name.strip_prefix(LOG_FOLDER)?;
        (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    }
}
