//! A backend's local segment files: an unsynced cache of what the store holds, and the only copy of what it
//! doesn't hold yet.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use super::disk::{DiskBudget, DiskShare, LocalFile};
use crate::base::checksum::Hasher;
use crate::base::ids::SegmentId;
use crate::io::files::{FileWriter, Files, ReadAt};
use crate::io::store::Store;
use crate::io::stored_object::StoredObject;
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, ErrorKind, Result};

/// Bytes of one request when a whole file is read or fetched.
const COPY_CHUNK_BYTES: u64 = 1 << 20;

/// A segment's bytes, wherever they are: in a local file, or in the store until that file is there.
#[derive(Debug)]
pub struct SegmentSource {
    name: String,
    length_bytes: u64,
    local: OnceLock<(Arc<dyn ReadAt>, LocalFile)>,
    remote: Option<StoredObject>,
    obsolete: AtomicBool,
}

impl SegmentSource {
    /// No version of the backend refers to it any more: the local file goes when the last reader does.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
        if let Some((_, file)) = self.local.get() {
            file.mark_obsolete();
        }
    }

    /// True when reads don't go to the store.
    pub fn is_local(&self) -> bool {
        self.local.get().is_some()
    }
}

impl ReadAt for SegmentSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length_bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if let Some((file, _)) = self.local.get() {
            return file.read_at(offset, buffer);
        }
        match &self.remote {
            Some(object) => object.read_at(offset, buffer),
            None => Err(Error::internal(format!("segment `{}` has neither file nor object", self.name))),
        }
    }
}

/// Makes, finds and fetches the segment files of one backend.
#[derive(Debug, Clone)]
pub struct SegmentFiles {
    directory: PathBuf,
    files: Arc<dyn Files>,
    disk: Arc<DiskBudget>,
    store: Arc<dyn Store>,
    /// Finished files that belong to no version yet.
    finished: Arc<Mutex<HashMap<PathBuf, DiskShare>>>,
}

impl SegmentFiles {
    /// The files below `directory`, which is made if need be; half-written ones of an earlier process go.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(
        directory: PathBuf,
        files: Arc<dyn Files>,
        disk: Arc<DiskBudget>,
        store: Arc<dyn Store>,
    ) -> Result<Self> {
        files.create_directory(&directory)?;
        Ok(Self { directory, files, disk, store, finished: Arc::default() })
    }

    /// Deletes every file but those of `keep`, which an earlier process may have left whole, and those that
    /// somebody in this process still reads.
    ///
    /// # Errors
    /// I/O errors.
    pub fn clean(&self, keep: &HashSet<SegmentId>) -> Result<()> {
        let keep: HashSet<PathBuf> = keep.iter().map(|id| self.path(*id)).collect();
        for (path, _) in self.files.list(&self.directory)? {
            if !keep.contains(&path) && !self.disk.is_in_use(&path) {
                self.files.remove(&path)?;
            }
        }
        Ok(())
    }

    fn path(&self, id: SegmentId) -> PathBuf {
        self.directory.join(format!("{id}.seg"))
    }

    /// A writer for a new segment; the bytes count against the disk budget as they are written.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(&self, id: SegmentId) -> Result<Box<dyn FileWriter>> {
        let path = self.path(id);
        let inner = self.files.create(&path)?;
        let share = DiskShare::none(&self.disk);
        Ok(Box::new(BudgetedWriter { inner: Some(inner), files: self.clone(), path, share }))
    }

    /// Gives up a finished file that belongs to no version. One that was only begun goes with its writer.
    pub fn discard(&self, id: SegmentId) {
        let path = self.path(id);
        if let Err(error) = self.files.remove(&path) {
            tracing::warn!(%error, "a segment file that nobody needs stays behind");
        }
        self.finished.lock().remove(&path);
    }

    /// A segment that was just written here.
    ///
    /// # Errors
    /// I/O errors, with the file left to [`SegmentFiles::discard`].
    pub fn local(&self, meta: &SegmentMeta) -> Result<Arc<SegmentSource>> {
        let path = self.path(meta.id);
        let file = self.files.open(&path)?;
        let share = self.finished.lock().remove(&path);
        let share = share.ok_or_else(|| Error::internal(format!("{} wasn't written here", path.display())))?;
        Ok(Arc::new(SegmentSource {
            name: path.display().to_string(),
            length_bytes: meta.length_bytes,
            local: OnceLock::from((file, LocalFile::enter(path, self.files.clone(), share))),
            remote: None,
            obsolete: AtomicBool::new(false),
        }))
    }

    /// A segment that lies in the store, its file still to be fetched.
    pub fn remote(&self, meta: &SegmentMeta, object_name: &str) -> Arc<SegmentSource> {
        Arc::new(SegmentSource {
            name: object_name.to_owned(),
            length_bytes: meta.length_bytes,
            local: OnceLock::new(),
            remote: Some(StoredObject::new(self.store.clone(), object_name, meta.length_bytes)),
            obsolete: AtomicBool::new(false),
        })
    }

    /// Brings a remote segment's file here, or takes one that is here already, but only when length and hash
    /// agree. True when it was fetched, false when it was reused or isn't needed.
    ///
    /// # Errors
    /// Store and I/O errors; `Corruption` naming the object when its bytes aren't those of `meta`. Nothing stays here
    /// then.
    pub fn hydrate(&self, source: &SegmentSource, meta: &SegmentMeta, cancelled: &dyn Fn() -> bool) -> Result<bool> {
        let Some(object) = &source.remote else { return Ok(false) };
        if source.is_local() || source.obsolete.load(Ordering::Acquire) {
            return Ok(false);
        }
        let mut share = DiskShare::none(&self.disk);
        share.grow(meta.length_bytes)?;
        // From here on nobody else deletes it.
        let hold = LocalFile::enter(self.path(meta.id), self.files.clone(), share);
        if let Some(file) = self.reusable(hold.path(), meta) {
            attach(source, file, hold)?;
            return Ok(false);
        }
        let partial = hold.path().with_extension("part");
        self.files.remove(&partial)?;
        let fetched = self
            .copy_object(object.name(), meta, &partial, cancelled)
            .and_then(|()| self.files.rename(&partial, hold.path()))
            .and_then(|()| self.files.open(hold.path()));
        match fetched {
            Ok(file) => attach(source, file, hold).map(|()| true),
            Err(error) => {
                let _ = self.files.remove(&partial);
                Err(error)
            }
        }
    }

    fn reusable(&self, path: &Path, meta: &SegmentMeta) -> Option<Arc<dyn ReadAt>> {
        let file = self.files.open(path).ok()?;
        let same = file.len() == meta.length_bytes && hash_of(&*file).is_ok_and(|hash| hash == meta.hash);
        same.then_some(file)
    }

    fn copy_object(&self, object: &str, meta: &SegmentMeta, to: &Path, cancelled: &dyn Fn() -> bool) -> Result<()> {
        let mut writer = self.files.create(to)?;
        let mut hasher = Hasher::new();
        let mut offset = 0;
        while offset < meta.length_bytes {
            if cancelled() {
                return Err(Error::new(ErrorKind::Aborted, format!("fetching {object} was cancelled")));
            }
            let end = (offset + COPY_CHUNK_BYTES).min(meta.length_bytes);
            let bytes = self.store.get_range(object, offset..end)?;
            hasher.update(&bytes);
            writer.append(&bytes)?;
            offset = end;
        }
        writer.finish(false)?;
        check_hash(object, meta, hasher.finish())
    }
}

