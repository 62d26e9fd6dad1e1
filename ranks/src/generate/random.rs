//! Numbers that look random and are the same everywhere for a seed. Not for secrets.

use warpline_core::hashing::splitmix64;

/// A sequence.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Another seed, another sequence.
    pub fn new(seed: u64) -> Self {
        Self(splitmix64(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix64(self.0)
    }

    /// From 0 to less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From -1 to 1.
    pub fn around(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// About normal, with deviation 1 and no tails.
    pub fn normal(&mut self) -> f64 {
        (self.around() + self.around() + self.around() + self.around()) * 0.866
    }
}
