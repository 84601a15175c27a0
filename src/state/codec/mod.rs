//! How typed keys, namespaces and values become bytes.
//!
//! Enters: values of Rust types. Leaves: their bytes, and an id with a version that is stored with the
//! state. Always holds: what a codec wrote it can read; equal values have equal bytes; a borrowed form
//! (`str` of `String`, `[u8]` of `Vec<u8>`) writes the same bytes as the owned one.
//!
//! | Type | Bytes | Ordered |
//! |---|---|---|
//! | `u8` .. `u128` | big-endian | yes |
//! | `i8` .. `i128` | big-endian, sign bit flipped | yes |
//! | `f32`, `f64` | IEEE bits; sign bit flipped, all bits of negative ones | yes, as `total_cmp` |
//! | `bool` | 0 or 1 | yes |
//! | `String`, `str`, `Vec<u8>`, `[u8]`, `[u8; N]` | as they are | yes |
//! | `()` | none | yes |
//! | `Option<T>` | 0, or 1 and the value | when `T` is |
//! | `(A, B)`, `(A, B, C)` | parts in order; each but the last escaped as in [`crate::base::key`] unless its width is fixed | when all are |
//! | [`Serde<T>`] | [postcard](https://docs.rs/postcard) | no |

mod bytes;
mod compound;
mod number;
mod serde;

pub(super) use self::compound::take_part;
pub use self::serde::Serde;

use crate::{Error, ErrorKind, Result};

/// Turns values of a type into bytes and back.
///
/// # Examples
/// A codec of one's own. The version in the id goes up when the bytes change.
/// ```
/// use highwater::{Codec, Result};
///
/// #[derive(Debug, PartialEq)]
/// struct Point { x: i32, y: i32 }
///
/// impl Codec for Point {
///     const FIXED_WIDTH: Option<u16> = Some(8);
///     fn id() -> String { "point@1".into() }
///     fn encode(&self, out: &mut Vec<u8>) -> Result<()> { (self.x, self.y).encode(out) }
///     fn decode(bytes: &[u8]) -> Result<Self> {
///         let (x, y) = <(i32, i32)>::decode(bytes)?;
///         Ok(Self { x, y })
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Point { x: 1, y: -1 }.encode(&mut bytes)?;
/// assert_eq!(bytes, [0x80, 0, 0, 1, 0x7F, 0xFF, 0xFF, 0xFF]);
/// assert_eq!(Point::decode(&bytes)?, Point { x: 1, y: -1 });
/// # Ok::<(), highwater::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `Codec`",
    note = "implement `highwater::Codec` for it, or wrap a serde type in `highwater::Serde`"
)]
pub trait Codec {
    /// Number of bytes of every value, where it is always the same. Keys and namespaces of fixed width
    /// are stored without escaping.
    const FIXED_WIDTH: Option<u16>;

    /// Name and version, `name@version`. It is stored with the state, and a state opened with another
    /// one is refused.
    fn id() -> String;

    /// Appends the value's bytes to `out`.
    ///
    /// # Errors
    /// [`ErrorKind::Codec`] when the value can't be written.
    fn encode(&self, out: &mut Vec<u8>) -> Result<()>;

    /// The value whose bytes are exactly `bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::Codec`] when they aren't a value of this type.
    fn decode(bytes: &[u8]) -> Result<Self>
    where
        Self: Sized;
}

/// A codec whose bytes sort as its values do, so that ranges over them mean something.
pub trait OrderedCodec: Codec {}

/// The error of a codec that met bytes it can't read.
#[cold]
pub(crate) fn undecodable(codec: &str, bytes: &[u8]) -> Error {
    Error::new(ErrorKind::Codec, format!("{} stored bytes are no value of codec `{codec}`", bytes.len()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that `values`, given in ascending order, round-trip and keep their order as bytes.
    pub(crate) fn check_ordered<T: OrderedCodec + PartialEq + std::fmt::Debug>(values: &[T]) {
        let mut previous: Option<Vec<u8>> = None;
        for value in values {
            let mut bytes = Vec::new();
            value.encode(&mut bytes).unwrap();
            assert_eq!(&T::decode(&bytes).unwrap(), value);
            if let Some(width) = T::FIXED_WIDTH {
                assert_eq!(bytes.len(), usize::from(width));
                assert!(width == 0 || T::decode(&bytes[1..]).is_err());
            }
            assert!(previous.as_ref().is_none_or(|p| *p < bytes), "{value:?} is out of order");
            previous = Some(bytes);
        }
    }
}
