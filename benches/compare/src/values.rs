//! Keys and values, the same for every store.

/// A key: 8 bytes of hash, 8 bytes of id.
pub type Key = [u8; 16];

/// The longest value of any workload.
pub const MAX_VALUE_BYTES: usize = 232;

const NOISE_BYTES: usize = 64 << 10;

/// A bijection that scatters numbers (the finalizer of SplitMix64).
#[inline]
pub fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of number `id`.
#[inline]
pub fn key_of(id: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(id).to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes());
    key
}

/// Values of any length that compress to about half: every other word is random.
#[derive(Debug)]
pub struct Values {
    noise: Vec<u8>,
    buffer: [u8; MAX_VALUE_BYTES],
}

impl Values {
    /// The same ones always.
    pub fn new() -> Self {
        let noise = (0..NOISE_BYTES as u64 / 8).flat_map(|i| if i % 2 == 0 { mix(i) } else { 0 }.to_le_bytes());
        Self { noise: noise.collect(), buffer: [0; MAX_VALUE_BYTES] }
    }

    /// The value of `len` bytes that follows from `seed`.
    #[inline]
    pub fn of(&self, len: u16, seed: u32) -> &[u8] {
        let from = seed as usize % (NOISE_BYTES - MAX_VALUE_BYTES);
        &self.noise[from..from + usize::from(len)]
    }

    /// A counter, filled up to `len` bytes with what follows from `seed`.
    #[inline]
    pub fn counter(&mut self, count: u64, len: u16, seed: u32) -> &[u8] {
        let len = usize::from(len);
        self.buffer[..8].copy_from_slice(&count.to_le_bytes());
        if len > 8 {
            let from = seed as usize % (NOISE_BYTES - MAX_VALUE_BYTES);
            self.buffer[8..len].copy_from_slice(&self.noise[from..from + len - 8]);
        }
        &self.buffer[..len]
    }
}

/// Random numbers from a seed.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed number.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Zipf's law by the method of Gray and others ("Quickly generating billion-record synthetic databases", 1994), ranks
/// scattered over all ids.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Of `count` ids with exponent 0.99.
    pub fn new(count: u64) -> Self {
        let theta = 0.99;
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let (zeta, zeta2) = (zeta_of(count), zeta_of(2));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta2 / zeta);
        Self { count, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// An id below the count.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let uz = u * self.zeta;
        let rank = if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (self.count as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
        };
        mix(rank.min(self.count - 1)) % self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_favours_few_and_reaches_many() {
        let (zipf, mut rng) = (Zipf::new(1000), Rng::new(1));
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.next(&mut rng) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The first of 1,000 ranks has 1 / sum(i^-0.99) = 13 % of all.
        assert!((11_000..16_000).contains(&counts[0]), "{}", counts[0]);
        assert!(counts.iter().filter(|c| **c > 0).count() > 500);
    }
}
