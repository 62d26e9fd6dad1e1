//! What devices can do at most: as their vendor states it, or as `warpline doctor --measure-peak` has measured it on this host.
//!
//! [`Peak::of`] looks a device up by its name, first in the table here, then in the file of `measured`. No peak is made up for a device that
//! is in neither.

use super::measured;
use super::peak::Peak;

/// An entry: the name as `cuDeviceGetName` returns it, GB per second of its memory, and TFLOP per second with 16 bits on the tensor
/// cores and with 32 bits outside of them.
type PeakEntry = (&'static str, f64, f64, f64);

/// The figures are those of NVIDIA's public documents. Where these give tensor cores with sparsity, it is the half. GeForce cards and the L40 have
/// half the rate with 32-bit sums that they have with 16-bit ones. The names, except those of the V100, are in the list of products of NVIDIA's
/// open kernel modules; old drivers, such as 450, leave out `NVIDIA`.
#[rustfmt::skip]
const PEAKS: [PeakEntry; 44] = [
    // Blackwell data sheet: 7.7 TB/s, 4,500 TFLOP/s with sparsity, 75. Other documents say 8 TB/s, but the driver reports 7,680 bits of memory bus
    // at 3,996 MHz, which are 7.67. B300, in the technical brief of the Blackwell architecture: the same three.
    ("NVIDIA B200", 7_700.0, 2_250.0, 75.0),
    ("NVIDIA B300 SXM6 AC", 7_700.0, 2_250.0, 75.0),
    // Blackwell data sheet, a GPU of GB200 NVL72: 8 TB/s, 5,000 with sparsity, 80. NVIDIA's Exemplar Performance takes 2,450 for the half.
    ("NVIDIA GB200", 8_000.0, 2_500.0, 80.0),
    // H200 data sheet: SXM 4.8 TB/s, 1,979 TFLOP/s with sparsity, 67; NVL 4.8 TB/s, 1,671 with sparsity, 60.
    ("NVIDIA H200", 4_800.0, 989.5, 67.0),
    ("NVIDIA H200 NVL", 4_800.0, 835.5, 60.0),
    // H100 data sheet: SXM 3.35 TB/s, 1,979 with sparsity, 67; NVL 3.9 TB/s, 1,671 with sparsity, 60. PCIe, of its first edition: 2 TB/s, 1,513
    // with sparsity, 51.
    ("NVIDIA H100 80GB HBM3", 3_350.0, 989.5, 67.0),
    ("NVIDIA H100 NVL", 3_900.0, 835.5, 60.0),
    ("NVIDIA H100 PCIe", 2_000.0, 756.5, 51.0),
    // GH200 data sheet: 4 TB/s with 96 GB of HBM3, 1,979 with sparsity, 67. The names count the memory of the CPU.
    ("NVIDIA GH200 480GB", 4_000.0, 989.5, 67.0),
    ("NVIDIA GH200 120GB", 4_000.0, 989.5, 67.0),
    // A100 data sheet: 312, 19.5; 40 GB 1,555 GB/s, 80 GB PCIe 1,935 GB/s, 80 GB SXM 2,039 GB/s. The A800 has slower links only.
    ("NVIDIA A100-SXM4-40GB", 1_555.0, 312.0, 19.5),
    ("A100-SXM4-40GB", 1_555.0, 312.0, 19.5),
    ("NVIDIA A100-PCIE-40GB", 1_555.0, 312.0, 19.5),
    ("A100-PCIE-40GB", 1_555.0, 312.0, 19.5),
    ("NVIDIA A100-SXM4-80GB", 2_039.0, 312.0, 19.5),
    ("NVIDIA A100 80GB PCIe", 1_935.0, 312.0, 19.5),
    ("NVIDIA A800-SXM4-80GB", 2_039.0, 312.0, 19.5),
    // A30, A10 and A40 data sheets: 933 GB/s, 165, 10.3; 600 GB/s, 125, 31.2; 696 GB/s, 149.7, 37.4.
    ("NVIDIA A30", 933.0, 165.0, 10.3),
    ("NVIDIA A10", 600.0, 125.0, 31.2),
    ("NVIDIA A40", 696.0, 149.7, 37.4),
    // L4 data sheet: 300 GB/s, 242 with sparsity, 30.3. L40: 864 GB/s, 181.05, 90.5. L40S: 864 GB/s, 362.05, 91.6. Those of the L4 and the L40S do
    // not say how wide the sums are, but published measurements with 32-bit sums exceed the half of both figures.
    ("NVIDIA L4", 300.0, 121.0, 30.3),
    ("NVIDIA L40", 864.0, 181.05, 90.5),
    ("NVIDIA L40S", 864.0, 362.05, 91.6),
    // V100 data sheet: 900 GB/s; SXM2 125, 15.7; PCIe 112, 14; V100S 1,134 GB/s, 130, 16.4.
    ("Tesla V100-SXM2-16GB", 900.0, 125.0, 15.7),
    ("Tesla V100-SXM2-32GB", 900.0, 125.0, 15.7),
    ("Tesla V100-PCIE-16GB", 900.0, 112.0, 14.0),
    ("Tesla V100-PCIE-32GB", 900.0, 112.0, 14.0),
    ("Tesla V100S-PCIE-32GB", 1_134.0, 130.0, 16.4),
    // T4 data sheet: 65, 8.1; its product brief: 320 GB/s, which are 256 bits at 10 Gbit/s. The data sheet rounds to 300.
    ("Tesla T4", 320.0, 65.0, 8.1),
    // RTX Blackwell architecture, appendix: 5090 1,792 GB/s, 209.5 with 32-bit sums, 104.8; 5080 960 GB/s, 112.6, 56.3.
    ("NVIDIA GeForce RTX 5090", 1_792.0, 209.5, 104.8),
    ("NVIDIA GeForce RTX 5080", 960.0, 112.6, 56.3),
    // Ada architecture, appendix: 4090 1,008 GB/s, 165.2 with 32-bit sums, 82.6; 4080 716.8 GB/s, 97.5, 48.7; 3090 Ti 1,008 GB/s, 80, 40.
    ("NVIDIA GeForce RTX 4090", 1_008.0, 165.2, 82.6),
    ("NVIDIA GeForce RTX 4080", 716.8, 97.5, 48.7),
    ("NVIDIA GeForce RTX 3090 Ti", 1_008.0, 80.0, 40.0),
    // Ampere GA102 architecture, appendix: 3090 936 GB/s, 71 with 32-bit sums, 35.6; 3080 760 GB/s, 59.5, 29.8. These are of the 3080 with 10 GB:
    // that with 12 GB, of 912 GB/s and 30.6, has the same name.
    ("NVIDIA GeForce RTX 3090", 936.0, 71.0, 35.6),
    ("GeForce RTX 3090", 936.0, 71.0, 35.6),
    ("NVIDIA GeForce RTX 3080", 760.0, 59.5, 29.8),
    ("GeForce RTX 3080", 760.0, 59.5, 29.8),
    // RTX A6000 and A5000 data sheets: 768 GB/s, 309.7 with sparsity, 38.7; 768 GB/s, 222.2 with sparsity, 27.8.
    ("NVIDIA RTX A6000", 768.0, 154.85, 38.7),
    ("RTX A6000", 768.0, 154.85, 38.7),
    ("NVIDIA RTX A5000", 768.0, 111.1, 27.8),
    // RTX 6000 Ada data sheet: 960 GB/s, 1,457 with 8 bits and sparsity, 91.1.
    ("NVIDIA RTX 6000 Ada Generation", 960.0, 364.25, 91.1),
    // RTX PRO 6000 Blackwell data sheet: 1,792 GB/s, 125. RTX PRO Blackwell architecture, table 4: 503.8 with 32-bit sums; Max-Q 1,792 GB/s, 438.9,
    // 109.7. The Server Edition is not here: for its tensor cores with 16 bits, the documents only have a rounded PFLOP/s.
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1_792.0, 503.8, 125.0),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 1_792.0, 438.9, 109.7),
];

