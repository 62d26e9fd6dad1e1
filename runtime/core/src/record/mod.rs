//! The records of a session: plain data, without GPU handles.
//!
//! Sinks, tests and users' own analysis read these types. All times are nanoseconds of the host's `CLOCK_BOOTTIME` (on systems
//! other than Linux: of a monotonic clock that starts with the process).

pub mod open;

use std::sync::Arc;

use crate::catalog::RangeSpec;
use crate::collective::{Bandwidth, Message};
use crate::fields::{Fields, Value};
use crate::work::{Work, WorkRates};

/// One finished zone.
///
/// Within one stream, records arrive in the order in which the GPU ended them. `Send` and `Sync`; cloning copies the
/// fields.
#[derive(Clone, Debug)]
pub struct ZoneRecord {
    /// The zone's range.
    pub range: &'static RangeSpec,
    /// The stream; none for a host zone.
    pub stream: Option<Arc<StreamInfo>>,
    /// The thread that began the zone.
    pub thread: Arc<ThreadInfo>,
    /// The number of zones that were open on that thread when this one began; 0 for a zone of an `async fn`.
    pub depth: u32,
    /// The innermost span of `tracing` that was open on that thread, as the layer of `warpline::tracing` saw it.
    pub parent: Option<SpanRef>,
    /// The number of the zone in its stream, in the order of begins; the session's waits on the stream count too. Only entries of
    /// a batch share one.
    pub sequence: u64,
    /// The begin and the end of the zone on the launching thread.
    pub host: Span,
    /// The times at which the stream reached the zone's begin and its end; none for a host zone.
    pub gpu: Option<Span>,
    /// The probability with which this zone was recorded: 1 in sessions without a budget or a sample. To estimate a sum over a
    /// range, divide each record's value by it.
    pub sample_share: f32,
    /// The number of the session's window in which the zone was recorded; 0 in a session without a budget.
    pub window: u32,
    /// The method by which the end on the stream was found.
    pub end: EndSource,
    /// The maximum time by which the true end is earlier than the end of `gpu`, in ns; 0 if an event marks it.
    pub end_early_by_ns: i64,
    /// The time by which the stream reached the zone earlier than the begin of `gpu`, in ns, while it waited for the launch. Only
    /// for marks with `begin = launch`.
    pub begin_late_by_ns: i64,
    /// The time that the begin and the end add to the zone's length on this device, in ns, as measured when the session first
    /// used the device.
    pub bracket_ns: i64,
    /// The outcome of the zone.
    pub status: Status,
    /// The `Err` text of the marked function, with `err` in the mark.
    pub error: Option<Box<str>>,
    /// The fields and the label.
    pub fields: Fields,
    /// The data that a collective moves; none for other zones.
    pub message: Option<Box<Message>>,
    /// The entry's position, if the zone is an entry of a batch. Its times and its sequence are those of the batch.
    pub entry: Option<BatchEntry>,
}

// The collector copies and sorts records.
const _: () = assert!(size_of::<ZoneRecord>() <= 280);

/// An entry of a batch of collectives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchEntry {
    /// Its position in the batch, from 0.
    pub index: u32,
    /// The number of entries in the batch.
    pub of: u32,
    /// This entry's share of the batch's bytes, and so of the batch's time. All shares are equal if a size is unknown.
    pub share: f64,
}

/// The division of a batch's time among its entries.
#[derive(Clone, Copy)]
pub struct Shares {
    of: u32,
    /// The size of the batch; none if a size is unknown, or if all are 0.
    total_bytes: Option<f64>,
}

