//! The interface to a GPU: how a mark names a stream, and small object-safe traits that each kind of device implements once.
//!
//! `traits` contains the timing of zones, `scope` a backend's state for a session, `device` the connection of bindings' streams
//! to a backend, `event_clock` the clock of devices that give times as distances of events, and `host` the in-process streams. No method waits for a device.

#[cfg(any(feature = "cudarc-0_18", feature = "cudarc-0_19"))]
mod cudarc;
pub mod device;
pub mod event_clock;
pub mod fault;
pub mod host;
mod host_event;
pub mod host_order;
pub mod names;
mod scope;
mod traits;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{DeviceStream, KeepAlive, device};
use host::Queue;
pub use scope::*;
use traits::CountedCapture;
pub use traits::*;

/// A queue of work: the value of `stream = …` in a mark.
///
/// To implement it for your own type, delegate to the stream that it wraps:
///
/// ```
/// use warpline::{AsStream, HostStream};
/// use warpline::stream::StreamRef;
///
/// struct Lane { stream: HostStream }
///
/// impl AsStream for Lane {
///     fn as_stream(&self) -> StreamRef<'_> {
///         self.stream.as_stream()
///     }
/// }
/// ```
///
/// It is called once per zone, and only for zones that record.
///
/// [`HostStream`](crate::backend::host::HostStream) implements it; with feature `cuda`, `RawStream` and cudarc's
/// `Arc<CudaStream>`; with feature `cublas`, cudarc's `Arc<CudaBlas>`; and so do references, smart pointers and `Option`s of
/// streams. A zone on `None` records only the launching thread's time, like a host zone.
///
/// A zone may outlive its argument, so a recording zone owns a handle to its stream until it ends. That is why cudarc's types are
/// taken in their `Arc`, and why `RawStream::from_ptr` is unsafe.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stream that a zone can be timed on",
    label = "not a stream",
    note = "a mark takes a `HostStream`, a type of yours that implements `AsStream`, and with feature `cuda` a CUDA stream; also behind a reference, a smart pointer or an `Option`",
    note = "for a `CudaStream` or `CudaBlas` of cudarc, give the `Arc`, as in `stream: &Arc<CudaStream>`: a zone keeps its stream alive until it ends",
    note = "for the `CudaStream` of cudarc 0.19, turn on warpline's feature `cuda` in this crate, also where it only marks; of cudarc 0.18, feature `cudarc-0_18`; for a `CudaBlas`, also feature `cublas`",
    note = "for the `CudaStream` of another cudarc version, or another binding's stream, turn on `cuda` and give the raw handle: `RawStream::from_ptr(stream.cu_stream().cast())`",
    note = "for cudarc's `CudaGraph`, which keeps its stream private, give the stream that the graph was captured on: `stream = self.stream`"
)]
pub trait AsStream {
    /// Returns the stream.
    fn as_stream(&self) -> StreamRef<'_>;
}

/// A borrowed stream, as [`AsStream`] passes it to a zone.
///
/// Only the stream's own backend makes one, so that no zone is aimed at another stream than the one that it keeps alive.
#[derive(Clone, Copy)]
pub struct StreamRef<'a> {
    pub(crate) key: Result<StreamKey, NoKey>,
    pub(crate) source: Source<'a>,
}

/// Returns the key of a stream, for warpline's other crates. It is not a method, because a backend of the application could pass another
/// one's key on.
#[inline]
pub fn key_of(stream: &StreamRef<'_>) -> Result<StreamKey, NoKey> {
    stream.key
}

/// Returns the owner of a stream, for warpline's other crates.
#[inline]
pub fn source_of<'a>(stream: &StreamRef<'a>) -> Source<'a> {
    stream.source
}

/// The owner of the stream.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    Host(&'a Arc<Queue>),
    /// A stream of CUDA, as a binding's type holds it.
    Device(&'a dyn DeviceStream),
    /// A stream of a backend that is not built in.
    Other(&'a dyn BackendStream),
    /// There is no stream.
    None,
}

/// A stream of a backend of your own: what a zone asks of the stream that it begins on.
///
/// A type that marks take implements this and [`AsStream`], which returns [`StreamRef::of_backend`].
pub trait BackendStream {
    /// Returns the stream's backend in the session of `scope`. It is called when the session first uses the stream, on the
    /// launching thread, so it must not wait for the stream.
    ///
    /// # Errors
    /// The zone is dropped and counts as `event_failed`; the report gives the reason once.
    fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError>;

    /// Keeps the stream alive from a zone's begin to its end, because the application may drop the stream in between. None if
    /// nothing can destroy the stream under an open zone.
    ///
    /// It is called for each zone. The thread that ends the zone releases the handle.
    fn keep_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        None
    }
}

