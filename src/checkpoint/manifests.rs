//! From a part to its manifest, and from there to its segments.

use super::part::{CheckpointPart, ObjectRef};
use crate::base::checksum;
use crate::io::store::{Request, Store};
use crate::manifest::{self, Manifest};
use crate::{Error, Result};

/// Reads the manifest at `object`, which must be exactly the bytes that whoever refers to it says.
///
/// # Errors
/// Store errors; `Corruption` or `Unsupported` naming the object.
pub fn read(store: &dyn Store, object: &ObjectRef) -> Result<Manifest> {
    check(&store.get(&object.name)?, object)
}

/// The manifest in `bytes`, which must be exactly those of `object`.
fn check(bytes: &[u8], object: &ObjectRef) -> Result<Manifest> {
    let (length, hash) = (bytes.len() as u64, checksum::hash64(bytes));
    if (length, hash) != (object.length_bytes, object.hash) {
        return Err(Error::corruption(format!(
            "manifest `{}`: {} bytes with hash {:016x} expected, {length} with {hash:016x} found",
            object.name, object.length_bytes, object.hash
        )));
    }
    manifest::decode(bytes, &object.name)
}

/// Reads the manifest of a part, which must be that part's.
///
/// # Errors
/// As [`read`].
pub fn read_part(store: &dyn Store, part: &CheckpointPart) -> Result<Manifest> {
    check_part(&store.get(&part.manifest.name)?, part)
}

/// Reads the manifests of several parts, all at once where the store can do that.
#[must_use]
pub fn read_parts(store: &dyn Store, parts: &[&CheckpointPart]) -> Vec<Result<Manifest>> {
    if parts.is_empty() {
        return Vec::new();
    }
    let requests = parts.iter().map(|part| Request::Get(part.manifest.name.clone())).collect();
    let answers = store.together(requests);
    parts.iter().zip(answers).map(|(part, answer)| check_part(&answer?, part)).collect()
}

/// The manifest in `bytes`, which must be that of `part`.
///
/// # Errors
/// `Corruption` or `Unsupported` naming the object.
pub fn check_part(bytes: &[u8], part: &CheckpointPart) -> Result<Manifest> {
    let manifest = check(bytes, &part.manifest)?;
    let same = manifest.operator == part.operator
        && manifest.subtask == part.subtask
        && manifest.checkpoint == part.checkpoint
        && manifest.groups == part.key_groups;
    if same {
        return Ok(manifest);
    }
    Err(Error::corruption(format!(
        "manifest `{}` is that of subtask {} of `{}` in checkpoint {}, not of {} of `{}` in {}",
        part.manifest.name,
        manifest.subtask,
        manifest.operator,
        manifest.checkpoint,
        part.subtask,
        part.operator,
        part.checkpoint
    )))
}

/// Names of the segments that a manifest reaches in its own root.
///
/// # Errors
/// As [`read`].
pub fn segment_names(store: &dyn Store, object: &ObjectRef) -> Result<Vec<String>> {
    let names = read(store, object)?.version.names();
    Ok(names.into_iter().filter(|(root, _)| *root == 0).map(|(_, name)| name.to_string()).collect())
}
