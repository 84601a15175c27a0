//! XXH3: the one hash for checksums, names and routing.

use xxhash_rust::xxh3;

/// XXH3-64 of `bytes`.
#[inline]
#[must_use]
pub fn hash64(bytes: &[u8]) -> u64 {
    xxh3::xxh3_64(bytes)
}

/// XXH3-64 of `bytes` under `seed`.
#[inline]
#[must_use]
pub fn hash64_seeded(bytes: &[u8], seed: u64) -> u64 {
    xxh3::xxh3_64_with_seed(bytes, seed)
}

/// XXH3-64 of bytes that come in pieces.
#[derive(Clone, Default)]
pub struct Hasher(xxh3::Xxh3);

impl Hasher {
    /// A hasher that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One of hashes under `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(xxh3::Xxh3::with_seed(seed))
    }

    /// Takes in `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}
