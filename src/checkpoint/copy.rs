//! Copies: a completed checkpoint with all that it reaches, in a root that stands on its own.
//!
//! 1. Read the checkpoint's manifests: from them follows every object of the copy, with its name, length and hash.
//! 2. Look: the target is empty, or holds nothing but such objects.
//! 3. Pin the checkpoint in its root for as long as the copy takes.
//! 4. Send what isn't there already with the right length and the right bytes, which are read back to see that. What is sent is
//!    held against its hash on the way.
//! 5. Look once more that all is there at its length. Then two entries in the target's log, a claim and the completion: only now
//!    is there something to restore from.
//! 6. Drop the pin.
//!
//! A crash anywhere before 5 leaves objects, which the same call takes up, and the pin, which it drops in the end. After 5 the same call checks
//! every byte again and mends what is missing or damaged. Names, ids and epochs are those of the source: names are relative, so manifests are
//! copied as they are. Only one that reaches into other roots, as the first of a fork does, is written anew, without them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::completed::CompletedCheckpoint;
use super::log::{Change, LineageState, Retention, RootLog};
use super::manifests::read_part;
use super::object_name::ObjectName;
use super::part::{CheckpointPart, ObjectRef};
use super::target;
use crate::base::checksum::{self, Hasher};
use crate::base::ids::CheckpointId;
use crate::io::other_roots::OtherRoots;
use crate::io::retry::{Cancel, Retry, RetryPolicy};
use crate::io::store::{PutMode, Request, Store};
use crate::io::stored_object::{StoredObject, read_together};
use crate::manifest::{self, Manifest};
use crate::{Error, ErrorKind, Result};

/// Bytes that are read at one time: of one large object, or of several small ones.
const BYTES_AT_A_TIME: u64 = 32 << 20;
/// Ranges or objects that are asked for together.
const TOGETHER: usize = 8;

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It comes to so many objects and bytes.
    Planned {
        /// Objects.
        objects: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// So many more bytes were found in the target, as they should be.
    Kept(u64),
    /// So many more bytes were sent.
    Sent(u64),
}

/// What a copy came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The checkpoint in the target: its id is that of the source.
    pub checkpoint: CompletedCheckpoint,
    /// Objects and bytes that were sent.
    pub sent: (u64, u64),
    /// Objects and bytes that were there already.
    pub kept: (u64, u64),
}

/// Where an object of the copy comes from.
enum From {
    Store(Arc<dyn Store>),
    Bytes(Bytes),
}

/// An object of the copy.
struct Wanted {
    name: String,
    from: From,
    length_bytes: u64,
    hash: u64,
}

/// Copies checkpoint `id` of `source` into the root of `target`, and tells `watch` how far it is. `others` are roots that it
/// reaches into. It holds at most 32 MiB of objects in memory.
///
/// # Errors
/// `NotFound` when the checkpoint isn't there or is condemned; `AlreadyExists` when the target holds another job or checkpoint;
/// `InvalidArgument` when it holds other files, or is the source; `Corruption` naming an object whose bytes aren't those that it should
/// have, `NotFound` naming one that is missing; `Aborted` when cancelled; store errors, after which the same call goes on.
pub fn copy(
    source: &RootLog,
    id: CheckpointId,
    target: &RootLog,
    others: &OtherRoots,
    cancel: &Cancel,
    watch: &mut dyn FnMut(Step),
) -> Result<Copied> {
    let state = source.state()?;
    let plan = Plan::of(source, state.checkpoint(id)?, others)?;
    let there = target::look(source, target, &|name| plan.wanted.contains_key(&name.to_string()))?;
    let is_complete = there.as_ref().is_some_and(|state| state.greatest_completed.is_some());
    if is_complete && !there.as_ref().is_some_and(|state| plan.is_in(state)) {
        return Err(target::taken(target.store().url()));
    }
    let pin = target::pin_name("copy to", target.store().url())?;
    hold(source, &pin, id)?;
    let objects = plan.wanted.len() as u64;
    watch(Step::Planned { objects, bytes: plan.wanted.values().map(|wanted| wanted.length_bytes).sum() });
    let retry = Retry::new(source.clock().clone(), source.random().clone(), RetryPolicy::default(), cancel.clone());
    let (sent, kept) = Transfer { target: &**target.store(), retry, watch }.run(&plan)?;
    plan.check_lengths(&**target.store())?;
    if !is_complete {
        let claim = target.claim(&[id.epoch])?;
        let retention = Retention::new(1, std::time::Duration::ZERO, std::time::Duration::ZERO);
        let checkpoint = Box::new(plan.checkpoint.clone());
        target.append(Some(&claim), &Change::Complete { checkpoint, retention, oldest_in_flight: None })?;
    }
    source.unpin(&pin)?;
    Ok(Copied { checkpoint: plan.checkpoint, sent, kept })
}

