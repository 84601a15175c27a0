//! The key encoding.
//!
//! ```text
//! key group: u16 BE | state id: u32 BE | key | namespace | user key
//! ```
//! Key and namespace are each either fixed-width (stored as they are) or escaped: a 0x00 byte becomes
//! `00 FF`, and the part ends with `00 01`. The user key stands last, as it is. Byte order is then the
//! order of the tuple, and no (key, namespace) is a prefix of another, so every scan a host needs is one
//! contiguous range. Worked bytes: group 1, state 0x0000002A, key `61 00`, empty namespace of width 0,
//! user key `7A`: `00 01 | 00 00 00 2A | 61 00 FF 00 01 | 7A`.

use super::ids::StateId;
use super::key_group::{KeyGroup, KeyGroupRange};
use super::limits::{MAX_COMPOSED_KEY_BYTES, MAX_KEY_PART_BYTES};
use crate::{Error, Result};

/// Length of key group and state id.
pub const HEADER_BYTES: usize = 6;
/// Length of the end of a part of variable width.
pub const PART_END_BYTES: usize = 2;

/// Widths of a state's key and namespace parts; `None` is variable (escaped).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KeyShape {
    /// Width of every key in bytes.
    pub key_width: Option<u16>,
    /// Width of every namespace in bytes; `Some(0)` for none.
    pub namespace_width: Option<u16>,
}

impl KeyShape {
    /// The shape of states whose entries all lie under the empty key and namespace, in the order of their user keys.
    pub const USER_KEYS_ONLY: Self = Self { key_width: Some(0), namespace_width: Some(0) };

    /// Longest user key in bytes. Where the user key stands for key and namespace too, it may be as long as those could.
    fn max_user_key_bytes(self) -> usize {
        if self == Self::USER_KEYS_ONLY { MAX_COMPOSED_KEY_BYTES } else { MAX_KEY_PART_BYTES }
    }
}

/// The parts of a key as the host gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyParts<'a> {
    /// Key group.
    pub group: KeyGroup,
    /// Serialized key.
    pub key: &'a [u8],
    /// Serialized namespace, often empty.
    pub namespace: &'a [u8],
    /// Map key, list chunk, timer or ordered key; empty for single values.
    pub user_key: &'a [u8],
}

#[inline(always)]
fn put_part(out: &mut Vec<u8>, part: &[u8], width: Option<u16>, what: &str) -> Result<()> {
    match width {
        Some(width) if part.len() == usize::from(width) => put_short(out, part),
        None if part.len() <= MAX_KEY_PART_BYTES => put_escaped(out, part),
        _ => return Err(refused(part, width, what)),
    }
    Ok(())
}

/// Appends what is mostly eight or sixteen bytes long, without a call then.
#[inline(always)]
fn put_short(out: &mut Vec<u8>, part: &[u8]) {
    if let Ok(part) = <&[u8; 8]>::try_from(part) {
        out.extend_from_slice(part);
    } else if let Ok(part) = <&[u8; 16]>::try_from(part) {
        out.extend_from_slice(part);
    } else {
        out.extend_from_slice(part);
    }
}

#[cold]
fn refused(part: &[u8], width: Option<u16>, what: &str) -> Error {
    match width {
        Some(width) => Error::invalid(format!("{what} of {} bytes in a state of {what} width {width}", part.len())),
        None => too_long(part, MAX_KEY_PART_BYTES, what),
    }
}

#[cold]
fn too_long(part: &[u8], limit: usize, what: &str) -> Error {
    Error::invalid(format!("{what} of {} bytes is over the limit of {limit}", part.len()))
}

/// Checks the length of a part that is about to be composed into a user key.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] when it is over [`MAX_KEY_PART_BYTES`].
#[inline]
pub fn check_part(part: &[u8], what: &str) -> Result<()> {
    if part.len() > MAX_KEY_PART_BYTES { Err(too_long(part, MAX_KEY_PART_BYTES, what)) } else { Ok(()) }
}

/// Appends a part of variable width: escaped and ended, so that others may follow.
#[inline]
pub(crate) fn put_escaped(out: &mut Vec<u8>, part: &[u8]) {
    let mut rest = part;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        let (head, tail) = rest.split_at(zero + 1);
        out.extend_from_slice(head);
        out.push(0xFF);
        rest = tail;
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
}

