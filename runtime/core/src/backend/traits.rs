//! Timing of zones on a stream: the traits that a backend implements, and the data that they exchange.
//!
//! Launching threads call only [`EventPair::begin`] and [`EventPair::end`]; the collector calls everything else. No method waits
//! for a device. A backend outside of warpline implements [`Backend`], [`Points`], [`Reader`] and [`Clock`]; what only CUDA needs
//! is hidden from its documentation.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::host::HostEventPair;
use super::{BackendError, Refused};
use crate::catalog::RangeSpec;
use crate::clock::{EventOverhead, YEAR_NS};
use crate::collective::Message;
use crate::fields::Fields;
use crate::record::{DeviceInfo, EndSource, Span, Status};

/// One stream of one device, in one session.
///
/// [`BackendStream::backend`](super::BackendStream::backend) creates it when the session first uses the stream. Launching threads
/// and the collector share it. Dropping it must not wait for the stream.
pub trait Backend: Send + Sync {
    /// Returns the stream's name, if it has one. It is asked once per session; a name that the application gave with
    /// `warpline::name_stream` wins.
    fn name(&self) -> Option<String> {
        None
    }

    /// Passes the session's name for this stream to tools that see the device's streams.
    #[doc(hidden)]
    fn set_name_in_tools(&self, _name: &str) {}

    /// Returns the numbers by which a profiling tool identifies the stream: its context's and its own.
    #[doc(hidden)]
    fn tool_numbers(&self) -> Option<(u32, u32)> {
        None
    }

    /// Returns the device that the stream belongs to. Traces group streams by the device's kind and ordinal.
    fn device(&self) -> DeviceInfo;

    /// Returns the clock space: streams of one space share a clock. [`new_space`](super::new_space) makes one that no other
    /// backend has: this is its [`id`](super::Space::id).
    fn clock_space(&self) -> u64;

    /// Creates the begin and end of one zone at a time, for a slot of the ring: [`EventPair::new`] takes them.
    ///
    /// The slot keeps them and uses them again for later zones. Mostly the collector calls this in advance; a launching thread
    /// calls it if the ring has to grow at once.
    ///
    /// # Errors
    /// The zone that needed the slot is dropped and counts as `event_failed`.
    fn points(&self) -> Result<EventPair, BackendError>;

    /// Creates the reader, which converts the stream's points to times. The collector's thread calls it once per session.
    fn reader(&self) -> Box<dyn Reader>;

    /// Creates the clock of the stream's space, for the collector's thread. This may take a few ms, once per space and session.
    ///
    /// # Errors
    /// The report says why. The zones of all streams of the space are dropped and count as `stream_failed`.
    fn clock(&self) -> Result<Box<dyn Clock>, BackendError>;

    /// Prepares, in a small step, objects that launching threads would otherwise create. The collector calls it once per pass.
    fn provide(&self) {}

    /// Returns whether zones that end now have no event that times the end.
    #[doc(hidden)]
    fn has_lazy_ends(&self) -> bool {
        false
    }

    /// The session has evicted the stream: no more zones begin on this object. The collector calls it once.
    #[doc(hidden)]
    fn retire(&self) {}
}

/// A zone's begin and end on its stream. A slot keeps it and reuses it for later zones.
pub enum EventPair {
    #[doc(hidden)]
    Host(HostEventPair),
    #[doc(hidden)]
    Device(DevicePoints),
    /// On a stream that is being captured: positions in the graph, without times.
    #[doc(hidden)]
    Captured(Box<dyn Points>),
    /// Of a backend that is not built in.
    #[doc(hidden)]
    Own(Box<dyn Points>),
}

/// A zone's begin and end on a stream of a device.
///
/// They are stored in the slot itself. Separate memory would be one more cache line per zone that the launching thread takes from
/// the collector's core.
pub struct DevicePoints {
    stream: Arc<dyn PointStream>,
    zone: ZonePoints,
}

