//! Which subtask a key belongs to.

use xxhash_rust::xxh3::xxh3_64;

/// The subtask of `key`: key groups are dealt out in ranges. Must agree with the library, as state is restored by key group.
pub fn subtask_of(key: &[u8], parallelism: u32, max_parallelism: u32) -> u32 {
    let group = xxh3_64(key) % u64::from(max_parallelism);
    // Less than `parallelism`, as the group is less than the maximum.
    (group * u64::from(parallelism) / u64::from(max_parallelism)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_keys_go_where_they_always_went() {
        // xxh3_64("") = 2d06800538d394c2, xxh3_64("UA") % 128 fixed here so that a change is noticed.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(subtask_of(b"", 128, 128), 0x42);
        assert_eq!(subtask_of(b"", 2, 128), 1);
    }

    proptest! {
        #[test]
        fn every_key_has_a_subtask(key in prop::collection::vec(any::<u8>(), 0..40), max in 1u32..=32_768, p in 1u32..=32_768) {
            let parallelism = p.min(max);
            prop_assert!(subtask_of(&key, parallelism, max) < parallelism);
        }
    }
}
