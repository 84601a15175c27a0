//! The other sections of a manifest, and all of them together.
//!
//! ```text
//! identity: operator text | subtask, parallelism, max parallelism, first group, last group varints
//!           | writer epoch varint | checkpoint epoch varint | checkpoint id varint | kind u8 | created i64
//!           | next sequence varint | time high-water mark i64
//! roots:    count varint | text* (the own root, empty; behind it the URLs of those that a fork's first checkpoint reaches into)
//! states:   count varint | { name text | kind text | layout u8 | key width, namespace width varints (0 for
//!           variable, else width + 1) | 4 codecs text | ttl varint (0 for none, else ms + 1) | has operator u8
//!           | operator text (when 1) }*
//! dropped:  count varint | id u32*
//! metadata: the bytes
//! lineage:  count varint | { epoch varint | id varint }*
//! ```
//! Worked bytes of one parent 3/258 in the lineage: `01 03 82 02`. The tree is drawn in `tree.rs`, the frame in
//! `frame.rs`; `tests/golden/manifest.hex` pins all of it.

use bytes::Bytes;

use super::frame::{self, Tag};
use super::{CheckpointKind, Manifest, tree};
use crate::base::descriptor::{Layout, StateDescriptor};
use crate::base::ids::{CheckpointId, StateId};
use crate::base::key::KeyShape;
use crate::base::key_group::{KeyGroupRange, check_parallelism};
use crate::base::limits::{MAX_METADATA_BYTES, MAX_NAME_BYTES};
use crate::base::wire::{Reader, put_bytes, put_varint};
use crate::{Error, Result};

/// Longest URL of a root, in bytes.
const MAX_URL_BYTES: usize = 16 << 10;

/// The bytes of `manifest`.
///
/// # Errors
/// `InvalidArgument` when the caller's metadata is over its limit; `Internal` when a segment isn't durable or
/// the fields contradict each other.
pub fn encode(manifest: &Manifest) -> Result<Vec<u8>> {
    if manifest.metadata.len() > MAX_METADATA_BYTES {
        return Err(Error::invalid(format!(
            "checkpoint metadata of {} bytes is over the limit of {MAX_METADATA_BYTES}",
            manifest.metadata.len()
        )));
    }
    check(manifest).map_err(Error::internal)?;
    let mut out = frame::start();
    frame::put_section(&mut out, Tag::Identity, &identity(manifest))?;
    let mut section = Vec::new();
    put_varint(&mut section, manifest.roots.len() as u64);
    manifest.roots.iter().for_each(|root| put_bytes(&mut section, root.as_bytes()));
    frame::put_section(&mut out, Tag::Roots, &section)?;
    section.clear();
    put_varint(&mut section, manifest.states.len() as u64);
    manifest.states.iter().for_each(|state| put_state(&mut section, state));
    frame::put_section(&mut out, Tag::States, &section)?;
    section.clear();
    put_varint(&mut section, manifest.dropped.len() as u64);
    manifest.dropped.iter().for_each(|id| section.extend_from_slice(&id.0.to_le_bytes()));
    frame::put_section(&mut out, Tag::Dropped, &section)?;
    frame::put_section(&mut out, Tag::Metadata, &manifest.metadata)?;
    section.clear();
    tree::put(&mut section, &manifest.version)?;
    frame::put_section(&mut out, Tag::Tree, &section)?;
    section.clear();
    put_varint(&mut section, manifest.parents.len() as u64);
    for parent in &manifest.parents {
        put_varint(&mut section, parent.epoch);
        put_varint(&mut section, parent.id);
    }
    frame::put_section(&mut out, Tag::Lineage, &section)?;
    Ok(frame::finish(out))
}

/// The manifest in `bytes`, which came from the file or object called `name`.
///
/// # Errors
/// `Corruption` or `Unsupported`, naming it.
pub fn decode(bytes: &[u8], name: &str) -> Result<Manifest> {
    let what = format!("manifest `{name}`");
    let [identity, roots, states, dropped, metadata, tree, lineage] = frame::open(bytes, &what)?;
    let section = |bytes, tag: Tag| (bytes, format!("{what}, section {tag:?}"));
    let mut manifest = whole(section(identity, Tag::Identity), read_identity)?;
    manifest.roots = whole(section(roots, Tag::Roots), |r| list(r, 1, |r| Ok(r.text(MAX_URL_BYTES)?.to_owned())))?;
    manifest.states = whole(section(states, Tag::States), |r| list(r, 11, read_state))?;
    manifest.dropped = whole(section(dropped, Tag::Dropped), |r| list(r, 4, |r| Ok(StateId(r.u32()?))))?;
    if metadata.len() > MAX_METADATA_BYTES {
        return Err(Error::corruption(format!("{what} has caller metadata of {} bytes", metadata.len())));
    }
    manifest.metadata = Bytes::copy_from_slice(metadata);
    manifest.version = whole(section(tree, Tag::Tree), |r| tree::read(r, manifest.roots.len()))?;
    let parent = |r: &mut Reader<'_>| Ok(CheckpointId { epoch: r.varint()?, id: r.varint()? });
    manifest.parents = whole(section(lineage, Tag::Lineage), |r| list(r, 2, parent))?;
    check(&manifest).map_err(|problem| Error::corruption(format!("{what}: {problem}")))?;
    Ok(manifest)
}

