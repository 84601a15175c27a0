//! A backend's local segment files: an unsynced cache of what the store holds, and the only copy of what it
//! doesn't hold yet.
//!
//! A file whose segment the store holds too can go at any time: when room is short, or when it turns out bad. From then
//! on the segment is read by range from the store.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::disk::{DiskBudget, DiskShare, LocalFile, Purpose, Spare};
use super::fetch::{self, AtATime, Fetch};
use crate::base::checksum::Hasher;
use crate::base::ids::SegmentId;
use crate::io::files::{DirectoryLock, FileWriter, Files, ReadAt};
use crate::io::store::Store;
use crate::io::stored_object::StoredObject;
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, ErrorKind, Result};

/// Bytes read at a time of a whole file.
const COPY_CHUNK_BYTES: u64 = 1 << 20;

/// A segment's bytes, wherever they are: in a local file, in the store, or in both.
#[derive(Debug)]
pub struct SegmentSource {
    name: String,
    length_bytes: u64,
    local: RwLock<Option<Arc<Local>>>,
    /// The store's copy, once there is one. A source has a file or an object at any time.
    remote: OnceLock<StoredObject>,
    obsolete: AtomicBool,
    /// The file was let go and isn't fetched again.
    let_go: AtomicBool,
}

#[derive(Debug)]
struct Local {
    file: Arc<dyn ReadAt>,
    hold: LocalFile,
}

impl SegmentSource {
    fn new(name: String, length_bytes: u64) -> Self {
        let (local, remote, obsolete, let_go) = Default::default();
        Self { name, length_bytes, local, remote, obsolete, let_go }
    }

    /// No version of the backend refers to it any more: the local file goes when the last reader does.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
        if let Some(local) = &*self.local.read() {
            local.hold.mark_obsolete();
        }
    }

    /// True when there is no local file and one would be of use.
    pub fn wants_file(&self) -> bool {
        let unwanted = self.obsolete.load(Ordering::Acquire) || self.let_go.load(Ordering::Acquire);
        !unwanted && self.local.read().is_none()
    }

    /// From now on it is read from the store.
    fn let_go_of_file(&self) {
        if !self.is_durable() {
            return;
        }
        self.let_go.store(true, Ordering::Release);
        let let_go = self.local.write().take();
        if let Some(local) = let_go {
            local.hold.mark_obsolete();
        }
    }

    /// True when the store holds it too, as far as this backend knows.
    pub fn is_durable(&self) -> bool {
        self.remote.get().is_some()
    }

    fn attach(&self, local: Local) {
        *self.local.write() = Some(Arc::new(local));
        if self.obsolete.load(Ordering::Acquire) {
            self.mark_obsolete();
        }
    }
}

impl Spare for SegmentSource {
    /// Not once it is obsolete: a view or an upload may need the file then for longer than the store keeps the object.
    fn release(&self) {
        if !self.obsolete.load(Ordering::Acquire) {
            self.let_go_of_file();
        }
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
        let local = self.local.read().clone();
        match (local, self.remote.get()) {
            (Some(local), None) => local.file.read_at(offset, buffer).map_err(|error| self.lost(error)),
            (Some(local), Some(object)) => match local.file.read_at(offset, buffer) {
                Ok(()) => Ok(()),
                Err(error) => {
                    object.read_at(offset, buffer).map_err(|e| e.context(format_args!("{error}; the store's copy")))?;
                    // A lack of descriptors says nothing of the file.
                    if error.kind() != ErrorKind::ResourceExhausted {
                        self.distrust(&error);
                    }
                    Ok(())
                }
            },
            (None, Some(object)) => object.read_at(offset, buffer),
            (None, None) => Err(Error::internal(format!("segment `{}` has neither file nor object", self.name))),
        }
    }

    fn object(&self) -> Option<&StoredObject> {
        self.remote.get().filter(|_| self.local.read().is_none())
    }