/// Replaces `out` by the encoded prefix of all entries of (group, state, key, namespace).
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] when a part is over the limit or not of the state's width.
#[inline]
pub fn encode_prefix(
    out: &mut Vec<u8>,
    state: StateId,
    shape: KeyShape,
    group: KeyGroup,
    key: &[u8],
    namespace: &[u8],
) -> Result<()> {
    let ([g0, g1], [s0, s1, s2, s3]) = (group.to_be_bytes(), state.0.to_be_bytes());
    out.clear();
    // Room for the common shapes at once, so that what follows doesn't grow the buffer piece by piece.
    out.reserve(48);
    out.extend_from_slice(&[g0, g1, s0, s1, s2, s3]);
    put_part(out, key, shape.key_width, "key")?;
    put_part(out, namespace, shape.namespace_width, "namespace")
}

/// Replaces `out` by the encoded key and returns the length of its (group, state, key, namespace) prefix.
///
/// # Errors
/// As [`encode_prefix`].
#[inline]
pub fn encode(out: &mut Vec<u8>, state: StateId, shape: KeyShape, parts: KeyParts<'_>) -> Result<usize> {
    encode_prefix(out, state, shape, parts.group, parts.key, parts.namespace)?;
    let prefix_len = out.len();
    if parts.user_key.len() > MAX_KEY_PART_BYTES && parts.user_key.len() > shape.max_user_key_bytes() {
        return Err(too_long(parts.user_key, shape.max_user_key_bytes(), "user key"));
    }
    out.extend_from_slice(parts.user_key);
    Ok(prefix_len)
}

/// An encoded key's group and state, and where the rest begins.
///
/// # Errors
/// Corruption when the key is shorter than its header.
pub fn split_header(encoded: &[u8]) -> Result<(KeyGroup, StateId, &[u8])> {
    match encoded {
        [g0, g1, s0, s1, s2, s3, rest @ ..] => {
            Ok((u16::from_be_bytes([*g0, *g1]), StateId(u32::from_be_bytes([*s0, *s1, *s2, *s3])), rest))
        }
        _ => Err(Error::corruption(format!("encoded key of {} bytes is shorter than its header", encoded.len()))),
    }
}

fn ends_inside_a_part() -> Error {
    Error::corruption("encoded key ends inside a part")
}

fn take_part<'a>(rest: &'a [u8], width: Option<u16>, out: &mut Vec<u8>) -> Result<&'a [u8]> {
    let Some(width) = width else { return take_escaped(rest, out) };
    let (part, rest) = rest.split_at_checked(usize::from(width)).ok_or_else(ends_inside_a_part)?;
    out.extend_from_slice(part);
    Ok(rest)
}

/// As [`take_part`], the part itself not wanted.
fn skip_part(rest: &[u8], width: Option<u16>) -> Result<&[u8]> {
    if let Some(width) = width {
        return rest.get(usize::from(width)..).ok_or_else(ends_inside_a_part);
    }
    let mut rest = rest;
    loop {
        let zero = rest.iter().position(|byte| *byte == 0).ok_or_else(ends_inside_a_part)?;
        match rest.split_at(zero) {
            (_, [0, 1, after @ ..]) => return Ok(after),
            (_, [0, 0xFF, after @ ..]) => rest = after,
            _ => return Err(ends_inside_a_part()),
        }
    }
}

/// Undoes [`put_escaped`]: appends the part to `out` and returns what follows it.
pub(crate) fn take_escaped<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8]> {
    loop {
        let zero = rest.iter().position(|byte| *byte == 0).ok_or_else(ends_inside_a_part)?;
        let (plain, from_zero) = rest.split_at(zero);
        out.extend_from_slice(plain);
        match from_zero {
            [0, 1, after @ ..] => return Ok(after),
            [0, 0xFF, after @ ..] => {
                out.push(0);
                rest = after;
            }
            _ => return Err(ends_inside_a_part()),
        }
    }
}

/// A decoded key that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedParts {
    /// Key group.
    pub group: KeyGroup,
    /// State id.
    pub state: StateId,
    /// Serialized key.
    pub key: Vec<u8>,
    /// Serialized namespace.
    pub namespace: Vec<u8>,
    /// User key.
    pub user_key: Vec<u8>,
}

/// Undoes [`encode`].
///
/// # Errors
/// Corruption when the bytes aren't an encoded key of this shape.
pub fn decode(encoded: &[u8], shape: KeyShape) -> Result<OwnedParts> {
    let (group, state, rest) = split_header(encoded)?;
    let (mut key, mut namespace) = (Vec::new(), Vec::new());
    let rest = take_part(rest, shape.key_width, &mut key)?;
    let rest = take_part(rest, shape.namespace_width, &mut namespace)?;
    Ok(OwnedParts { group, state, key, namespace, user_key: rest.to_vec() })
}

