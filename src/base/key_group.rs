//! Key groups: the unit by which keyed state is split among subtasks.

use std::fmt;

use super::checksum;
use super::limits::MAX_PARALLELISM;
use crate::{Error, Result};

/// Number of a key group, below the lineage's max parallelism.
pub type KeyGroup = u16;

/// Key groups `first..=last`, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyGroupRange {
    first: KeyGroup,
    last: KeyGroup,
}

impl KeyGroupRange {
    /// The groups from `first` to `last`, both included; `None` when `first` is greater.
    #[must_use]
    pub fn new(first: KeyGroup, last: KeyGroup) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The groups of subtask `index` of `parallelism`: those for which
    /// `group * parallelism / max_parallelism == index`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] unless `index < parallelism <= max_parallelism <= 32,768`.
    pub fn of_subtask(index: u32, parallelism: u32, max_parallelism: u32) -> Result<Self> {
        check_parallelism(parallelism, max_parallelism)?;
        if index >= parallelism {
            return Err(Error::invalid(format!("subtask {index} of a parallelism of {parallelism}")));
        }
        let (index, p, max) = (u64::from(index), u64::from(parallelism), u64::from(max_parallelism));
        let first = (index * max).div_ceil(p);
        let last = ((index + 1) * max).div_ceil(p) - 1;
        let group = |n: u64| KeyGroup::try_from(n).map_err(|_| Error::internal("key group over 16 bits"));
        Self::new(group(first)?, group(last)?).ok_or_else(|| Error::internal("empty key-group range"))
    }

    /// First group.
    #[must_use]
    pub fn first(self) -> KeyGroup {
        self.first
    }

    /// Last group, included.
    #[must_use]
    pub fn last(self) -> KeyGroup {
        self.last
    }

    /// Number of groups, at least 1.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.last) - u32::from(self.first) + 1
    }

    /// True when `group` is one of them.
    #[inline]
    #[must_use]
    pub fn contains(self, group: KeyGroup) -> bool {
        self.first <= group && group <= self.last
    }

    /// The groups in both; `None` when there are none.
    #[must_use]
    pub fn intersect(self, other: Self) -> Option<Self> {
        Self::new(self.first.max(other.first), self.last.min(other.last))
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

/// Checks `1 <= parallelism <= max_parallelism <= 32,768`.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] naming both values.
pub fn check_parallelism(parallelism: u32, max_parallelism: u32) -> Result<()> {
    if max_parallelism == 0 || max_parallelism > MAX_PARALLELISM {
        return Err(Error::invalid(format!(
            "max parallelism {max_parallelism} is outside 1..={MAX_PARALLELISM} (parallelism {parallelism})"
        )));
    }
    if parallelism == 0 || parallelism > max_parallelism {
        return Err(Error::invalid(format!(
            "parallelism {parallelism} is outside 1..={max_parallelism}, the max parallelism"
        )));
    }
    Ok(())
}

/// The key group of an encoded key: `xxh3_64(key) % max_parallelism`. Fixed for ever.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the remainder is below 32,768")]
pub fn key_group_of(encoded_key: &[u8], max_parallelism: u32) -> KeyGroup {
    let hash = checksum::hash64(encoded_key);
    if max_parallelism.is_power_of_two() {
        // The usual case, and a division costs as much as the hash.
        return (hash & u64::from(max_parallelism - 1)) as KeyGroup;
    }
    (hash % u64::from(max_parallelism)) as KeyGroup
}

/// The subtask that owns `group`: `group * parallelism / max_parallelism`.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the quotient is below the parallelism")]
pub fn subtask_of(group: KeyGroup, parallelism: u32, max_parallelism: u32) -> u32 {
    (u64::from(group) * u64::from(parallelism) / u64::from(max_parallelism)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_partition_the_groups_and_agree_with_routing() {
        for max in [1, 2, 127, 128, 129, 256, 32_767, 32_768_u32] {
            for p in [1, 2, 3, 4, 5, 127, 128] {
                if p > max {
                    continue;
                }
                let mut next = 0;
                for index in 0..p {
                    let range = KeyGroupRange::of_subtask(index, p, max).unwrap();
                    assert_eq!(u32::from(range.first()), next);
                    next = u32::from(range.last()) + 1;
                    assert_eq!(subtask_of(range.first(), p, max), index);
                    assert_eq!(subtask_of(range.last(), p, max), index);
                }
                assert_eq!(next, max);
            }
        }
    }

    #[test]
    fn routing_vectors_are_fixed_for_ever() {
        assert_eq!(checksum::hash64(b""), 0x2d06_8005_38d3_94c2);
        let groups: Vec<_> = [&b""[..], b"a", b"carrier", &[0; 16]].iter().map(|k| key_group_of(k, 128)).collect();
        assert_eq!(groups, [66, 31, 98, 104], "a changed vector breaks every stored job");
    }

    #[test]
    fn bad_parallelism_names_both_values() {
        for (p, max) in [(0, 128), (129, 128), (1, 0), (1, 32_769)] {
            let text = KeyGroupRange::of_subtask(0, p, max).unwrap_err().to_string();
            assert!(text.contains(&p.to_string()) && text.contains(&max.to_string()), "{text}");
        }
    }
}
