//! Compaction: a pure picker, an executor that does what it picked.
//!
//! Enters: a version, then the opened segments of a plan. Leaves: an edit and the files it speaks of. Always
//! holds: nothing older is uncovered and nothing newer is overtaken; an input's error leaves the inputs as they
//! are and no output behind; what can't be merged is carried on as it is.

pub mod executor;
pub mod picker;
pub mod plan;
pub mod rewrite;
pub mod stand_in;
pub mod upload_choice;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod picker_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod upload_simulation;
#[cfg(test)]
mod world;
