//! Local files on `std::fs`, thrifty with file descriptors.
//!
//! Files opened for reading share a pool of a few descriptors; the one used longest ago is closed when another is
//! needed and opened again on its next read. An opened file is taken to be immutable: when it comes back with another
//! length or as another file, reading it is corruption. A file that is removed while open can't be read once
//! its descriptor has left the pool.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{DirectoryLock, FileWriter, Files, ReadAt};
use super::local_paths;
use crate::{Error, ErrorKind, Result};

/// Descriptors that the pool keeps at most.
const DEFAULT_OPEN_FILES: usize = 32;

/// Name of the lock file in a locked directory; [`Files::list`] leaves it out.
pub const LOCK_FILE: &str = "LOCK";

const WRITE_BUFFER_BYTES: usize = 128 << 10;

/// See the module.
#[derive(Debug, Clone)]
pub struct LocalFiles {
    pool: Arc<Pool>,
}

impl LocalFiles {
    /// Local files with a pool of 32 descriptors.
    #[must_use]
    pub fn new() -> Self {
        Self::with_open_files(DEFAULT_OPEN_FILES)
    }

    fn with_open_files(limit: usize) -> Self {
        Self { pool: Arc::new(Pool { limit: limit.max(1), open: Mutex::default() }) }
    }
}

impl Default for LocalFiles {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Pool {
    limit: usize,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    by_id: BTreeMap<u64, (Arc<File>, u64)>,
    next_id: u64,
    uses: u64,
}

impl Pool {
    fn find(&self, id: u64) -> Option<Arc<File>> {
        let mut open = self.open.lock();
        open.uses += 1;
        let now = open.uses;
        let (file, used) = open.by_id.get_mut(&id)?;
        *used = now;
        Some(file.clone())
    }

    fn insert(&self, id: u64, file: Arc<File>) {
        let mut open = self.open.lock();
        if open.by_id.len() >= self.limit {
            let oldest = open.by_id.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            oldest.map(|id| open.by_id.remove(&id));
        }
        open.uses += 1;
        let now = open.uses;
        open.by_id.insert(id, (file, now));
    }

    /// Opens for reading; gives up the pool's descriptors when there are none left.
    fn open_file(&self, path: &Path) -> std::io::Result<File> {
        match File::open(path) {
            Err(error) if local_paths::out_of_descriptors(&error) => {
                self.open.lock().by_id.clear();
                File::open(path)
            }
            opened => opened,
        }
    }
}

#[derive(Debug)]
struct PooledFile {
    pool: Arc<Pool>,
    id: u64,
    path: PathBuf,
    name: String,
    length_bytes: u64,
    inode: (u64, u64),
}

impl PooledFile {
    fn file(&self) -> Result<Arc<File>> {
        if let Some(file) = self.pool.find(self.id) {
            return Ok(file);
        }
        let failed = |e| Error::io(format!("opening `{}` again", self.name), e);
        let file = self.pool.open_file(&self.path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.len() != self.length_bytes || (metadata.dev(), metadata.ino()) != self.inode {
            return Err(Error::corruption(format!(
                "`{}` changed while in use: {} bytes expected, {} found",
                self.name,
                self.length_bytes,
                metadata.len()
            )));
        }
        let file = Arc::new(file);
        self.pool.insert(self.id, file.clone());
        Ok(file)
    }
}

impl ReadAt for PooledFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file()?
            .read_exact_at(buffer, offset)
            .map_err(|e| Error::io(format!("reading {} bytes at {offset} of `{}`", buffer.len(), self.name), e))
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        self.pool.open.lock().by_id.remove(&self.id);
    }
}

struct LocalWriter {
    /// `None` once finished.
    file: Option<BufWriter<File>>,
    path: PathBuf,
}

