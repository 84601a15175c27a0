//! The seam for local files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Result;

/// Reads ranges of an immutable file or object.
pub trait ReadAt: Send + Sync + std::fmt::Debug {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Its length in bytes when it was opened.
    fn len(&self) -> u64;

    /// True when it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Corruption when the file ends before the buffer is full; I/O errors as they come.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// The same bytes in another place, to look there when what [`ReadAt::read_at`] gave doesn't check out.
    fn second_copy(&self) -> Option<&dyn ReadAt> {
        None
    }

    /// The object that [`ReadAt::read_at`] asks a store for, when that is what it does: such reads are slow, and several of
    /// them are better made together ([`super::stored_object::read_together`]).
    fn object(&self) -> Option<&super::stored_object::StoredObject> {
        None
    }

    /// What [`ReadAt::read_at`] gave doesn't check out, as `why` says, and the second copy does: reads go there from now on.
    fn distrust(&self, why: &crate::Error) {
        let _ = why;
    }
}

/// Writes a new file from its start to its end.
pub trait FileWriter: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// I/O errors, a full disk among them.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Ends the file; with `sync`, its bytes survive a crash of the host (its name needs
    /// [`Files::sync_directory`]).
    ///
    /// # Errors
    /// I/O errors.
    fn finish(self: Box<Self>, sync: bool) -> Result<()>;
}

/// Held for as long as a directory is in use. Released when dropped, or when the process dies.
pub trait DirectoryLock: Send + Sync + std::fmt::Debug {
    /// Checks that the directory is still the one that was locked.
    ///
    /// # Errors
    /// `Io` naming the directory when it, or the lock in it, was deleted, moved or replaced.
    fn check(&self) -> Result<()>;
}

/// A local file system.
pub trait Files: Send + Sync + std::fmt::Debug {
    /// Starts a new file; an existing one is an error.
    ///
    /// # Errors
    /// `AlreadyExists`, or I/O errors.
    fn create(&self, path: &Path) -> Result<Box<dyn FileWriter>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, or I/O errors.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>>;

    /// Renames a file, replacing what stands at `to`.
    ///
    /// # Errors
    /// I/O errors.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Deletes a file. An absent one is no error.
    ///
    /// # Errors
    /// I/O errors.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes a directory and its parents.
    ///
    /// # Errors
    /// I/O errors.
    fn create_directory(&self, path: &Path) -> Result<()>;

    /// Deletes a directory with all that is in it. An absent one is no error.
    ///
    /// # Errors
    /// I/O errors.
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// The files (not directories) right below a directory with their lengths, sorted by path.
    ///
    /// # Errors
    /// `NotFound`, or I/O errors.
    fn list(&self, directory: &Path) -> Result<Vec<(PathBuf, u64)>>;

    /// The directories right below a directory, sorted by path.
    ///
    /// # Errors
    /// `NotFound`, or I/O errors.
    fn list_directories(&self, directory: &Path) -> Result<Vec<PathBuf>>;

    /// Makes the names in a directory survive a crash of the host.
    ///
    /// # Errors
    /// I/O errors.
    fn sync_directory(&self, directory: &Path) -> Result<()>;

    /// Takes the directory's lock, leaving our process id in it for others to read.
    ///
    /// # Errors
    /// `Locked` naming the holder.
    fn lock(&self, directory: &Path) -> Result<Box<dyn DirectoryLock>>;

    /// Bytes that can still be written below `directory`.
    ///
    /// # Errors
    /// I/O errors.
    fn free_bytes(&self, directory: &Path) -> Result<u64>;
}
