//! Plain data about segments and the tree they form.
//!
//! Enters: what a segment builder says of a finished file. Leaves: references, trees and edits. Always
//! holds: a tree is immutable, an edit yields a new one; nothing here does I/O.

pub mod segment_meta;
