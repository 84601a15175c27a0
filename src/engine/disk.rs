//! The disk budget, and who uses which local file.
//!
//! Bytes are held by shares that give them back when dropped, so that no error path can forget to. A file may have
//! several users at once: a view of a closed backend, or a job that ends late, and the backend's successor that
//! found the file there. The newest of them decides whether the file is still wanted; the last one deletes it if not.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::io::files::Files;
use crate::{Error, ErrorKind, Result};

/// How much local disk all backends of a process may use.
#[derive(Debug)]
pub struct DiskBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
    uses: Mutex<HashMap<PathBuf, FileUse>>,
}

/// The users of one file.
#[derive(Debug, Default)]
struct FileUse {
    users: usize,
    /// Number of the newest user.
    newest: u64,
    /// The newest user has no need of it any more.
    obsolete: bool,
}

impl DiskBudget {
    /// A budget of `limit_bytes`, unused.
    pub fn new(limit_bytes: u64) -> Self {
        let (used_bytes, pinned_bytes, uses) = Default::default();
        Self { limit_bytes, used_bytes, pinned_bytes, uses }
    }

    /// The limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of files that no tree needs and that cursors, views or uploads still hold.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// True when somebody in this process uses the file.
    pub fn is_in_use(&self, path: &Path) -> bool {
        self.uses.lock().contains_key(path)
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.limit_bytes {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Error::new(
                ErrorKind::ResourceExhausted,
                format!("local disk budget of {} bytes is used up", self.limit_bytes),
            ));
        }
        Ok(())
    }
}

/// Bytes of the budget; they go back when this is dropped.
#[derive(Debug)]
pub struct DiskShare {
    disk: Arc<DiskBudget>,
    bytes: u64,
}

impl DiskShare {
    /// A share of nothing.
    pub fn none(disk: &Arc<DiskBudget>) -> Self {
        Self { disk: disk.clone(), bytes: 0 }
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// `ResourceExhausted` when the budget is used up; the share is as it was then.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        self.disk.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for DiskShare {
    fn drop(&mut self) {
        self.disk.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One user's hold on a local file. The file goes with its last user once the newest has no need of it.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    number: u64,
    files: Arc<dyn Files>,
    share: DiskShare,
    obsolete: AtomicBool,
}

impl LocalFile {
    /// Becomes the newest user of the file at `path`, whether it is there already or about to be. `share` is what it
    /// costs.
    pub fn enter(path: PathBuf, files: Arc<dyn Files>, share: DiskShare) -> Self {
        let number = {
            let mut uses = share.disk.uses.lock();
            let file = uses.entry(path.clone()).or_default();
            file.users += 1;
            file.newest += 1;
            file.obsolete = false;
            file.newest
        };
        Self { path, number, files, share, obsolete: AtomicBool::new(false) }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This user has no need of the file any more, though it may still be read for a while.
    pub fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.share.disk.pinned_bytes.fetch_add(self.share.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        let obsolete = *self.obsolete.get_mut();
        let disk = &self.share.disk;
        if obsolete {
            disk.pinned_bytes.fetch_sub(self.share.bytes, Ordering::Relaxed);
        }
        // The file is deleted under the lock: a successor that enters afterwards doesn't find it.
        let mut uses = disk.uses.lock();
        let Some(file) = uses.get_mut(&self.path) else { return };
        file.users -= 1;
        if obsolete && file.newest == self.number {
            file.obsolete = true;
        }
        if file.users > 0 {
            return;
        }
        let goes = file.obsolete;
        uses.remove(&self.path);
        if goes && let Err(error) = self.files.remove(&self.path) {
            tracing::warn!(%error, "an obsolete segment file stays behind");
        }
    }
}
