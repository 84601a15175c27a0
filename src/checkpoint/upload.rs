//! Making a subtask's part of a checkpoint durable.
//!
//! A part is a manifest and the segments that it refers to. [`Uploader`] is where a host that owns its files
//! steps in; [`StoreUploader`] is Highwater's own. [`Uploads`] remembers which segments are durable, so that a
//! later checkpoint uploads only what is new, and lets checkpoints that overlap share an upload.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::object_name::{ObjectKind, ObjectName, operator_folder};
use super::part::ObjectRef;
use crate::base::checksum::{self, Hasher};
use crate::base::clock::Clock;
use crate::base::ids::{CheckpointId, SegmentId, WriterEpoch};
use crate::base::random::Random;
use crate::io::files::ReadAt;
use crate::io::retry::{Cancel, Retry, RetryPolicy};
use crate::io::store::{PutMode, Store};
use crate::version::segment_meta::SegmentMeta;
use crate::{Error, ErrorKind, Result};

fn check(cancel: &Cancel) -> Result<()> {
    if cancel.is_cancelled() { Err(Error::new(ErrorKind::Aborted, "checkpoint was aborted")) } else { Ok(()) }
}

/// Bytes read and sent at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// How often one who waits for another's upload looks whether it was itself cancelled.
const WAIT_STEP: Duration = Duration::from_millis(20);

/// A segment that has to become durable.
#[derive(Debug, Clone)]
pub struct SegmentUpload {
    /// What it is.
    pub meta: Arc<SegmentMeta>,
    /// Its bytes.
    pub source: Arc<dyn ReadAt>,
}

/// Stores segments and manifests. Called from workers, several at a time.
pub trait Uploader: Send + Sync + std::fmt::Debug {
    /// Stores one segment's bytes under a name that was never used, and returns the name. Must fail rather
    /// than store bytes whose hash isn't `segment.meta.hash`. `own` is the id of the checkpoint that alone will refer to
    /// it; `None` when later ones may.
    ///
    /// # Errors
    /// What the store failed with; `Aborted` when cancelled.
    fn upload_segment(&self, segment: &SegmentUpload, own: Option<u64>, cancel: &Cancel) -> Result<Arc<str>>;

    /// Stores a manifest likewise.
    ///
    /// # Errors
    /// As [`Uploader::upload_segment`].
    fn upload_manifest(&self, checkpoint: CheckpointId, bytes: Bytes, cancel: &Cancel) -> Result<ObjectRef>;

    /// Counters of the names handed out so far, from the first to behind the last. No other uploader of the same
    /// operator, subtask and epoch, before or after this one, hands out one of them or one between them.
    fn counters(&self) -> Range<u64>;

    /// The counter of a name, if this uploader has handed it out.
    fn counter_of(&self, name: &str) -> Option<u64>;
}

/// Uploads to a root in an object store, under the names of [`super::object_name`].
#[derive(Debug)]
pub struct StoreUploader {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    folder: String,
    subtask: u32,
    epoch: WriterEpoch,
    first_counter: u64,
    counter: AtomicU64,
}

impl StoreUploader {
    /// An uploader for one subtask under one writer epoch.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        operator: &str,
        subtask: u32,
        epoch: WriterEpoch,
    ) -> Self {
        // A subtask may be opened again under the same claim, in this process or another: each uploader has 2^32
        // counters of its own, at a random place.
        let first_counter = random.next_u64() >> 33 << 32;
        let (folder, counter) = (operator_folder(operator), AtomicU64::new(first_counter));
        Self { store, clock, random, folder, subtask, epoch, first_counter, counter }
    }

    /// A name is taken by counter and hash; it is never reused, even when its upload failed.
    fn next_name(&self, hash: u64, checkpoint: Option<u64>, kind: ObjectKind) -> String {
        let counter = self.counter.fetch_add(1, Ordering::SeqCst);
        let (folder, subtask, epoch) = (self.folder.clone(), self.subtask, self.epoch);
        ObjectName { folder, subtask, epoch, counter, hash, checkpoint, kind }.to_string()
    }

    fn retry(&self, cancel: &Cancel) -> Retry {
        Retry::new(self.clock.clone(), self.random.clone(), RetryPolicy::default(), cancel.clone())
    }
}

