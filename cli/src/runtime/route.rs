//! Which subtask a key belongs to.

use highwater::base::key_group;

/// The subtask of `key`, as the library restores its state.
pub fn subtask_of(key: &[u8], parallelism: u32, max_parallelism: u32) -> u32 {
    key_group::subtask_of(key_group::key_group_of(key, max_parallelism), parallelism, max_parallelism)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_has_a_subtask(key in prop::collection::vec(any::<u8>(), 0..40), max in 1u32..=32_768, p in 1u32..=32_768) {
            let parallelism = p.min(max);
            prop_assert!(subtask_of(&key, parallelism, max) < parallelism);
        }
    }
}
