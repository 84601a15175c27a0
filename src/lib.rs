//! Highwater: a state backend for stream processors.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

pub mod base;
pub mod block;
pub mod cache;
pub mod compaction;
pub mod io;
pub mod manifest;
pub mod read;
pub mod segment;
pub mod version;

pub use base::error::{Error, ErrorKind, Result};
