//! From a part to its manifest.

use super::part::CheckpointPart;
use crate::base::checksum;
use crate::io::store::Store;
use crate::manifest::{self, Manifest};
use crate::{Error, Result};

/// Reads and checks the manifest of a part.
///
/// # Errors
/// Store errors; `Corruption` or `Unsupported` naming the object.
pub fn read_manifest(store: &dyn Store, part: &CheckpointPart) -> Result<Manifest> {
    let object = &part.manifest;
    let bytes = store.get(&object.name)?;
    let (length, hash) = (bytes.len() as u64, checksum::hash64(&bytes));
    if (length, hash) != (object.length_bytes, object.hash) {
        return Err(Error::corruption(format!(
            "manifest `{}`: {} bytes with hash {:016x} expected, {length} with {hash:016x} found",
            object.name, object.length_bytes, object.hash
        )));
    }
    let manifest = manifest::decode(&bytes, &object.name)?;
    let same = manifest.operator == part.operator
        && manifest.subtask == part.subtask
        && manifest.checkpoint == part.checkpoint
        && manifest.groups == part.key_groups;
    if !same {
        return Err(Error::corruption(format!(
            "manifest `{}` is that of subtask {} of `{}` in checkpoint {}, not of {} of `{}` in {}",
            object.name,
            manifest.subtask,
            manifest.operator,
            manifest.checkpoint,
            part.subtask,
            part.operator,
            part.checkpoint
        )));
    }
    Ok(manifest)
}

/// Names of the segments that a part's manifest reaches in its own root.
///
/// # Errors
/// As [`read_manifest`].
pub fn segment_names(store: &dyn Store, part: &CheckpointPart) -> Result<Vec<String>> {
    let names = read_manifest(store, part)?.version.names();
    Ok(names.into_iter().filter(|(root, _)| *root == 0).map(|(_, name)| name.to_string()).collect())
}
