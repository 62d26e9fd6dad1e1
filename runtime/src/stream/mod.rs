//! The dynamic side: how a mark names its stream, and one context a stream while a session runs.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

#[cfg(feature = "enable")]
pub(crate) mod context;
#[cfg(feature = "enable")]
pub(crate) mod cut;
#[cfg(all(feature = "enable", feature = "timeline"))]
pub(crate) mod depths;
#[cfg(feature = "enable")]
pub(crate) mod note;
#[cfg(feature = "enable")]
pub(crate) mod pauses;
#[cfg(feature = "enable")]
pub(crate) mod recorder;
#[cfg(feature = "enable")]
pub(crate) mod ring;
#[cfg(all(test, loom, feature = "enable"))]
mod ring_model;
#[cfg(feature = "enable")]
pub(crate) mod slot;
#[cfg(feature = "enable")]
pub(crate) mod thread;
#[cfg(all(feature = "enable", feature = "timeline"))]
pub(crate) mod waits;
#[cfg(feature = "enable")]
pub(crate) mod waker;

#[cfg(all(feature = "enable", feature = "cuda"))]
use crate::backend::Points;
#[cfg(all(feature = "enable", feature = "cuda"))]
use crate::backend::cuda::Owner;
#[cfg(feature = "enable")]
use crate::backend::{Backend, BackendError};
#[cfg(feature = "enable")]
use recorder::Scope;

/// Something that work can be queued on: what `stream = …` in a mark takes.
///
/// Implement it for a type of your own by handing on what it wraps:
///
/// ```
/// use warpline::{AsStream, HostStream, StreamRef};
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
/// It is called once a zone, and only while the zone records.
///
/// [`HostStream`](crate::HostStream) implements it; with feature `cuda` `RawStream` and `Arc<CudaStream>` of cudarc, with feature
/// `cublas` `Arc<CudaBlas>` of cudarc; and so do references, smart pointers and `Option`s of streams. A zone on `None` has the
/// launching thread's time alone, as a host zone.
///
/// A zone may outlive what it was given: one that records owns a handle on its stream until it ends. That is why cudarc's types
/// are taken in their `Arc`, and why `RawStream::from_ptr` is unsafe.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stream that a zone can be timed on",
    label = "not a stream",
    note = "a mark takes a `HostStream`, a type of yours that implements `AsStream`, and with feature `cuda` a CUDA stream; also behind a reference, a smart pointer or an `Option`",
    note = "for a `CudaStream` or `CudaBlas` of cudarc, give the `Arc`, as in `stream: &Arc<CudaStream>`: a zone keeps its stream alive until it ends",
    note = "for the `CudaStream` of cudarc 0.19, turn on warpline's feature `cuda` in this crate, also where it only marks; for its `CudaBlas`, feature `cublas`",
    note = "for the `CudaStream` of another cudarc version, or another binding's stream, turn on `cuda` and give the raw handle: `RawStream::from_ptr(stream.cu_stream().cast())`",
    note = "for cudarc's `CudaGraph`, which keeps its stream private, give the stream that the graph was captured on: `stream = self.stream`"
)]
pub trait AsStream {
    /// The stream.
    fn as_stream(&self) -> StreamRef<'_>;
}

/// A borrowed stream, as [`AsStream`] hands it to a zone.
#[derive(Clone, Copy)]
pub struct StreamRef<'a> {
    #[cfg(any(feature = "enable", all(feature = "timeline", feature = "cuda")))]
    pub(crate) key: Result<StreamKey, NoKey>,
    #[cfg(feature = "timeline")]
    pub(crate) lane: Lane<'a>,
    #[cfg(feature = "enable")]
    pub(crate) source: &'a dyn StreamSource,
    pub(crate) _stream: PhantomData<&'a ()>,
}

impl std::fmt::Debug for StreamRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamRef").finish_non_exhaustive()
    }
}

impl StreamRef<'_> {
    /// No stream, for an [`AsStream`] of your own that may have none: a zone has the launching thread's time alone, as a
    /// host zone.
    #[inline]
    pub fn none() -> StreamRef<'static> {
        StreamRef {
            #[cfg(any(feature = "enable", all(feature = "timeline", feature = "cuda")))]
            key: Err(NoKey::NoStream),
            #[cfg(feature = "timeline")]
            lane: Lane::None,
            #[cfg(feature = "enable")]
            source: &NoStream,
            _stream: PhantomData,
        }
    }

    /// Whether there is a stream.
    #[cfg(feature = "enable")]
    pub(crate) fn is_some(&self) -> bool {
        self.key != Err(NoKey::NoStream)
    }
}

/// Where a timeline puts its points.
#[cfg(feature = "timeline")]
#[derive(Clone, Copy)]
pub(crate) enum Lane<'a> {
    Host(&'a Arc<crate::backend::host::Queue>),
    #[cfg(feature = "cuda")]
    Cuda(crate::backend::cuda::order::Lane<'a>),
    /// There is no stream.
    None,
}

/// What tells one stream from every other that this program has had: never reused, so that a new stream is not taken
/// for one that it replaced.
#[cfg(any(feature = "enable", all(feature = "timeline", feature = "cuda")))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    /// Which backend, or which of its contexts.
    pub(crate) space: u64,
    /// Which of its streams.
    pub(crate) stream: u64,
}

/// Why a stream has no key.
#[cfg(any(feature = "enable", all(feature = "timeline", feature = "cuda")))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// It is being captured into a graph, and asking it would break the capture.
    Captured,
    /// Its device does not say; the stream's source says why.
    Unknown,
    /// There is no stream.
    NoStream,
}

/// Makes the backend object of a stream when a session meets it for the first time.
#[cfg(feature = "enable")]
pub(crate) trait StreamSource {
    /// The stream's backend in the session of `scope`; an error is told to the user once.
    fn backend(&self, scope: &Scope) -> Result<Arc<dyn Backend>, BackendError>;

    /// Where a zone begins and ends that is captured with the stream into a graph; none for streams that are never captured.
    #[cfg(feature = "cuda")]
    fn captured(&self) -> Option<Points> {
        None
    }

    /// What keeps the stream alive while a zone is open on it; none where nobody can destroy it, or the application vouches
    /// for it.
    #[cfg(feature = "cuda")]
    fn owner(&self) -> Option<Owner> {
        None
    }
}

/// The source of no stream.
#[cfg(feature = "enable")]
struct NoStream;

#[cfg(feature = "enable")]
impl StreamSource for NoStream {
    fn backend(&self, _scope: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        Err(BackendError("there is no stream".to_owned()))
    }
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