/// As [`copy`], of the newest checkpoint, whichever that is by the time it is pinned.
///
/// # Errors
/// As [`copy`]; `NotFound` when there is none.
pub fn copy_newest(
    source: &RootLog,
    target: &RootLog,
    others: &OtherRoots,
    cancel: &Cancel,
    watch: &mut dyn FnMut(Step),
) -> Result<Copied> {
    target::of_newest(source, |id| copy(source, id, target, others, cancel, watch))
}

/// Pins the checkpoint. What a copy of another to the same place has left pinned is let go: each takes only what it has checked.
fn hold(source: &RootLog, pin: &str, id: CheckpointId) -> Result<()> {
    match source.pin(pin, id) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            source.unpin(pin)?;
            source.pin(pin, id)
        }
        pinned => pinned,
    }
}

/// What the copy is to hold.
struct Plan {
    checkpoint: CompletedCheckpoint,
    wanted: BTreeMap<String, Wanted>,
}

impl Plan {
    fn of(source: &RootLog, checkpoint: &CompletedCheckpoint, others: &OtherRoots) -> Result<Self> {
        let mut plan = Self { checkpoint: checkpoint.clone(), wanted: BTreeMap::new() };
        for part in &mut plan.checkpoint.parts {
            let manifest = read_part(&**source.store(), part)?;
            for (_, _, r) in manifest.version.refs() {
                let store = match manifest.root_of(r)? {
                    None => source.store().clone(),
                    Some(url) => others.get(url)?,
                };
                let name =
                    r.name().ok_or_else(|| Error::corruption(format!("segment {} has no object", r.meta().id)))?;
                let (length_bytes, hash) = (r.meta().length_bytes, r.meta().hash);
                let wanted = Wanted { name: name.to_string(), from: From::Store(store), length_bytes, hash };
                plan.wanted.insert(name.to_string(), wanted);
            }
            let bytes = own_manifest(manifest, part)?;
            let ObjectRef { name, length_bytes, hash } = part.manifest.clone();
            let from = bytes.map_or_else(|| From::Store(source.store().clone()), From::Bytes);
            plan.wanted.insert(name.clone(), Wanted { name, from, length_bytes, hash });
        }
        Ok(plan)
    }

    /// True when `state` holds the copy as a completed checkpoint.
    fn is_in(&self, state: &LineageState) -> bool {
        state.checkpoint(self.checkpoint.id).is_ok_and(|known| *known == self.checkpoint)
    }

    fn check_lengths(&self, target: &dyn Store) -> Result<()> {
        let there: BTreeMap<_, _> = target.list("")?.into_iter().map(|o| (o.name, o.length_bytes)).collect();
        match self.wanted.values().find(|wanted| there.get(&wanted.name) != Some(&wanted.length_bytes)) {
            None => Ok(()),
            Some(Wanted { name, length_bytes, .. }) => {
                let found = there.get(name).map_or_else(|| "none".to_owned(), ToString::to_string);
                let url = target.url();
                let message = format!("`{name}` was sent to `{url}`: {length_bytes} bytes expected, {found} found");
                Err(Error::new(ErrorKind::Unavailable, message))
            }
        }
    }
}

/// The bytes of a part's manifest where it has to be written anew, since it reaches into other roots; `part` then refers to it.
fn own_manifest(manifest: Manifest, part: &mut CheckpointPart) -> Result<Option<Bytes>> {
    // Counters of the source's writer say nothing of what a writer here will have settled.
    part.settled = 0..0;
    if manifest.roots.len() == 1 {
        return Ok(None);
    }
    let name = ObjectName::parse(&part.manifest.name);
    let name = name.ok_or_else(|| Error::corruption(format!("`{}` names no manifest", part.manifest.name)))?;
    let roots = vec![String::new()];
    let bytes = manifest::encode(&Manifest { version: manifest.version.map_roots(|_| 0)?, roots, ..manifest })?;
    let hash = checksum::hash64(&bytes);
    let name = ObjectName { hash, ..name }.to_string();
    part.manifest = ObjectRef { name, length_bytes: bytes.len() as u64, hash };
    Ok(Some(bytes.into()))
}

struct Transfer<'a> {
    target: &'a dyn Store,
    retry: Retry,
    watch: &'a mut dyn FnMut(Step),
}

