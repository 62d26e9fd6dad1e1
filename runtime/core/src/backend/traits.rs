//! How zones on a stream are timed: the traits that a backend implements, and what passes through them.
//!
//! Launching threads call [`EventPair::begin`] and [`EventPair::end`] and nothing else; everything besides is the collector's. No method
//! waits for a device.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::Arc;

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
    Device(DevicePoints),
    /// On a stream that is being captured: places in the graph, and no times.
    Captured(Box<dyn CapturedPoints>),
}

/// A zone's begin and end on a stream of a device.
///
/// They lie in the slot itself. Memory of their own would be one more cache line for each zone that the launching thread takes from
/// the collector's core.
pub struct DevicePoints {
    stream: Arc<dyn PointStream>,
    zone: ZonePoints,
}

/// What a backend keeps with one zone between its begin and the collector's look at it.
#[derive(Default)]
pub struct ZonePoints {
    /// The thread that began the zone.
    pub thread: u64,
    /// Under which number the backend has the zone's points; none while it has none.
    pub id: Option<NonZeroU32>,
    /// The end is a marker without a time.
    pub is_lazy: bool,
}

/// A stream of a device, which takes the points of zones.
///
/// Launching threads call everything but [`is_complete`](Self::is_complete) and [`release`](Self::release). No method waits.
pub trait PointStream: Send + Sync {
    /// Puts the begin behind the work that is on the stream now.
    fn begin(&self, zone: &mut ZonePoints, call: Call) -> Result<(), Refused>;

    /// Puts the end behind the work that is on the stream now.
    fn end(&self, zone: &mut ZonePoints, call: Call) -> Result<Ended, Refused>;

    /// Whether the stream has reached the end.
    fn is_complete(&self, zone: &ZonePoints) -> Result<bool, BackendError>;

    /// Gives back what the zone held.
    fn release(&self, zone: &mut ZonePoints);

    /// Hands a zone that ended while its stream is captured to the graph. False if its place in the graph is not known.
    fn add_to_capture(&self, zone: EndedZone<'_>) -> bool;

    /// Hands a zone to the graphs that were captured on its stream while it was open: see [`Ended::AfterCapture`].
    fn add_to_past_captures(&self, zone: EndedZone<'_>);
}

/// Where a zone begins and ends in a graph into which its stream is being captured. Launching threads call it, and no method waits.
pub trait CapturedPoints: Send + Sync {
    /// Marks the begin in the graph.
    fn begin(&mut self, call: Call) -> Result<(), Refused>;

    /// Marks the end in the graph, and says why the zone is not recorded.
    fn end(&mut self, thread: u64) -> Refused;

    /// Forgets the zone.
    fn release(&mut self);

    /// Whether the end has to undo what the begin did to the stream's capture, even after the session.
    fn must_restore_capture(&self) -> bool;

    /// Hands the zone to the graph. False if its place in the graph is not known.
    fn add_to_capture(&mut self, zone: EndedZone<'_>) -> bool;
}

/// What is left to do for a zone whose end is on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// A capture has ended since the zone began: call [`PointStream::add_to_past_captures`].
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
    /// See [`PointStream::begin`].
    #[inline]
    pub fn begin(&mut self, call: Call) -> Result<(), Refused> {
        match self {
            EventPair::Host(points) => points.begin(),
            EventPair::Device(points) => points.stream.begin(&mut points.zone, call),
            EventPair::Captured(points) => points.begin(call),
        }
    }

    /// See [`PointStream::end`].
    #[inline]
    pub fn end(&mut self, call: Call) -> Result<Ended, Refused> {
        match self {
            EventPair::Host(points) => points.end().map(|()| Ended::Done),
            EventPair::Device(points) => points.stream.end(&mut points.zone, call),
            EventPair::Captured(points) => Err(points.end(call.thread)),
        }
    }

    /// Whether the stream has reached the end.
    pub fn is_complete(&self) -> Result<bool, BackendError> {
        match self {
            EventPair::Host(points) => points.is_complete(),
            EventPair::Device(points) => points.stream.is_complete(&points.zone),
            EventPair::Captured(_) => Err(BackendError("a captured zone has no times".to_owned())),
        }
    }

    /// Forgets the zone, and gives back what it held.
    pub fn release(&mut self) {
        match self {
            EventPair::Host(_) => {}
            EventPair::Device(points) => points.release(),
            EventPair::Captured(points) => points.release(),
        }
    }

    /// See [`CapturedPoints::must_restore_capture`].
    pub fn must_restore_capture(&self) -> bool {
        matches!(self, EventPair::Captured(points) if points.must_restore_capture())
    }

    /// Hands a zone that ended on a capturing stream to the graph. False if its place in the graph is not known.
    pub fn add_to_capture(&mut self, zone: EndedZone<'_>) -> bool {
        match self {
            EventPair::Host(_) => false,
            EventPair::Device(points) => points.stream.add_to_capture(zone),
            EventPair::Captured(points) => points.add_to_capture(zone),
        }
    }

    /// See [`PointStream::add_to_past_captures`].
    pub fn add_to_past_captures(&self, zone: EndedZone<'_>) {
        if let EventPair::Device(points) = self {
            points.stream.add_to_past_captures(zone);
        }
    }

    /// What the backend of a device keeps with the zone.
    #[inline]
    pub fn of_device(&self) -> Option<&ZonePoints> {
        if let EventPair::Device(points) = self { Some(&points.zone) } else { None }
    }
}

impl DevicePoints {
    /// For zones on this stream.
    pub fn new(stream: Arc<dyn PointStream>) -> DevicePoints {
        DevicePoints { stream, zone: ZonePoints::default() }
    }

    #[inline]
    fn release(&mut self) {
        if self.zone.id.is_some() {
            self.stream.release(&mut self.zone);
        }
    }
}

impl Drop for DevicePoints {
    fn drop(&mut self) {
        self.release();
    }
}

/// Who begins or ends a zone, and when the zone began.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The calling thread's id.
    pub thread: u64,
    /// The host's time before the begin was put on the stream.
    pub begin_ns: i64,
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
