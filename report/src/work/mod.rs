//! The declared work of ranges, as rates and as shares of what the device can do at most.
//!
//! `peaks` has what devices can do at most, and `measured` those peaks that were measured on this host.

#[doc(hidden)]
pub mod measured;
mod peak;
mod peaks;

pub use peak::{Peak, PeakMeasurement};
use warpline_core::work::{Work, WorkRates};

/// The declared work of a range over a session.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkStats {
    /// The sum of the declared work by the sum of the times of the zones that declare it. On a stream, the times are those of the work
    /// ([`ZoneRecord::gpu_ns_corrected`](warpline_core::record::ZoneRecord::gpu_ns_corrected)).
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
        let WorkRates { bytes_per_s, flops_per_s, .. } = self.rates;
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
        let rates = WorkRates::new(rate(self.bytes), rate(self.flops));
        let device = self.device.clone()?;
        (rates != WorkRates::default()).then(|| WorkStats::on(device, rates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_of_one_device_or_of_none() {
        let mut sum = WorkSum::default();
        assert_eq!(sum.stats(), None);
        let zone = Work::new(Some(3_350_000), Some(0));
        sum.add(zone, 2_000, "NVIDIA H100 80GB HBM3");
        sum.add(Work::new(None, Some(989_500_000)), 3_000, "NVIDIA H100 80GB HBM3");
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
