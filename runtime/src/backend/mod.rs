//! What a GPU must do for us: a few small object-safe traits, and one implementation a kind of device.
//!
//! A [`Backend`] is one stream of one session. Launching threads call [`Points::begin`] and [`Points::end`] and nothing
//! else; everything besides is the collector's. No method waits for a device.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod fault;
pub mod host;
#[cfg(feature = "enable")]
mod host_event;
#[cfg(feature = "timeline")]
pub mod host_order;
#[cfg(feature = "cuda")]
pub mod nccl;

#[cfg(feature = "enable")]
pub(crate) use traits::*;

/// Why a timeline could not put something on a stream.
#[cfg(feature = "timeline")]
pub(crate) enum Refusal {
    /// The stream is being captured into a graph.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "host streams are never captured"))]
    Captured,
    /// The stream, or its device, did not take it.
    Failed { what: &'static str, error: String },
}

/// Why a stream did not do what was asked.
#[cfg(any(feature = "enable", all(feature = "timeline", feature = "cuda")))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackendError(pub(crate) String);

#[cfg(any(feature = "enable", all(feature = "timeline", feature = "cuda")))]
impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(feature = "enable")]
mod traits {
    use std::any::Any;

    use super::BackendError;
    #[cfg(feature = "cuda")]
    use super::cuda::{CapturePoints, CudaPoints};
    use super::host_event::HostPoints;
    use crate::clock::Bracket;
    use crate::record::{DeviceInfo, EndFound, Span};
    use crate::session::Ends;

    /// One stream of one device. Dropping it must not wait for the stream.
    pub(crate) trait Backend: Send + Sync {
        /// The stream's name, if it has one.
        fn name(&self) -> Option<String>;

        /// The session calls the stream by this name: so may a tool that sees the device's streams.
        fn is_called(&self, _name: &str) {}

        /// CUPTI's numbers of the stream: its context's and its own.
        #[cfg(feature = "cupti")]
        fn tool_numbers(&self) -> Option<(u32, u32)> {
            None
        }

        /// The device that the stream belongs to.
        fn device(&self) -> DeviceInfo;

        /// Which streams share a clock: those of one space.
        fn clock_space(&self) -> u64;

        /// The begin and the end of one zone at a time, for a slot of the ring.
        fn points(&self) -> Result<Points, BackendError>;

        /// Turns the stream's points into times.
        fn reader(&self) -> Box<dyn Reader>;

        /// The clock of the stream's space, for the collector's thread. It may take a few ms, once a space and session.
        fn clock(&self) -> Result<Box<dyn Clock>, BackendError>;

        /// Makes ahead what launching threads would have to make, in a small step. The collector calls it once a pass.
        fn provide(&self) {}

        /// How zones find their ends from now on, where so many streams share the device; none while streams still come.
        fn choose_ends(&self, _ends: Ends, _streams: Option<usize>) {}

        /// Whether the session is short of what zones need on this stream, so that it has to be read now.
        fn is_short(&self) -> bool {
            false
        }
    }

    /// A zone's begin and end on its stream, inside its slot. It serves one zone after another.
    pub(crate) enum Points {
        Host(HostPoints),
        #[cfg(feature = "cuda")]
        Cuda(CudaPoints),
        /// On a stream that is being captured: places in the graph.
        #[cfg(feature = "cuda")]
        Capture(Box<CapturePoints>),
    }

    /// Calls a method of whichever it is.
    macro_rules! either {
        ($points:expr, $inner:ident => $call:expr) => {
            match $points {
                Points::Host($inner) => $call,
                #[cfg(feature = "cuda")]
                Points::Cuda($inner) => $call,
                #[cfg(feature = "cuda")]
                Points::Capture($inner) => $call,
            }
        };
    }

    impl Points {
        /// Puts the begin behind the work that is on the stream now.
        #[inline]
        pub(crate) fn begin(&mut self, call: Call) -> Result<(), Refused> {
            either!(self, points => points.begin(call))
        }

        /// Puts the end behind the work that is on the stream now.
        #[inline]
        pub(crate) fn end(&mut self, thread: u64) -> Result<(), Refused> {
            either!(self, points => points.end(thread))
        }

        /// Whether the end has to put right what the begin did to the stream's capture, even after the session.
        pub(crate) fn owes_its_capture(&self) -> bool {
            #[cfg(feature = "cuda")]
            return matches!(self, Points::Capture(points) if points.is_led());
            #[cfg(not(feature = "cuda"))]
            false
        }

        /// Whether the stream has reached the end.
        pub(crate) fn is_complete(&self) -> Result<bool, BackendError> {
            either!(self, points => points.is_complete())
        }

        /// Forgets the zone, and gives back what it held.
        pub(crate) fn release(&mut self) {
            either!(self, points => points.release());
        }
    }

    /// Who begins a zone, and when.
    #[derive(Clone, Copy, Debug)]
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "stamps of host streams need no such help"))]
    pub(crate) struct Call {
        /// The thread's id.
        pub(crate) thread: u64,
        /// The host's time before the call.
        pub(crate) host_ns: i64,
    }

    /// Reads the zones of one stream, oldest end first.
    pub(crate) trait Reader: Send {
        /// A look at the stream begins: what has been recorded since the last one comes in. At the last one, so many zones
        /// were looked at that were not complete.
        fn pass(&mut self, _waiting: usize) {}

        /// At this look, the zone with these points is the newest that is complete.
        fn seen(&mut self, _newest: &Points) {}

        /// The times of a complete zone whose thread put the end on the stream before `host`'s end; none if it is not
        /// complete after all, or if the next look knows better.
        fn read(
            &mut self,
            points: &mut Points,
            host: Span,
            clock: &mut dyn Clock,
        ) -> Result<Option<Reading>, BackendError>;
    }

    /// When a zone was on its stream.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Reading {
        pub(crate) gpu: Span,
        pub(crate) end: EndFound,
        pub(crate) end_early_by_ns: i64,
    }

    /// A device's clock, tied to the host's.
    pub(crate) trait Clock: Send {
        /// Once a pass: measures anew what is old.
        fn renew(&mut self) -> Result<(), BackendError>;

        /// How far a position can be off, in ns.
        fn uncertainty_ns(&self) -> i64;

        /// What a pair of points adds to what is between them.
        fn bracket(&self) -> Bracket;

        /// The most that a pair of points can add, where no more than that is known; [`bracket`](Self::bracket) is nothing then.
        fn bracket_bound(&self) -> Option<Bracket> {
            None
        }

        /// What a zone costs the thread that launches, in ns, about.
        fn zone_ns(&self) -> i64;

        /// For the backend to find its own type again.
        #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "the clock of host streams has nothing to tell"))]
        fn as_any(&mut self) -> &mut dyn Any;
    }

    /// Why a point is not on its stream.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "host streams are never captured, and have no budget")
    )]
    pub(crate) enum Refused {
        /// The stream is being captured into a graph.
        Captured,
        /// It is, and the driver does not say where the zone stands in it.
        CaptureFailed,
        /// The events that the session may have are all in use.
        Full,
        /// The stream did not take it.
        Failed(BackendError),
    }

    impl From<BackendError> for Refused {
        fn from(error: BackendError) -> Refused {
            Refused::Failed(error)
        }
    }
}
