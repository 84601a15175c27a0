//! What is to be said of a run, kept up to date while it lasts: where it can't end, somebody else has to say it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::runtime::Ended;

/// How a run stands. Empty until it begins.
#[derive(Clone, Debug, Default)]
pub struct Standing(Arc<Mutex<Option<Ended>>>);

impl Standing {
    /// As if the run ended now; `None` where it hasn't begun.
    pub fn now(&self) -> Option<Ended> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest completed checkpoint; `before` where the run hasn't begun.
    pub fn newest(&self, before: Option<u64>) -> Option<u64> {
        self.now().map_or(before, |ended| ended.newest)
    }

    /// The run begins with this.
    pub(super) fn begin(&self, ended: Ended) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }

    /// Takes in news; they have no place before the run has begun.
    pub(super) fn update(&self, news: impl FnOnce(&mut Ended)) {
        if let Some(ended) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            news(ended);
        }
    }

    /// Checkpoints that completed, and those that were given up.
    pub(super) fn checkpoints(&self) -> (u64, u64) {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.as_ref().map_or((0, 0), |ended| (ended.checkpoints.completed, ended.checkpoints.aborted))
    }
}
