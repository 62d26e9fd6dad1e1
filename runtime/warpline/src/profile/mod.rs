//! Single zones of a running program, with a session or without one.
//!
//! Request a zone before it begins, by its stream ([`next`]) or its range ([`range`]). The handle returns the zone's record when the
//! GPU has reached the zone's end.

// A request stores a completion in the slot of the matching zone. The code that reads or drops the zone answers the request
// (`core::profile`: `requests`, `pending`, `answers`). The collector's engine for requests times the zones that no session records, and
// exists only while a request waits. Nothing here runs without a request, and nothing waits for a device.

#[cfg(feature = "enable")]
use crate::collector::engine;
pub use warpline_core::profile::error::ProfileError;
pub use warpline_core::profile::pending::{PendingZone, PendingZones};
#[cfg(feature = "enable")]
use warpline_core::profile::{answers::Shared, outside, requests};

use warpline_core::backend::AsStream;
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::catalog::{Kind, Level, RangeSpec};
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
    warpline_core::if_feature!("enable", PendingZone::new(requests::ask_next(&stream_ref(stream), 1)), {
        let _ = stream;
        PendingZone::not_enabled()
    })
}

/// Like [`next`], for the next `n` zones that this thread begins on this stream, including nested ones.
pub fn next_n(stream: &(impl AsStream + ?Sized), n: u32) -> PendingZones {
    warpline_core::if_feature!("enable", PendingZones::new(requests::ask_next(&stream_ref(stream), n)), {
        let _ = (stream, n);
        PendingZones::not_enabled()
    })
}

/// Times the next `n` zones of a range of the program (`profile::range(&MLP, 10)`) or of a range name (`profile::range("demo.mlp", 10)`),
/// on any thread and stream. Entries of a batch of collectives do not count. Otherwise it works like [`next`].
pub fn range(range: impl RangeSelector, n: u32) -> PendingZones {
    warpline_core::if_feature!(
        "enable",
        {
            register();
            PendingZones::new(match range.ranges() {
                Ok(ranges) => requests::ask_runs(ranges, n),
                Err(error) => Shared::failed(error),
            })
        },
        {
            let _ = (range, n);
            PendingZones::not_enabled()
        }
    )
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
        level: Level::Coarse,
        lane: None,
        color: None,
        fields: &[],
        undescribed: &[],
        module,
        version: "",
        file,
        line,
    }
}

/// Begins a zone of [`time!`], and returns it with its handle.
#[doc(hidden)]
#[inline]
pub fn time(range: &'static RangeSpec, stream: &(impl AsStream + ?Sized)) -> (Zone, PendingZone) {
    warpline_core::if_feature!(
        "enable",
        {
            let (zone, shared) = warpline_core::zone::timed(range, &stream_ref(stream));
            (zone, PendingZone::new(shared))
        },
        {
            let _ = (range, stream);
            (Zone::none(), PendingZone::not_enabled())
        }
    )
}

/// Registers the backends of this program, and returns the stream.
#[cfg(feature = "enable")]
pub(crate) fn stream_ref<S: AsStream + ?Sized>(stream: &S) -> warpline_core::backend::StreamRef<'_> {
    register();
    stream.as_stream()
}

/// Registers the backends of this program, as a session does.
#[cfg(feature = "enable")]
fn register() {
    outside::register(engine::for_requests);
    #[cfg(feature = "cuda")]
    warpline_cuda::register();
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
