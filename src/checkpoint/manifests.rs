//! From a part to its manifest, and from there to its segments.

use super::part::{CheckpointPart, ObjectRef};
use crate::base::checksum;
use crate::io::store::Store;
use crate::manifest::{self, Manifest};
use crate::{Error, Result};

/// Reads the manifest at `object`, which must be exactly the bytes that whoever refers to it says.
///
/// # Errors
/// Store errors; `Corruption` or `Unsupported` naming the object.
pub fn read(store: &dyn Store, object: &ObjectRef) -> Result<Manifest> {
    let bytes = store.get(&object.name)?;
    let (length, hash) = (bytes.len() as u64, checksum::hash64(&bytes));
    if (length, hash) != (object.length_bytes, object.hash) {
        return Err(Error::corruption(format!(
            "manifest `{}`: {} bytes with hash {:016x} expected, {length} with {hash:016x} found",
            object.name, object.length_bytes, object.hash
        )));
    }
    manifest::decode(&bytes, &object.name)
}

/// Reads the manifest of a part, which must be that part's.
///
/// # Errors
/// As [`read`].
pub fn read_part(store: &dyn Store, part: &CheckpointPart) -> Result<Manifest> {
    let manifest = read(store, &part.manifest)?;
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
