//! Forks: a new lineage on a completed checkpoint of another root, with no data copied.
//!
//! 1. Look: the checkpoint is there, and the target is empty or what an attempt at a fork has left.
//! 2. Claim the target: its writer epoch is above the source's, and other attempts at a fork there are over.
//! 3. Pin the checkpoint in its root, by a name that tells the fork. A condemned one can't be.
//! 4. Write each part's manifest anew: the same tree and metadata, its references in the table of roots under the source's URL.
//! 5. One entry in the target's log makes the forked checkpoint complete, and says where it came from ([`Origin`]).
//!
//! A crash before 5 leaves a pin, and maybe a target without a completed checkpoint: the same call again goes on, and until then
//! nothing can be restored from there. After 5 the same call finds its work done.
//!
//! A backend that is restored from the forked checkpoint takes what lies in the source for not yet durable, so its first
//! checkpoint uploads all of it under names of its own. From then on the forked checkpoint is the only one that reaches into the source:
//! it falls out of retention at once, and when it is gone, [`release`] drops the pin. When the source goes away before that,
//! whoever reads gets an error that names its URL.

use super::claim::Claim;
use super::completed::CompletedCheckpoint;
use super::log::{Change, LineageState, Origin, RootLog};
use super::manifests::read_part;
use super::part::CheckpointPart;
use super::target;
use super::upload::{StoreUploader, Uploader};
use crate::base::ids::CheckpointId;
use crate::io::other_roots::OtherRoots;
use crate::io::retry::Cancel;
use crate::manifest::{self, Manifest};
use crate::{Error, ErrorKind, Result};

/// Makes checkpoint `id` of `source` the first of a new lineage in the root of `target`, and returns it. The new lineage may be
/// claimed and restored like any other; its checkpoint has the same id under a new epoch. Calling it again for the same changes nothing.
///
/// # Errors
/// `NotFound` when the checkpoint isn't there or is condemned; `AlreadyExists` when the target holds another job; `InvalidArgument`
/// when it holds other files, or is the source; `Fenced` when somebody else claims it meanwhile; `Corruption` naming a manifest; store
/// errors.
pub fn fork(source: &RootLog, id: CheckpointId, target: &RootLog) -> Result<CompletedCheckpoint> {
    let checkpoint = source.state()?.checkpoint(id)?.clone();
    let (from, to) = (source.store().url(), target.store().url());
    let pins = target::pin_name("fork", to)?;
    if let Some(state) = target::look(source, target, &|_| true)?
        && state.greatest_completed.is_some()
    {
        return forked_before(&state, from, id).ok_or_else(|| target::taken(to));
    }
    let claim = target.claim(&[id.epoch])?;
    // Whoever claimed before us can complete nothing any more, so its pin is of no use. What it had completed by then stands.
    let state = target.state()?;
    if state.greatest_completed.is_some() {
        return forked_before(&state, from, id).ok_or_else(|| target::taken(to));
    }
    let pin = pin(source, &pins, &claim, id)?;
    let forked = CheckpointId { epoch: claim.epoch, id: id.id };
    let parts = checkpoint.parts().iter().map(|part| fork_part(source, part, target, forked));
    let done = CompletedCheckpoint {
        id: forked,
        completed_ms: target.clock().now_ms(),
        metadata: checkpoint.metadata().to_vec(),
        parts: parts.collect::<Result<_>>()?,
    };
    let origin = Origin { url: from.to_owned(), source: id, pin: pin.clone(), forked, pinned: true };
    let change = Change::Fork { checkpoint: Box::new(done.clone()), origin: Box::new(origin) };
    match target.append(Some(&claim), &change) {
        Ok(_) => Ok(done),
        Err(error) => {
            // Then it is certain that nothing here needs the pin. Otherwise the entry may have arrived.
            if error.kind() == ErrorKind::Fenced {
                source.unpin(&pin)?;
            }
            Err(error)
        }
    }
}

