//! Single zones of a running program, with a session or without one.
//!
//! Request a zone before it begins, by its stream ([`next`]) or its range ([`range`]). The handle returns the zone's record when the
//! GPU has reached the zone's end.

// A request stores a completion in the slot of the matching zone. The code that reads or drops the zone answers the request
// (`core::profile`: `requests`, `pending`, `answers`). The collector's engine for requests times the zones that no session records, and
// exists only while a request waits. Nothing here runs without a request, and nothing waits for a device. `asking` has what the calls do in
// a build with the feature `enable`.

#[cfg(feature = "enable")]
pub(crate) mod asking;

pub use warpline_core::profile::error::ProfileError;
pub use warpline_core::profile::pending::{PendingSubmission, PendingZone, PendingZones};
pub use warpline_core::profile::submission::{SubmissionRecord, SubmittedWork};

use warpline_core::backend::AsStream;
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::catalog::{Kind, RangeSpec};
use warpline_core::zone::Zone;

/// Times the next zone that this thread begins on this stream, with a session or without one.
///
/// If zones nest, it times the outermost one. Zones of other threads never match, even on the same stream. Two requests before the zone
/// begins both return it. A zone on a stream that is being captured into a CUDA graph cannot be timed and does not count as the next one.
/// Dropping the handle cancels the request.
///
/// Without a session, warpline creates what it needs on the device, and releases it within half a second after the last result. After that
/// it makes no driver call. In a session, the zone is recorded as usual, and the request returns that record. If the session leaves the
/// zone out, the zone is timed independently.
///
/// ```
/// # use std::time::Duration;
/// # use warpline::{HostStream, gpu_zone};
/// warpline::namespace!("demo", "vector arithmetic");
///
/// /// Adds up `n` numbers.
/// #[gpu_zone("demo.sum", fields(n = n))]
/// fn sum(stream: &HostStream, n: u64) {
///     stream.launch(move || { std::hint::black_box((0..n).sum::<u64>()); });
/// }
///
/// fn main() -> Result<(), warpline::profile::ProfileError> {
///     let stream = HostStream::new("compute");
///     let pending = warpline::profile::next(&stream);
///     sum(&stream, 1_000_000);
/// #   if cfg!(feature = "enable") {
///     let zone = pending.wait(Duration::from_secs(5))?; // or `try_get`, or `.await`
///     println!("{} took {} ns", zone.range.name(), zone.duration_ns());
/// #   }
///     Ok(())
/// }
/// ```
pub fn next(stream: &(impl AsStream + ?Sized)) -> PendingZone {
    warpline_core::if_feature!("enable", PendingZone::new(asking::next(stream, 1, |_| Ok(None))), {
        let _ = stream;
        PendingZone::not_enabled()
    })
}

/// Like [`next`], for the next `n` zones that this thread begins on this stream, including nested ones.
pub fn next_n(stream: &(impl AsStream + ?Sized), n: u32) -> PendingZones {
    warpline_core::if_feature!("enable", PendingZones::new(asking::next(stream, n, |_| Ok(None))), {
        let _ = (stream, n);
        PendingZones::not_enabled()
    })
}

/// Like [`next`], and records an event of the caller's own on the stream, right behind the end of the zone, so that the caller can wait for it
/// or make other streams wait.
///
/// The thread that ends the zone records the event, also in a session whose zones have no events of their own. warpline never waits for it, queries
/// it or destroys it. The event is not recorded if the handle has an error or was dropped before the zone's end, and it then keeps its previous
/// state. If the driver refuses it, the handle returns [`ProfileError::Event`] with the driver's message. A stream that is being captured is
/// refused ([`ProfileError::Captured`]).
///
/// ```no_run
/// # use std::time::Duration;
/// use warpline::{AsStream, RawEvent, profile};
///
/// /// Measures `work`, and lets `copies` begin when it is done.
/// fn overlap(stream: &impl AsStream, event: *mut std::ffi::c_void, work: impl FnOnce(), copies: impl FnOnce()) {
///     // SAFETY: the event is of the stream's context, and outlives `zone`.
///     let zone = profile::next_with_event(stream, unsafe { RawEvent::from_ptr(event) });
///     work(); // contains a zone on `stream`
///     copies(); // cuStreamWaitEvent(copy_stream, event), cuMemcpyAsync(…)
///     println!("{:?}", zone.wait(Duration::from_secs(5)));
/// }
/// ```
#[cfg(feature = "cuda")]
pub fn next_with_event(stream: &(impl AsStream + ?Sized), event: warpline_cuda::RawEvent) -> PendingZone {
    warpline_core::if_feature!(
        "enable",
        PendingZone::new(asking::next(stream, 1, |stream| event.behind(stream).map(Some))),
        {
            let _ = (stream, event);
            PendingZone::not_enabled()
        }
    )
}

