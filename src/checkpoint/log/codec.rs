//! Layout of an entry. Body of a frame ([`super::super::frame`], magic `HWLG`), numbers as varints unless said
//! otherwise, texts and byte strings led by their length:
//!
//! ```text
//! number | attempt u64 | written_ms i64 | action | state
//!
//! action      1 Claim: epoch             2 Complete: id, ids condemned    3 Pin: name, id
//!             4 Unpin: name              5 Condemn: ids                   6 Forget: condemned
//!             (id = epoch, id; ids = count, then ids; any other tag reads as Unsupported)
//! state       claim: 0, or 1, epoch, attempt u64
//!             operators: count, then name, max parallelism
//!             greatest completed: 0, or 1, id
//!             checkpoints: count, then id, completed_ms i64, metadata, parts (count, each as in `part`)
//!             pins: count, then name, id, epoch that restored + 1 or 0
//!             condemned: count, then first id, last id, since_ms i64, condemned_ms i64
//!             recent attempts: count, then attempt u64, epoch
//!
//! entry 1, attempt 0x0a, written at 5 ms, that claims epoch 1:
//! 01  0a 00 00 00 00 00 00 00  05 00 00 00 00 00 00 00  01 01
//! 01 01 0a 00 00 00 00 00 00 00  00  00  00  00  00  01 0a 00 00 00 00 00 00 00 01
//! ```

use super::super::claim::Claim;
use super::super::completed::CompletedCheckpoint;
use super::super::frame;
use super::super::part::CheckpointPart;
use super::{Action, Condemned, LineageState, LogEntry, Pin};
use crate::base::ids::CheckpointId;
use crate::base::limits::MAX_NAME_BYTES;
use crate::base::wire::{Reader, put_bytes, put_varint};
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 4] = *b"HWLG";
const VERSION: u16 = 1;

/// Longest metadata of a whole checkpoint, in bytes: every entry carries it for every retained checkpoint.
pub const MAX_JOB_METADATA_BYTES: usize = 1 << 20;

impl LogEntry {
    /// The entry's bytes.
    pub(in super::super) fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_varint(&mut body, self.number);
        body.extend_from_slice(&self.attempt.to_le_bytes());
        body.extend_from_slice(&self.written_ms.to_le_bytes());
        encode_action(&self.action, &mut body);
        encode_state(&self.state, &mut body);
        frame::seal(MAGIC, VERSION, &body)
    }

    /// The entry that stands under `name`.
    ///
    /// # Errors
    /// `Corruption` that names it, also when it was written under another name; `Unsupported` for a newer format.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self> {
        let body = frame::open(MAGIC, VERSION, bytes, name)?;
        let mut reader = Reader::new(&body, name);
        let number = reader.varint()?;
        if LogEntry::number_of(name) != Some(number) {
            return Err(Error::corruption(format!("`{name}` holds entry {number} of a log")));
        }
        let entry = Self {
            number,
            attempt: reader.u64()?,
            written_ms: reader.i64()?,
            action: decode_action(&mut reader, name)?,
            state: decode_state(&mut reader)?,
        };
        reader.finish()?;
        Ok(entry)
    }
}

fn put_id(out: &mut Vec<u8>, id: CheckpointId) {
    put_varint(out, id.epoch);
    put_varint(out, id.id);
}

fn put_ids(out: &mut Vec<u8>, ids: &[CheckpointId]) {
    put_varint(out, ids.len() as u64);
    ids.iter().for_each(|id| put_id(out, *id));
}

fn read_id(reader: &mut Reader<'_>) -> Result<CheckpointId> {
    Ok(CheckpointId { epoch: reader.varint()?, id: reader.varint()? })
}

fn put_condemned(out: &mut Vec<u8>, condemned: &[Condemned]) {
    put_varint(out, condemned.len() as u64);
    for one in condemned {
        put_id(out, one.first);
        put_id(out, one.last);
        out.extend_from_slice(&one.since_ms.to_le_bytes());
        out.extend_from_slice(&one.condemned_ms.to_le_bytes());
    }
}

fn read_condemned(reader: &mut Reader<'_>) -> Result<Condemned> {
    Ok(Condemned {
        first: read_id(reader)?,
        last: read_id(reader)?,
        since_ms: reader.i64()?,
        condemned_ms: reader.i64()?,
    })
}

/// A count, then so many of what `read` reads. Nothing is allocated for a count that the bytes can't hold.
fn read_all<T>(reader: &mut Reader<'_>, mut read: impl FnMut(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    let count = reader.bounded(reader.remaining())?;
    (0..count).map(|_| read(reader)).collect()
}

fn read_option<T>(reader: &mut Reader<'_>, read: impl FnOnce(&mut Reader<'_>) -> Result<T>) -> Result<Option<T>> {
    match reader.u8()? {
        0 => Ok(None),
        1 => read(reader).map(Some),
        _ => Err(reader.corrupt("neither absent nor present")),
    }
}

