//! Names of what subtasks upload.
//!
//! ```text
//! <operator, encoded>/<subtask>/<writer epoch>/<counter>-<hash>.seg        a segment that any checkpoint may refer to
//! <operator, encoded>/<subtask>/<writer epoch>/<counter>-<hash>-<id>.seg   a segment of self-contained checkpoint <id>
//! <operator, encoded>/<subtask>/<writer epoch>/<counter>-<hash>-<id>.man   a manifest of checkpoint <id>
//!
//! clicks~20by~20user/0/3/17-00c0ffee00c0ffee.seg
//! ```
//!
//! The hash is the XXH3-64 of the object's bytes in 16 hex digits. The counter never repeats within operator, subtask and
//! epoch, so a name is never used again for other bytes. The id, of the same epoch, says for which checkpoint alone an
//! object was made; so it is known from a listing what goes with that checkpoint. `log/` is the root log's: an operator of
//! that name is encoded as `~6Cog`.

use std::fmt;

use crate::base::ids::WriterEpoch;
use crate::io::names;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A segment (`.seg`).
    Segment,
    /// A manifest (`.man`).
    Manifest,
}

/// The name of an object, taken apart. [`fmt::Display`] gives the name itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// The operator's folder; see [`operator_folder`].
    pub folder: String,
    /// Index of the subtask that wrote it.
    pub subtask: u32,
    /// Writer epoch that wrote it.
    pub epoch: WriterEpoch,
    /// Counts within operator, subtask and epoch.
    pub counter: u64,
    /// XXH3-64 of its bytes.
    pub hash: u64,
    /// Id, in the same epoch, of the one checkpoint that it was made for; `None` for a segment that many may share.
    pub checkpoint: Option<u64>,
    /// What it is.
    pub kind: ObjectKind,
}

impl ObjectName {
    /// Takes `name` apart; `None` when it isn't such a name, exactly as [`fmt::Display`] would write it.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let folder = parts.next()?.to_owned();
        let subtask = parts.next()?.parse().ok()?;
        let epoch = parts.next()?.parse().ok()?;
        let file = parts.next()?;
        let (stem, kind) = match file.rsplit_once('.')? {
            (stem, "seg") => (stem, ObjectKind::Segment),
            (stem, "man") => (stem, ObjectKind::Manifest),
            _ => return None,
        };
        let (counter, rest) = stem.split_once('-')?;
        let (hash, checkpoint) = match rest.split_once('-') {
            Some((hash, id)) => (hash, Some(id.parse().ok()?)),
            None => (rest, None),
        };
        let hash = u64::from_str_radix(hash, 16).ok()?;
        let parsed = Self { folder, subtask, epoch, counter: counter.parse().ok()?, hash, checkpoint, kind };
        let complete = checkpoint.is_some() || kind == ObjectKind::Segment;
        (complete && parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, subtask, epoch, counter, hash, .. } = self;
        write!(f, "{folder}/{subtask}/{epoch}/{counter}-{hash:016x}")?;
        if let Some(id) = self.checkpoint {
            write!(f, "-{id}")?;
        }
        f.write_str(match self.kind {
            ObjectKind::Segment => ".seg",
            ObjectKind::Manifest => ".man",
        })
    }
}

/// The first part of all names of `operator`'s objects.
#[must_use]
pub fn operator_folder(operator: &str) -> String {
    if operator == "log" { "~6Cog".to_owned() } else { names::encode_part(operator) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_only_exact_ones_parse() {
        let shared = ObjectName {
            folder: operator_folder("clicks by user"),
            subtask: 0,
            epoch: 3,
            counter: 17,
            hash: 0x00c0_ffee_00c0_ffee,
            checkpoint: None,
            kind: ObjectKind::Segment,
        };
        let own = ObjectName { checkpoint: Some(0), ..shared.clone() };
        let manifest = ObjectName { checkpoint: Some(12), kind: ObjectKind::Manifest, ..shared.clone() };
        for (name, text) in [
            (shared, "clicks~20by~20user/0/3/17-00c0ffee00c0ffee.seg"),
            (own, "clicks~20by~20user/0/3/17-00c0ffee00c0ffee-0.seg"),
            (manifest, "clicks~20by~20user/0/3/17-00c0ffee00c0ffee-12.man"),
        ] {
            assert_eq!(name.to_string(), text);
            assert_eq!(ObjectName::parse(text), Some(name));
        }
        assert_eq!(operator_folder("log"), "~6Cog");
        for other in [
            "log/00000000000000000001",
            "a/0/3/17-00c0ffee00c0ffee.tmp",
            "a/00/3/17-00c0ffee00c0ffee.seg",
            "a/0/3/17-00C0FFEE00C0FFEE.seg",
            "a/0/3/17-1.seg",
            "a/0/3/17-00c0ffee00c0ffee.man",
            "a/0/3/17-00c0ffee00c0ffee-012.man",
            "a/0/3/17-00c0ffee00c0ffee-.seg",
            "a/0/3/17-00c0ffee00c0ffee.seg/x",
            "a/+1/3/17-00c0ffee00c0ffee.seg",
        ] {
            assert_eq!(ObjectName::parse(other), None, "{other}");
        }
    }
}
