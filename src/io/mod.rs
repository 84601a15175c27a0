//! Local files and object stores, behind two seams that a test can step and make fail.
//!
//! Enters: paths, names and bytes. Leaves: bytes, or typed errors that name the file or object. Always
//! holds: nothing here knows a format; every name below a root stays below it.

#[cfg(feature = "aws")]
mod aws_profile;
#[cfg(any(feature = "aws", feature = "gcp", feature = "azure", feature = "http"))]
mod clouds;
pub mod faulty;
pub mod files;
#[cfg(feature = "hdfs")]
pub mod hdfs_store;
pub mod local_files;
mod local_paths;
pub mod local_store;
pub mod memory;
pub mod memory_store;
pub mod metered;
pub mod names;
pub mod open_store;
pub mod other_roots;
pub mod paced_store;
pub mod remote_store;
pub mod retry;
pub mod store;
pub mod store_options;
pub mod stored_object;
mod threads;