impl Transfer<'_> {
    /// Sends what isn't there; objects and bytes that were sent, and those that were there.
    fn run(&mut self, plan: &Plan) -> Result<((u64, u64), (u64, u64))> {
        let there: BTreeMap<_, _> = self.target.list("")?.into_iter().map(|o| (o.name, o.length_bytes)).collect();
        let (mut sent, mut kept) = ((0, 0), (0, 0));
        let mut small: Vec<&Wanted> = Vec::new();
        for wanted in plan.wanted.values() {
            let length = wanted.length_bytes;
            if there.get(&wanted.name) == Some(&length) && self.is_right(wanted)? {
                kept = (kept.0 + 1, kept.1 + length);
                (self.watch)(Step::Kept(length));
                continue;
            }
            sent = (sent.0 + 1, sent.1 + length);
            if length > BYTES_AT_A_TIME / TOGETHER as u64 {
                self.send_large(wanted)?;
                continue;
            }
            small.push(wanted);
            if small.len() == TOGETHER {
                self.send_small(&std::mem::take(&mut small))?;
            }
        }
        self.send_small(&small)?;
        Ok((sent, kept))
    }

    /// Whether the target's object of that name and length has the right bytes.
    fn is_right(&self, wanted: &Wanted) -> Result<bool> {
        self.retry.run("reading back a copy", || {
            let mut hasher = Hasher::new();
            for chunk in (Chunks { store: self.target, wanted, offset: 0, read: Vec::new().into_iter() }) {
                hasher.update(&chunk?);
            }
            Ok(hasher.finish() == wanted.hash)
        })
    }

    fn send_large(&mut self, wanted: &Wanted) -> Result<()> {
        let From::Store(store) = &wanted.from else { return self.send_small(&[wanted]) };
        self.retry.run("copying an object", || {
            let chunks = Chunks { store: &**store, wanted, offset: 0, read: Vec::new().into_iter() };
            let mut checked = Checked { chunks, hasher: Hasher::new(), ended: false };
            self.target.put_stream(&wanted.name, &mut checked, PutMode::Overwrite)
        })?;
        (self.watch)(Step::Sent(wanted.length_bytes));
        Ok(())
    }

    /// Several whole objects. Sending one twice is harmless: the names tell the bytes.
    fn send_small(&mut self, several: &[&Wanted]) -> Result<()> {
        if several.is_empty() {
            return Ok(());
        }
        self.retry.run("copying objects", || {
            let stored: Vec<_> =
                several.iter().filter_map(|wanted| Some((wanted.object()?, 0..wanted.length_bytes))).collect();
            let ranges: Vec<_> = stored.iter().map(|(object, range)| (object, range.clone())).collect();
            let mut read = read_together(&ranges).into_iter();
            let mut puts = Vec::with_capacity(several.len());
            for wanted in several {
                let bytes = match &wanted.from {
                    From::Bytes(bytes) => bytes.clone(),
                    From::Store(_) => read.next().ok_or_else(|| Error::internal("an object that wasn't read"))??,
                };
                wanted.check(bytes.len() as u64, checksum::hash64(&bytes))?;
                puts.push(Request::Put(wanted.name.clone(), bytes, PutMode::Overwrite));
            }
            self.target.together(puts).into_iter().try_for_each(|put| put.map(drop))
        })?;
        several.iter().for_each(|wanted| (self.watch)(Step::Sent(wanted.length_bytes)));
        Ok(())
    }
}

impl Wanted {
    fn object(&self) -> Option<StoredObject> {
        match &self.from {
            From::Store(store) => Some(StoredObject::new(store.clone(), self.name.clone(), self.length_bytes)),
            From::Bytes(_) => None,
        }
    }

    fn check(&self, length_bytes: u64, hash: u64) -> Result<()> {
        if (length_bytes, hash) == (self.length_bytes, self.hash) {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "`{}`: {} bytes with hash {:016x} expected, {length_bytes} with {hash:016x} found",
            self.name, self.length_bytes, self.hash
        )))
    }
}

/// An object's bytes in order, several ranges read at a time.
struct Chunks<'a> {
    store: &'a dyn Store,
    wanted: &'a Wanted,
    offset: u64,
    read: std::vec::IntoIter<Result<Bytes>>,
}

impl Iterator for Chunks<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(chunk) = self.read.next() {
            return Some(chunk);
        }
        let mut requests = Vec::new();
        while requests.len() < TOGETHER && self.offset < self.wanted.length_bytes {
            let end = (self.offset + BYTES_AT_A_TIME / TOGETHER as u64).min(self.wanted.length_bytes);
            requests.push(Request::GetRange(self.wanted.name.clone(), self.offset..end));
            self.offset = end;
        }
        if requests.is_empty() {
            return None;
        }
        self.read = self.store.together(requests).into_iter();
        self.read.next()
    }
}

/// Chunks whose end is an error unless the hash of all is right: then nothing is stored.
struct Checked<'a> {
    chunks: Chunks<'a>,
    hasher: Hasher,
    ended: bool,
}

impl Iterator for Checked<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let chunk = self.chunks.next();
        match &chunk {
            Some(Ok(bytes)) => self.hasher.update(bytes),
            Some(Err(_)) => self.ended = true,
            None => {
                self.ended = true;
                let wanted = self.chunks.wanted;
                return wanted.check(wanted.length_bytes, self.hasher.finish()).err().map(Err);
            }
        }
        chunk
    }
}
