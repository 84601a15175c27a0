//! The seam for randomness: attempt tokens and retry jitter.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where random numbers come from. Tests seed it.
pub trait Random: Send + Sync + std::fmt::Debug {
    /// The next number.
    fn next_u64(&self) -> u64;
}

/// SplitMix64 (Steele, Lea, Flood 2014) over an atomic counter.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// A generator whose whole sequence follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A generator seeded by the operating system.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one door to the system's randomness")]
    pub fn from_system() -> Self {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        Self::new(hasher.finish())
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