/// Times the next submission of this thread on this stream, whatever it is and without a mark: a kernel, a copy, a memory set, the launch of a
/// CUDA graph, or a barrier (`cuStreamWaitEvent`, `cuStreamSynchronize`).
///
/// The record has the name, the kind, begin and end on the device, and the call with its times. A barrier has no times on the device, because CUPTI
/// reports none. Submissions of other threads and on other streams do not match. The record comes some tenths of a second after the device has
/// completed the submission. Dropping the handle cancels the request.
///
/// This needs the feature `cupti` and NVIDIA's CUPTI on the machine; otherwise the handle has an error that says what to do. In a session that
/// uses CUPTI, the session's CUPTI records what the request needs. Otherwise the request starts CUPTI on this thread, which takes some ms and
/// makes launches slower, those of CUDA graphs most, and CUPTI is ended a quarter of a second after the last answer if that is safe
/// ([Exact kernels](crate::guide::kernels)).
///
/// ```no_run
/// use std::time::Duration;
///
/// use warpline::{AsStream, profile};
///
/// /// Prints what a library's call submits first.
/// fn look(stream: &impl AsStream, library: impl FnOnce()) -> Result<(), profile::ProfileError> {
///     let pending = profile::next_submission(stream);
///     library();
///     let first = pending.wait(Duration::from_secs(5))?;
///     println!("{} took {:?} ns", first.name, first.gpu_ns());
///     Ok(())
/// }
/// ```
pub fn next_submission(stream: &(impl AsStream + ?Sized)) -> PendingSubmission {
    warpline_core::if_feature!("enable", asking::next_submission(stream), {
        let _ = stream;
        PendingSubmission::failed(ProfileError::NotEnabled)
    })
}

/// Times the next `n` zones of a range of the program (`profile::range(&MLP, 10)`) or of a range name (`profile::range("demo.mlp", 10)`),
/// on any thread and stream. Entries of a batch of collectives do not count. Otherwise it works like [`next`].
pub fn range(range: impl RangeSelector, n: u32) -> PendingZones {
    warpline_core::if_feature!("enable", asking::range(range.ranges(), n), {
        let _ = (range, n);
        PendingZones::not_enabled()
    })
}

/// Times the work that an expression queues on a stream, without a mark. Returns the expression's value and a [`PendingZone`].
///
/// ```
/// # use std::time::Duration;
/// use warpline::HostStream;
///
/// fn main() -> Result<(), warpline::profile::ProfileError> {
///     let stream = HostStream::new("compute");
///     let (value, pending) = warpline::time!(&stream, {
///         stream.launch(|| { std::hint::black_box((0..1_000_000_u64).sum::<u64>()); });
///         42
///     });
///     assert_eq!(value, 42);
/// #   if cfg!(feature = "enable") {
///     println!("{} ns", pending.wait(Duration::from_secs(5))?.duration_ns());
/// #   }
///     Ok(())
/// }
/// ```
///
/// The zone's range is in no catalog and in no session's trace, and contains the file and the line. If the expression leaves the function
/// early, as with `?`, the zone is dropped.
#[macro_export]
macro_rules! time {
    ($stream:expr, $work:expr $(,)?) => {{
        static __WARPLINE_TIMED: $crate::RangeSpec =
            $crate::RangeSpec::new($crate::__private::timed(::core::module_path!(), ::core::file!(), ::core::line!()));
        let (zone, pending) = $crate::__private::time(&__WARPLINE_TIMED, &$stream);
        let value = $work;
        ::core::mem::drop(zone);
        (value, pending)
    }};
}

/// Returns the range data of an invocation of [`time!`].
#[doc(hidden)]
pub const fn timed(module: &'static str, file: &'static str, line: u32) -> RangeMeta {
    RangeMeta {
        namespace: "warpline",
        label: "warpline.time\0",
        description: "Timed where no mark is.",
        kind: Kind::Gpu,
        module,
        file,
        line,
        ..RangeMeta::EMPTY
    }
}

/// Begins a zone of [`time!`], and returns it with its handle.
#[doc(hidden)]
#[inline]
pub fn time(range: &'static RangeSpec, stream: &(impl AsStream + ?Sized)) -> (Zone, PendingZone) {
    warpline_core::if_feature!("enable", asking::time(range, stream), {
        let _ = (range, stream);
        (Zone::none(), PendingZone::not_enabled())
    })
}

/// The argument of [`range`]: a `&'static RangeSpec`, or a range's full name.
pub trait RangeSelector: sealed::Sealed {
    #[doc(hidden)]
    fn ranges(&self) -> Result<Vec<&'static RangeSpec>, ProfileError>;
}

impl RangeSelector for &'static RangeSpec {
    fn ranges(&self) -> Result<Vec<&'static RangeSpec>, ProfileError> {
        Ok(vec![self])
    }
}

impl RangeSelector for &str {
    /// Returns the ranges of this name, of both versions if two versions of a crate are linked.
    fn ranges(&self) -> Result<Vec<&'static RangeSpec>, ProfileError> {
        warpline_core::if_feature!(
            "enable",
            {
                let ranges: Vec<_> =
                    warpline_core::catalog::catalog().into_iter().filter(|range| range.name() == *self).collect();
                if !ranges.is_empty() {
                    return Ok(ranges);
                }
                // The last part of a name counts as similar to the whole name, at any length.
                let is_tail = |name: &&'static str| name.strip_suffix(self).is_some_and(|rest| rest.ends_with('.'));
                let names = || warpline_core::catalog::catalog().into_iter().map(RangeSpec::name);
                let near = names().find(is_tail).or_else(|| warpline_core::suggest::nearest(self, names()));
                Err(ProfileError::NoSuchRange { name: (*self).to_owned(), near })
            },
            Err(ProfileError::NotEnabled)
        )
    }
}

mod sealed {
    //! Keeps other crates from implementing the trait.

    use warpline_core::catalog::RangeSpec;

    pub trait Sealed {}

    impl Sealed for &'static RangeSpec {}
    impl Sealed for &str {}
}
