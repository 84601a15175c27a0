//! User keys as large groups hold them.

use std::cmp::Ordering;

use smallvec::SmallVec;

/// Bytes of a key that are compared as numbers.
const HEAD_BYTES: usize = 15;

/// The first bytes of a user key as two numbers, which decide nearly every comparison: the first 15 bytes, zeros behind,
/// then the key's length, 16 for all that are longer. So keys that only differ in zeros at their end differ in the
/// head too, the shorter one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head([u64; 2]);

impl Head {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    pub(super) fn of(bytes: &[u8]) -> Self {
        let len = bytes.len().min(HEAD_BYTES);
        let mut head = [0; 16];
        head[..len].copy_from_slice(&bytes[..len]);
        head[HEAD_BYTES] = bytes.len().min(HEAD_BYTES + 1) as u8;
        let head = u128::from_be_bytes(head);
        Self([(head >> 64) as u64, head as u64])
    }

    /// Its two numbers.
    #[inline]
    pub(super) fn halves(self) -> (u64, u64) {
        (self.0[0], self.0[1])
    }

    /// True when no other key has this head.
    #[inline]
    pub(super) fn is_whole(self) -> bool {
        self.0[1] as u8 as usize <= HEAD_BYTES
    }
}

/// A user key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserKey {
    head: Head,
    rest: SmallVec<[u8; 16]>,
}

impl UserKey {
    #[inline]
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { head: Head::of(bytes), rest: SmallVec::from_slice(bytes.get(HEAD_BYTES..).unwrap_or_default()) }
    }

    #[inline]
    pub(super) fn head(&self) -> Head {
        self.head
    }

    /// True for the key of no bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.head == Head([0; 2])
    }

    /// Bytes that it has on the heap.
    pub(super) fn heap_bytes(&self) -> u64 {
        if self.rest.spilled() { self.rest.len() as u64 } else { 0 }
    }
}

impl Ord for UserKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.rest.cmp(&other.rest))
    }
}

impl PartialOrd for UserKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_bytes() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for len in [1, 7, 8, 9, 14, 15, 16, 17, 30, 31, 32, 40] {
            for fill in [0, 1, 0xFF] {
                for last in [0, 1, 0xFF] {
                    let mut key = vec![fill; len];
                    key[len - 1] = last;
                    keys.push(key);
                }
            }
        }
        for a in &keys {
            for b in &keys {
                assert_eq!(UserKey::new(a).cmp(&UserKey::new(b)), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(UserKey::new(a) == UserKey::new(b), a == b);
                let (head, other) = (Head::of(a), Head::of(b));
                assert!(head.cmp(&other) == a.cmp(b) || head == other && !head.is_whole(), "{a:?} {b:?}");
            }
        }
    }
}
