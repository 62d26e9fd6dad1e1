//! Where matrices lie and streams run: on the host, or on a GPU.

use warpline::HostStream;

use crate::cuda::Gpu;
use crate::error::Error;
use crate::stream::{self, Stream};

/// The host, or the first NVIDIA GPU. What one device made works together; a clone is the same device.
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Kind);

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Host,
    Gpu(Gpu),
}

impl Device {
    /// The host: its streams are in-process streams.
    pub fn host() -> Device {
        Device(Kind::Host)
    }

    /// The GPU if there is a driver, a GPU and NVRTC, and the host otherwise; and a sentence that says which it is, and
    /// what was missing.
    ///
    /// On a GPU it compiles the kernels, which takes about 100 ms. The primary context is kept while the device lives.
    pub fn find() -> (Device, String) {
        match Gpu::find(0) {
            Ok((gpu, name)) => (Device(Kind::Gpu(gpu)), format!("CUDA streams on {name}")),
            Err(missing) => (Device::host(), format!("in-process streams: {missing}")),
        }
    }

    /// The GPU of this number, as [`find`](Self::find) looks for the first one; and its name. What is missing is an error, in
    /// words.
    ///
    /// # Errors
    /// There is no driver, no such GPU, or no NVRTC.
    pub fn gpu(ordinal: usize) -> Result<(Device, String), String> {
        Gpu::find(ordinal).map(|(gpu, name)| (Device(Kind::Gpu(gpu)), name))
    }

    /// How many GPUs there are; and where there is none, what is missing, in words.
    ///
    /// # Errors
    /// There is no driver, or it has no GPU.
    pub fn gpus() -> Result<usize, String> {
        Gpu::count()
    }

    /// A new stream. The name is an in-process stream's; CUDA streams have none, and traces number them.
    ///
    /// # Errors
    /// The driver makes no stream.
    pub fn stream(&self, name: &str) -> Result<Stream, Error> {
        Ok(Stream(match &self.0 {
            Kind::Host => stream::Kind::Host(HostStream::new(name)),
            Kind::Gpu(gpu) => stream::Kind::Gpu(gpu.queue()?),
        }))
    }
}
