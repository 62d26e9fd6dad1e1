//! The stubs in whose place a test runs again in a process of its own: the driver, CUPTI, a tool for NVTX.

#[cfg(feature = "cupti")]
pub mod cupti;
pub mod driver;
#[cfg(feature = "cuda")]
pub mod graphs;
#[cfg(feature = "hip")]
pub mod hip;
#[cfg(feature = "enable")]
pub mod nvtx;
#[cfg(feature = "enable")]
pub mod nvtx_zones;
#[cfg(all(feature = "cuda", feature = "timeline"))]
pub mod slow;
#[cfg(feature = "cuda")]
pub mod zones;