/// A backend's state of one zone from its begin until the collector reads it.
#[derive(Default)]
pub struct ZonePoints {
    /// The thread that began the zone.
    pub thread: u64,
    /// The backend's number for the zone's points; none if it has none.
    pub id: Option<NonZeroU32>,
    /// Whether the end is a marker without a time.
    pub is_lazy: bool,
}

/// A device's stream, which records the points of zones.
///
/// Launching threads call all methods but [`release`](Self::release). No method waits.
pub trait PointStream: Send + Sync {
    /// Records the begin after the work that is on the stream now.
    fn begin(&self, zone: &mut ZonePoints, call: Call) -> Result<(), Refused>;

    /// Records the end after the work that is on the stream now.
    fn end(&self, zone: &mut ZonePoints, call: Call) -> Result<Ended, Refused>;

    /// Releases the zone's resources.
    fn release(&self, zone: &mut ZonePoints);

    /// Adds a zone that ended while its stream is captured to the graph. Returns false if its position in the graph is not known.
    fn add_to_capture(&self, zone: EndedZone<'_>) -> bool;

    /// Adds a zone to the graphs that were captured on its stream while it was open: see [`Ended::AfterCapture`].
    fn add_to_past_captures(&self, zone: EndedZone<'_>);
}

/// The begin and end of one zone at a time. A slot of the ring owns it and uses it again for later zones.
///
/// Launching threads call [`begin`](Self::begin) and [`end`](Self::end), and the collector reads the points in between, through the
/// stream's [`Reader`]. No method waits, panics, or calls code of the application. Dropping it must not wait either: it happens on
/// the collector's thread, or on the last thread that uses the stream.
pub trait Points: Any + Send + Sync {
    /// Records the begin after the work that is on the stream now.
    ///
    /// # Errors
    /// The zone is dropped and counted by the reason; the application's work goes on.
    fn begin(&mut self, call: Call) -> Result<(), Refused>;

    /// Records the end after the work that is on the stream now. It may be called on another thread than the begin.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    fn end(&mut self, call: Call) -> Result<(), Refused>;

    /// Forgets the zone: its record is made, or it is dropped. Another zone may begin next. Not every zone has ended, or begun.
    fn release(&mut self) {}

    /// Returns whether the end must undo the begin's change to the stream's capture, even after the session.
    #[doc(hidden)]
    fn must_restore_capture(&self) -> bool {
        false
    }

    /// Adds a zone that was refused with [`Refused::Captured`] to the graph. Returns false if the zone's position in the graph is
    /// not known; the zone then counts as `capture_failed` instead of as captured.
    #[doc(hidden)]
    fn add_to_capture(&mut self, _zone: EndedZone<'_>) -> bool {
        false
    }
}

/// The points of a zone on a stream that is being captured, of a backend that labels no graphs: the zone is counted.
pub(super) struct CountedCapture;

impl Points for CountedCapture {
    fn begin(&mut self, _: Call) -> Result<(), Refused> {
        Ok(())
    }

    fn end(&mut self, _: Call) -> Result<(), Refused> {
        Err(Refused::Captured)
    }

    fn add_to_capture(&mut self, _: EndedZone<'_>) -> bool {
        true
    }
}

/// The remaining step for a zone whose end is on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// A capture has ended since the zone began: call [`PointStream::add_to_past_captures`].
    AfterCapture,
}

/// A zone that has ended on its thread, with the data that a graph labels nodes with.
pub struct EndedZone<'a> {
    pub range: &'static RangeSpec,
    pub begin_ns: i64,
    pub fields: &'a Fields,
    pub entries: &'a [(&'static RangeSpec, Message)],
    pub message: Option<&'a Message>,
    pub status: Status,
}

impl EventPair {
    /// Takes the points of a backend.
    pub fn new(points: impl Points) -> EventPair {
        EventPair::Own(Box::new(points))
    }

    /// Returns the points as the type that the backend gave to [`new`](Self::new); none if they are of another type.
    #[inline]
    pub fn get<T: Points>(&self) -> Option<&T> {
        if let EventPair::Own(points) = self { (&**points as &dyn Any).downcast_ref() } else { None }
    }