    fn second_copy(&self) -> Option<&dyn ReadAt> {
        self.remote.get().map(|object| object as &dyn ReadAt)
    }

    fn distrust(&self, why: &Error) {
        if self.is_durable() && self.local.read().is_some() {
            tracing::warn!(error = %why, "a local file is bad: it goes, and its segment is read from the store");
            self.let_go_of_file();
        }
    }
}

impl SegmentSource {
    /// A file that vanished is no object that a caller could look for elsewhere.
    fn lost(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound {
            return error;
        }
        let message = format!("local file `{}` is gone, and the store doesn't have its segment yet", self.name);
        Error::with_source(ErrorKind::Io, message, error)
    }
}

/// Makes, finds and fetches the segment files of one backend.
#[derive(Debug, Clone)]
pub struct SegmentFiles {
    directory: PathBuf,
    files: Arc<dyn Files>,
    disk: Arc<DiskBudget>,
    store: Arc<dyn Store>,
    /// The working directory's.
    lock: Arc<dyn DirectoryLock>,
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
        lock: Arc<dyn DirectoryLock>,
    ) -> Result<Self> {
        files.create_directory(&directory)?;
        Ok(Self { directory, files, disk, store, lock, finished: Arc::default() })
    }

    /// Checks that the working directory is still the one that was opened.
    ///
    /// # Errors
    /// `Io` naming it: it was deleted, moved or replaced. What isn't in the store then can't be relied on any more.
    pub fn check_directory(&self) -> Result<()> {
        self.lock.check()
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
    /// I/O errors; `ResourceExhausted` from the writer when the budget is used up.
    pub fn create(&self, id: SegmentId, purpose: Purpose) -> Result<Box<dyn FileWriter>> {
        let path = self.path(id);
        let inner = self.create_file(&path)?;
        let share = DiskShare::none(&self.disk);
        Ok(Box::new(BudgetedWriter { inner: Some(inner), files: self.clone(), path, share, purpose }))
    }

    /// Makes the folder again when it alone was deleted. When all of the working directory was, it isn't ours any
    /// more: another process may have one in its place.
    fn create_file(&self, path: &Path) -> Result<Box<dyn FileWriter>> {
        match self.files.create(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.check_directory()?;
                self.files.create_directory(&self.directory)?;
                self.files.create(path)
            }
            created => created,
        }
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
        let source = SegmentSource::new(path.display().to_string(), meta.length_bytes);
        source.attach(Local { file, hold: LocalFile::enter(path, self.files.clone(), share) });
        Ok(Arc::new(source))
    }

    /// A segment that lies in the store, its file still to be fetched.
    pub fn remote(&self, meta: &SegmentMeta, object_name: &str) -> Arc<SegmentSource> {
        let source = Arc::new(SegmentSource::new(object_name.to_owned(), meta.length_bytes));
        self.note_durable(&source, object_name);
        source
    }

    /// The store holds the segment as `object_name`: its file can be done without.
    pub fn note_durable(&self, source: &Arc<SegmentSource>, object_name: &str) {
        let object = StoredObject::new(self.store.clone(), object_name, source.length_bytes);
        if source.remote.set(object).is_ok() && source.local.read().is_some() {
            self.add_spare(source);
        }
    }

    fn add_spare(&self, source: &Arc<SegmentSource>) {
        let source: Arc<dyn Spare> = source.clone();
        let weak: Weak<dyn Spare> = Arc::downgrade(&source);
        self.disk.add_spare(weak);
    }

    /// Brings the files of remote segments here, or takes those that are here already, but only when length and hash
    /// agree. For each: true when it was fetched, false when it was reused or isn't needed, or when there is no room: then it
    /// stays in the store alone.
    ///
    /// # Errors
    /// For each: store and I/O errors; `Corruption` naming the object when its bytes aren't those of its metadata.
    /// Nothing stays here then.
    pub fn hydrate(
        &self,
        wanted: &[(Arc<SegmentSource>, Arc<SegmentMeta>)],
        at_a_time: AtATime,
        cancelled: &dyn Fn() -> bool,
    ) -> Vec<Result<bool>> {
        let (mut begun, mut fetches) = (Vec::new(), Vec::new());
        for (source, meta) in wanted {
            let fetch = self.begin(source, meta);
            begun.push(fetch.map(|fetch| fetch.map(|fetch| fetches.push(fetch)).is_some()));
        }
        fetch::copy(&*self.store, &mut fetches, at_a_time, cancelled);
        let mut fetches = fetches.into_iter();
        let each = wanted.iter().zip(begun).map(|((source, meta), begun)| {
            let fetched = match begun {
                Ok(true) => fetches.next().map_or(Ok(false), |fetch| self.end(source, fetch).map(|()| true)),
                other => other,
            };
            fetched.or_else(|error| self.without_room(source, meta, error))
        });
        each.collect()
    }

    /// A segment that there is no room for stays in the store.
    fn without_room(&self, source: &SegmentSource, meta: &SegmentMeta, error: Error) -> Result<bool> {
        if error.kind() != ErrorKind::ResourceExhausted {
            return Err(error);
        }
        tracing::debug!(%error, segment = %meta.id, "no room for a restored segment, which stays in the store");
        source.let_go.store(true, Ordering::Release);
        let path = self.path(meta.id);
        // Not counted, so it can't stay.
        if !self.disk.is_in_use(&path) {
            self.files.remove(&path)?;
        }
        Ok(false)
    }

    /// Begins to fetch a segment; `None` when that isn't needed.
    fn begin(&self, source: &Arc<SegmentSource>, meta: &Arc<SegmentMeta>) -> Result<Option<Fetch>> {
        let Some(object) = source.remote.get().filter(|_| source.wants_file()) else { return Ok(None) };
        let mut share = DiskShare::none(&self.disk);
        share.grow(meta.length_bytes, Purpose::Fetched)?;
        // From here on nobody else deletes it.
        let hold = LocalFile::enter(self.path(meta.id), self.files.clone(), share);
        if let Some(file) = self.reusable(hold.path(), meta) {
            source.attach(Local { file, hold });
            self.add_spare(source);
            return Ok(None);
        }
        let partial = hold.path().with_extension("part");
        self.files.remove(&partial)?;
        let writer = self.create_file(&partial)?;
        Ok(Some(Fetch::new(meta.clone(), object.name(), partial, hold, writer)))
    }

    /// Ends what [`SegmentFiles::begin`] began.
    fn end(&self, source: &Arc<SegmentSource>, fetch: Fetch) -> Result<()> {
        let (object, meta) = (fetch.object.clone(), fetch.meta.clone());
        let (partial, hold, written) = fetch.finish();
        let file = written
            .and_then(|hash| check_hash(&object, &meta, hash))
            .and_then(|()| self.files.rename(&partial, hold.path()))
            .and_then(|()| self.files.open(hold.path()))
            .inspect_err(|_| {
                let _ = self.files.remove(&partial);
            })?;
        source.attach(Local { file, hold });
        self.add_spare(source);
        Ok(())
    }

    fn reusable(&self, path: &Path, meta: &SegmentMeta) -> Option<Arc<dyn ReadAt>> {
        let file = self.files.open(path).ok()?;
        let same = file.len() == meta.length_bytes && hash_of(&*file).is_ok_and(|hash| hash == meta.hash);
        same.then_some(file)
    }
}

/// Reads all of a segment and holds it against its hash.
///
/// # Errors
/// `Corruption` naming the file; I/O errors.
pub(super) fn verify(source: &dyn ReadAt, meta: &SegmentMeta) -> Result<()> {
    check_hash(source.name(), meta, hash_of(source)?)
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
    purpose: Purpose,
}

impl FileWriter for BudgetedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(inner) = &mut self.inner else { return Err(Error::internal("append to a finished segment file")) };
        self.share.grow(bytes.len() as u64, self.purpose)?;
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
