//! Local files and object stores, behind two seams that a test can step and make fail.
//!
//! Enters: paths, names and bytes. Leaves: bytes, or typed errors that name the file or object. Always
//! holds: nothing here knows a format; every name below a root stays below it.

pub mod files;
pub mod store;