    /// Returns the same, to change them.
    #[inline]
    pub fn get_mut<T: Points>(&mut self) -> Option<&mut T> {
        if let EventPair::Own(points) = self { (&mut **points as &mut dyn Any).downcast_mut() } else { None }
    }
}

// What warpline's other crates call.
#[doc(hidden)]
impl EventPair {
    /// See [`PointStream::begin`].
    #[inline]
    pub fn begin(&mut self, call: Call) -> Result<(), Refused> {
        match self {
            EventPair::Host(points) => points.begin(),
            EventPair::Device(points) => points.stream.begin(&mut points.zone, call),
            EventPair::Captured(points) | EventPair::Own(points) => points.begin(call),
        }
    }

    /// See [`PointStream::end`].
    #[inline]
    pub fn end(&mut self, call: Call) -> Result<Ended, Refused> {
        match self {
            EventPair::Host(points) => points.end().map(|()| Ended::Done),
            EventPair::Device(points) => points.stream.end(&mut points.zone, call),
            EventPair::Captured(points) | EventPair::Own(points) => points.end(call).map(|()| Ended::Done),
        }
    }

    /// Discards the zone, and releases its resources.
    pub fn release(&mut self) {
        match self {
            EventPair::Host(_) => {}
            EventPair::Device(points) => points.release(),
            EventPair::Captured(points) | EventPair::Own(points) => points.release(),
        }
    }

    /// See [`Points::must_restore_capture`].
    pub fn must_restore_capture(&self) -> bool {
        matches!(self, EventPair::Captured(points) if points.must_restore_capture())
    }

    /// Adds a zone that ended on a capturing stream to the graph. Returns false if its position in the graph is not known.
    pub fn add_to_capture(&mut self, zone: EndedZone<'_>) -> bool {
        match self {
            EventPair::Host(_) => false,
            EventPair::Device(points) => points.stream.add_to_capture(zone),
            EventPair::Captured(points) | EventPair::Own(points) => points.add_to_capture(zone),
        }
    }

    /// See [`PointStream::add_to_past_captures`].
    pub fn add_to_past_captures(&self, zone: EndedZone<'_>) {
        if let EventPair::Device(points) = self {
            points.stream.add_to_past_captures(zone);
        }
    }

    /// Takes the backend's number for the zone's points, which the caller then releases.
    #[inline]
    pub fn take_number(&mut self) -> Option<NonZeroU32> {
        if let EventPair::Device(points) = self { points.zone.id.take() } else { None }
    }

    /// Returns the state that a device's backend keeps for the zone.
    #[inline]
    pub fn of_device(&self) -> Option<&ZonePoints> {
        if let EventPair::Device(points) = self { Some(&points.zone) } else { None }
    }
}

impl DevicePoints {
    /// Creates the points for zones on this stream.
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

/// The thread that begins or ends a zone, and the time of the zone's begin.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The calling thread's id.
    pub thread: u64,
    /// The host's time before the begin was recorded on the stream, in ns of [`now_ns`](crate::clock::now_ns).
    pub begin_ns: i64,
}

/// Reads the zones of one stream, oldest end first. Only the collector's thread calls it, and no method waits for the device.
///
/// For each pass over the stream, the calls are: [`pass`](Self::pass); [`is_complete`](Self::is_complete) of some zones, the newest
/// first, because the zones of a stream end in order; [`seen`](Self::seen) once; [`read`](Self::read) and
/// [`release`](Self::release) of each complete zone, the oldest first; [`end_pass`](Self::end_pass).
pub trait Reader: Send {
    /// Starts a pass over the stream: reads what was recorded since the last pass, which found `_waiting` incomplete zones.
    /// `_asks` allows queries to the device that make launching threads wait.
    fn pass(&mut self, _waiting: usize, _asks: bool) {}

    /// Returns whether the stream has reached the end of a zone, as far as this pass can know.
    ///
    /// # Errors
    /// The stream has failed: every zone that waits on it is dropped and counts as `stream_failed`, and the report says why.
    fn is_complete(&mut self, points: &EventPair) -> Result<bool, BackendError>;

