//! Work that marks declare, `bytes = …` and `flops = …`.
//!
//! A zone's work by its time is a rate; a rate by the device's peak is a share. `peaks` has what devices can do at most, and `measured` those
//! peaks that were measured on this host.

#[doc(hidden)]
pub mod measured;
mod peak;
mod peaks;

pub use peak::{Peak, PeakMeasurement};

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

/// The declared work of a range over a session.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkStats {
    /// The sum of the declared work by the sum of the times of the zones that declare it. On a stream, the times are those of the work
    /// ([`ZoneRecord::gpu_ns_corrected`](crate::record::ZoneRecord::gpu_ns_corrected)).
    pub rates: WorkRates,
    /// The name of the device of these zones; empty for zones without a stream, and if they ran on devices of several names.
    pub device: String,
    /// The device's peak; none if it is not known.
    pub peak: Option<Peak>,
}

impl WorkStats {
    /// Returns the figures of zones with these rates on the device of this name.
    #[doc(hidden)]
    pub fn on(device: String, rates: WorkRates) -> WorkStats {
        WorkStats { peak: Peak::of(&device), rates, device }
    }

    /// Returns the share of the memory's peak, 0 to 1; above 1 if data stayed in a cache, or if the declared bytes are too many.
    pub fn bytes_share(&self) -> Option<f64> {
        Some(self.rates.bytes_per_s? / self.peak.as_ref()?.bytes_per_s)
    }

    /// Returns the share of [`Peak::flops_per_s`], 0 to 1: of the tensor cores' peak with 16-bit numbers or, if only that is known, of the
    /// peak with 32-bit numbers.
    pub fn flops_share(&self) -> Option<f64> {
        Some(self.rates.flops_per_s? / self.peak.as_ref()?.flops_per_s()?)
    }

    /// Returns the arithmetic intensity, in operations per byte; none if either is not declared.
    pub fn flops_per_byte(&self) -> Option<f64> {
        let WorkRates { bytes_per_s, flops_per_s } = self.rates;
        Some(flops_per_s? / bytes_per_s.filter(|rate| *rate > 0.0)?)
    }
}

/// A sum over zones, from which [`WorkStats`] are made.
#[derive(Clone, Debug, Default)]
pub struct WorkSum {
    bytes: (f64, i64),
    flops: (f64, i64),
    /// None before the first zone; empty if there are several.
    device: Option<String>,
}

impl WorkSum {
    /// Adds the work of a zone that took so long on this device.
    pub fn add(&mut self, work: Work, ns: i64, device: &str) {
        for (sum, amount) in [(&mut self.bytes, work.bytes), (&mut self.flops, work.flops)] {
            if let Some(amount) = amount {
                *sum = (sum.0 + amount as f64, sum.1 + ns);
            }
        }
        match &mut self.device {
            None => self.device = Some(device.to_owned()),
            Some(known) if known != device => known.clear(),
            Some(_) => {}
        }
    }

    /// Returns the figures; none if no zone declared work.
    pub fn stats(&self) -> Option<WorkStats> {
        let rate = |(amount, ns): (f64, i64)| (ns > 0).then(|| amount * 1e9 / ns as f64);
        let rates = WorkRates { bytes_per_s: rate(self.bytes), flops_per_s: rate(self.flops) };
        let device = self.device.clone()?;
        (rates != WorkRates::default()).then(|| WorkStats::on(device, rates))
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

    #[test]
    fn a_sum_is_of_one_device_or_of_none() {
        let mut sum = WorkSum::default();
        assert_eq!(sum.stats(), None);
        let zone = Work { bytes: Some(3_350_000), flops: Some(0) };
        sum.add(zone, 2_000, "NVIDIA H100 80GB HBM3");
        sum.add(Work { bytes: None, flops: Some(989_500_000) }, 3_000, "NVIDIA H100 80GB HBM3");
        let stats = sum.stats().expect("two zones");
        // The bytes of the first zone alone, the operations of both.
        assert!((stats.bytes_share().expect("known") - 0.5).abs() < 1e-9, "{stats:?}");
        assert!((stats.flops_share().expect("known") - 0.2).abs() < 1e-9, "{stats:?}");
        assert!((stats.flops_per_byte().expect("both") - 197.9e12 / 1.675e12).abs() < 1e-9, "{stats:?}");
        sum.add(zone, 2_000, "NVIDIA H200");
        let stats = sum.stats().expect("three zones");
        assert_eq!((stats.device.as_str(), stats.bytes_share(), stats.peak), ("", None, None));
        assert_eq!(Peak::of("a device of tomorrow"), None, "no peak is made up");
    }
}
