//! A value of any length up to a bound, kept in place: what a user's record type would be, without an allocation each time
//! that one is read.

use highwater::{Codec, Error, ErrorKind, Result};

use crate::values::MAX_VALUE_BYTES;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    bytes: [u8; MAX_VALUE_BYTES],
    len: u8,
}

impl Payload {
    /// A copy of `bytes`, of which there must be at most [`MAX_VALUE_BYTES`].
    #[inline]
    pub fn of(from: &[u8]) -> Self {
        let mut bytes = [0; MAX_VALUE_BYTES];
        bytes[..from.len()].copy_from_slice(from);
        Self { bytes, len: from.len() as u8 }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Codec for Payload {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        "payload@1".into()
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(self.bytes());
        Ok(())
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_VALUE_BYTES {
            return Err(Error::new(ErrorKind::Codec, format!("{} bytes are no payload", bytes.len())));
        }
        Ok(Self::of(bytes))
    }
}