impl std::fmt::Debug for StreamRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamRef").finish_non_exhaustive()
    }
}

impl StreamRef<'_> {
    /// Returns no stream, for your own [`AsStream`] type that may have none: the zone records only the launching thread's time,
    /// like a host zone.
    #[inline]
    pub fn none() -> StreamRef<'static> {
        StreamRef { key: Err(NoKey::NoStream), source: Source::None }
    }

    /// Returns a stream of a backend of your own. The key distinguishes it from every other stream of the process.
    ///
    /// A stream without a key is given as an error: [`NoKey::Captured`] while it is captured into a graph, which counts the zone as
    /// captured and asks nothing of the backend, and [`NoKey::Unknown`] if the device does not identify it, in which case
    /// [`BackendStream::backend`] should give the reason.
    #[inline]
    pub fn of_backend(key: Result<StreamKey, NoKey>, stream: &dyn BackendStream) -> StreamRef<'_> {
        // A key of a built-in backend would aim the zone at one of its streams, which this one does not keep alive.
        let key = key.and_then(|key| if key.space.is_built_in() { Err(NoKey::Unknown) } else { Ok(key) });
        StreamRef { key, source: Source::Other(stream) }
    }

    /// Returns a stream of a device, whose backend provides the key.
    #[inline]
    #[doc(hidden)]
    pub fn on_device(stream: &impl DeviceStream) -> StreamRef<'_> {
        let key = device().map_or(Err(NoKey::Unknown), |device| device.key(stream));
        StreamRef { key, source: Source::Device(stream) }
    }

    /// Returns whether there is a stream.
    pub(crate) fn is_some(&self) -> bool {
        self.key != Err(NoKey::NoStream)
    }

    /// Keeps the stream alive while a zone is open on it; none if nothing can destroy it, or if the application guarantees its
    /// lifetime.
    #[inline]
    pub(crate) fn keep_alive(&self) -> Option<Arc<dyn KeepAlive>> {
        match self.source {
            Source::Device(stream) => stream.keep_alive(),
            Source::Other(stream) => stream.keep_alive(),
            Source::Host(_) | Source::None => None,
        }
    }

    /// Returns the stream's backend in the session of `scope`, created when the session first uses the stream. An error is shown
    /// to the user only once.
    pub(crate) fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        match self.source {
            Source::Host(queue) => Ok(queue.backend()),
            Source::Device(stream) => {
                let none = || BackendError("the backend of the stream's device is not in this program".to_owned());
                device().ok_or_else(none)?.backend(stream, scope)
            }
            Source::Other(stream) => stream.backend(scope),
            Source::None => Err(BackendError("there is no stream".to_owned())),
        }
    }

    /// Returns the begin and end of a zone that is captured into a graph with its stream; none for streams that are never
    /// captured.
    pub(crate) fn capture_points(&self) -> Option<EventPair> {
        match self.source {
            Source::Device(stream) => device()?.capture_points(stream),
            Source::Other(_) => Some(EventPair::Captured(Box::new(CountedCapture))),
            Source::Host(_) | Source::None => None,
        }
    }
}

/// A key that distinguishes a stream from every other of this program. Keys are never reused, so a new stream is not mistaken for
/// the one that it replaced.
///
/// [`Space::key`] makes it: whoever has no space of a backend makes no key of its streams.
///
/// ```compile_fail,E0451
/// let forged = warpline::backend::StreamKey { space: warpline::backend::new_space(), stream: 1 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    space: Space,
    stream: u64,
}

impl StreamKey {
    /// Returns the key of a stream of the driver, whose ids are unique in a process.
    ///
    /// # Safety
    /// The caller is the backend of that driver, and the id is that of the stream for which it is asked.
    #[doc(hidden)]
    #[allow(unsafe_code)]
    pub unsafe fn of_driver(stream: u64) -> StreamKey {
        StreamKey { space: Space::DRIVER, stream }
    }

    /// Returns the stream's number in its space.
    #[doc(hidden)]
    pub fn number(self) -> u64 {
        self.stream
    }
}

/// A space of numbers that no other backend of this process has, for the keys of streams and for clocks: [`new_space`] makes it. A backend keeps
/// it to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Space(u64);

