//! Names of objects below a root.
//!
//! A name is parts of `[A-Za-z0-9._~=-]+` joined by `/`, none of them `.` or `..`. What users name (operators,
//! for one) becomes a part by one injective encoding, so that a listing agrees with a put on every store:
//!
//! ```text
//! kept as it stands   A-Z a-z 0-9 . _ = -
//! any other byte      ~XX, two upper-case hex digits of the byte (UTF-8)
//! all of "." or ".."  ~2E or ~2E~2E
//! nothing             ~
//! over 200 bytes      ~~ and 32 hex digits of its hash (file systems end a name at 255 bytes)
//!
//! "clicks by user" -> clicks~20by~20user      "%20" -> ~2520      "ü" -> ~C3~BC
//! ```

use std::fmt::Write;

use crate::base::checksum;
use crate::{Error, Result};

const MAX_PART_BYTES: usize = 200;

/// Longest name of an object, in bytes (S3 ends at 1,024 with the root's own prefix).
pub const MAX_OBJECT_NAME_BYTES: usize = 900;

fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'=' | b'-')
}

/// Checks that `name` may name an object.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] that names it.
pub fn check_name(name: &str) -> Result<()> {
    let part_ok = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(allowed);
    if name.len() <= MAX_OBJECT_NAME_BYTES && name.split('/').all(part_ok) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` can't name an object", name.escape_debug())))
}

/// Checks that `prefix` is a folder to list: empty, or a name with a `/` behind it.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] that names it.
pub fn check_prefix(prefix: &str) -> Result<()> {
    match prefix.strip_suffix('/') {
        _ if prefix.is_empty() => Ok(()),
        Some(folder) => check_name(folder),
        None => Err(Error::invalid(format!("prefix `{}` doesn't end in `/`", prefix.escape_debug()))),
    }
}

/// True for `name#N`, what interrupted writes leave: ours (`#process.number` on local disks) and object_store's.
#[must_use]
pub fn is_leftover(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(object, number)| {
        check_name(object).is_ok()
            && number.starts_with(|c: char| c.is_ascii_digit())
            && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    })
}

/// `text` as one part of an object's name; see the module.
#[must_use]
pub fn encode_part(text: &str) -> String {
    if text.is_empty() {
        return "~".to_owned();
    }
    let dots = text == "." || text == "..";
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        if allowed(byte) && byte != b'~' && !dots {
            part.push(char::from(byte));
        } else {
            let _ = write!(part, "~{byte:02X}");
        }
    }
    if part.len() > MAX_PART_BYTES {
        let (a, b) = (checksum::hash64(text.as_bytes()), checksum::hash64_seeded(text.as_bytes(), 1));
        return format!("~~{a:016x}{b:016x}");
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_is_a_valid_part_and_no_two_are_equal() {
        let texts = [
            "", ".", "..", "...", " ", "%20", "~20", "ü", "a/b", "a~2Fb", "A", "a", "\0", "~", "~~", "a#1", "a\\b",
            "log",
        ];
        let parts: std::collections::BTreeSet<_> = texts.iter().map(|t| encode_part(t)).collect();
        assert_eq!(parts.len(), texts.len(), "{parts:?}");
        for part in &parts {
            check_name(part).unwrap();
        }
        assert_eq!(encode_part("clicks by user"), "clicks~20by~20user");
        assert_eq!(encode_part("ü"), "~C3~BC");
        let long = [encode_part(&"x".repeat(1000)), encode_part(&"x".repeat(1001))];
        assert_ne!(long[0], long[1]);
        assert_eq!(long[0].len(), 34);
    }

    #[test]
    fn names_that_could_escape_or_collide_are_refused() {
        for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a b", "a#1", "ü", "a\\b", "a\0b", "%20"] {
            assert_eq!(check_name(bad).unwrap_err().kind(), crate::ErrorKind::InvalidArgument, "{bad:?}");
        }
        for good in ["a", "a/b/c", "log/00000000000000000001", "a.b_c~20=-", "..."] {
            check_name(good).unwrap();
        }
        assert!(check_prefix("a").is_err() && check_prefix("../").is_err());
        check_prefix("").unwrap();
        check_prefix("log/").unwrap();
    }
}