impl FileWriter for LocalWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(Error::internal(format!("writing to `{}` after its end", self.path.display())));
        };
        file.write_all(bytes).map_err(|e| Error::io(format!("writing `{}`", self.path.display()), e))
    }

    fn finish(mut self: Box<Self>, sync: bool) -> Result<()> {
        let failed = |e| Error::io(format!("finishing `{}`", self.path.display()), e);
        let Some(buffered) = &mut self.file else { return Ok(()) };
        buffered.flush().map_err(failed)?;
        if sync {
            buffered.get_ref().sync_all().map_err(failed)?;
        }
        self.file = None;
        Ok(())
    }
}

impl Drop for LocalWriter {
    /// A file that was never finished goes.
    fn drop(&mut self) {
        if let Some(buffered) = self.file.take() {
            let _ = buffered.into_parts();
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The lock is the kernel's on the open file, so that it ends with the process, however that ends.
#[derive(Debug)]
struct LocalLock {
    file: File,
    directory: PathBuf,
}

impl DirectoryLock for LocalLock {
    fn check(&self) -> Result<()> {
        let failed = |e| Error::io(format!("looking at the lock of `{}`", self.directory.display()), e);
        let ours = self.file.metadata().map_err(failed)?;
        match std::fs::metadata(self.directory.join(LOCK_FILE)) {
            Ok(found) if (found.dev(), found.ino()) == (ours.dev(), ours.ino()) => Ok(()),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Err(Error::new(
                ErrorKind::Io,
                format!("directory `{}` was deleted, moved or replaced while in use", self.directory.display()),
            )),
        }
    }
}

impl Files for LocalFiles {
    fn create(&self, path: &Path) -> Result<Box<dyn FileWriter>> {
        let create = || OpenOptions::new().write(true).create_new(true).open(path);
        let created = match create() {
            Err(error) if local_paths::out_of_descriptors(&error) => {
                self.pool.open.lock().by_id.clear();
                create()
            }
            other => other,
        };
        let file = created.map_err(|e| Error::io(format!("creating `{}`", path.display()), e))?;
        let file = Some(BufWriter::with_capacity(WRITE_BUFFER_BYTES, file));
        Ok(Box::new(LocalWriter { file, path: path.to_owned() }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        let failed = |e| Error::io(format!("opening `{}`", path.display()), e);
        let file = self.pool.open_file(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let id = {
            let mut open = self.pool.open.lock();
            open.next_id += 1;
            open.next_id
        };
        self.pool.insert(id, Arc::new(file));
        Ok(Arc::new(PooledFile {
            pool: self.pool.clone(),
            id,
            path: path.to_owned(),
            name: path.display().to_string(),
            length_bytes: metadata.len(),
            inode: (metadata.dev(), metadata.ino()),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)
            .map_err(|e| Error::io(format!("renaming `{}` to `{}`", from.display(), to.display()), e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        absent_is_fine(std::fs::remove_file(path)).map_err(|e| Error::io(format!("deleting `{}`", path.display()), e))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(path).map_err(|e| Error::io(format!("creating directory `{}`", path.display()), e))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        absent_is_fine(std::fs::remove_dir_all(path))
            .map_err(|e| Error::io(format!("deleting directory `{}`", path.display()), e))
    }

    fn list(&self, directory: &Path) -> Result<Vec<(PathBuf, u64)>> {
        let failed = |e| Error::io(format!("listing `{}`", directory.display()), e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() && entry.file_name() != LOCK_FILE => {
                    found.push((entry.path(), metadata.len()));
                }
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        found.sort();
        Ok(found)
    }

    fn list_directories(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let failed = |e| Error::io(format!("listing `{}`", directory.display()), e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        local_paths::sync_directory(directory)
    }

    fn lock(&self, directory: &Path) -> Result<Box<dyn DirectoryLock>> {
        let path = directory.join(LOCK_FILE);
        let failed = |e| Error::io(format!("locking `{}`", directory.display()), e);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = (&file).take(20).read_to_string(&mut holder);
                let holder = if holder.trim().is_empty() { "another process" } else { holder.trim() };
                let message = format!("directory `{}` is in use by process {holder}", directory.display());
                return Err(Error::new(ErrorKind::Locked, message));
            }
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
        Ok(Box::new(LocalLock { file, directory: directory.to_owned() }))
    }

    fn free_bytes(&self, directory: &Path) -> Result<u64> {
        let stat = rustix::fs::statvfs(directory)
            .map_err(|e| Error::io(format!("free space at `{}`", directory.display()), e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn absent_is_fine(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(files: &LocalFiles, path: &Path, bytes: &[u8]) {
        let mut writer = files.create(path).unwrap();
        writer.append(bytes).unwrap();
        writer.finish(true).unwrap();
    }

    #[test]
    fn bad_input_64_descriptors_more_files_than_the_pool_holds() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::with_open_files(2);
        let open: Vec<_> = (0..9_u8)
            .map(|i| {
                let path = dir.path().join(format!("{i}"));
                write(&files, &path, &[i; 3]);
                files.open(&path).unwrap()
            })
            .collect();
        for round in 0..3 {
            for (i, file) in open.iter().enumerate() {
                let mut buffer = [0; 2];
                file.read_at(1, &mut buffer).unwrap();
                assert_eq!(buffer, [u8::try_from(i).unwrap(); 2], "round {round}");
                assert!(files.pool.open.lock().by_id.len() <= 2);
            }
        }
        drop(open);
        assert!(files.pool.open.lock().by_id.is_empty());
    }

    #[test]
    fn a_file_that_shrank_or_was_replaced_is_corruption_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::with_open_files(1);
        let path = dir.path().join("a");
        write(&files, &path, b"0123456789");
        let file = files.open(&path).unwrap();
        let error = file.read_at(8, &mut [0; 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"01234").unwrap();
        let other = dir.path().join("b");
        write(&files, &other, b"x");
        files.open(&other).unwrap();
        let error = file.read_at(0, &mut [0; 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("/a"), "{error}");
    }

    #[test]
    fn bad_input_lock_names_the_live_holder_and_a_stale_file_opens() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(LOCK_FILE), "999999\n").unwrap();
        let files = LocalFiles::new();
        let held = files.lock(dir.path()).unwrap();
        let error = files.lock(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().ends_with(&format!("process {}", std::process::id())), "{error}");
        drop(held);
        files.lock(dir.path()).unwrap();
        assert_eq!(files.list(dir.path()).unwrap(), []);
    }

    #[test]
    fn a_lock_says_when_its_directory_was_deleted_moved_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("d"), dir.path().join("e"));
        let files = LocalFiles::new();
        files.create_directory(&path).unwrap();
        let held = files.lock(&path).unwrap();
        held.check().unwrap();
        std::fs::rename(&path, &elsewhere).unwrap();
        let moved = held.check().unwrap_err();
        assert!(moved.kind() == ErrorKind::Io && moved.to_string().contains(&*path.to_string_lossy()), "{moved}");
        files.create_directory(&path).unwrap();
        let _other = files.lock(&path).unwrap();
        assert_eq!(held.check().unwrap_err().kind(), ErrorKind::Io);
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(held.check().unwrap_err().kind(), ErrorKind::Io);
        std::fs::rename(&elsewhere, &path).unwrap();
        held.check().unwrap();
        assert_eq!(files.list_directories(dir.path()).unwrap(), [path]);
    }

    #[test]
    fn writers_refuse_existing_files_and_leave_nothing_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let files = LocalFiles::new();
        let path = dir.path().join("a");
        write(&files, &path, b"1");
        assert_eq!(files.create(&path).err().unwrap().kind(), ErrorKind::AlreadyExists);
        let mut writer = files.create(&dir.path().join("b")).unwrap();
        writer.append(b"half").unwrap();
        drop(writer);
        assert_eq!(files.list(dir.path()).unwrap(), [(path.clone(), 1)]);
        files.remove(&path).unwrap();
        files.remove(&path).unwrap();
        assert_eq!(files.open(&path).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(files.free_bytes(dir.path()).unwrap() > 0);
    }
}