impl Space {
    /// The streams of this process.
    const HOST: Space = Space(0);
    /// The streams of the CUDA driver.
    const DRIVER: Space = Space(1);
    /// The first space of a backend that is not built in. The ids of CUDA's contexts are small numbers.
    const FIRST: u64 = 1 << 63;

    /// Returns the key of the stream with this number in the space. The number must not be used for another stream later.
    pub fn key(self, stream: u64) -> StreamKey {
        StreamKey { space: self, stream }
    }

    /// Returns the id, for [`Backend::clock_space`] and [`Scope::shared`].
    pub fn id(self) -> u64 {
        self.0
    }

    fn is_built_in(self) -> bool {
        self.0 < Space::FIRST
    }
}

/// Returns a new space. A backend keeps it, because each call returns another one.
pub fn new_space() -> Space {
    static NEXT: AtomicU64 = AtomicU64::new(Space::FIRST);
    Space(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Tells the sessions that the application has dropped a stream. Zones that have ended on it are still read, and then the session
/// forgets the stream; without this call it keeps the stream's state until its end.
///
/// The key must not be used for another stream afterwards. Zones that are open on the stream end normally.
pub fn stream_dropped(key: StreamKey) {
    names::forget(key);
    ON_DROP.iter().map_while(OnceLock::get).for_each(|hook| hook(key));
}

/// The callbacks for dropped streams.
static ON_DROP: [OnceLock<fn(StreamKey)>; 4] = [const { OnceLock::new() }; 4];

/// Calls `hook` with the key of each stream whose drop is noticed from now on: in-process streams, and those of backends that tell. Registering a hook again has no
/// effect.
pub(crate) fn on_drop(hook: fn(StreamKey)) {
    let _ = ON_DROP.iter().find(|place| *place.get_or_init(|| hook) as usize == hook as usize);
}

/// The reason why a stream has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// The stream is being captured into a graph, and a query would break the capture.
    Captured,
    /// The stream's device returned an error, which the stream's backend reports.
    Unknown,
    /// There is no stream.
    NoStream,
}

macro_rules! as_stream_through {
    ($($pointer:ty),*) => {
        $(
            impl<S: AsStream + ?Sized> AsStream for $pointer {
                fn as_stream(&self) -> StreamRef<'_> {
                    (**self).as_stream()
                }
            }
        )*
    };
}

as_stream_through!(&S, &mut S, Box<S>, Rc<S>, Arc<S>);

impl<S: AsStream> AsStream for Option<S> {
    #[inline]
    fn as_stream(&self) -> StreamRef<'_> {
        match self {
            Some(stream) => stream.as_stream(),
            None => StreamRef::none(),
        }
    }
}

/// The reason why a timeline operation could not be added to a stream.
pub enum Refusal {
    /// The stream is being captured into a graph.
    Captured,
    /// The stream or its device refused it.
    Failed { what: &'static str, error: String },
    /// The device with this ordinal has no memory for it.
    OutOfMemory { device: u32, error: String },
}

/// The reason why an operation on a stream failed, as the report shows it: what failed, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError(pub String);

impl BackendError {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> BackendError {
        BackendError(text.into())
    }
}

impl std::error::Error for BackendError {}

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a point was not recorded on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The stream is being captured into a graph: the zone counts as captured if it began there, and else as `capture_failed`.
    Captured,
    /// The stream is being captured, and the driver does not provide the zone's position in the graph.
    CaptureFailed,
    /// All events that the session may use are in use: the zone counts as `ring_full`.
    Full,
    /// The stream refused the point: the zone counts as `event_failed`.
    Failed(BackendError),
}

impl From<BackendError> for Refused {
    fn from(error: BackendError) -> Refused {
        Refused::Failed(error)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backend::host::HostStream;

    /// A stream of the application that names another one's key.
    struct Forging;

    impl BackendStream for Forging {
        fn backend(&self, _: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
            Err(BackendError::new("it has none"))
        }
    }

    #[test]
    fn a_backend_of_the_application_aims_no_zone_at_a_built_in_stream() {
        let host = HostStream::new("another's");
        let key = key_of(&host.as_stream()).expect("a key");
        assert_eq!(key_of(&StreamRef::of_backend(Ok(key), &Forging)), Err(NoKey::Unknown));
        let own = new_space().key(key.number());
        assert_eq!(key_of(&StreamRef::of_backend(Ok(own), &Forging)), Ok(own));
        assert_ne!(new_space(), new_space());
    }
}
