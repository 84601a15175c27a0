//! Reading: many sorted sources as one.
//!
//! Enters: cursors over records (segments, memtables), newest source first. Leaves: one cursor over all of them,
//! or only what is visible: the newest value of each key, its operands folded, less what is deleted or expired.
//! Always holds: an error in any source sticks and is never taken for its end; point reads, scans forward and
//! scans backward agree.

mod fold;
mod merge;
mod run_cursor;
mod shapes;
mod together;
mod tree;
mod visible;

pub use fold::{Carried, Pending};
pub use merge::MergeCursor;
pub use run_cursor::RunCursor;
pub use shapes::Shapes;
pub use tree::{Lookup, Resident, Tree, Visible};
pub use visible::{AskPrefix, Entry, PrefixDeletes, Resolver, VisibleCursor};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
