//! Work that marks declare, `bytes = …` and `flops = …`, and what devices can do at most.
//!
//! A zone's work by its time is a rate; a rate by the device's peak is a share. Only devices whose vendor states a peak have one here.

use std::fmt;

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

/// What a device can do at most, as its vendor states it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Peak {
    /// Bytes per second of the device's memory.
    pub bytes_per_s: f64,
    /// Floating-point operations per second of the tensor cores with 16-bit numbers (FP16 or BF16), without sparsity.
    pub flops_per_s: f64,
}

/// Names as `cuDeviceGetName` returns them, GB per second, and TFLOP per second.
const PEAKS: [(&str, f64, f64); 18] = [
    // NVIDIA H200 data sheet: H200 SXM 4.8 TB/s, 1,979 TFLOP/s with sparsity; H200 NVL 4.8 TB/s, 1,671 with sparsity.
    ("NVIDIA H200", 4_800.0, 989.5),
    ("NVIDIA H200 NVL", 4_800.0, 835.5),
    // NVIDIA H100 data sheet: SXM 3.35 TB/s, 1,979 with sparsity; NVL 3.9 TB/s, 1,671 with sparsity. PCIe, of its first edition: 2 TB/s,
    // 1,513 with sparsity.
    ("NVIDIA H100 80GB HBM3", 3_350.0, 989.5),
    ("NVIDIA H100 NVL", 3_900.0, 835.5),
    ("NVIDIA H100 PCIe", 2_000.0, 756.5),
    // NVIDIA A100 data sheet: 312 TFLOP/s; 40 GB 1,555 GB/s, 80 GB PCIe 1,935 GB/s, 80 GB SXM 2,039 GB/s.
    ("NVIDIA A100-SXM4-40GB", 1_555.0, 312.0),
    ("A100-SXM4-40GB", 1_555.0, 312.0),
    ("NVIDIA A100-PCIE-40GB", 1_555.0, 312.0),
    ("A100-PCIE-40GB", 1_555.0, 312.0),
    ("NVIDIA A100-SXM4-80GB", 2_039.0, 312.0),
    ("NVIDIA A100 80GB PCIe", 1_935.0, 312.0),
    // NVIDIA A30 data sheet: 933 GB/s, 165 TFLOP/s. A10: 600 GB/s, 125 TFLOP/s.
    ("NVIDIA A30", 933.0, 165.0),
    ("NVIDIA A10", 600.0, 125.0),
    // NVIDIA L4 data sheet: 300 GB/s, 242 TFLOP/s with sparsity. L40S: 864 GB/s, 362.05 TFLOP/s.
    ("NVIDIA L4", 300.0, 121.0),
    ("NVIDIA L40S", 864.0, 362.05),
    // NVIDIA V100 data sheet: 900 GB/s; SXM2 125 TFLOP/s, PCIe 112.
    ("Tesla V100-SXM2-16GB", 900.0, 125.0),
    ("Tesla V100-SXM2-32GB", 900.0, 125.0),
    ("Tesla V100-PCIE-16GB", 900.0, 112.0),
];

impl Peak {
    /// Returns the peak of a device by its name; none if it is not in the table.
    pub fn of(device: &str) -> Option<Peak> {
        let (_, gb, tflop) = PEAKS.into_iter().find(|(name, ..)| *name == device)?;
        Some(Peak { bytes_per_s: gb * 1e9, flops_per_s: tflop * 1e12 })
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
        Some(self.rates.bytes_per_s? / self.peak?.bytes_per_s)
    }

    /// Returns the share of the tensor cores' peak with 16-bit numbers, 0 to 1.
    pub fn flops_share(&self) -> Option<f64> {
        Some(self.rates.flops_per_s? / self.peak?.flops_per_s)
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

/// A rate for people: `1.43 TB/s`.
pub(crate) struct Rate(pub(crate) f64, pub(crate) &'static str);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate(rate, unit) = *self;
        let (scaled, prefix) = match rate {
            ..1e6 => (rate * 1e-3, "k"),
            ..1e9 => (rate * 1e-6, "M"),
            ..1e12 => (rate * 1e-9, "G"),
            _ => (rate * 1e-12, "T"),
        };
        let digits = match scaled {
            ..9.995 => 2,
            ..99.95 => 1,
            _ => 0,
        };
        write!(f, "{scaled:.digits$} {prefix}{unit}/s")
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
        sum.add(zone, 2_000, "NVIDIA H200");
        let stats = sum.stats().expect("three zones");
        assert_eq!((stats.device.as_str(), stats.peak, stats.bytes_share()), ("", None, None));
        assert_eq!(Peak::of("a device of tomorrow"), None, "no peak is made up");
    }

    #[test]
    fn rates_have_three_digits() {
        let text = |rate| Rate(rate, "B").to_string();
        assert_eq!(
            (text(1.434e12), text(34.56e9), text(999e6)),
            ("1.43 TB/s".into(), "34.6 GB/s".into(), "999 MB/s".into())
        );
        assert_eq!(text(1_200.0), "1.20 kB/s");
    }
}
