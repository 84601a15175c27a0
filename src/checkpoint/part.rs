//! What one subtask reports of its share of a checkpoint, once its manifest is in the store.

use std::ops::Range;

use super::frame;
use super::object_name::{ObjectKind, ObjectName, operator_folder};
use crate::base::ids::CheckpointId;
use crate::base::key_group::KeyGroupRange;
use crate::base::limits::MAX_NAME_BYTES;
use crate::base::wire::{self, Reader};
use crate::io::names::MAX_OBJECT_NAME_BYTES;
use crate::{Error, Result};

const MAGIC: [u8; 4] = *b"HWCP";
const VERSION: u16 = 1;

/// An object in the store, with what must be found there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Name below the root.
    pub name: String,
    /// Length in bytes.
    pub length_bytes: u64,
    /// XXH3-64 of its bytes.
    pub hash: u64,
}

impl ObjectRef {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        wire::put_bytes(out, self.name.as_bytes());
        wire::put_varint(out, self.length_bytes);
        out.extend_from_slice(&self.hash.to_le_bytes());
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            name: reader.text(MAX_OBJECT_NAME_BYTES)?.to_owned(),
            length_bytes: reader.varint()?,
            hash: reader.u64()?,
        })
    }
}

/// One subtask's share of a checkpoint. Its state and its caller's metadata are in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointPart {
    /// The checkpoint it is a part of.
    pub checkpoint: CheckpointId,
    /// Name of the operator, as the user gave it.
    pub operator: String,
    /// Index of the subtask.
    pub subtask: u32,
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// The subtask's key groups.
    pub key_groups: KeyGroupRange,
    /// The manifest.
    pub manifest: ObjectRef,
    /// True for full checkpoints and savepoints: the manifest reaches only objects that were uploaded for it, and
    /// no later checkpoint builds on those.
    pub self_contained: bool,
    /// Counters of names ([`super::object_name`]) that the subtask has settled: of the shared segments of its epoch whose
    /// counters are in this range, no newer checkpoint refers to one that the manifest doesn't refer to. Empty when
    /// nothing can be said.
    pub settled: Range<u64>,
    /// Bytes of the segments that were uploaded for this part. Those that an aborted checkpoint had uploaded before don't count again.
    pub delta_bytes: u64,
    /// Bytes sent to the store for this part, retries and manifest included.
    pub uploaded_bytes: u64,
    /// Bytes of all that the manifest reaches, itself included.
    pub full_bytes: u64,
}

impl CheckpointPart {
    /// Bytes to send to the coordinator. Body, in [`super::frame`]: epoch and id (varints), then as in a log entry:
    /// operator (length, UTF-8), subtask, parallelism, max parallelism (varints), first and last key group (u16),
    /// manifest (name with its length, length in bytes as varint, hash u64), flags (u8, bit 0 self-contained),
    /// start and end of the settled counters, delta, uploaded and full bytes (varints).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        wire::put_varint(&mut body, self.checkpoint.epoch);
        wire::put_varint(&mut body, self.checkpoint.id);
        self.encode(&mut body);
        frame::seal(MAGIC, VERSION, &body)
    }

    /// Undoes [`CheckpointPart::to_bytes`].
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let body = frame::open(MAGIC, VERSION, bytes, "checkpoint part")?;
        let mut reader = Reader::new(&body, "checkpoint part");
        let checkpoint = CheckpointId { epoch: reader.varint()?, id: reader.varint()? };
        let part = Self::decode(&mut reader, checkpoint)?;
        reader.finish()?;
        Ok(part)
    }

    /// Everything but the checkpoint's id.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        wire::put_bytes(out, self.operator.as_bytes());
        for number in [self.subtask, self.parallelism, self.max_parallelism] {
            wire::put_varint(out, u64::from(number));
        }
        out.extend_from_slice(&self.key_groups.first().to_le_bytes());
        out.extend_from_slice(&self.key_groups.last().to_le_bytes());
        self.manifest.encode(out);
        out.push(u8::from(self.self_contained));
        for number in [self.settled.start, self.settled.end, self.delta_bytes, self.uploaded_bytes, self.full_bytes] {
            wire::put_varint(out, number);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>, checkpoint: CheckpointId) -> Result<Self> {
        let operator = reader.text(MAX_NAME_BYTES)?.to_owned();
        let mut numbers = [0_u32; 3];
        for number in &mut numbers {
            *number = u32::try_from(reader.varint()?).map_err(|_| reader.corrupt("number over 32 bits"))?;
        }
        let (first, last) = (reader.u16()?, reader.u16()?);
        let key_groups = KeyGroupRange::new(first, last).ok_or_else(|| reader.corrupt("empty key-group range"))?;
        let manifest = ObjectRef::decode(reader)?;
        let self_contained = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.corrupt("unknown flags of a part")),
        };
        let [subtask, parallelism, max_parallelism] = numbers;
        Ok(Self {
            checkpoint,
            operator,
            subtask,
            parallelism,
            max_parallelism,
            key_groups,
            manifest,
            self_contained,
            settled: reader.varint()?..reader.varint()?,
            delta_bytes: reader.varint()?,
            uploaded_bytes: reader.varint()?,
            full_bytes: reader.varint()?,
        })
    }

    /// Checks that the fields agree with one another.
    ///
    /// # Errors
    /// `InvalidArgument` that says which don't.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| {
            let (operator, subtask, id) = (&self.operator, self.subtask, self.checkpoint);
            Err(Error::invalid(format!("part of checkpoint {id} from subtask {subtask} of `{operator}`: {what}")))
        };
        if self.operator.len() > MAX_NAME_BYTES {
            return bad("operator name over the limit");
        }
        let expected = KeyGroupRange::of_subtask(self.subtask, self.parallelism, self.max_parallelism)?;
        if self.key_groups != expected {
            return bad(&format!("key groups {expected} expected, {} found", self.key_groups));
        }
        let ours = |name: &ObjectName| {
            name.kind == ObjectKind::Manifest
                && name.folder == operator_folder(&self.operator)
                && (name.subtask, name.epoch) == (self.subtask, self.checkpoint.epoch)
                && name.checkpoint == Some(self.checkpoint.id)
        };
        if !ObjectName::parse(&self.manifest.name).is_some_and(|name| ours(&name)) {
            return bad(&format!("`{}` doesn't name a manifest of it", self.manifest.name));
        }
        Ok(())
    }
}
