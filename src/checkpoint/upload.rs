//! Making a subtask's part of a checkpoint durable.
//!
//! A part is a manifest and the segments that it refers to. [`Uploader`] is where a host that owns its files
//! steps in; [`StoreUploader`] is Highwater's own. [`Uploads`] remembers which segments are durable, so that a
//! later checkpoint uploads only what is new, and lets checkpoints that overlap share an upload.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::object_name::{ObjectKind, ObjectName};
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
    /// than store bytes whose hash isn't `segment.meta.hash`.
    ///
    /// # Errors
    /// What the store failed with; `Aborted` when cancelled.
    fn upload_segment(&self, segment: &SegmentUpload, cancel: &Cancel) -> Result<Arc<str>>;

    /// Stores a manifest likewise.
    ///
    /// # Errors
    /// As [`Uploader::upload_segment`].
    fn upload_manifest(&self, checkpoint: CheckpointId, bytes: Bytes, cancel: &Cancel) -> Result<ObjectRef>;
}

/// Uploads to a root in an object store, under the names of [`super::object_name`].
#[derive(Debug)]
pub struct StoreUploader {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    operator: String,
    subtask: u32,
    epoch: WriterEpoch,
    counter: AtomicU64,
}

impl StoreUploader {
    /// An uploader for one subtask under one writer epoch; nobody else writes under these names.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        operator: &str,
        subtask: u32,
        epoch: WriterEpoch,
    ) -> Self {
        Self { store, clock, random, operator: operator.to_owned(), subtask, epoch, counter: AtomicU64::new(0) }
    }

    /// A name is taken by counter and hash; it is never reused, even when its upload failed.
    fn next_name(&self, hash: u64, kind: ObjectKind) -> String {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        ObjectName::new(&self.operator, self.subtask, self.epoch, counter, hash, kind).to_string()
    }

    fn retry(&self, cancel: &Cancel) -> Retry {
        Retry::new(self.clock.clone(), self.random.clone(), RetryPolicy::default(), cancel.clone())
    }
}

impl Uploader for StoreUploader {
    fn upload_segment(&self, segment: &SegmentUpload, cancel: &Cancel) -> Result<Arc<str>> {
        self.retry(cancel).run("uploading a segment", || {
            check(cancel)?;
            // A new name for every attempt: an attempt that seemed to fail may still arrive.
            let name = self.next_name(segment.meta.hash, ObjectKind::Segment);
            let mut chunks = VerifiedChunks::new(segment, cancel);
            self.store.put_stream(&name, &mut chunks, PutMode::Create)?;
            Ok(name.into())
        })
    }

    fn upload_manifest(&self, checkpoint: CheckpointId, bytes: Bytes, cancel: &Cancel) -> Result<ObjectRef> {
        let hash = checksum::hash64(&bytes);
        self.retry(cancel).run("uploading a manifest", || {
            check(cancel)?;
            let name = self.next_name(hash, ObjectKind::Manifest);
            self.store
                .put(&name, bytes.clone(), PutMode::Create)
                .map_err(|e| e.context(format!("checkpoint {checkpoint}")))?;
            Ok(ObjectRef { name, length_bytes: bytes.len() as u64, hash })
        })
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
    /// By the attempt of this number, until its checkpoint is given up.
    Running {
        attempt: u64,
        cancel: Cancel,
    },
    Durable(Arc<str>),
}

/// Which segments of a backend are durable, and under what name.
#[derive(Debug, Default)]
pub struct Uploads {
    segments: Mutex<HashMap<SegmentId, Upload>>,
    changed: Condvar,
    attempts: AtomicU64,
}

impl Uploads {
    /// Notes that a segment is durable as `name`: it came from a restored manifest, or was uploaded anew.
    pub fn set_durable(&self, segment: SegmentId, name: Arc<str>) {
        self.segments.lock().insert(segment, Upload::Durable(name));
        self.changed.notify_all();
    }

    /// The name of a durable segment.
    #[must_use]
    pub fn durable_name(&self, segment: SegmentId) -> Option<Arc<str>> {
        match self.segments.lock().get(&segment) {
            Some(Upload::Durable(name)) => Some(name.clone()),
            _ => None,
        }
    }

    /// Forgets segments that nothing refers to any more.
    pub fn retain(&self, is_live: impl Fn(SegmentId) -> bool) {
        self.segments.lock().retain(|id, upload| matches!(upload, Upload::Running { .. }) || is_live(*id));
    }

    /// Makes a segment durable unless it is, and returns its name and the bytes sent. When another checkpoint
    /// is uploading it, waits for that one; when that one fails or is given up, takes over, even while the store still
    /// holds on to the other's request.
    ///
    /// # Errors
    /// What the upload failed with; `Aborted` when cancelled.
    pub fn ensure(&self, uploader: &dyn Uploader, segment: &SegmentUpload, cancel: &Cancel) -> Result<(Arc<str>, u64)> {
        let id = segment.meta.id;
        let mut segments = self.segments.lock();
        loop {
            check(cancel)?;
            match segments.get(&id) {
                Some(Upload::Durable(name)) => return Ok((name.clone(), 0)),
                Some(Upload::Running { cancel: other, .. }) if !other.is_cancelled() => {
                    self.changed.wait_for(&mut segments, WAIT_STEP);
                }
                Some(Upload::Running { .. }) | None => break,
            }
        }
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        segments.insert(id, Upload::Running { attempt, cancel: cancel.clone() });
        drop(segments);
        let running = Running { uploads: self, id, attempt };
        let name = uploader.upload_segment(segment, cancel)?;
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
        if let Some(upload) = self.uploads.segments.lock().get_mut(&self.id)
            && matches!(upload, Upload::Running { attempt, .. } if *attempt == self.attempt)
        {
            *upload = Upload::Durable(name.clone());
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut segments = self.uploads.segments.lock();
        let ours = |upload: &Upload| matches!(upload, Upload::Running { attempt, .. } if *attempt == self.attempt);
        if segments.get(&self.id).is_some_and(ours) {
            segments.remove(&self.id);
        }
        drop(segments);
        self.uploads.changed.notify_all();
    }
}
