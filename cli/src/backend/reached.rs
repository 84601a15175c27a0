//! What a completed checkpoint reaches.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater::checkpoint::manifests::read_part;
use highwater::io::store::Store;
use highwater::{CompletedCheckpoint, ErrorKind};

use crate::backend::Context;
use crate::exit::Outcome;

/// The objects of a checkpoint with their lengths in bytes, each once though parts may share them; as far as its manifests can be read.
///
/// # Errors
///
/// The store can't be read. A manifest that is missing or damaged is none: it is for `verify` to say so.
pub fn reached(store: &Arc<dyn Store>, checkpoint: &CompletedCheckpoint) -> Outcome<BTreeMap<String, u64>> {
    let mut objects = BTreeMap::new();
    for part in checkpoint.parts() {
        objects.insert(part.manifest.name.clone(), part.manifest.length_bytes);
        match read_part(&**store, part) {
            Ok(manifest) => {
                let ours = manifest.version.refs().map(|(_, _, r)| r).filter(|r| r.root() == 0);
                objects.extend(ours.filter_map(|r| Some((r.name()?.to_string(), r.meta().length_bytes))));
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corruption | ErrorKind::Unsupported) => {}
            Err(error) => return Err(error).outcome(),
        }
    }
    Ok(objects)
}