impl Shares {
    pub fn new(entries: &[(&'static RangeSpec, Message)]) -> Shares {
        let bytes = |message: &Message| message.bytes().map(|bytes| bytes as f64);
        let total: Option<f64> = entries.iter().map(|(_, message)| bytes(message)).sum();
        Shares { of: entries.len() as u32, total_bytes: total.filter(|total| *total > 0.0) }
    }

    /// Creates the record of an entry of the batch with the record `batch`.
    pub fn entry(self, index: usize, range: &'static RangeSpec, message: Message, batch: &ZoneRecord) -> ZoneRecord {
        let Shares { of, total_bytes } = self;
        let bytes = total_bytes.zip(message.bytes());
        let share = bytes.map_or(1.0 / f64::from(of), |(total, bytes)| bytes as f64 / total);
        let entry = BatchEntry { index: index as u32, of, share };
        ZoneRecord {
            range,
            depth: batch.depth + 1 + entry.index,
            fields: Fields::default(),
            message: Some(Box::new(message)),
            entry: Some(entry),
            ..batch.clone()
        }
    }
}

impl ZoneRecord {
    /// Returns the lane of its own on which traces show the zone: the one that it was given at run time, its range's, or that of the
    /// ranks that it communicates with.
    pub fn lane(&self) -> Option<&str> {
        let group = || Some(self.message.as_ref()?.group.as_ref()?.lane());
        self.named_lane().or_else(group)
    }

    /// Returns the same without that of its ranks.
    #[doc(hidden)]
    #[inline]
    pub fn named_lane(&self) -> Option<&'static str> {
        self.fields.lane().or(self.range.lane())
    }

    /// Returns the length of the zone on its stream, or on its thread if it has no stream, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.gpu.unwrap_or(self.host).duration_ns()
    }

    /// Returns whether [`duration_ns`](Self::duration_ns) is only an upper bound ([`is_bound`]): the end of the zone on its stream is not
    /// timed by an event, and may be earlier by more than 5 % of the length.
    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.gpu.is_some_and(|gpu| is_bound(gpu.duration_ns(), self.end_early_by_ns))
    }

    /// Returns the last part of `gpu`, in which it is not known whether the zone still ran; none if its length is not only a bound.
    #[doc(hidden)]
    pub fn uncertain_tail(&self) -> Option<Span> {
        let gpu = self.gpu.filter(|_| self.is_bounded())?;
        let tail = Span { begin_ns: gpu.without_tail(self.end_early_by_ns).end_ns, ..gpu };
        (tail.duration_ns() > 0).then_some(tail)
    }

    /// Returns the length between the zone's begin and end on its stream, in ns, as the device measured it.
    pub fn gpu_ns(&self) -> Option<i64> {
        self.gpu.map(|gpu| gpu.duration_ns())
    }

    /// Returns an upper bound of the time for which the stream waited for the launching thread, in ns: from when the stream
    /// reached the zone until the thread had launched all of it. 0 if the zone was queued behind other work for that long.
    ///
    /// On an idle stream a zone begins before its first kernel is launched, so its length includes the launch.
    pub fn launch_wait_ns(&self) -> i64 {
        self.gpu.map_or(0, |gpu| gpu.overlap_ns(self.host))
    }

    /// Returns [`gpu_ns`](Self::gpu_ns) without the time that the begin and the end add. This is closer to the time of the work
    /// between them, above all for zones of a few µs. On an in-process stream, which executes no events, it is the same.
    pub fn gpu_ns_corrected(&self) -> Option<i64> {
        let bracket_ns = if self.is_on_device() { self.bracket_ns } else { 0 };
        self.gpu_ns().map(|ns| (ns - bracket_ns).max(0))
    }

    /// Returns whether the zone is on a stream of a GPU.
    fn is_on_device(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.device.kind != DeviceKind::Host)
    }

    /// Returns the bandwidth of a collective on its stream, as NCCL's tests define it; none for other zones, if size or group
    /// is unknown, or if its length is only a bound ([`is_bounded`](Self::is_bounded)). It is computed from [`gpu_ns_corrected`](Self::gpu_ns_corrected), and for an entry of a batch from its share.
    #[inline]
    pub fn bandwidth(&self) -> Option<Bandwidth> {
        let share = self.entry.map_or(1.0, |entry| entry.share);
        let message = self.message.as_ref().filter(|_| !self.is_bounded())?;
        message.bandwidth((self.gpu_ns_corrected()? as f64 * share) as i64)
    }

    /// Returns the work that the mark declares for this zone.
    #[inline]
    pub fn work(&self) -> Work {
        self.fields.work()
    }

    /// Returns the time of the declared work, in ns: [`gpu_ns_corrected`](Self::gpu_ns_corrected), or the time on its thread if the mark has no
    /// stream. None if the time on the stream is not known, or only a bound.
    #[doc(hidden)]
    #[inline]
    pub fn work_ns(&self) -> Option<i64> {
        if self.stream.is_some() {
            self.gpu_ns_corrected().filter(|_| !self.is_bounded())
        } else {
            Some(self.host.duration_ns())
        }
    }

    /// Returns the rates of the declared work on the zone's stream, or on its thread if the mark has no stream. They are computed from
    /// [`gpu_ns_corrected`](Self::gpu_ns_corrected); there are none if that is only a bound ([`is_bounded`](Self::is_bounded)).
    #[inline]
    pub fn work_rates(&self) -> WorkRates {
        let work = self.work();
        if work.is_none() { WorkRates::default() } else { work.rates(self.work_ns().unwrap_or(0)) }
    }

    /// Returns the accuracy of the zone's GPU time, for traces: names with whole numbers.
    #[doc(hidden)]
    #[inline]
    pub fn quality(&self) -> [Option<(&'static str, i64)>; 5] {
        let is_gpu = self.is_on_device();
        [
            self.gpu_ns_corrected().filter(|_| is_gpu).map(|ns| ("gpu_ns_corrected", ns)),
            Some(("launch_wait_ns", self.launch_wait_ns())).filter(|(_, ns)| is_gpu && *ns > 0),
            (self.begin_late_by_ns > 0).then_some(("begin_late_by_ns", self.begin_late_by_ns)),
            self.end.is_bound().then_some(("end_early_by_ns", self.end_early_by_ns)),
            (self.window > 0).then_some((WINDOW, i64::from(self.window))),
        ]
    }

    /// Returns the share of its range's zones of which this one was chosen, for traces; none if all were recorded.
    #[doc(hidden)]
    #[inline]
    pub fn sampled(&self) -> Option<f64> {
        (self.sample_share < 1.0).then_some(f64::from(self.sample_share))
    }
}

