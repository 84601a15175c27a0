//! Short byte strings, such as keys mostly are, compared without a call.

/// The first `N` bytes of `bytes`, which are at least so many.
#[inline(always)]
fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

#[inline(always)]
fn last<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.last_chunk().copied()
}

/// `a == b`; from 8 to 32 bytes as two numbers that may overlap.
#[inline(always)]
#[must_use]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        0 => true,
        8..16 => first::<8>(a) == first(b) && last::<8>(a) == last(b),
        16..=32 => first::<16>(a) == first(b) && last::<16>(a) == last(b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_is_equality_at_every_length_and_difference() {
        for len in 0..70 {
            let a: Vec<u8> = (0..len).collect();
            assert!(equal(&a, &a.clone()));
            assert!(!equal(&a, &[&a[..], &[0]].concat()) && !equal(&[&a[..], &[0]].concat(), &a));
            for at in 0..a.len() {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert!(!equal(&a, &b), "{len} bytes, the {at}th differs");
            }
        }
    }
}
