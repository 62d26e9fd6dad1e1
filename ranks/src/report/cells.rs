//! The cells of the heat map in a form that is small in a page and quick to draw: two bytes for each time, in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

/// No rank has written this step.
pub const NONE: u16 = 1 << 15;

/// The flag of cells in whose step zones were dropped: their times are too short.
const DROPPED: u8 = 1 << 6;

/// A column for each time: two bytes for each cell.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cells {
    /// Own time (compute and idle) beyond the median of the peers.
    #[serde(serialize_with = "words")]
    pub beyond: Vec<u16>,
    /// Time with a zone that is not a collective.
    #[serde(serialize_with = "words")]
    pub compute: Vec<u16>,
    /// Time without work, communication and waits.
    #[serde(serialize_with = "words")]
    pub idle: Vec<u16>,
    /// Communication that no compute hides, and waits.
    #[serde(serialize_with = "words")]
    pub waiting: Vec<u16>,
    /// Time in which a zone or a wait may have ended, because no event times its end; empty if there is none.
    #[serde(serialize_with = "words")]
    pub uncertain: Vec<u16>,
    /// In bits 0 to 5, the power of two that the error of the times is below, in ns; in bit 6, whether zones were
    /// dropped.
    #[serde(serialize_with = "bytes")]
    pub flags: Vec<u8>,
    /// Which rank of a block is shown; empty without blocks.
    #[serde(serialize_with = "words")]
    pub rank_in_block: Vec<u16>,
    /// Which step of a block is shown; empty without blocks.
    #[serde(serialize_with = "words")]
    pub step_in_block: Vec<u16>,
}

impl Cells {
    /// Cells without a row in the tables.
    pub(super) fn empty(cells: usize) -> Self {
        let none = || vec![NONE; cells];
        Self {
            beyond: none(),
            compute: none(),
            idle: none(),
            waiting: none(),
            uncertain: none(),
            flags: vec![0; cells],
            ..Self::default()
        }
    }
}

/// A time as sign, five bits of exponent and ten bits of mantissa, in us: exact below 1.024 ms, and to a thousandth
/// beyond. Larger times have larger codes.
pub fn code(ns: i64) -> u16 {
    let us = (ns.unsigned_abs() + 500) / 1_000;
    let mut exponent = (u64::BITS - us.leading_zeros()).saturating_sub(10);
    let mut mantissa = if exponent == 0 { us } else { (us + (1 << (exponent - 1))) >> exponent };
    if mantissa == 1 << 10 {
        mantissa /= 2;
        exponent += 1;
    }
    match (exponent, ns < 0 && mantissa > 0) {
        (32.., _) => NONE - 1,
        (_, is_negative) => (u16::from(is_negative) << 15) | ((exponent as u16) << 10) | mantissa as u16,
    }
}

/// The error of a cell, and whether zones were dropped.
pub fn flags(err_ns: i64, is_dropped: bool) -> u8 {
    let power = u64::BITS - err_ns.max(0).unsigned_abs().leading_zeros();
    power as u8 | if is_dropped { DROPPED } else { 0 }
}

fn words<S: Serializer>(words: &[u16], to: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    to.serialize_str(&STANDARD.encode(bytes))
}

fn bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `page/data.js` reads it.
    fn decoded(code: u16) -> Option<f64> {
        let size = f64::from(code & 0x3ff) * f64::from((code >> 10) & 0x1f).exp2() * 1_000.0;
        (code != NONE).then_some(if code & NONE == 0 { size } else { -size })
    }

    #[test]
    fn a_code_is_exact_to_a_thousandth_and_in_order() {
        let mut before = 0;
        for us in (0..5_000).chain((5_000..10_000_000).step_by(997)) {
            let now = code(us * 1_000);
            let error = (decoded(now).unwrap() - us as f64 * 1e3).abs();
            assert!(error <= if us < 1024 { 0.0 } else { us as f64 * 1.0 }, "{us} us is off by {error} ns");
            assert!(now >= before, "{us} us");
            before = now;
            assert_eq!(decoded(code(-us * 1_000)), decoded(now).map(|ns| 0.0 - ns));
        }
        assert_eq!((code(499), code(-499), code(500), code(-1_000)), (0, 0, 1, NONE | 1));
        assert_eq!(code(i64::MAX), NONE - 1);
        assert_eq!(code(i64::MIN), NONE - 1);
    }

    #[test]
    fn flags_bound_the_error() {
        assert_eq!(flags(0, false), 0);
        for err in [1, 2, 200, 255, 256, 1 << 40, i64::MAX] {
            let power = u32::from(flags(err, false));
            assert!(u128::from(err.unsigned_abs()) < 1 << power && 1 << power <= 2 * u128::from(err.unsigned_abs()));
        }
        assert_eq!(flags(200, true), 8 | 64);
    }
}
