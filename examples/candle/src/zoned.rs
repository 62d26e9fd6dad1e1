//! Modules of candle as zones on the stream of their device. Copy this file.

use candle_core::{Device, Module, Result, Tensor};
use warpline::{AsStream, RangeSpec};

/// A module, each call of which is a zone of the range.
pub struct Zoned<M>(pub &'static RangeSpec, pub M);

impl<M: Module> Module for Zoned<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _zone = self.0.zone(&stream(x.device()));
        self.1.forward(x)
    }
}

/// The stream of a CUDA device. Zones on other devices have the time of their thread alone.
#[cfg(feature = "cuda")]
pub fn stream(device: &Device) -> impl AsStream + use<> {
    device.as_cuda_device().ok().map(|device| device.cuda_stream())
}

/// Without the feature `cuda`, candle has no CUDA device.
#[cfg(not(feature = "cuda"))]
pub fn stream(_: &Device) -> impl AsStream + use<> {
    None::<warpline::HostStream>
}
