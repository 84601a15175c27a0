//! The token by which every writer of one attempt at a job proves that it belongs to it.

use std::fmt;

use super::frame;
use crate::base::ids::WriterEpoch;
use crate::base::wire::{self, Reader};
use crate::{Error, ErrorKind, Result};

const MAGIC: [u8; 4] = *b"HWCL";
const VERSION: u16 = 1;

/// An attempt's claim on a root: the right to write, until somebody claims a higher epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The writer epoch: 1 + the greatest that the log and the parents had seen.
    pub epoch: WriterEpoch,
    /// Random; tells this claim from one of the same number on another root.
    pub attempt: u64,
}

impl Claim {
    /// Bytes to hand to other processes; see [`super::frame`] for the layout.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        wire::put_varint(&mut body, self.epoch);
        body.extend_from_slice(&self.attempt.to_le_bytes());
        frame::seal(MAGIC, VERSION, &body)
    }

    /// Undoes [`Claim::to_bytes`].
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let body = frame::open(MAGIC, VERSION, bytes, "claim")?;
        let mut reader = Reader::new(&body, "claim");
        let claim = Self { epoch: reader.varint()?, attempt: reader.u64()? };
        reader.finish()?;
        Ok(claim)
    }

    /// Checks this claim against the newest one of the log at `url`.
    pub(super) fn check(&self, newest: Option<Self>, url: &str) -> Result<()> {
        match newest {
            Some(newest) if newest == *self => Ok(()),
            Some(newest) if newest.epoch >= self.epoch => {
                Err(Error::new(ErrorKind::Fenced, format!("claim {self} on `{url}` was superseded by claim {newest}")))
            }
            _ => Err(Error::new(ErrorKind::NotFound, format!("the log of `{url}` doesn't know claim {self}"))),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:016x})", self.epoch, self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_cross_processes() {
        let claim = Claim { epoch: 3, attempt: 0x0102_0304_0506_0708 };
        let bytes = claim.to_bytes();
        assert_eq!(bytes[..8], *b"HWCL\x01\0\0\0");
        assert_eq!(bytes[16..], [3, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(Claim::from_bytes(&bytes).unwrap(), claim);
        assert!(Claim::from_bytes(b"").is_err());
    }
}