/// Length of the (group, state, key, namespace) prefix of `encoded`.
///
/// # Errors
/// As [`decode`].
pub fn prefix_len(encoded: &[u8], shape: KeyShape) -> Result<usize> {
    let (_, _, rest) = split_header(encoded)?;
    let rest = skip_part(rest, shape.key_width)?;
    let rest = skip_part(rest, shape.namespace_width)?;
    Ok(encoded.len() - rest.len())
}

/// The least byte string greater than every string that starts with `prefix`; `None` when there is none
/// (the prefix is empty or all 0xFF).
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|b| *b != 0xFF)?;
    let mut end = prefix.get(..=keep)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    Some(end)
}

/// Encoded keys from `start` (included) to `end` (excluded); `None` is no bound above.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Vec<u8>,
    /// First key beyond it.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Every key that starts with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: prefix.to_vec(), end: prefix_end(prefix) }
    }

    /// Every key of the key groups.
    #[must_use]
    pub fn groups(groups: KeyGroupRange) -> Self {
        let end = groups.last().checked_add(1).map(|g| g.to_be_bytes().to_vec());
        Self { start: groups.first().to_be_bytes().to_vec(), end }
    }

    /// True when no key is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// True when `key` is in it.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_ref().is_none_or(|end| key < end.as_slice())
    }

    /// The keys in both, perhaps none.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let start = self.start.clone().max(other.start.clone());
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Self { start, end }
    }

    /// True when a key from `first` to `last`, both included, may be in it.
    #[must_use]
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        !self.is_empty() && last >= self.start.as_slice() && self.end.as_ref().is_none_or(|end| first < end.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARIABLE: KeyShape = KeyShape { key_width: None, namespace_width: None };

    #[test]
    fn worked_bytes() {
        let mut out = Vec::new();
        let shape = KeyShape { key_width: None, namespace_width: Some(0) };
        let parts = KeyParts { group: 1, key: &[0x61, 0], namespace: &[], user_key: &[0x7A] };
        assert_eq!(encode(&mut out, StateId(0x2A), shape, parts).unwrap(), 11);
        assert_eq!(out, [0, 1, 0, 0, 0, 0x2A, 0x61, 0, 0xFF, 0, 1, 0x7A]);
        assert_eq!(prefix_len(&out, shape).unwrap(), 11);
    }

    #[test]
    fn order_is_that_of_the_tuple_and_prefixes_never_collide() {
        let parts: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0, 0],
            vec![0, 1],
            vec![0, 0xFF],
            vec![1],
            vec![0xFF],
            vec![0xFF, 0],
            vec![0xFF; 2],
        ];
        let mut tuples = Vec::new();
        for key in &parts {
            for namespace in &parts {
                for user_key in &parts {
                    tuples.push((key.clone(), namespace.clone(), user_key.clone()));
                }
            }
        }
        tuples.sort();
        let mut previous: Option<Vec<u8>> = None;
        for (key, namespace, user_key) in &tuples {
            let mut out = Vec::new();
            let at = encode(&mut out, StateId(7), VARIABLE, KeyParts { group: 3, key, namespace, user_key }).unwrap();
            assert!(previous.as_ref().is_none_or(|p| *p < out));
            assert_eq!(prefix_len(&out, VARIABLE).unwrap(), at);
            let back = decode(&out, VARIABLE).unwrap();
            assert_eq!((&back.key, &back.namespace, &back.user_key), (key, namespace, user_key));
            previous = Some(out);
        }
    }

    #[test]
    fn muninndb_816_tidb_12598_prefix_ends() {
        assert_eq!(prefix_end(&[3, 0xAA, 0xFF]), Some(vec![3, 0xAB]));
        assert_eq!(prefix_end(&[0xFF, 0xFF]), None);
        assert_eq!(prefix_end(&[]), None);
    }

    #[test]
    fn ranges_of_the_last_groups_have_their_ends() {
        for last in [127, 128, 255, 32_767, u16::MAX] {
            let range = KeyRange::groups(KeyGroupRange::new(5, last).unwrap());
            assert!(range.contains(&[5_u16.to_be_bytes().as_slice(), &[0; 4]].concat()));
            assert!(range.contains(&[last.to_be_bytes().as_slice(), &[0xFF; 9]].concat()));
            if let Some(next) = last.checked_add(1) {
                assert!(!range.contains(&next.to_be_bytes()));
            }
        }
    }
}
