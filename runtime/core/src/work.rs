//! Work that marks declare, `bytes = …` and `flops = …`.
//!
//! A zone's work by its time is a rate. A report compares rates with the device's peak.

/// The work that a mark declares for one zone: the bytes that it reads and writes, and its floating-point operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// Bytes; none if the mark does not give them.
    pub bytes: Option<u64>,
    /// Floating-point operations; none if the mark does not give them.
    pub flops: Option<u64>,
}

/// Work by time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkRates {
    /// Bytes per second; none if the bytes are not known.
    pub bytes_per_s: Option<f64>,
    /// Floating-point operations per second; none if they are not known.
    pub flops_per_s: Option<f64>,
}

impl WorkRates {
    /// Returns these rates, per second.
    #[doc(hidden)]
    pub fn new(bytes_per_s: Option<f64>, flops_per_s: Option<f64>) -> WorkRates {
        WorkRates { bytes_per_s, flops_per_s }
    }
}

impl Work {
    /// Returns work of so many bytes and operations.
    #[doc(hidden)]
    pub fn new(bytes: Option<u64>, flops: Option<u64>) -> Work {
        Work { bytes, flops }
    }

    /// Returns whether the mark declares no work.
    #[inline]
    pub fn is_none(self) -> bool {
        self.bytes.is_none() && self.flops.is_none()
    }

    /// Returns the rates of this work over a time in ns; none of either if there was no time.
    pub fn rates(self, ns: i64) -> WorkRates {
        let rate = |amount: Option<u64>| amount.filter(|_| ns > 0).map(|amount| amount as f64 * 1e9 / ns as f64);
        WorkRates { bytes_per_s: rate(self.bytes), flops_per_s: rate(self.flops) }
    }
}

/// A number of bytes or of floating-point operations: an integer or a float. A negative number, or none at all, counts as 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of bytes or operations",
    label = "not a number",
    note = "write an integer or a float, as in `bytes = 3 * size_of_val(x)` or `flops = 2 * m * n * k`"
)]
pub trait IntoWork {
    /// Returns the value.
    fn into_work(self) -> u64;
}

macro_rules! integers {
    ($($integer:ty)*) => {
        $(
            impl IntoWork for $integer {
                #[inline]
                fn into_work(self) -> u64 {
                    // What does not fit is negative, or very large.
                    u64::try_from(self).unwrap_or(if self > 1 { u64::MAX } else { 0 })
                }
            }
        )*
    };
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl IntoWork for f64 {
    #[inline]
    fn into_work(self) -> u64 {
        // A float that is too large becomes the largest integer, and one that is no number 0.
        self as u64
    }
}

impl IntoWork for f32 {
    #[inline]
    fn into_work(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_type_become_amounts_of_work() {
        assert_eq!((3_u8.into_work(), (-3_i32).into_work(), u128::MAX.into_work()), (3, 0, u64::MAX));
        assert_eq!((2.5e9_f64.into_work(), f64::NAN.into_work(), (-1.0_f32).into_work()), (2_500_000_000, 0, 0));
        assert_eq!((f64::INFINITY.into_work(), i128::MIN.into_work()), (u64::MAX, 0));
    }

    #[test]
    fn work_by_time_is_a_rate() {
        let work = Work { bytes: Some(4_000), flops: None };
        assert_eq!(work.rates(2_000), WorkRates { bytes_per_s: Some(2e9), flops_per_s: None });
        assert_eq!(work.rates(0), WorkRates::default());
    }
}
