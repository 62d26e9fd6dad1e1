//! How zones on a stream are timed: the traits that a backend implements, and what passes through them.
//!
//! Launching threads call [`EventPair::begin`] and [`EventPair::end`] and nothing else; everything besides is the collector's. No method
//! waits for a device.

use std::any::Any;

use super::host::HostEventPair;
use super::{BackendError, Refused};
use crate::catalog::RangeSpec;
use crate::clock::EventOverhead;
use crate::collective::Message;
use crate::fields::Fields;
use crate::record::{DeviceInfo, EndSource, Span, Status};
use crate::timing::EndMode;

/// One stream of one device. Dropping it must not wait for the stream.
pub trait Backend: Send + Sync {
    /// The stream's name, if it has one.
    fn name(&self) -> Option<String>;

    /// Tells tools that see the device's streams the name that the session has for this one.
    fn set_name_in_tools(&self, _name: &str) {}

    /// The numbers by which a profiling tool knows the stream: its context's and its own.
    fn tool_numbers(&self) -> Option<(u32, u32)> {
        None
    }

    /// The device that the stream belongs to.
    fn device(&self) -> DeviceInfo;

    /// Which streams share a clock: those of one space.
    fn clock_space(&self) -> u64;

    /// The begin and the end of one zone at a time, for a slot of the ring.
    fn points(&self) -> Result<EventPair, BackendError>;

    /// Turns the stream's points into times.
    fn reader(&self) -> Box<dyn Reader>;

    /// The clock of the stream's space, for the collector's thread. It may take a few ms, once a space and session.
    fn clock(&self) -> Result<Box<dyn Clock>, BackendError>;

    /// Makes ahead what launching threads would have to make, in a small step. The collector calls it once a pass.
    fn provide(&self) {}

    /// How zones find their ends from now on, where so many streams share the device; none while streams still come.
    fn choose_ends(&self, _ends: EndMode, _streams: Option<usize>) {}

    /// Whether the session is short of what zones need on this stream, so that it has to be read now.
    fn is_short(&self) -> bool {
        false
    }
}

/// A zone's begin and end on its stream. A slot keeps them, for one zone after another.
pub enum EventPair {
    Host(HostEventPair),
    /// What another backend brings; allocated once for a slot.
    Device(Box<dyn StreamEventPair>),
}

/// A zone's begin and end on a stream of a device.
///
/// Launching threads call everything but [`is_complete`](Self::is_complete) and [`release`](Self::release). No method waits.
pub trait StreamEventPair: Any + Send + Sync {
    /// Puts the begin behind the work that is on the stream now.
    fn begin(&mut self, call: Call) -> Result<(), Refused>;

    /// Puts the end behind the work that is on the stream now.
    fn end(&mut self, thread: u64) -> Result<Ended, Refused>;

    /// Whether the stream has reached the end.
    fn is_complete(&self) -> Result<bool, BackendError>;

    /// Forgets the zone, and gives back what it held.
    fn release(&mut self);

    /// Whether the zone began on a stream that was being captured into a graph: it has places in the graph and no times.
    fn is_captured(&self) -> bool {
        false
    }

    /// Whether the end has to undo what the begin did to the stream's capture, even after the session.
    fn must_restore_capture(&self) -> bool {
        false
    }

    /// Hands a zone that ended while its stream is captured to the graph. False if its place in the graph is not known.
    fn add_to_capture(&mut self, _zone: EndedZone<'_>) -> bool {
        false
    }

    /// Hands a zone to the graphs that were captured on its stream while it was open: see [`Ended::AfterCapture`].
    fn add_to_past_captures(&self, _zone: EndedZone<'_>) {}
}

/// What is left to do for a zone whose end is on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// A capture has ended since the zone began: call [`StreamEventPair::add_to_past_captures`].
    AfterCapture,
}

/// A zone that has ended on its thread, as a graph labels nodes with it.
pub struct EndedZone<'a> {
    pub range: &'static RangeSpec,
    pub begin_ns: i64,
    pub fields: &'a Fields,
    pub entries: &'a [(&'static RangeSpec, Message)],
    pub message: Option<&'a Message>,
    pub status: Status,
}

impl EventPair {
    /// See [`StreamEventPair::begin`].
    #[inline]
    pub fn begin(&mut self, call: Call) -> Result<(), Refused> {
        match self {
            EventPair::Host(points) => points.begin(),
            EventPair::Device(points) => points.begin(call),
        }
    }

    /// See [`StreamEventPair::end`].
    #[inline]
    pub fn end(&mut self, thread: u64) -> Result<Ended, Refused> {
        match self {
            EventPair::Host(points) => points.end().map(|()| Ended::Done),
            EventPair::Device(points) => points.end(thread),
        }
    }

    /// Whether the stream has reached the end.
    pub fn is_complete(&self) -> Result<bool, BackendError> {
        match self {
            EventPair::Host(points) => points.is_complete(),
            EventPair::Device(points) => points.is_complete(),
        }
    }

    /// Forgets the zone, and gives back what it held.
    pub fn release(&mut self) {
        if let EventPair::Device(points) = self {
            points.release();
        }
    }

    /// See [`StreamEventPair::is_captured`].
    pub fn is_captured(&self) -> bool {
        self.device().is_some_and(StreamEventPair::is_captured)
    }

    /// See [`StreamEventPair::must_restore_capture`].
    pub fn must_restore_capture(&self) -> bool {
        self.device().is_some_and(StreamEventPair::must_restore_capture)
    }

    /// The points of a device.
    pub fn device(&self) -> Option<&dyn StreamEventPair> {
        if let EventPair::Device(points) = self { Some(&**points) } else { None }
    }

    /// The points of a device whose backend made them as a `T`.
    pub fn downcast_ref<T: StreamEventPair>(&self) -> Option<&T> {
        (self.device()? as &dyn Any).downcast_ref()
    }
}

/// Who begins a zone, and when.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread's id.
    pub thread: u64,
    /// The host's time before the call.
    pub host_ns: i64,
}

/// Reads the zones of one stream, oldest end first.
pub trait Reader: Send {
    /// A look at the stream begins: what has been recorded since the last one comes in. At the last one, so many zones
    /// were looked at that were not complete.
    fn pass(&mut self, _waiting: usize) {}

    /// At this look, the zone with these points is the newest that is complete.
    fn seen(&mut self, _newest: &EventPair) {}

    /// The times of a complete zone whose thread put the end on the stream before `host`'s end; none if it is not
    /// complete after all, or if the next look knows better.
    fn read(&mut self, points: &EventPair, host: Span, clock: &mut dyn Clock) -> Result<Option<Reading>, BackendError>;
}

/// When a zone was on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub gpu: Span,
    pub end: EndSource,
    pub end_early_by_ns: i64,
}

/// A device's clock, tied to the host's. A [`Reader`] may downcast it to its own backend's.
pub trait Clock: Any + Send {
    /// Once a pass: measures anew what is old.
    fn renew(&mut self) -> Result<(), BackendError>;

    /// How far a position can be off, in ns.
    fn uncertainty_ns(&self) -> i64;

    /// What a pair of points adds to what is between them.
    fn bracket(&self) -> EventOverhead;

    /// The most that a pair of points can add, where no more than that is known; [`bracket`](Self::bracket) is nothing then.
    fn bracket_bound(&self) -> Option<EventOverhead> {
        None
    }

    /// What a zone costs the thread that launches, in ns, about.
    fn zone_ns(&self) -> i64;
}
