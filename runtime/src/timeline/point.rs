//! A place on a stream behind which a value is reached, whatever the device. Cheap to clone; many may wait for one.

use std::sync::Arc;

use super::core::{Core, Point};
use super::error::{Error, Failure};
use crate::backend::Refusal;
#[cfg(feature = "cuda")]
use crate::backend::cuda::order::CudaPoint;
use crate::backend::host_order::HostPoint;
use crate::stream::{Lane, StreamRef};

#[derive(Clone)]
pub(super) enum Timepoint {
    Host(Arc<HostPoint>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<CudaPoint>),
}

impl Timepoint {
    /// A point behind what is on the stream now. `name` is the semaphore's or the queue's, for an error.
    pub(super) fn put(stream: &StreamRef<'_>, name: &Arc<str>) -> Result<Timepoint, Error> {
        let put = match stream.lane {
            Lane::Host(queue) => HostPoint::put(queue).map(Timepoint::Host),
            #[cfg(feature = "cuda")]
            Lane::Cuda(lane) => lane.record(stream.key).map(Timepoint::Cuda),
            Lane::None => return Err(device("a signal on a stream", "there is no stream: signal on the host")),
        };
        put.map_err(|refusal| refused(refusal, name))
    }

    /// Lets what comes on the stream from now on wait for the point.
    pub(super) fn hold(self, stream: &StreamRef<'_>, name: &Arc<str>) -> Result<(), Error> {
        let held = match (self, stream.lane) {
            (Timepoint::Host(point), Lane::Host(queue)) => point.hold(queue),
            #[cfg(feature = "cuda")]
            (Timepoint::Cuda(point), Lane::Cuda(lane)) => lane.wait(stream.key, &point),
            (_, Lane::None) => {
                return Err(device("a wait on a stream", "there is no stream: wait on the host"));
            }
            #[cfg(feature = "cuda")]
            _ => {
                let error = "a CUDA stream and an in-process stream cannot wait for each other: wait on the host, or hand the work to a `timeline::Queue`";
                return Err(device("a wait on a stream", error));
            }
        };
        held.map_err(|refusal| refused(refusal, name))
    }

    /// Whether the stream can wait for the point.
    pub(super) fn can_hold(&self, stream: &StreamRef<'_>) -> bool {
        match (self, stream.lane) {
            (Timepoint::Host(_), Lane::Host(_)) => true,
            #[cfg(feature = "cuda")]
            (Timepoint::Cuda(_), Lane::Cuda(_)) => true,
            _ => false,
        }
    }

    /// A point that tells by itself when it is reached does so from now on.
    pub(super) fn tell(&self, core: &Arc<Core<Timepoint>>, value: u64) {
        #[cfg_attr(not(feature = "cuda"), expect(irrefutable_let_patterns, reason = "there are no others"))]
        if let Timepoint::Host(point) = self {
            let core = Arc::clone(core);
            point.then(move |outcome| match outcome {
                Ok(()) => core.reach(value),
                Err(error) => {
                    core.fail(Failure::new(Arc::clone(core.name()), device("an in-process stream", &error)));
                }
            });
        }
    }
}

impl Timepoint {
    /// Asks up to so many times in a row whether the stream is known to be there.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only a device is asked again and again"))]
    pub(super) fn is_reached_soon(&self, in_a_row: u32) -> Result<bool, Error> {
        match self {
            Timepoint::Host(_) => Ok(false),
            #[cfg(feature = "cuda")]
            Timepoint::Cuda(point) => point.is_reached_soon(in_a_row).map_err(|error| device("a CUDA stream", &error)),
        }
    }
}

impl Point for Timepoint {
    fn stream(&self) -> u64 {
        match self {
            // The ids of CUDA streams are small numbers, too.
            Timepoint::Host(point) => point.stream() | 1 << 63,
            #[cfg(feature = "cuda")]
            Timepoint::Cuda(point) => point.stream(),
        }
    }

    fn has_to_be_asked(&self) -> bool {
        !matches!(self, Timepoint::Host(_))
    }

    fn is_reached(&self) -> Result<bool, Error> {
        self.is_reached_soon(1)
    }
}

/// Calls `work` where the stream's device is at hand: with the context of a CUDA stream current.
pub(super) fn in_context<T>(stream: &StreamRef<'_>, name: &Arc<str>, work: impl FnOnce() -> T) -> Result<T, Error> {
    let done = match stream.lane {
        Lane::Host(_) | Lane::None => Ok(work()),
        #[cfg(feature = "cuda")]
        Lane::Cuda(lane) => lane.with_context(stream.key, work),
    };
    done.map_err(|refusal| refused(refusal, name))
}

pub(super) fn device(what: &str, error: &str) -> Error {
    Error::Device { what: what.into(), error: error.into() }
}

fn refused(refusal: Refusal, name: &Arc<str>) -> Error {
    match refusal {
        Refusal::Captured => Error::Captured { name: Arc::clone(name) },
        Refusal::Failed { what, error } => device(what, &error),
    }
}
