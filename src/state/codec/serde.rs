//! Any serde type as a value.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Codec;
use crate::{Error, ErrorKind, Result};

/// A value stored in the [postcard](https://docs.rs/postcard) format, version 1.
///
/// The bytes don't sort as the values do, and fields are known by their position: adding, removing or
/// reordering them makes older values unreadable or, worse, readable as something else. Where a type will
/// change, implement [`Codec`] and raise the version in its id.
///
/// # Examples
/// ```
/// use highwater::{Codec, Serde};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct Visit { page: String, seconds: u32 }
///
/// let visit = Serde(Visit { page: "/".into(), seconds: 3 });
/// let mut bytes = Vec::new();
/// visit.encode(&mut bytes)?;
/// assert_eq!(<Serde<Visit>>::decode(&bytes)?, visit);
/// # Ok::<(), highwater::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Serde<T>(pub T);

impl<T: Serialize + DeserializeOwned> Codec for Serde<T> {
    const FIXED_WIDTH: Option<u16> = None;

    fn id() -> String {
        "postcard@1".into()
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let written = postcard::to_extend(&self.0, std::mem::take(out));
        match written {
            Ok(bytes) => {
                *out = bytes;
                debug_assert!(out.len() >= start);
                Ok(())
            }
            Err(e) => Err(Error::with_source(ErrorKind::Codec, "writing a value as postcard", e)),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(Self(value)),
            Ok((_, rest)) => Err(Error::new(
                ErrorKind::Codec,
                format!("{} bytes after the end of a postcard value of {} bytes", rest.len(), bytes.len()),
            )),
            Err(e) => Err(Error::with_source(
                ErrorKind::Codec,
                format!("reading {} bytes as a postcard value", bytes.len()),
                e,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_appended_and_read_back_whole() {
        let value = Serde((String::from("x"), vec![1_u32, 2, 300], Some(-1.5_f64)));
        let mut bytes = vec![9];
        value.encode(&mut bytes).unwrap();
        assert_eq!(bytes[0], 9);
        assert_eq!(Serde::decode(&bytes[1..]).unwrap(), value);
        bytes.push(0);
        let error = <Serde<(String, Vec<u32>, Option<f64>)>>::decode(&bytes[1..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Codec);
    }
}
