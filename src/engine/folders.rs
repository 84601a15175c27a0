//! The folders of local segment files below the working directory: one for each subtask that there is, and those of
//! subtasks that there were.
//!
//! What earlier processes left counts against the disk budget and is spare: a subtask that opens takes its folder over,
//! the others' files go when room is short. Those of an operator's subtasks beyond its parallelism go as soon as one of
//! its subtasks opens. Nobody else can be using them: the directory is locked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::disk::{DiskBudget, DiskShare, Spare};
use crate::Result;
use crate::io::files::Files;
use crate::io::names::encode_part;

#[derive(Debug)]
pub(super) struct Folders {
    directory: PathBuf,
    files: Arc<dyn Files>,
    disk: Arc<DiskBudget>,
    left: Mutex<HashMap<PathBuf, Arc<Left>>>,
}

/// A folder that an earlier process left.
#[derive(Debug)]
struct Left {
    folder: PathBuf,
    files: Arc<dyn Files>,
    disk: Arc<DiskBudget>,
    /// What its files take, until they are gone or somebody else's.
    share: Mutex<Option<DiskShare>>,
}

impl Spare for Left {
    fn release(&self) {
        // Locked all the while: a subtask that opens waits for the end of it.
        let mut share = self.share.lock();
        if share.is_some()
            && let Err(error) = remove_segments(&*self.files, &self.disk, &self.folder)
        {
            tracing::warn!(%error, "segment files of an earlier process stay behind");
        }
        *share = None;
    }
}

impl Folders {
    /// The folders below `directory`, which is locked and of which nobody uses anything yet.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(directory: &Path, files: &Arc<dyn Files>, disk: &Arc<DiskBudget>) -> Result<Self> {
        let mut left = HashMap::new();
        for folder in files.list_directories(directory)? {
            if subtask_of(&folder).is_none() {
                continue;
            }
            let bytes = segments_in(&**files, &folder)?.iter().map(|(_, bytes)| bytes).sum();
            let share = Mutex::new(Some(DiskShare::of_what_is_there(disk, bytes)));
            let (files, disk) = (files.clone(), disk.clone());
            let found = Arc::new(Left { folder: folder.clone(), files, disk: disk.clone(), share });
            let spare: Weak<dyn Spare> = Arc::downgrade(&(found.clone() as Arc<dyn Spare>));
            disk.add_spare(spare);
            left.insert(folder, found);
        }
        let (directory, files, disk) = (directory.to_owned(), files.clone(), disk.clone());
        Ok(Self { directory, files, disk, left: Mutex::new(left) })
    }

    /// The folder of a subtask that opens. Files of subtasks beyond `parallelism` go, unless `is_open` says that one is
    /// in use all the same.
    pub fn enter(&self, operator: &str, subtask: u32, parallelism: u32, is_open: impl Fn(u32) -> bool) -> PathBuf {
        if let Err(error) = self.remove_beyond(operator, parallelism, is_open) {
            tracing::warn!(%error, operator, "segment files of subtasks that are no more stay behind");
        }
        let folder = self.directory.join(format!("{}-{subtask}", encode_part(operator)));
        self.take_over(&folder);
        folder
    }

    /// Its files are counted by whoever uses them from now on.
    fn take_over(&self, folder: &Path) {
        let left = self.left.lock().remove(folder);
        if let Some(left) = left {
            left.share.lock().take();
        }
    }

    fn remove_beyond(&self, operator: &str, parallelism: u32, is_open: impl Fn(u32) -> bool) -> Result<()> {
        let operator = encode_part(operator);
        for folder in self.files.list_directories(&self.directory)? {
            let beyond = |subtask| subtask >= parallelism && !is_open(subtask);
            if subtask_of(&folder).is_some_and(|(of, subtask)| of == operator && beyond(subtask)) {
                self.take_over(&folder);
                remove_segments(&*self.files, &self.disk, &folder)?;
                if self.files.list(&folder)?.is_empty() && self.files.list_directories(&folder)?.is_empty() {
                    self.files.remove_directory(&folder)?;
                }
            }
        }
        Ok(())
    }
}

/// Bytes of segment files that earlier processes left below `directory`.
///
/// # Errors
/// I/O errors.
pub(super) fn bytes_left(directory: &Path, files: &dyn Files) -> Result<u64> {
    let mut total = 0;
    for folder in files.list_directories(directory)?.iter().filter(|folder| subtask_of(folder).is_some()) {
        total += segments_in(files, folder)?.iter().map(|(_, bytes)| bytes).sum::<u64>();
    }
    Ok(total)
}

/// Encoded operator and index, if the folder is named like a subtask's.
fn subtask_of(folder: &Path) -> Option<(String, u32)> {
    let (operator, subtask) = folder.file_name()?.to_str()?.rsplit_once('-')?;
    let index = subtask.parse().ok()?;
    // As it is written, and no other way.
    (format!("{index}") == subtask).then(|| (operator.to_owned(), index))
}

fn segments_in(files: &dyn Files, folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = files.list(folder)?;
    found.retain(|(path, _)| path.extension().is_some_and(|kind| kind == "seg" || kind == "part"));
    Ok(found)
}

/// Deletes a folder's segment files, those left out that somebody in this process still reads.
fn remove_segments(files: &dyn Files, disk: &DiskBudget, folder: &Path) -> Result<()> {
    for (path, _) in segments_in(files, folder)? {
        if !disk.is_in_use(&path) {
            files.remove(&path)?;
        }
    }
    Ok(())
}