/// What fields owe each other, whoever made them.
fn check(manifest: &Manifest) -> Result<(), String> {
    check_parallelism(manifest.parallelism, manifest.max_parallelism).map_err(|e| e.message().to_owned())?;
    if manifest.subtask >= manifest.parallelism {
        return Err(format!("subtask {} of {}", manifest.subtask, manifest.parallelism));
    }
    if u32::from(manifest.groups.last()) >= manifest.max_parallelism {
        return Err(format!("key groups {} of {}", manifest.groups, manifest.max_parallelism));
    }
    if manifest.roots.first().is_none_or(|own| !own.is_empty()) {
        return Err("the root table doesn't begin with the own root".to_owned());
    }
    if !manifest.version.is_empty() && manifest.version.max_sequence() >= manifest.next_sequence {
        return Err(format!(
            "next sequence {} isn't beyond {}",
            manifest.next_sequence,
            manifest.version.max_sequence()
        ));
    }
    if manifest.version.refs().any(|(_, _, r)| usize::from(r.root()) >= manifest.roots.len()) {
        return Err("a segment's root isn't in the table".to_owned());
    }
    Ok(())
}

fn whole<T>((bytes, what): (&[u8], String), read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<T> {
    let mut reader = Reader::new(bytes, &what);
    let value = read(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// A count, then so many items of at least `least_bytes` each.
fn list<T>(
    reader: &mut Reader<'_>,
    least_bytes: usize,
    mut item: impl FnMut(&mut Reader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = reader.bounded(reader.remaining() / least_bytes)?;
    (0..count).map(|_| item(reader)).collect()
}

fn identity(manifest: &Manifest) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, manifest.operator.as_bytes());
    let numbers = [
        manifest.subtask,
        manifest.parallelism,
        manifest.max_parallelism,
        manifest.groups.first().into(),
        manifest.groups.last().into(),
    ];
    numbers.into_iter().for_each(|n| put_varint(&mut out, n.into()));
    put_varint(&mut out, manifest.writer_epoch);
    put_varint(&mut out, manifest.checkpoint.epoch);
    put_varint(&mut out, manifest.checkpoint.id);
    out.push(manifest.kind as u8);
    out.extend_from_slice(&manifest.created_ms.to_le_bytes());
    put_varint(&mut out, manifest.next_sequence);
    out.extend_from_slice(&manifest.time_high_water_ms.to_le_bytes());
    out
}

fn narrow<T: TryFrom<u64>>(reader: &mut Reader<'_>) -> Result<T> {
    let value = reader.varint()?;
    T::try_from(value).map_err(|_| reader.corrupt(&format!("number {value} is too large for its field")))
}

/// The identity, in a manifest that is otherwise empty.
fn read_identity(reader: &mut Reader<'_>) -> Result<Manifest> {
    let operator = reader.text(MAX_NAME_BYTES)?.to_owned();
    let (subtask, parallelism, max_parallelism) = (narrow(reader)?, narrow(reader)?, narrow(reader)?);
    let groups = KeyGroupRange::new(narrow(reader)?, narrow(reader)?);
    let groups = groups.ok_or_else(|| reader.corrupt("key groups end before they begin"))?;
    let writer_epoch = reader.varint()?;
    let checkpoint = CheckpointId { epoch: reader.varint()?, id: reader.varint()? };
    let kind = match reader.u8()? {
        1 => CheckpointKind::Incremental,
        2 => CheckpointKind::Full,
        3 => CheckpointKind::Savepoint,
        other => return Err(reader.corrupt(&format!("checkpoint kind {other}"))),
    };
    Ok(Manifest {
        operator,
        subtask,
        parallelism,
        max_parallelism,
        groups,
        writer_epoch,
        checkpoint,
        kind,
        created_ms: reader.i64()?,
        next_sequence: reader.varint()?,
        time_high_water_ms: reader.i64()?,
        roots: Vec::new(),
        states: Vec::new(),
        dropped: Vec::new(),
        metadata: Bytes::new(),
        version: crate::version::Version::default(),
        parents: Vec::new(),
    })
}

fn put_state(out: &mut Vec<u8>, state: &StateDescriptor) {
    put_bytes(out, state.name.as_bytes());
    put_bytes(out, state.kind.as_bytes());
    out.push(state.layout as u8);
    for width in [state.shape.key_width, state.shape.namespace_width] {
        put_varint(out, width.map_or(0, |w| u64::from(w) + 1));
    }
    state.codecs.iter().for_each(|codec| put_bytes(out, codec.as_bytes()));
    // A time to live of u64::MAX never ends, as none does.
    // The longest that there is is as good as a millisecond less; none is something else.
    put_varint(out, state.ttl_ms.map_or(0, |ms| ms.saturating_add(1)));
    out.push(u8::from(state.merge_operator.is_some()));
    if let Some(operator) = &state.merge_operator {
        put_bytes(out, operator.as_bytes());
    }
}

fn read_state(reader: &mut Reader<'_>) -> Result<StateDescriptor> {
    fn text(reader: &mut Reader<'_>) -> Result<String> {
        Ok(reader.text(MAX_NAME_BYTES)?.to_owned())
    }
    fn width(reader: &mut Reader<'_>) -> Result<Option<u16>> {
        match reader.varint()?.checked_sub(1) {
            None => Ok(None),
            Some(width) => u16::try_from(width).map(Some).map_err(|_| reader.corrupt("width of a key part")),
        }
    }
    let (name, kind) = (text(reader)?, text(reader)?);
    let layout = match reader.u8()? {
        1 => Layout::Single,
        2 => Layout::Grouped,
        other => return Err(reader.corrupt(&format!("state layout {other}"))),
    };
    let shape = KeyShape { key_width: width(reader)?, namespace_width: width(reader)? };
    let codecs = [text(reader)?, text(reader)?, text(reader)?, text(reader)?];
    let ttl_ms = reader.varint()?.checked_sub(1);
    let merge_operator = match reader.u8()? {
        0 => None,
        1 => Some(text(reader)?),
        other => return Err(reader.corrupt(&format!("operator flag {other}"))),
    };
    Ok(StateDescriptor { name, kind, layout, shape, codecs, ttl_ms, merge_operator })
}
