//! Floor 2: the memtable, a hash-indexed log of records.
//!
//! Enters: puts, merges and deletes by encoded key, and copies of what was read from below. Leaves:
//! answers to point reads and scans, and sealed epochs to be flushed. Always holds:
//!
//! - A record of a sealed epoch never changes. A record of the open epoch is changed in place only when
//!   no view sees it.
//! - The index leads to a key's newest record in memory. What memory doesn't know it says so
//!   ([`Lookup::Unknown`]), and the version that is adopted knows it.
//! - An epoch that isn't adopted stays in memory whole, and so does one that an open view may need.
//! - No call reads files, takes a lock or waits. Memory is reserved a page or a table at a time.
//! - A call that fails has changed nothing.
//!
//! # How the owner uses it
//!
//! 1. Keys are given as [`MemKey`]: [`MemKey::single`] for states with one record a (key, namespace),
//!    [`MemKey::grouped`] for those with an ordered group of them.
//! 2. Reads: [`Memtable::lookup`], [`Memtable::get_many`]; on [`Lookup::Unknown`] read the adopted
//!    version, then [`Memtable::promote`] what was found or [`Memtable::note_absent`] what wasn't.
//!    [`Memtable::scan`] with [`GroupScan::is_complete`] says whether the version has to be merged in.
//! 3. Writes: [`Memtable::put`], [`Memtable::merge`], [`Memtable::append`], [`Memtable::append_newest`], [`Memtable::delete`],
//!    [`Memtable::delete_prefix`]. Their last argument is asked, only when memory can't tell, whether
//!    the version may hold anything ([`Below`]): a filter probe, not a read. Without one, pass
//!    [`Below::unknown`].
//! 4. [`Memtable::freeze`] at a checkpoint or when [`Memtable::dirty_bytes`] is high. A worker writes
//!    [`SealedEpoch::cursor`] to a segment; when the owner reads from the version that has it,
//!    [`Memtable::adopt`] with [`SealedEpoch::last_sequence`], in the order of freezing.
//! 5. [`Memtable::evict_step`] a little at a time while the budget is tight, [`Memtable::take_trash`] to
//!    be dropped on a worker.
//! 6. [`Memtable::open_view`], with the version adopted then, for scans that outlive writes.
//!
//! Other threads read an epoch's [`SealedEpoch::get`], [`SealedEpoch::prefix_delete`] and
//! [`SealedEpoch::cursor`] of [`Memtable::unadopted_epochs`] over a version.
//!
//! Sequences: every record carries the generation in which it was last written. A freeze, an opened
//! view and a delete of a large prefix end a generation. In one epoch a key has at most one live record
//! a generation (two when a member of a complete group is deleted and put again: the later one counts,
//! and only it leaves the epoch's cursor). A prefix delete hides records of lower sequences.

mod append;
mod evict;
mod group;
mod index;
mod key;
mod layout;
mod location;
mod log;
mod lookup;
#[expect(clippy::module_inception, reason = "the noun of the room is also its main type")]
mod memtable;
mod merge;
mod page;
mod page_table;
mod prefix_delete;
mod read;
mod scan;
mod sealed;
mod shard;
mod sorted;
mod table;
mod user_key;
mod write;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod replay_tests;

pub use key::{Below, MemKey};
pub use lookup::{Base, GroupInfo, Lookup, OperandChain, Probe, ValueAt};
pub use memtable::{Memtable, MemtableConfig, MemtableStats, Trash, ViewId};
pub use scan::{ALL_USER_KEYS, GroupScan, GroupValues, UserKeyBounds};
pub use sealed::{EpochCursor, SealedEpoch};
