//! Numbers that look random and are the same everywhere for a seed. Not for secrets.

/// The finaliser of splitmix64, with which ranks also decide which collectives to keep.
pub fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

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
