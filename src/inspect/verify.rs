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

/// Reads every object below the root of `log`, referenced or not, and what its checkpoints share with other roots, and checks
/// every checksum in them.
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
    if let Some(entry) = log.newest().ok().flatten() {
        check_elsewhere(&entry.state, &*store, others, &cache, &mut verified)?;
    }
    Ok(verified)
}

/// Adds what retained checkpoints reach in other roots. A manifest that can't be read has been found already.
fn check_elsewhere(
    state: &LineageState,
    store: &dyn Store,
    others: &OtherRoots,
    cache: &Arc<BlockCache>,
    verified: &mut Verified,
) -> Result<()> {
    let mut shared = BTreeMap::new();
    for object in state.checkpoints.iter().flat_map(|c| c.manifests()) {
        let Ok(manifest) = read(store, object) else { continue };
        for (_, _, r) in manifest.version.refs() {
            if let (Some(url), Some(name)) = (manifest.root_of(r)?, r.name()) {
                shared.insert((url.to_owned(), name.to_string()), r.meta().length_bytes);
            }
        }
    }
    for ((url, name), length_bytes) in shared {
        let checked = others.get(&url).and_then(|root| check_shared(&root, cache, &name, length_bytes));
        verified.objects += 1;
        verified.bytes += length_bytes;
        match checked {
            Ok(()) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption | ErrorKind::Unsupported) =>
            {
                let reason = match error.kind() {
                    ErrorKind::NotFound => format!("missing: {error}"),
                    _ => error.to_string(),
                };
                verified.bad.push(BadObject { name: format!("{url}/{name}"), reason });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_shared(root: &Arc<dyn Store>, cache: &Arc<BlockCache>, name: &str, length_bytes: u64) -> Result<()> {
    let parsed =
        ObjectName::parse(name).ok_or_else(|| Error::corruption(format!("`{name}` is no name of a segment")))?;
    let found = root.length(name)?;
    if found != length_bytes {
        return Err(Error::corruption(format!("`{name}`: {length_bytes} bytes expected, {found} found")));
    }
    let entry = ObjectEntry { name: name.to_owned(), length_bytes, modified_ms: 0 };
    check_segment(root, cache, &parsed, &entry)
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