    /// Called once when the session ends. If the next pass finds a zone incomplete, it queries the device for errors as well.
    fn drain(&mut self) {}

    /// Called with the newest complete zone of this pass.
    fn seen(&mut self, _newest: &EventPair) {}

    /// Called shortly before the zone with these points is read.
    fn prefetch(&self, _points: &EventPair) {}

    /// Called when the collector is done with a zone.
    fn release(&mut self, points: &mut EventPair) {
        points.release();
    }

    /// Ends the pass: gives back what [`release`](Self::release) kept.
    fn end_pass(&mut self) {}

    /// Returns the times of a complete zone whose thread recorded the end on the stream before `host`'s end; none if the zone is
    /// not complete after all, or if the next pass will have better times. `clock` is that of the stream's space, as
    /// [`Backend::clock`] created it.
    ///
    /// # Errors
    /// As for [`is_complete`](Self::is_complete).
    fn read(&mut self, points: &EventPair, host: Span, clock: &mut dyn Clock) -> Result<Option<Reading>, BackendError>;
}

/// A zone's times on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The begin and end, in ns of the host's clock.
    pub gpu: Span,
    /// How the end was found.
    pub end: EndSource,
    /// How much earlier than `gpu` says the zone may have ended; zero if the end is exact.
    pub end_early_by_ns: i64,
}

impl Reading {
    /// Returns the times of a zone whose begin and end the device itself has timed.
    pub fn exact(gpu: Span) -> Reading {
        Reading { gpu, end: EndSource::Event, end_early_by_ns: 0 }
    }

    /// Returns the reading as a record takes it: the end is not before the begin.
    ///
    /// # Errors
    /// A time is more than a year from the launch: no figure can be made of it.
    pub fn checked(self, launch: Span) -> Result<Reading, BackendError> {
        let Span { begin_ns, end_ns } = self.gpu;
        if [begin_ns, end_ns].iter().any(|ns| ns.abs_diff(launch.begin_ns) > YEAR_NS as u64) {
            return Err(BackendError::new("its backend read a time that is more than a year from the zone's launch"));
        }
        let gpu = Span { begin_ns, end_ns: end_ns.max(begin_ns) };
        Ok(Reading { gpu, end_early_by_ns: self.end_early_by_ns.clamp(0, YEAR_NS), ..self })
    }
}

/// A device's clock, related to the host's. Only the collector's thread uses it. A [`Reader`] downcasts it to its backend's type.
///
/// [`Comparisons`](crate::clock::Comparisons) relates the two clocks for most backends.
pub trait Clock: Any + Send {
    /// Repeats measurements that are old. Called once per pass while zones arrive; it may wait for some 10 µs.
    ///
    /// # Errors
    /// The clock keeps its values and is asked again in the next pass.
    fn renew(&mut self) -> Result<(), BackendError>;

    /// Returns the maximum error of a position near the last comparison, in ns.
    fn uncertainty_ns(&self) -> i64;

    /// Returns the maximum error of the position of any zone that was read so far, in ns. It is larger than
    /// [`uncertainty_ns`](Self::uncertainty_ns) if zones ran long after a comparison, or before the device could be compared well.
    fn worst_uncertainty_ns(&self) -> i64 {
        self.uncertainty_ns()
    }

    /// Returns the time that a pair of points adds to the work between them; zero if it was not measured.
    fn bracket(&self) -> EventOverhead {
        EventOverhead::default()
    }

    /// Returns an upper bound of the time that a pair of points adds, if only that is known; [`bracket`](Self::bracket) is then
    /// zero.
    fn bracket_bound(&self) -> Option<EventOverhead> {
        None
    }

    /// Returns a limit of the driver or the device that the report states.
    fn note(&self) -> Option<String> {
        None
    }

    /// Returns the approximate cost of a zone on the launching thread, in ns. The setting `overhead` chooses the share of zones by
    /// it.
    fn zone_ns(&self) -> i64 {
        1_000
    }
}