/// Pins checkpoint `id` for the fork of `claim`, by a name that no other attempt has, and drops what earlier attempts at a fork in
/// that place have left. A later one isn't touched, however late we are.
fn pin(source: &RootLog, pins: &str, claim: &Claim, id: CheckpointId) -> Result<String> {
    let pins = format!("{pins} as epoch ");
    let name = format!("{pins}{} ({:016x})", claim.epoch, claim.attempt);
    source.pin(&name, id)?;
    let epoch_of = |name: &str| name.strip_prefix(&pins)?.split(' ').next()?.parse::<u64>().ok();
    for old in source.state()?.pins {
        if old.name != name && epoch_of(&old.name).is_some_and(|epoch| epoch <= claim.epoch) {
            source.unpin(&old.name)?;
        }
    }
    Ok(name)
}

/// As [`fork`], of the newest checkpoint, whichever that is by the time it is pinned.
///
/// # Errors
/// As [`fork`]; `NotFound` when there is none.
pub fn fork_newest(source: &RootLog, target: &RootLog) -> Result<CompletedCheckpoint> {
    target::of_newest(source, |id| fork(source, id, target))
}

/// The checkpoint that an earlier call has made of the same.
fn forked_before(state: &LineageState, from: &str, id: CheckpointId) -> Option<CompletedCheckpoint> {
    let origin = state.origin.as_ref().filter(|origin| origin.url == from && origin.source == id)?;
    state.checkpoint(origin.forked).ok().cloned()
}

/// Writes the manifest of a part into the target.
fn fork_part(source: &RootLog, part: &CheckpointPart, target: &RootLog, id: CheckpointId) -> Result<CheckpointPart> {
    let manifest = seen_from_outside(read_part(&**source.store(), part)?, source.store().url(), id)?;
    let bytes = manifest::encode(&manifest)?;
    let uploader = StoreUploader::new(
        target.store().clone(),
        target.clock().clone(),
        target.random().clone(),
        &part.operator,
        part.subtask,
        id.epoch,
    );
    let object = uploader.upload_manifest(id, bytes.into(), &Cancel::new())?;
    Ok(CheckpointPart {
        checkpoint: id,
        self_contained: false,
        settled: 0..0,
        delta_bytes: 0,
        uploaded_bytes: object.length_bytes,
        full_bytes: part.full_bytes,
        manifest: object,
        ..part.clone()
    })
}

/// `manifest` as checkpoint `id` of another root has it: what lay in its own root lies in that at `url`.
fn seen_from_outside(manifest: Manifest, url: &str, id: CheckpointId) -> Result<Manifest> {
    let mut roots = vec![String::new(), url.to_owned()];
    roots.extend(manifest.roots.iter().skip(1).cloned());
    if roots.len() > usize::from(u16::MAX) {
        return Err(Error::invalid(format!("a fork of so many forks that it has {} roots", roots.len())));
    }
    Ok(Manifest {
        version: manifest.version.map_roots(|root| root.saturating_add(1))?,
        parents: vec![manifest.checkpoint],
        checkpoint: id,
        writer_epoch: id.epoch,
        kind: manifest::CheckpointKind::Incremental,
        roots,
        ..manifest
    })
}

/// Drops the pin in the root that the lineage of `log` was forked from, once nothing here reaches there any more. False when it
/// isn't a fork, still depends on its source, or has dropped the pin before.
///
/// # Errors
/// `Unavailable` and the like when the source can't be written. One that is gone needs no release.
pub fn release(log: &RootLog, others: &OtherRoots) -> Result<bool> {
    let Some(state) = log.newest()?.map(|entry| entry.state) else { return Ok(false) };
    let Some(origin) = state.origin.as_ref().filter(|origin| origin.pinned && !state.needs_origin()) else {
        return Ok(false);
    };
    let unpinned = others
        .get(&origin.url)
        .and_then(|store| RootLog::new(store, log.clock().clone(), log.random().clone()).unpin(&origin.pin));
    match unpinned {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    log.append(None, &Change::Release)?;
    Ok(true)
}
