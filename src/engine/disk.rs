//! The disk budget, and who uses which local file.
//!
//! Bytes are held by shares that give them back when dropped, so that no error path can forget to. A file may have
//! several users at once: a view of a closed backend, or a job that ends late, and the backend's successor that
//! found the file there. The newest of them decides whether the file is still wanted; the last one deletes it if not.
//!
//! Files that the store holds too are spare: when room is short they go, those first that have been spare longest, and
//! are read by range from then on. A part of the budget is kept for merges, which end with more room than before.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::io::files::Files;
use crate::{Error, ErrorKind, Result};

/// What room is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A file of the store, to have it nearer. It drives nothing out, and leaves the merges' part alone.
    Fetched,
    /// New state. It leaves the merges' part alone.
    Flushed,
    /// What takes the place of files that are here. It may use the whole budget.
    Merged,
}

/// A file that can be done without here.
pub trait Spare: Send + Sync {
    /// Lets go of the file.
    fn release(&self);
}

/// How much local disk all backends of a process may use.
pub struct DiskBudget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
    uses: Mutex<HashMap<PathBuf, FileUse>>,
    spares: Mutex<Spares>,
}

impl std::fmt::Debug for DiskBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DiskBudget({} of {} bytes)", self.used_bytes(), self.limit_bytes)
    }
}

/// Spare files in the order in which they became so.
#[derive(Default)]
struct Spares {
    queue: VecDeque<Weak<dyn Spare>>,
    /// Length at which those that are gone are swept out.
    sweep_at: usize,
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
        let (used_bytes, pinned_bytes, uses, spares) = Default::default();
        Self { limit_bytes, used_bytes, pinned_bytes, uses, spares }
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

    /// Notes that a file can be done without.
    pub fn add_spare(&self, file: Weak<dyn Spare>) {
        let mut spares = self.spares.lock();
        if spares.queue.len() >= spares.sweep_at {
            spares.queue.retain(|file| file.strong_count() > 0);
            spares.sweep_at = (spares.queue.len() * 2).max(64);
        }
        spares.queue.push_back(file);
    }

    /// Lets spare files go until `bytes` have come back, or there are none left. True when any went.
    pub fn release_spares(&self, bytes: u64) -> bool {
        let before = self.used_bytes();
        let mut any = false;
        while before.saturating_sub(self.used_bytes()) < bytes && self.release_one() {
            any = true;
        }
        any
    }

    /// False when nothing is spare.
    fn release_one(&self) -> bool {
        loop {
            let Some(next) = self.spares.lock().queue.pop_front() else { return false };
            if let Some(file) = next.upgrade() {
                file.release();
                return true;
            }
        }
    }

    fn limit_of(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Merged => self.limit_bytes,
            // Merges take no more than a few epochs or a level at a time, which is a fraction of what there is.
            Purpose::Fetched | Purpose::Flushed => self.limit_bytes - self.limit_bytes / 4,
        }
    }

    fn take(&self, bytes: u64, purpose: Purpose) -> Result<()> {
        let limit = self.limit_of(purpose);
        loop {
            let used = self.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if used <= limit {
                return Ok(());
            }
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if purpose == Purpose::Fetched || !self.release_one() {
                return Err(self.used_up(used - bytes, bytes));
            }
        }
    }

    #[cold]
    fn used_up(&self, used: u64, wanted: u64) -> Error {
        let (limit, kept) = (self.limit_bytes, self.limit_bytes - self.limit_of(Purpose::Flushed));
        let message = format!(
            "local disk budget of {limit} bytes is used up: {used} in use, {wanted} more wanted, {kept} kept for merges"
        );
        Error::new(ErrorKind::ResourceExhausted, message)
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

    /// A share for files that are there already, whether or not the budget has room for them.
    pub fn of_what_is_there(disk: &Arc<DiskBudget>, bytes: u64) -> Self {
        disk.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { disk: disk.clone(), bytes }
    }

    /// Takes `bytes` more, driving out spare files for it where `purpose` may.
    ///
    /// # Errors
    /// `ResourceExhausted` when the budget is used up; the share is as it was then.
    pub fn grow(&mut self, bytes: u64, purpose: Purpose) -> Result<()> {
        self.disk.take(bytes, purpose)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds its share until it is let go.
    struct File(Mutex<Option<DiskShare>>);

    impl Spare for File {
        fn release(&self) {
            self.0.lock().take();
        }
    }

    fn file(disk: &Arc<DiskBudget>, bytes: u64, purpose: Purpose) -> Result<Arc<File>> {
        let mut share = DiskShare::none(disk);
        share.grow(bytes, purpose)?;
        Ok(Arc::new(File(Mutex::new(Some(share)))))
    }

    fn spare(disk: &DiskBudget, file: &Arc<File>) {
        let file: Weak<dyn Spare> = Arc::downgrade(&(file.clone() as Arc<dyn Spare>));
        disk.add_spare(file);
    }

    #[test]
    fn a_full_budget_has_room_left_for_merges_alone() {
        let disk = Arc::new(DiskBudget::new(100));
        let _new = file(&disk, 75, Purpose::Flushed).unwrap();
        for purpose in [Purpose::Flushed, Purpose::Fetched] {
            let error = file(&disk, 1, purpose).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
            assert!(error.to_string().contains("75 in use, 1 more wanted, 25 kept"), "{error}");
        }
        let merged = file(&disk, 25, Purpose::Merged).unwrap();
        assert!(file(&disk, 1, Purpose::Merged).is_err());
        drop(merged);
        assert_eq!(disk.used_bytes(), 75);
    }

    #[test]
    fn spare_files_make_room_oldest_first_and_only_as_many_as_it_takes() {
        let disk = Arc::new(DiskBudget::new(100));
        let files: Vec<_> = (0..3).map(|_| file(&disk, 25, Purpose::Flushed).unwrap()).collect();
        spare(&disk, &files[1]);
        spare(&disk, &files[0]);
        assert!(file(&disk, 5, Purpose::Fetched).is_err(), "what is here is worth more than what might be");
        let _more = file(&disk, 20, Purpose::Flushed).unwrap();
        let held: Vec<_> = files.iter().map(|file| file.0.lock().is_some()).collect();
        assert_eq!(held, [true, false, true]);
        assert!(disk.release_spares(1) && !disk.release_spares(1));
        assert_eq!(disk.used_bytes(), 45);
    }

    #[test]
    fn spare_files_that_are_gone_are_not_remembered_for_ever() {
        let disk = Arc::new(DiskBudget::new(100));
        let kept = file(&disk, 1, Purpose::Flushed).unwrap();
        spare(&disk, &kept);
        for _ in 0..1000 {
            spare(&disk, &file(&disk, 1, Purpose::Flushed).unwrap());
        }
        assert!(disk.spares.lock().queue.len() <= 64);
        assert!(disk.release_spares(1) && kept.0.lock().is_none());
    }
}
