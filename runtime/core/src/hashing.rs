//! Hashes that are the same in every process and on every machine.
//!
//! Traces, tables and ranks agree on their values, so neither changes. Collections use the standard library's hashers.

/// Returns the output of the SplitMix64 generator for one state: equal values give equal results, and different ones different results.
#[inline]
pub fn splitmix64(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// Returns the 64-bit FNV-1a hash of some bytes.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_of_the_authors() {
        assert_eq!(splitmix64(0), 0xE220_A839_7B1D_CDAF, "the generator's first number from seed 0");
        assert_eq!(fnv1a64(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
