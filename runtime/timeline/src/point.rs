//! A position on a stream at which a value is reached, on any device. It is cheap to clone, and many waiters may share one.

use std::sync::Arc;

use super::error::{Error, Failure};
use super::state::{Core, Point};
use warpline_core::backend::Refusal;
use warpline_core::backend::device::{Device, DevicePoint, device as registered};
use warpline_core::backend::host_order::HostPoint;
use warpline_core::backend::{Source, StreamRef, key_of, source_of};
use warpline_core::if_feature;

/// The error for a stream of a backend that is not built in.
const NO_POINTS: &str =
    "the stream's backend has no points for timelines: wait for the stream on a host thread, and signal or wait there";

/// Registers the backends of devices. Every constructor of a semaphore or a queue calls it first.
pub(super) fn register_backends() {
    if_feature!("cuda", warpline_cuda::register(), ());
}

#[derive(Clone)]
pub(super) enum Timepoint {
    Host(Arc<HostPoint>),
    Device(Arc<dyn DevicePoint>),
}

impl Timepoint {
    /// Creates a point behind the work that is on the stream now. `name` is the semaphore's or the queue's, for errors.
    pub(super) fn put(stream: &StreamRef<'_>, name: &Arc<str>) -> Result<Timepoint, Error> {
        let put = match source_of(stream) {
            Source::Host(queue) => HostPoint::put(queue).map(Timepoint::Host),
            Source::Device(of) => {
                backend().and_then(|backend| backend.put_point(of, key_of(stream))).map(Timepoint::Device)
            }
            Source::Other(_) => return Err(device("a signal on a stream", NO_POINTS)),
            Source::None => return Err(device("a signal on a stream", "there is no stream: signal on the host")),
        };
        put.map_err(|refusal| refused(refusal, name))
    }

    /// Makes work that is put on the stream from now on wait for the point.
    pub(super) fn hold(self, stream: &StreamRef<'_>, name: &Arc<str>) -> Result<(), Error> {
        let held = match (self, source_of(stream)) {
            (Timepoint::Host(point), Source::Host(queue)) => point.hold(queue),
            (Timepoint::Device(point), Source::Device(of)) => {
                backend().and_then(|backend| backend.wait_for(of, key_of(stream), &*point))
            }
            (_, Source::Other(_)) => return Err(device("a wait on a stream", NO_POINTS)),
            (_, Source::None) => {
                return Err(device("a wait on a stream", "there is no stream: wait on the host"));
            }
            _ => {
                let error = "a CUDA stream and an in-process stream cannot wait for each other: wait on the host, or pass the work to a `timeline::Queue`";
                return Err(device("a wait on a stream", error));
            }
        };
        held.map_err(|refusal| refused(refusal, name))
    }

    /// Returns whether the stream can wait for the point.
    pub(super) fn can_hold(&self, stream: &StreamRef<'_>) -> bool {
        matches!(
            (self, source_of(stream)),
            (Timepoint::Host(_), Source::Host(_)) | (Timepoint::Device(_), Source::Device(_))
        )
    }

    /// Makes a point of an in-process stream report to the semaphore when it is reached.
    pub(super) fn notify(&self, core: &Arc<Core<Timepoint>>, value: u64) {
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

    /// Queries up to `in_a_row` times whether the stream has reached the point.
    pub(super) fn is_reached_soon(&self, in_a_row: u32) -> Result<bool, Error> {
        match self {
            Timepoint::Host(_) => Ok(false),
            Timepoint::Device(point) => {
                point.is_reached_soon(in_a_row).map_err(|error| device("a CUDA stream", &error))
            }
        }
    }
}

impl Point for Timepoint {
    fn stream(&self) -> u64 {
        match self {
            // The ids of CUDA streams are small numbers as well, so the high bit separates the two kinds.
            Timepoint::Host(point) => point.stream() | 1 << 63,
            Timepoint::Device(point) => point.stream(),
        }
    }

    fn has_to_be_asked(&self) -> bool {
        !matches!(self, Timepoint::Host(_))
    }

    fn is_reached(&self) -> Result<bool, Error> {
        self.is_reached_soon(1)
    }
}

/// Calls `work` with the context of a CUDA stream current.
pub(super) fn in_context<T>(stream: &StreamRef<'_>, name: &Arc<str>, work: impl FnOnce() -> T) -> Result<T, Error> {
    let Source::Device(of) = source_of(stream) else { return Ok(work()) };
    let (mut work, mut done) = (Some(work), None);
    let mut call = || done = work.take().map(|work| work());
    let called = backend().and_then(|backend| backend.with_context(of, key_of(stream), &mut call));
    called.map_err(|refusal| refused(refusal, name))?;
    done.ok_or_else(|| device("a call in a stream's context", "it was not made"))
}

/// Returns the backend of device streams.
pub(super) fn backend() -> Result<&'static dyn Device, Refusal> {
    let error = || "the backend of the stream's device is not in this program".to_owned();
    registered().ok_or_else(|| Refusal::Failed { what: "a stream", error: error() })
}

pub(super) fn device(what: &str, error: &str) -> Error {
    Error::Device { what: what.into(), error: error.into() }
}

pub(super) fn refused(refusal: Refusal, name: &Arc<str>) -> Error {
    match refusal {
        Refusal::Captured => Error::Captured { name: Arc::clone(name) },
        Refusal::Failed { what, error } => device(what, &error),
        Refusal::OutOfMemory { error, .. } => device("memory of a stream", &error),
    }
}