impl Uploader for StoreUploader {
    fn upload_segment(&self, segment: &SegmentUpload, own: Option<u64>, cancel: &Cancel) -> Result<Arc<str>> {
        self.retry(cancel).run("uploading a segment", || {
            check(cancel)?;
            // A new name for every attempt: an attempt that seemed to fail may still arrive.
            let name = self.next_name(segment.meta.hash, own, ObjectKind::Segment);
            let mut chunks = VerifiedChunks::new(segment, cancel);
            self.store.put_stream(&name, &mut chunks, PutMode::Create).map_err(may_be_own)?;
            Ok(name.into())
        })
    }

    fn upload_manifest(&self, checkpoint: CheckpointId, bytes: Bytes, cancel: &Cancel) -> Result<ObjectRef> {
        let hash = checksum::hash64(&bytes);
        self.retry(cancel).run("uploading a manifest", || {
            check(cancel)?;
            let name = self.next_name(hash, Some(checkpoint.id), ObjectKind::Manifest);
            self.store
                .put(&name, bytes.clone(), PutMode::Create)
                .map_err(|e| may_be_own(e).context(format!("checkpoint {checkpoint}")))?;
            Ok(ObjectRef { name, length_bytes: bytes.len() as u64, hash })
        })
    }

    fn counters(&self) -> Range<u64> {
        self.first_counter..self.counter.load(Ordering::SeqCst)
    }

    fn counter_of(&self, name: &str) -> Option<u64> {
        let name = ObjectName::parse(name)?;
        let ours = name.folder == self.folder && (name.subtask, name.epoch) == (self.subtask, self.epoch);
        (ours && self.counters().contains(&name.counter)).then_some(name.counter)
    }
}

/// A new name that is taken was taken by ourselves: the client repeated a request whose answer was lost. The next attempt takes another
/// name, since no one vouches for what stands under this one.
fn may_be_own(error: Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => Error::with_source(ErrorKind::Unavailable, error.message().to_owned(), error),
        _ => error,
    }
}

/// A segment's bytes in pieces; the last piece is followed by an error unless the hash of all is right, so
/// that a file that went bad on disk is never stored.
struct VerifiedChunks<'a> {
    segment: &'a SegmentUpload,
    cancel: &'a Cancel,
    hasher: Hasher,
    offset: u64,
    ended: bool,
}

impl<'a> VerifiedChunks<'a> {
    fn new(segment: &'a SegmentUpload, cancel: &'a Cancel) -> Self {
        Self { segment, cancel, hasher: Hasher::new(), offset: 0, ended: false }
    }

    fn read(&mut self) -> Result<Option<Bytes>> {
        check(self.cancel)?;
        let meta = &self.segment.meta;
        if self.offset == meta.length_bytes {
            let found = self.hasher.finish();
            if found == meta.hash {
                return Ok(None);
            }
            return Err(Error::corruption(format!(
                "{}: hash {:016x} expected, {found:016x} found before upload",
                self.segment.source.name(),
                meta.hash
            )));
        }
        let length = CHUNK_BYTES.min(meta.length_bytes - self.offset);
        let mut buffer = vec![0; usize::try_from(length).map_err(|_| Error::internal("chunk over usize"))?];
        self.segment.source.read_at(self.offset, &mut buffer)?;
        self.hasher.update(&buffer);
        self.offset += length;
        Ok(Some(Bytes::from(buffer)))
    }
}

impl Iterator for VerifiedChunks<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.read().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

#[derive(Debug, Clone)]
enum Upload {
    /// By the attempt of this number, until its checkpoint is given up, under a name whose counter is `from` or greater.
    Running {
        attempt: u64,
        cancel: Cancel,
        from: u64,
    },
    Durable(Arc<str>),
}

/// Which segments of a backend are durable, and under what name.
#[derive(Debug, Default)]
pub struct Uploads {
    known: Mutex<Known>,
    changed: Condvar,
    attempts: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    segments: HashMap<SegmentId, Upload>,
    /// Greatest id of a checkpoint that has asked for names.
    newest: u64,
}

impl Uploads {
    /// Notes that a segment is durable as `name`: it came from a restored manifest, or was uploaded anew.
    pub fn set_durable(&self, segment: SegmentId, name: Arc<str>) {
        self.known.lock().segments.insert(segment, Upload::Durable(name));
        self.changed.notify_all();
    }

    /// The name of a durable segment.
    #[must_use]
    pub fn durable_name(&self, segment: SegmentId) -> Option<Arc<str>> {
        match self.known.lock().segments.get(&segment) {
            Some(Upload::Durable(name)) => Some(name.clone()),
            _ => None,
        }
    }

