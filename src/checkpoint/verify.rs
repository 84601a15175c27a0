//! Checks every object below a root, referenced or not.

use std::collections::BTreeMap;

use super::gc::References;
use super::log::{LineageState, LogEntry, RootLog};
use super::object_name::ObjectName;
use crate::io::store::ObjectEntry;
use crate::{ErrorKind, Result};

/// An object that doesn't check out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadObject {
    /// Its name below the root.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Number of objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that don't check out, missing ones included; by name.
    pub bad: Vec<BadObject>,
    /// Leftovers of interrupted writes; harmless.
    pub leftovers: Vec<String>,
}

/// Reads a segment or manifest whole and checks every checksum in it.
pub type CheckObject<'a> = dyn Fn(&ObjectName, &ObjectEntry) -> Result<()> + 'a;

/// Checks all objects below the root of `log`: log entries here, segments and manifests by `check`, and that all is
/// there that retained checkpoints reach (`references`).
///
/// # Errors
/// `NotFound` when the root holds no job, and what the store fails with. What is wrong with an object is no error but
/// a finding.
pub fn verify(log: &RootLog, check: &CheckObject<'_>, references: &References<'_>) -> Result<Verified> {
    let store = log.store();
    let newest = match log.state() {
        Ok(state) => Some(state),
        // A finding: it is in the listing.
        Err(error) if is_finding(error.kind()) => None,
        Err(error) => return Err(error),
    };
    let objects = store.list("")?;
    let mut bad = BTreeMap::new();
    for object in &objects {
        let checked = match ObjectName::parse(&object.name) {
            Some(name) => check(&name, object),
            None if LogEntry::number_of(&object.name).is_some() => {
                store.get(&object.name).and_then(|bytes| LogEntry::from_bytes(&object.name, &bytes).map(drop))
            }
            None => Ok(()),
        };
        match checked {
            Ok(()) => {}
            // Folded away or collected since the listing.
            Err(error) if error.kind() == ErrorKind::NotFound && store.length(&object.name).is_err() => {}
            Err(error) if is_finding(error.kind()) || error.kind() == ErrorKind::NotFound => {
                bad.insert(object.name.clone(), error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(state) = &newest {
        find_missing(state, &objects, references, &mut bad)?;
    }
    Ok(Verified {
        objects: objects.len() as u64,
        bytes: objects.iter().map(|object| object.length_bytes).sum(),
        bad: bad.into_iter().map(|(name, reason)| BadObject { name, reason }).collect(),
        leftovers: store.leftovers()?.into_iter().map(|leftover| leftover.name).collect(),
    })
}

/// Adds to `bad` what retained checkpoints reach and isn't there, or not at its length.
fn find_missing(
    state: &LineageState,
    objects: &[ObjectEntry],
    references: &References<'_>,
    bad: &mut BTreeMap<String, String>,
) -> Result<()> {
    let there: BTreeMap<&str, u64> = objects.iter().map(|o| (o.name.as_str(), o.length_bytes)).collect();
    for (id, manifest) in state.checkpoints.iter().flat_map(|c| c.manifests().map(|manifest| (c.id(), manifest))) {
        match there.get(manifest.name.as_str()) {
            Some(length) if *length == manifest.length_bytes => {}
            Some(length) => {
                let reason = format!("{} bytes expected, {length} found (checkpoint {id})", manifest.length_bytes);
                bad.entry(manifest.name.clone()).or_insert(reason);
                continue;
            }
            None => {
                bad.insert(manifest.name.clone(), format!("missing (checkpoint {id})"));
                continue;
            }
        }
        match references(manifest) {
            Ok(names) => {
                for name in names.into_iter().filter(|name| !there.contains_key(name.as_str())) {
                    bad.insert(name, format!("missing (checkpoint {id})"));
                }
            }
            Err(error) if is_finding(error.kind()) || error.kind() == ErrorKind::NotFound => {
                bad.entry(manifest.name.clone()).or_insert_with(|| error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_finding(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Unsupported)
}
