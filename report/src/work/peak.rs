//! What a device can do at most, and how that is known.

/// What a device can do at most.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Peak {
    /// Bytes per second of the device's memory.
    pub bytes_per_s: f64,
    /// Floating-point operations per second of the tensor cores with 16-bit numbers (FP16 or BF16) and 32-bit sums, without sparsity;
    /// none if it is not known.
    pub f16_flops_per_s: Option<f64>,
    /// Floating-point operations per second with 32-bit numbers outside the tensor cores; none if it is not known.
    pub f32_flops_per_s: Option<f64>,
    /// When it was measured; none if the vendor states it.
    pub measured: Option<PeakMeasurement>,
}

/// When and with which driver a peak was measured. It is what the kernels of the measurement reached: real peaks are higher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeakMeasurement {
    /// The day in UTC, as in `2026-11-25`.
    pub date: String,
    /// The driver, as in `CUDA 13.0, 580.159.04`.
    pub driver: String,
}

impl PeakMeasurement {
    /// Returns the measurement of this day with this driver.
    #[doc(hidden)]
    pub fn new(date: String, driver: String) -> PeakMeasurement {
        PeakMeasurement { date, driver }
    }
}

impl Peak {
    /// Returns the operations per second with which rates are compared: of the tensor cores, or with 32-bit numbers if those are not known.
    pub fn flops_per_s(&self) -> Option<f64> {
        self.f16_flops_per_s.or(self.f32_flops_per_s)
    }
}
