//! Reading one key out of a checkpoint.

use std::sync::Arc;

use super::opener::Opener;
use crate::base::cursor::Direction;
use crate::base::descriptor::StateDescriptor;
use crate::base::key::{self, KeyRange, KeyShape};
use crate::base::key_group::{KeyGroup, key_group_of};
use crate::base::record::{ExpiryMs, NEVER};
use crate::checkpoint::completed::CompletedCheckpoint;
use crate::checkpoint::manifests::read_part;
use crate::io::other_roots::OtherRoots;
use crate::io::store::Store;
use crate::manifest::Manifest;
use crate::read::{MergeCursor, PrefixDeletes, Resolver, VisibleCursor};
use crate::{Error, Result};

/// Blocks kept while a key is read.
const CACHE_BYTES: u64 = 4 << 20;

/// A record under a key, as its state's codecs wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Namespace: empty where the state has none.
    pub namespace: Vec<u8>,
    /// Key of a map's entry, or number of a list's chunk; empty where the state has one value a key.
    pub user_key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
    /// When it expires, wall milliseconds; `None` for never.
    pub expires_ms: Option<i64>,
}

/// What an operator's state holds under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntries {
    /// The operator.
    pub operator: String,
    /// The state as it was registered.
    pub state: StateDescriptor,
    /// The key's group.
    pub group: KeyGroup,
    /// Subtask that held it.
    pub subtask: u32,
    /// By namespace and user key, in byte order. Empty when the state holds nothing under the key.
    pub entries: Vec<StoredEntry>,
}

/// Reads what `state` holds under `key`, the bytes that its codec makes of a key, in every operator that has a state of that
/// name: one in most jobs. What has expired by `now_ms`, or by the time that the subtask had seen, isn't there. It takes as many
/// requests as a read of a job that has just been restored.
///
/// # Errors
/// `InvalidArgument` when no operator has such a state (naming those that are there), or for a key that the state can't have;
/// `Corruption` and store errors naming the object; those of values that only a merge operator of the job can fold.
pub fn get(
    store: &Arc<dyn Store>,
    others: &OtherRoots,
    checkpoint: &CompletedCheckpoint,
    state: &str,
    key: &[u8],
    now_ms: i64,
) -> Result<Vec<KeyEntries>> {
    let opener = Opener::new(store.clone(), others.clone(), CACHE_BYTES)?;
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for (operator, _, max_parallelism) in checkpoint.operators() {
        let group = key_group_of(key, max_parallelism);
        let Some(part) = checkpoint.parts_of(operator).find(|part| part.key_groups.contains(group)) else { continue };
        let manifest = read_part(&**store, part)?;
        match manifest.states.iter().find(|known| known.name == state) {
            Some(descriptor) => {
                let entries = entries(&opener, &manifest, descriptor, (group, key), now_ms)?;
                let (operator, subtask) = (operator.to_owned(), part.subtask);
                found.push(KeyEntries { operator, state: descriptor.clone(), group, subtask, entries });
            }
            None => names.extend(manifest.states.iter().map(|known| format!("`{}`", known.name))),
        }
    }
    if found.is_empty() {
        let message = format!("no state `{state}` in checkpoint {}, which has {}", checkpoint.id(), names.join(", "));
        return Err(Error::invalid(message));
    }
    Ok(found)
}

fn entries(
    opener: &Opener,
    manifest: &Manifest,
    state: &StateDescriptor,
    (group, key): (KeyGroup, &[u8]),
    now_ms: i64,
) -> Result<Vec<StoredEntry>> {
    let tree = opener.tree(manifest)?;
    let mut prefix = Vec::new();
    // Without a namespace the prefix is that of the key in all of them.
    let of_key = KeyShape { namespace_width: Some(0), ..state.shape };
    key::encode_prefix(&mut prefix, state.id(), of_key, group, key, &[])?;
    let range = KeyRange::prefix(&prefix);
    let direction = Direction::Forward;
    let resolver = Resolver { now_ms: now_ms.max(manifest.time_high_water_ms), ..Resolver::default() };
    let merged = MergeCursor::new(tree.cursors(&range, direction, true), direction);
    let mut cursor = VisibleCursor::new(merged, direction, resolver, PrefixDeletes::OnTheWay);
    let mut entries = Vec::new();
    while let Some(entry) = cursor.entry() {
        let parts = key::decode(entry.key, state.shape)?;
        entries.push(StoredEntry {
            namespace: parts.namespace,
            user_key: parts.user_key,
            value: entry.value.to_vec(),
            expires_ms: expires(entry.expiry),
        });
        cursor.advance()?;
    }
    cursor.status()?;
    Ok(entries)
}

fn expires(expiry: ExpiryMs) -> Option<i64> {
    (expiry != NEVER).then_some(expiry)
}