fn attach(source: &SegmentSource, file: Arc<dyn ReadAt>, hold: LocalFile) -> Result<()> {
    if source.local.set((file, hold)).is_err() {
        return Err(Error::internal(format!("the file of `{}` was attached twice", source.name)));
    }
    if source.obsolete.load(Ordering::Acquire) {
        source.mark_obsolete();
    }
    Ok(())
}

fn check_hash(name: &str, meta: &SegmentMeta, found: u64) -> Result<()> {
    if found == meta.hash {
        return Ok(());
    }
    Err(Error::corruption(format!("{name}: hash {:016x} expected, {found:016x} found", meta.hash)))
}

fn hash_of(file: &dyn ReadAt) -> Result<u64> {
    let mut hasher = Hasher::new();
    for chunk in chunks(file) {
        hasher.update(&chunk?);
    }
    Ok(hasher.finish())
}

fn chunks(file: &dyn ReadAt) -> impl Iterator<Item = Result<Bytes>> {
    (0..file.len()).step_by(COPY_CHUNK_BYTES as usize).map(move |offset| {
        let length = COPY_CHUNK_BYTES.min(file.len() - offset);
        let mut buffer = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_at(offset, &mut buffer)?;
        Ok(Bytes::from(buffer))
    })
}

/// Counts what it writes against the disk budget, and takes the file away unless it was finished.
struct BudgetedWriter {
    inner: Option<Box<dyn FileWriter>>,
    files: SegmentFiles,
    path: PathBuf,
    share: DiskShare,
}

impl FileWriter for BudgetedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(inner) = &mut self.inner else { return Err(Error::internal("append to a finished segment file")) };
        self.share.grow(bytes.len() as u64)?;
        inner.append(bytes)
    }

    fn finish(mut self: Box<Self>, sync: bool) -> Result<()> {
        let Some(inner) = self.inner.take() else { return Err(Error::internal("segment file finished twice")) };
        if let Err(error) = inner.finish(sync) {
            let _ = self.files.files.remove(&self.path);
            return Err(error);
        }
        let share = std::mem::replace(&mut self.share, DiskShare::none(&self.files.disk));
        self.files.finished.lock().insert(self.path.clone(), share);
        Ok(())
    }
}

impl Drop for BudgetedWriter {
    fn drop(&mut self) {
        if let Some(unfinished) = self.inner.take() {
            drop(unfinished);
            let _ = self.files.files.remove(&self.path);
        }
    }
}