    /// The segments that are durable, with their names, and those that are on their way, without. Checkpoint `id` has asked
    /// for names from now on: none of these is forgotten on an older one's account (0 for nobody).
    #[must_use]
    pub fn names_for(&self, id: u64) -> HashMap<SegmentId, Option<Arc<str>>> {
        let mut known = self.known.lock();
        known.newest = known.newest.max(id);
        let name = |upload: &Upload| match upload {
            Upload::Durable(name) => Some(name.clone()),
            Upload::Running { .. } => None,
        };
        known.segments.iter().map(|(segment, upload)| (*segment, name(upload))).collect()
    }

    /// The counters that checkpoint `id`, of these segments, settles ([`super::part::CheckpointPart::settled`]): from the
    /// first to before any name that another checkpoint may yet refer to, be it durable or on its way. Asked once every
    /// segment of the checkpoint has its name.
    ///
    /// `live` are the segments of the newest tree and all that may stand in for them, and `None` while an older checkpoint is being made. With them, and
    /// while no newer one has asked for names, the names of all other segments are forgotten and so settled: who still
    /// wants one of those will upload it again. (An older checkpoint couldn't tell then what a newer one refers to.)
    #[must_use]
    pub fn settled(
        &self,
        uploader: &dyn Uploader,
        id: u64,
        segments: &HashSet<SegmentId>,
        live: Option<&HashSet<SegmentId>>,
    ) -> Range<u64> {
        let mut known = self.known.lock();
        if let Some(live) = live.filter(|_| known.newest <= id) {
            known.segments.retain(|segment, upload| {
                matches!(upload, Upload::Running { .. }) || segments.contains(segment) || live.contains(segment)
            });
        }
        let Range { start, end } = uploader.counters();
        let others = known.segments.iter().filter_map(|(segment, upload)| match upload {
            Upload::Running { from, .. } => Some(*from),
            Upload::Durable(_) if segments.contains(segment) => None,
            Upload::Durable(name) => uploader.counter_of(name),
        });
        start..others.fold(end, u64::min)
    }

    /// Makes a segment durable for checkpoint `id` unless it is, and returns its name and the bytes sent. When another checkpoint
    /// is uploading it, waits for that one; when that one fails or is given up, takes over, even while the store still
    /// holds on to the other's request.
    ///
    /// # Errors
    /// What the upload failed with; `Aborted` when cancelled.
    pub fn ensure(
        &self,
        uploader: &dyn Uploader,
        id: u64,
        segment: &SegmentUpload,
        cancel: &Cancel,
    ) -> Result<(Arc<str>, u64)> {
        let mut known = self.known.lock();
        known.newest = known.newest.max(id);
        let id = segment.meta.id;
        loop {
            check(cancel)?;
            match known.segments.get(&id) {
                Some(Upload::Durable(name)) => return Ok((name.clone(), 0)),
                Some(Upload::Running { cancel: other, .. }) if !other.is_cancelled() => {
                    self.changed.wait_for(&mut known, WAIT_STEP);
                }
                Some(Upload::Running { .. }) | None => break,
            }
        }
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let from = uploader.counters().end;
        known.segments.insert(id, Upload::Running { attempt, cancel: cancel.clone(), from });
        drop(known);
        let running = Running { uploads: self, id, attempt };
        let name = uploader.upload_segment(segment, None, cancel)?;
        running.succeed(&name);
        Ok((name, segment.meta.length_bytes))
    }
}

/// Clears a claim on an upload that ended without a result, by error or panic.
struct Running<'a> {
    uploads: &'a Uploads,
    id: SegmentId,
    attempt: u64,
}

impl Running<'_> {
    /// Notes the name, unless another attempt has taken over: then its name counts.
    fn succeed(self, name: &Arc<str>) {
        if let Some(upload) = self.uploads.known.lock().segments.get_mut(&self.id)
            && matches!(upload, Upload::Running { attempt, .. } if *attempt == self.attempt)
        {
            *upload = Upload::Durable(name.clone());
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut known = self.uploads.known.lock();
        let ours = |upload: &Upload| matches!(upload, Upload::Running { attempt, .. } if *attempt == self.attempt);
        if known.segments.get(&self.id).is_some_and(ours) {
            known.segments.remove(&self.id);
        }
        drop(known);
        self.uploads.changed.notify_all();
    }
}