/// Returns whether a time of `length_ns` is only an upper bound: the end of its zone is not timed by an event, and may be earlier by
/// `early_by_ns`, which is more than 5 % of it.
///
/// Such a time is not a length: reports print it as `≤ 3.72 ms`, and no mean, percentile, bandwidth or other figure contains it.
pub const fn is_bound(length_ns: i64, early_by_ns: i64) -> bool {
    early_by_ns > 0 && early_by_ns > length_ns / 20
}

/// The name of the share of its range's zones of which a recorded one was chosen, in traces.
#[doc(hidden)]
pub const SAMPLED: &str = "sampled_share";

/// The name of the number of a budget's window, in traces.
#[doc(hidden)]
pub const WINDOW: &str = "window";

/// The method by which the end of a zone on its stream was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndSource {
    /// By an event right after the zone's work: exact.
    #[default]
    Event,
    /// By the next begin on the stream: exact if that was queued right after the zone.
    Boundary,
    /// By the collector, when it found the zone complete.
    Observed,
    /// By CUPTI's records of the zone's work: its begin is the begin of the first work, and its end is the end of the last.
    Kernels,
    /// With [`Timing::Kernels`](crate::timing::Timing::Kernels): the zone launched no work, so it has no GPU span.
    NoWork,
    /// With [`Timing::Kernels`](crate::timing::Timing::Kernels): records of the zone's work are missing, so its GPU span is not known.
    Lost,
}

impl EndSource {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            EndSource::Event => "event",
            EndSource::Boundary => "boundary",
            EndSource::Observed => "observed",
            EndSource::Kernels => "kernels",
            EndSource::NoWork => "no_device_work",
            EndSource::Lost => "records_lost",
        }
    }

    /// Returns whether the end can be later than the work's own end.
    #[doc(hidden)]
    pub const fn is_bound(self) -> bool {
        matches!(self, EndSource::Boundary | EndSource::Observed)
    }
}

/// An interval in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The begin, in ns.
    pub begin_ns: i64,
    /// The end, in ns; never before the begin.
    pub end_ns: i64,
}

