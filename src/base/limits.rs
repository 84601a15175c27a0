//! Limits that users may rely on.

/// Longest user part of a key (key, namespace or user key), before escaping, in bytes.
pub const MAX_KEY_PART_BYTES: usize = 64 << 10;

/// Longest user key that is composed of others, in bytes: that of a state without keys and namespaces of its own. A timer
/// is a domain and a time (9 bytes), its key, which escaping can double, and its namespace.
pub const MAX_COMPOSED_KEY_BYTES: usize = 9 + (2 * MAX_KEY_PART_BYTES + 2) + MAX_KEY_PART_BYTES;

/// Longest encoded key: group and state id, then three parts, two of which escaping can double.
pub const MAX_ENCODED_KEY_BYTES: usize = 6 + 2 * (2 * MAX_KEY_PART_BYTES + 2) + MAX_KEY_PART_BYTES;

/// Longest bound of a range of encoded keys: the end behind a longest key is one byte longer.
pub const MAX_KEY_BOUND_BYTES: usize = MAX_ENCODED_KEY_BYTES + 1;

const _: () = assert!(6 + MAX_COMPOSED_KEY_BYTES <= MAX_ENCODED_KEY_BYTES, "a composed key is an encoded key");

/// Largest single value whatever the budget, in bytes.
pub const MAX_VALUE_BYTES: usize = 256 << 20;

/// Most key groups.
pub const MAX_PARALLELISM: u32 = 32_768;

/// Default number of key groups.
pub const DEFAULT_MAX_PARALLELISM: u32 = 128;

/// Smallest memory budget, in bytes.
pub const MIN_MEMORY_BYTES: u64 = 16 << 20;

/// Share of the memtables that a backend under load should have at least, in bytes: with less, what it must keep until it
/// has been flushed (indexes, ordered groups, a page for each log) leaves it little to write into, and while idle neighbours
/// hold more than their shares it has four pages for that.
pub const MIN_SHARE_BYTES: u64 = 1 << 20;

/// Hundredths of a memory budget that memtables have.
pub const MEMTABLE_PERCENT: u64 = 65;

/// The memory budget that so many backends under load should share at least, in bytes, in whole mebibytes. An environment
/// takes less, for backends that are mostly idle; the command insists on it.
#[must_use]
pub fn min_memory_bytes(backends: u64) -> u64 {
    let shares = backends.saturating_mul(MIN_SHARE_BYTES).saturating_mul(100).div_ceil(MEMTABLE_PERCENT);
    MIN_MEMORY_BYTES.max(shares.div_ceil(1 << 20) << 20)
}

/// Longest name of a state or operator, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;

/// Largest caller metadata of one checkpoint part, in bytes.
pub const MAX_METADATA_BYTES: usize = 64 << 20;

/// The largest value a store with `memory_bytes` of budget takes: the smaller of
/// [`MAX_VALUE_BYTES`] and an eighth of the budget.
#[must_use]
pub fn max_value_bytes(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX).min(MAX_VALUE_BYTES)
}
