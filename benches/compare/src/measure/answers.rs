//! What becomes of a store's answers: a cheap sum while measuring, a hash of every byte while checking.

use xxhash_rust::xxh3::Xxh3;

use crate::store::See;

/// Reads the first bytes of each answer, so that no store gets away with not reading.
#[derive(Debug, Default)]
pub struct Sum(pub u64);

impl See for Sum {
    #[inline]
    fn value(&mut self, bytes: &[u8]) {
        let word = bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        self.0 = self.0.wrapping_add(word).wrapping_add(bytes.len() as u64);
    }

    #[inline]
    fn number(&mut self, n: u64) {
        self.0 = self.0.wrapping_add(n);
    }
}

/// Hashes all bytes of the answers to one operation, in their order.
#[derive(Default)]
pub struct Digest(Xxh3);

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({:016x})", self.0.digest())
    }
}

impl Digest {
    /// The hash so far; the next one starts anew.
    pub fn take(&mut self) -> u64 {
        let digest = self.0.digest();
        self.0.reset();
        digest
    }
}

impl See for Digest {
    fn value(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn number(&mut self, n: u64) {
        self.0.update(&n.to_le_bytes());
    }
}

/// Catches a counter and passes everything on.
#[derive(Debug)]
pub struct Counter<'a, S> {
    /// The counter, 0 when there is none.
    pub count: u64,
    /// Where answers go.
    pub to: &'a mut S,
}

impl<S: See> See for Counter<'_, S> {
    #[inline]
    fn value(&mut self, bytes: &[u8]) {
        self.count = bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
        self.to.value(bytes);
    }

    fn number(&mut self, n: u64) {
        self.to.number(n);
    }
}
