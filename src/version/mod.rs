//! Plain data about segments and the tree they form.
//!
//! Enters: what a segment builder says of a finished file. Leaves: references, trees and edits. Always
//! holds: a tree is immutable and an edit yields a new one that shares what it didn't touch; the references
//! of a run are disjoint and sorted; where two references overlap, the one that stands higher is newer;
//! nothing here does I/O.

mod edit;
mod merge;
mod run;
mod segment_ref;
mod stand_ins;
mod tree;

pub mod segment_meta;

pub use edit::{Addition, Edit, Place};
pub use merge::merge_parents;
pub use run::Run;
pub use segment_ref::{RefId, SegmentRef};
pub use stand_ins::{Itself, StandIns, pack};
pub use tree::{MAX_LEVELS, Version};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