impl Peak {
    /// Returns the peak of a device by its name, as its vendor states it, or else as it was measured on this host; none if neither is known.
    ///
    /// The file of measured peaks is read once in a process, at the first device that is not in the table.
    pub fn of(device: &str) -> Option<Peak> {
        Peak::stated(device).or_else(|| measured::known().get(device).cloned())
    }

    /// Returns the peak that the vendor of a device states; none if it is not in the table.
    #[doc(hidden)]
    pub fn stated(device: &str) -> Option<Peak> {
        let (_, gb, f16, f32) = PEAKS.into_iter().find(|(name, ..)| *name == device)?;
        let flops = |tera: f64| Some(tera * 1e12);
        Some(Peak { bytes_per_s: gb * 1e9, f16_flops_per_s: flops(f16), f32_flops_per_s: flops(f32), measured: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_there_once_and_computes_faster_with_sixteen_bits() {
        for (at, (name, gb, f16, f32)) in PEAKS.iter().enumerate() {
            assert!(PEAKS[..at].iter().all(|(other, ..)| other != name), "{name} is there twice");
            // No memory of these is slower than 300 GB/s, and no ratio is outside of what tensor cores gain.
            assert!(*gb >= 300.0 && *gb <= 8_000.0 && f16 / f32 > 1.9 && f16 / f32 < 32.0, "{name}");
        }
        let peak = Peak::of("NVIDIA H100 80GB HBM3").expect("known");
        assert_eq!((peak.bytes_per_s, peak.flops_per_s(), peak.measured), (3.35e12, Some(989.5e12), None));
    }
}
