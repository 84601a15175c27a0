//! Merge operators: how operands fold into a value.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::ids::StateId;
use crate::{Error, ErrorKind, Result};

/// Folds operands into a value. Must be deterministic, and associative over the operand list: it may be
/// called with some operands now and the rest later.
pub trait MergeOperator: Send + Sync {
    /// A stable name, stored with the state.
    fn name(&self) -> &str;

    /// The value after `operands`, oldest first, are applied to `base` (`None`: the key was absent).
    ///
    /// # Errors
    /// A text that says why they can't be. An error or a panic leaves the state unchanged.
    fn merge(&self, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String>;
}

/// Calls `operator`, turning its errors and panics into [`ErrorKind::Merge`].
///
/// # Errors
/// [`ErrorKind::Merge`] naming the operator.
pub fn fold(operator: &dyn MergeOperator, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
    match catch_unwind(AssertUnwindSafe(|| operator.merge(base, operands))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(why)) => Err(Error::new(ErrorKind::Merge, format!("merge operator `{}`: {why}", operator.name()))),
        Err(_) => Err(Error::new(ErrorKind::Merge, format!("merge operator `{}` panicked", operator.name()))),
    }
}

/// The operators of the states that have one.
#[derive(Clone, Default)]
pub struct MergeOperators(HashMap<StateId, Arc<dyn MergeOperator>>);

impl MergeOperators {
    /// Adds or replaces the operator of `state`.
    pub fn insert(&mut self, state: StateId, operator: Arc<dyn MergeOperator>) {
        self.0.insert(state, operator);
    }

    /// The operator of `state`.
    #[must_use]
    pub fn get(&self, state: StateId) -> Option<&Arc<dyn MergeOperator>> {
        self.0.get(&state)
    }
}

impl std::fmt::Debug for MergeOperators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(id, op)| (id, op.name()))).finish()
    }
}