impl Span {
    /// Returns the length, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.end_ns - self.begin_ns
    }

    /// Returns it without its last `early_by_ns`, in which a zone whose end is not timed may not have run.
    #[doc(hidden)]
    pub fn without_tail(&self, early_by_ns: i64) -> Span {
        Span { end_ns: self.begin_ns.max(self.end_ns.saturating_sub(early_by_ns.max(0))), ..*self }
    }

    /// Returns the span from the earlier begin to the later end.
    #[doc(hidden)]
    #[inline]
    pub fn around(self, other: Span) -> Span {
        Span { begin_ns: self.begin_ns.min(other.begin_ns), end_ns: self.end_ns.max(other.end_ns) }
    }

    /// Returns the part of it that is over when `launch` ends, in ns.
    #[doc(hidden)]
    pub fn overlap_ns(&self, launch: Span) -> i64 {
        (launch.end_ns.min(self.end_ns) - self.begin_ns).max(0)
    }
}

/// The outcome of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The marked function returned, or the guard was dropped.
    #[default]
    Complete,
    /// The marked function returned an `Err` (only with `err` in the mark).
    Error,
    /// The marked function panicked.
    Panicked,
}

impl Status {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Complete => "complete",
            Status::Error => "error",
            Status::Panicked => "panicked",
        }
    }
}

/// A stream, as it was at its first zone in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamInfo {
    /// The number of the stream in its session, from 1.
    pub id: u32,
    /// The stream's name, or a generated one: `stream 7`.
    pub name: String,
    /// The device that the stream belongs to.
    pub device: DeviceInfo,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceInfo {
    /// The device's ordinal among those of its kind; host streams are device 0 of [`DeviceKind::Host`].
    pub ordinal: u32,
    /// The device's name.
    pub name: String,
    /// The kind of the device.
    pub kind: DeviceKind,
}

impl DeviceInfo {
    /// Returns the name and the number, as in `NVIDIA H100 (device 0)`.
    #[doc(hidden)]
    pub fn label(&self) -> String {
        format!("{} (device {})", self.name, self.ordinal)
    }
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceKind {
    /// In-process streams: threads of this program.
    Host,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Hip,
    /// Devices of a [backend of one's own](crate::backend::Backend), by the name of their kind, such as `"vulkan"`.
    Other(&'static str),
}

impl DeviceKind {
    /// Returns the kind's name: `host`, `cuda`, `hip`, or that of the backend.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Host => "host",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Hip => "hip",
            DeviceKind::Other(name) => name,
        }
    }
}

/// An interval in which a thread was in a span of `tracing`, or an event of `tracing`. The layer of `warpline::tracing` produces it.
///
/// A span that is entered several times, such as one of an `async fn` at each poll, has one record for each time, with one
/// [`id`](Self::id). `Send` and `Sync`; cloning shares the fields.
#[derive(Clone, Debug)]
pub struct SpanRecord {
    /// The span's or event's name and its place in the program.
    pub site: SpanSite,
    /// The span's id from `tracing`: two spans of one subscriber that are open at once have different ids. None for an event.
    pub id: Option<u64>,
    /// The span's parent, or the span in which the event happened.
    pub parent: Option<SpanRef>,
    /// The thread that was in the span.
    pub thread: Arc<ThreadInfo>,
    /// The number of the span or event in the session, in the order of begins.
    pub sequence: u64,
    /// The times at which the thread entered and left the span; an event has no length.
    pub host: Span,
    /// The fields that the span had when the thread left it; the text of an event is its field `message`.
    pub fields: Arc<[(&'static str, Value)]>,
}

impl SpanRecord {
    /// Returns an event's message, which is its name in traces.
    #[doc(hidden)]
    pub fn message(&self) -> Option<&Value> {
        let message = self.fields.iter().find(|(name, _)| self.names_it(name));
        message.map(|(_, value)| value)
    }

    /// Returns the fields, without the one that names the event in traces.
    #[doc(hidden)]
    pub fn args(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.fields.iter().filter(|(name, _)| !self.names_it(name)).map(|(name, value)| (*name, value))
    }

    fn names_it(&self, field: &str) -> bool {
        self.id.is_none() && field == "message"
    }
}

/// The parent of a zone, a span or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanRef {
    /// The span's name.
    pub name: &'static str,
    /// The span's id, as in its records.
    pub id: u64,
}

/// A location in the program that creates spans or events of `tracing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanSite {
    /// The span's name, or the name that `tracing` gives an event of this place.
    pub name: &'static str,
    /// The target; commonly the module's path.
    pub target: &'static str,
    /// The level: `TRACE`, `DEBUG`, `INFO`, `WARN` or `ERROR`.
    pub level: &'static str,
    /// The source file, if it is known.
    pub file: Option<&'static str>,
    /// The line in it.
    pub line: Option<u32>,
}