fn encode_action(action: &Action, out: &mut Vec<u8>) {
    match action {
        Action::Claim { epoch } => {
            out.push(1);
            put_varint(out, *epoch);
        }
        Action::Complete { id, condemned } => {
            out.push(2);
            put_id(out, *id);
            put_ids(out, condemned);
        }
        Action::Pin { name, id } => {
            out.push(3);
            put_bytes(out, name.as_bytes());
            put_id(out, *id);
        }
        Action::Unpin { name } => {
            out.push(4);
            put_bytes(out, name.as_bytes());
        }
        Action::Condemn { ids } => {
            out.push(5);
            put_ids(out, ids);
        }
        Action::Forget { condemned } => {
            out.push(6);
            put_condemned(out, condemned);
        }
    }
}

fn decode_action(reader: &mut Reader<'_>, name: &str) -> Result<Action> {
    Ok(match reader.u8()? {
        1 => Action::Claim { epoch: reader.varint()? },
        2 => Action::Complete { id: read_id(reader)?, condemned: read_all(reader, read_id)? },
        3 => Action::Pin { name: reader.text(MAX_NAME_BYTES)?.to_owned(), id: read_id(reader)? },
        4 => Action::Unpin { name: reader.text(MAX_NAME_BYTES)?.to_owned() },
        5 => Action::Condemn { ids: read_all(reader, read_id)? },
        6 => Action::Forget { condemned: read_all(reader, read_condemned)? },
        tag => return Err(Error::new(ErrorKind::Unsupported, format!("`{name}` has an action of kind {tag}"))),
    })
}

fn encode_state(state: &LineageState, out: &mut Vec<u8>) {
    out.push(u8::from(state.claim.is_some()));
    if let Some(claim) = state.claim {
        put_varint(out, claim.epoch);
        out.extend_from_slice(&claim.attempt.to_le_bytes());
    }
    put_varint(out, state.max_parallelism.len() as u64);
    for (operator, max) in &state.max_parallelism {
        put_bytes(out, operator.as_bytes());
        put_varint(out, u64::from(*max));
    }
    out.push(u8::from(state.greatest_completed.is_some()));
    state.greatest_completed.iter().for_each(|id| put_id(out, *id));
    put_varint(out, state.checkpoints.len() as u64);
    for checkpoint in &state.checkpoints {
        put_id(out, checkpoint.id);
        out.extend_from_slice(&checkpoint.completed_ms.to_le_bytes());
        put_bytes(out, &checkpoint.metadata);
        put_varint(out, checkpoint.parts.len() as u64);
        checkpoint.parts.iter().for_each(|part| part.encode(out));
    }
    put_varint(out, state.pins.len() as u64);
    for pin in &state.pins {
        put_bytes(out, pin.name.as_bytes());
        put_id(out, pin.id);
        put_varint(out, pin.restored_by.map_or(0, |epoch| epoch + 1));
    }
    put_condemned(out, &state.condemned);
    put_varint(out, state.recent.len() as u64);
    for (attempt, epoch) in &state.recent {
        out.extend_from_slice(&attempt.to_le_bytes());
        put_varint(out, *epoch);
    }
}

fn decode_state(reader: &mut Reader<'_>) -> Result<LineageState> {
    let claim = read_option(reader, |r| Ok(Claim { epoch: r.varint()?, attempt: r.u64()? }))?;
    let operators = read_all(reader, |r| {
        let name = r.text(MAX_NAME_BYTES)?.to_owned();
        let max = u32::try_from(r.varint()?).map_err(|_| r.corrupt("max parallelism over 32 bits"))?;
        Ok((name, max))
    })?;
    let greatest_completed = read_option(reader, read_id)?;
    let checkpoints = read_all(reader, |r| {
        let id = read_id(r)?;
        Ok(CompletedCheckpoint {
            id,
            completed_ms: r.i64()?,
            metadata: r.bytes(MAX_JOB_METADATA_BYTES)?.to_vec(),
            parts: read_all(r, |r| CheckpointPart::decode(r, id))?,
        })
    })?;
    let pins = read_all(reader, |r| {
        let (name, id) = (r.text(MAX_NAME_BYTES)?.to_owned(), read_id(r)?);
        Ok(Pin { name, id, restored_by: r.varint()?.checked_sub(1) })
    })?;
    let condemned = read_all(reader, read_condemned)?;
    let recent = read_all(reader, |r| Ok((r.u64()?, r.varint()?)))?;
    let max_parallelism = operators.into_iter().collect();
    Ok(LineageState { claim, max_parallelism, greatest_completed, checkpoints, pins, condemned, recent })
}
