//! Checking every byte below a root.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::checksum;
use crate::cache::block_cache::BlockCache;
use crate::checkpoint::log::{LineageState, RootLog};
use crate::checkpoint::manifests::{read, segment_names};
use crate::checkpoint::object_name::{ObjectKind, ObjectName};
use crate::checkpoint::verify::{self, BadObject, Verified};
use crate::io::other_roots::OtherRoots;
use crate::io::store::{ObjectEntry, Store};
use crate::io::stored_object::StoredObject;
use crate::manifest;
use crate::segment::reader::Segment;
use crate::segment::verify::recover_meta;
use crate::{Error, ErrorKind, Result};

/// Blocks kept while one segment is checked, which goes through each of them once.
const CACHE_BYTES: u64 = 4 << 20;

/// Reads every object below the root of `log`, referenced or not, and checks every checksum in it. Of what a fork shares with other
/// roots, it looks that it is there at its length: `verify` them for the rest.
///
/// # Errors
/// `NotFound` when the root holds no job; what the store fails with. Bad objects are findings, not errors.
pub fn verify(log: &RootLog, others: &OtherRoots) -> Result<Verified> {
    let store = log.store().clone();
    let cache = Arc::new(BlockCache::new(CACHE_BYTES)?);
    let check = |name: &ObjectName, entry: &ObjectEntry| match name.kind {
        ObjectKind::Segment => check_segment(&store, &cache, name, entry),
        ObjectKind::Manifest => check_manifest(&*store, name, entry),
    };
    let mut verified = verify::verify(log, &check, &|part| segment_names(&*store, part))?;
    if verified.bad.is_empty() {
        verified.bad = missing_elsewhere(&log.state()?, &*store, others)?;
    }
    Ok(verified)
}

/// What retained checkpoints reach in other roots and isn't there.
fn missing_elsewhere(state: &LineageState, store: &dyn Store, others: &OtherRoots) -> Result<Vec<BadObject>> {
    let mut bad = BTreeMap::new();
    for (id, object) in state.checkpoints.iter().flat_map(|c| c.manifests().map(|object| (c.id(), object))) {
        let manifest = read(store, object)?;
        for (_, _, r) in manifest.version.refs() {
            let (Some(url), Some(name)) = (manifest.root_of(r)?, r.name()) else { continue };
            let wanted = r.meta().length_bytes;
            let reason = match others.get(url).and_then(|root| root.length(name)) {
                Ok(found) if found == wanted => continue,
                Ok(found) => format!("{wanted} bytes expected, {found} found (checkpoint {id})"),
                Err(error) if error.kind() == ErrorKind::NotFound => format!("missing (checkpoint {id}): {error}"),
                Err(error) => return Err(error),
            };
            bad.insert(format!("{url}/{name}"), reason);
        }
    }
    Ok(bad.into_iter().map(|(name, reason)| BadObject { name, reason }).collect())
}

fn check_segment(
    store: &Arc<dyn Store>,
    cache: &Arc<BlockCache>,
    name: &ObjectName,
    entry: &ObjectEntry,
) -> Result<()> {
    let source = Arc::new(StoredObject::new(store.clone(), entry.name.clone(), entry.length_bytes));
    let meta = recover_meta(&*source)?;
    check_hash(name, entry, meta.hash)?;
    let segment = Segment::open(meta, source, cache.clone());
    segment.verify()
}

fn check_manifest(store: &dyn Store, name: &ObjectName, entry: &ObjectEntry) -> Result<()> {
    let bytes = store.get(&entry.name)?;
    check_hash(name, entry, checksum::hash64(&bytes))?;
    manifest::decode(&bytes, &entry.name).map(drop)
}

/// An object's name carries the hash of its bytes.
fn check_hash(name: &ObjectName, entry: &ObjectEntry, found: u64) -> Result<()> {
    if name.hash == found {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "`{}`: hash {:016x} expected by its name, {found:016x} found",
        entry.name, name.hash
    )))
}