/// A thread that began zones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ThreadInfo {
    /// The operating system's id of the thread.
    pub id: u64,
    /// The thread's name, if it had one when it began its first zone.
    pub name: Option<String>,
}

#[cfg(all(test, feature = "fixture"))]
mod tests {
    use super::*;
    use crate::collective::{CollectiveKind, DataType, ProcessGroup};
    use crate::fixture::{COPY, span, stream, thread, zone};

    #[test]
    fn more_than_5_percent_makes_a_length_a_bound() {
        assert!(!is_bound(1_000, 50) && is_bound(1_000, 51) && is_bound(0, 1));
        assert!(!is_bound(0, 0) && !is_bound(-500, 0) && is_bound(i64::MAX, i64::MAX));
    }

    #[test]
    fn a_bound_has_no_bandwidth_and_no_rate() {
        let mut zone = zone(&COPY, Some(&stream(1, "comm")), &thread(1, None), span(0, 1), Some(span(0, 1_000)));
        let message = Message::new(CollectiveKind::AllReduce).count(1_000).dtype(DataType::F32);
        zone.message = Some(Box::new(message.group(&ProcessGroup::new("dp", [0, 1], 0))));
        zone.fields.set_bytes(4_000_u64);
        (zone.end, zone.end_early_by_ns) = (EndSource::Boundary, 50);
        assert!(zone.bandwidth().is_some() && zone.work_ns() == Some(1_000) && !zone.is_bounded());
        assert!(zone.work_rates().bytes_per_s.is_some() && zone.uncertain_tail().is_none());
        zone.end_early_by_ns = 900;
        assert!(zone.bandwidth().is_none() && zone.work_ns().is_none() && zone.is_bounded());
        assert_eq!((zone.work_rates(), zone.uncertain_tail()), (WorkRates::default(), Some(span(100, 1_000))));
        // The thread knows when its own zone ends.
        (zone.gpu, zone.stream) = (None, None);
        assert!(!zone.is_bounded() && zone.work_ns() == Some(1));
    }

    #[test]
    fn shares_are_equal_if_a_size_is_unknown_or_all_are_zero() {
        let batch = zone(&COPY, Some(&stream(1, "comm")), &thread(1, None), span(0, 1), Some(span(0, 1_000)));
        let shares = |counts: &[Option<u64>]| -> Vec<f64> {
            let message = |count: &Option<u64>| {
                let message = Message::new(CollectiveKind::AllReduce).dtype(DataType::F32);
                count.map_or(message.clone(), |count| message.count(count))
            };
            let entries: Vec<_> = counts.iter().map(|count| (&COPY, message(count))).collect();
            let shares = Shares::new(&entries);
            let records = entries.into_iter().enumerate().map(|(n, (range, of))| shares.entry(n, range, of, &batch));
            records.map(|record| record.entry.expect("of a batch").share).collect()
        };
        assert_eq!(shares(&[Some(100), Some(300)]), [0.25, 0.75]);
        assert_eq!(shares(&[Some(100), Some(0)]), [1.0, 0.0]);
        assert_eq!(shares(&[None, Some(100), Some(300), Some(0)]), [0.25; 4]);
        assert_eq!(shares(&[Some(100), None]), [0.5; 2]);
        assert_eq!(shares(&[Some(0), Some(0)]), [0.5; 2]);
        assert_eq!(shares(&[None]), [1.0]);
    }
}
