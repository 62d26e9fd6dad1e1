//! The measurements of a session: times of ranges, collectives, streams and semaphores, and the quality of the clocks.
//!
//! The collector's summary, traffic and timelines fill them in; they are plain data, in ns and bytes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::work::WorkStats;
use warpline_core::collective::CollectiveKind;
use warpline_core::plural::counted;
use warpline_core::record::is_bound;

/// One range's figures over a session. All times are in ns.
///
/// They cover the recorded zones. Zones that a filter, a level or a stop left out ([`Report::left_out`]) are in no
/// figure. In a sample (`count < seen`), `total_ns` and `share` are estimates for all zones that ran, and means and
/// percentiles are weighted by the sampling probability.
///
/// A zone whose length is only a bound ([`is_bound`]) is *bounded*: its end is not timed by an event, and may
/// be earlier by more than 5 % of the length. Bounded zones are in `count`, `seen`, `failed` and `mean_launch_ns`, with
/// their longest possible length in `total_ns` and `share`, and in no other figure but those whose names begin with
/// `bounded`. If all zones are bounded, the means, percentiles and extremes are 0.
///
/// [`Report::left_out`]: crate::Report::left_out
#[derive(Clone, Debug, PartialEq)]
pub struct RangeStats {
    /// The range's full name.
    pub name: Cow<'static, str>,
    /// Whether the times are those of streams; otherwise they are those of threads. A range that was recorded in both
    /// ways has two entries.
    pub on_stream: bool,
    /// Whether the entry counts the range's zones in replays of CUDA graphs, which are on streams. They have an entry
    /// of their own, because `recorded` does not count them and nothing launches them one by one.
    pub in_replays: bool,
    /// Zones that were recorded.
    pub count: u64,
    /// Zones that ran: more than `count` in a sample.
    pub seen: u64,
    /// Zones that ended with an error or a panic.
    pub failed: u64,
    /// The time of all zones that ran, in ns: exact if all were recorded, otherwise an estimate. An upper bound if
    /// [`total_is_bound`](Self::total_is_bound).
    pub total_ns: i64,
    /// The standard error of `total_ns`, in ns. 0 if all zones were recorded, or if it is unknown because zones were
    /// dropped or captured. It is estimated from recorded lengths, so a rare long zone that was not sampled is not in
    /// it.
    pub total_error_ns: i64,
    /// The time of the zones that were recorded, without bounded zones, in ns; exact.
    pub recorded_ns: i64,
    /// The part of `recorded_ns` that was in no other recorded zone of its row, in ns: the range's own time. A row is a
    /// stream, a lane of a stream, or a thread. An upper bound if [`self_is_bound`](Self::self_is_bound).
    pub self_ns: i64,
    /// The time by which `self_ns` may be shorter, in ns, because zones within zones of the range are bounded;
    /// otherwise 0.
    pub self_early_ns: i64,
    /// `total_ns` divided by the time from the begin of the first zone of any range to the end of the last: above 1 if
    /// zones ran on several streams or threads at once.
    pub share: f64,
    /// The first zone on a device, in ns, if it took more than ten times the median of the later zones: the first call
    /// often starts a library. The mean and the percentiles leave it out. With several devices, the longest of these
    /// zones. None in a sample, where the first zone may be missing, and in a recording from outside, which begins in
    /// the middle of the program.
    pub first_ns: Option<i64>,
    /// Mean, in ns, without the zones of `first_ns`.
    pub mean_ns: i64,
    /// Shortest, in ns; exact.
    pub min_ns: i64,
    /// Median, in ns, without the zones of `first_ns`; within 1 %.
    pub p50_ns: i64,
    /// 99th percentile, in ns, without the zones of `first_ns`; within 1 %.
    pub p99_ns: i64,
    /// Longest, in ns; exact.
    pub max_ns: i64,
    /// Mean time that the launching thread spent between begin and end, in ns; 0 for zones in replays.
    pub mean_launch_ns: i64,
    /// The declared work by its time; none if no timed zone declares any. In a sample, of the recorded zones.
    pub work: Option<WorkStats>,
    /// The number of bounded zones among `count`.
    pub bounded: u64,
    /// The sum of their longest possible lengths, in ns.
    pub bounded_total_ns: i64,
    /// The sum of their shortest possible lengths, in ns.
    pub bounded_least_ns: i64,
    /// The longest of their longest possible lengths, in ns.
    pub bounded_max_ns: i64,
}

impl RangeStats {
    /// Returns whether `total_ns` and `share` are only upper bounds, because of bounded zones.
    pub fn total_is_bound(&self) -> bool {
        is_bound(self.recorded_ns + self.bounded_total_ns, self.bounded_total_ns - self.bounded_least_ns)
    }

    /// Returns whether `self_ns` is only an upper bound, because zones within zones of the range are bounded.
    pub fn self_is_bound(&self) -> bool {
        is_bound(self.self_ns, self.self_early_ns)
    }

    /// Returns the number of recorded zones that are not bounded, from which means, percentiles and extremes are
    /// computed.
    pub fn timed(&self) -> u64 {
        self.count.saturating_sub(self.bounded)
    }

    /// Returns the mean of the longest possible lengths of bounded zones, in ns; 0 if there are none.
    #[doc(hidden)]
    pub fn bounded_mean_ns(&self) -> i64 {
        self.bounded_total_ns / self.bounded.max(1) as i64
    }
}

/// The waits of one thread for the device by one call in the zones of one range, in a session with `synchronizations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWaitStats {
    /// The thread's name, or `thread 123` by its id. Beyond 4,096 combinations of thread, call and range, the others
    /// share the name `(more)`.
    pub thread: String,
    /// The driver's call, such as `cuStreamSynchronize`.
    pub call: Cow<'static, str>,
    /// The range of the innermost zone that was open on the thread; none outside zones.
    pub range: Option<Cow<'static, str>>,
    /// The number of calls that were recorded.
    pub count: u64,
    /// Their total time, in ns; exact.
    pub total_ns: i64,
    /// The longest one, in ns; exact.
    pub max_ns: i64,
}

/// The kernels or copies of one name that ran in the zones of one range, in a session with `kernels`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelStats {
    /// The kernel's name, as in [`KernelRecord::name`](warpline_core::kernel::KernelRecord::name). Beyond 4,096 pairs
    /// of a kernel and a range, the others share the name `(more)`.
    pub name: String,
    /// The range of its innermost zone, in a replay that of the captured zone; none outside zones.
    pub range: Option<Cow<'static, str>>,
    /// The number of executions that were recorded.
    pub count: u64,
    /// Their total time on the device, in ns; exact.
    pub total_ns: i64,
    /// The longest one, in ns; exact.
    pub max_ns: i64,
}

/// The steps of a program ([`step`](warpline_core::zone::step::step)). All times are in ns, from the begin to the end of a
/// step on its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepStats {
    /// Steps that were recorded.
    pub count: u64,
    /// Steps that `wait` and `warmup` left out, or that came after the last cycle.
    pub left_out: u64,
    /// Steps that a stop or the end of the session cut. They are in no other figure.
    pub cut: u64,
    /// Steps that ended faster than they were collected. They are in no other figure.
    pub dropped: u64,
    /// Mean, in ns.
    pub mean_ns: i64,
    /// Shortest, in ns; exact.
    pub min_ns: i64,
    /// Median, in ns; within 1 %.
    pub p50_ns: i64,
    /// 99th percentile, in ns; within 1 %.
    pub p99_ns: i64,
    /// Longest, in ns; exact.
    pub max_ns: i64,
}

/// What the zones of one range took in the steps of the program in which it ran. A step's zones are those that were
/// launched in it. All times are in ns.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RangeStepStats {
    /// The range's full name.
    pub name: Cow<'static, str>,
    /// Whether the times are those of streams; otherwise they are those of threads.
    pub on_stream: bool,
    /// The steps in which it ran.
    pub steps: u64,
    /// Its zones in these steps.
    pub zones: u64,
    /// Further steps in which it ran, and in which the length of at least one of its zones is only a bound. They are in
    /// no other figure.
    pub bounded_steps: u64,
    /// The mean of its time in a step, in ns.
    pub mean_ns: i64,
    /// The median, in ns; within 1 %.
    pub p50_ns: i64,
    /// The 99th percentile, in ns; within 1 %.
    pub p99_ns: i64,
    /// The longest, in ns; exact.
    pub max_ns: i64,
}

#[cfg(feature = "build")]
impl RangeStepStats {
    #[doc(hidden)]
    pub fn new(name: Cow<'static, str>, on_stream: bool, sums: &super::per_step::StepSums) -> RangeStepStats {
        RangeStepStats {
            name,
            on_stream,
            steps: sums.steps,
            zones: sums.zones,
            bounded_steps: sums.bounded_steps,
            mean_ns: sums.total_ns / sums.steps.max(1) as i64,
            p50_ns: sums.percentile(0.50),
            p99_ns: sums.percentile(0.99),
            max_ns: sums.max_ns,
        }
    }
}

/// The zones that a session's settings left out. The session's figures do not cover them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The largest number of ranges that a filter or a level left out at one time. Their zones are not counted.
    pub ranges: u64,
    /// Ranges in the catalog.
    pub of_ranges: u64,
    /// Whether the session was stopped for a part of its time.
    pub while_stopped: bool,
}

impl LeftOut {
    /// Returns whether nothing was left out.
    pub fn is_nothing(&self) -> bool {
        self.ranges == 0 && !self.while_stopped
    }
}

/// The figures of one kind of collective in one process group over a session.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveStats {
    /// The group's name and ranks, as in `tp0 [0,1]`; empty if the marks name none.
    pub group: String,
    /// The kind.
    pub kind: CollectiveKind,
    /// Collectives that were recorded.
    pub count: u64,
    /// The number of these collectives with a known size.
    pub sized: u64,
    /// The sum of the known sizes in bytes ([`Message::bytes`](warpline_core::collective::Message::bytes)); 0 if
    /// `sized` is 0.
    pub bytes: u64,
    /// The number of collectives whose length is only a bound ([`is_bound`]). They are in `count`, `sized`, `bytes` and
    /// `total_ns`, and in no other figure.
    pub bounded: u64,
    /// The sum of their times on their streams, in ns; an upper bound if [`total_is_bound`](Self::total_is_bound).
    pub total_ns: i64,
    /// The time by which `total_ns` may be shorter, in ns, because of `bounded`.
    pub total_early_ns: i64,
    /// The median of the bus bandwidths, in bytes per second; within 1 %. None if size or group is unknown, and for a
    /// group of one rank.
    pub bus_p50: Option<f64>,
    /// The 99th percentile of the bus bandwidths, in bytes per second; within 1 %.
    pub bus_p99: Option<f64>,
    /// The share of the time, 0 to 1, during which the same device computed on another stream: ran a kernel that is
    /// none of a collective, or, where no kernels are recorded, certainly a compute zone. A lower bound if kernels were
    /// dropped, or not all compute zones were recorded ([`Report::is_complete`](crate::Report::is_complete)).
    pub hidden: f64,
    /// Whether `hidden` is by kernels; otherwise, it is by zones.
    pub hidden_by_kernels: bool,
}

impl CollectiveStats {
    /// Returns whether `total_ns` is only an upper bound.
    pub fn total_is_bound(&self) -> bool {
        is_bound(self.total_ns, self.total_early_ns)
    }
}

/// The quality of one device's times.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockFigures {
    /// The device's name.
    pub device: String,
    /// The uncertainty of a position against the host's clock near a comparison of the two clocks, in ns.
    pub uncertainty_ns: i64,
    /// The largest uncertainty of the position of any recorded zone, in ns. It is larger than `uncertainty_ns` if zones
    /// ran long after a comparison.
    pub worst_uncertainty_ns: i64,
    /// The time that a begin and an end event add to the length of the work between them, in ns, on an idle stream.
    pub bracket_ns: i64,
    /// Like `bracket_ns`, on a stream with queued work.
    pub busy_bracket_ns: i64,
    /// Whether the device was busy during every measurement. Both values are then upper bounds, and lengths are not
    /// corrected.
    pub bracket_is_bound: bool,
}

/// The activity of one stream in the time from the first zone or wait on any stream to the last.
///
/// `busy_ns`, `waiting_ns` and the rest, which is `idle_ns` or `not_recorded_ns`, add up to that time, except for
/// streams with more than some ten thousand gaps, of which the earlier ones count as they were first seen. Time inside
/// a zone in which it is not known whether the stream still waited is in both `busy_ns` and `waiting_ns`.
///
/// Of more than 1,024 streams, those that have been idle longest share the last entry, `…`. Its times are sums over
/// these streams: `busy_ns` is an upper bound, because a zone that ends after its stream was moved there counts the
/// time of the zones in it again, and the rest is not given.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamStats {
    /// The stream's name.
    pub name: String,
    /// Its device's name, with the number if several devices have that name; empty for several streams.
    pub device: String,
    /// The number of streams that the entry represents: 1, except for `…`. A stream that is used again after it was
    /// moved there also has an entry of its own for the time since then.
    pub streams: u64,
    /// The time in kernels, copies and memory sets, in ns, where those of its device are recorded; on other devices,
    /// the time in at least one recorded zone and in no wait, an upper bound if [`busy_is_bound`](Self::busy_is_bound).
    pub busy_ns: i64,
    /// The part of `busy_ns` in which it is not known whether a zone still ran, or whether the stream waited inside it,
    /// in ns, because the lengths of zones and waits are only bounds ([`is_bound`]). The stream may have been idle
    /// then.
    pub uncertain_ns: i64,
    /// The time in a wait, in ns, even inside a zone; an upper bound if [`waiting_is_bound`](Self::waiting_is_bound).
    pub waiting_ns: i64,
    /// The part of `waiting_ns` in which it is not known whether the stream still waited, in ns, because the lengths of
    /// waits are only bounds. The stream may have been idle then.
    pub waiting_early_ns: i64,
    /// The time in neither, in ns; without kernels, unmarked work counts as idle. None for several streams, and if not
    /// all kernels were recorded, or not all zones of a device without kernels
    /// ([`Report::is_complete`](crate::Report::is_complete)), because others may have run then.
    pub idle_ns: Option<i64>,
    /// The same time, in ns, where it is not known whether it is idle; otherwise, and for several streams, 0.
    pub not_recorded_ns: i64,
    /// The streams or threads for which it waited, the longest wait first.
    pub waited_for: Vec<WaitedFor>,
}

/// Adds the number of the device, which comes with each stream, to names that several devices share.
pub fn tell_devices_apart(streams: &mut [(u32, StreamStats)]) {
    let mut numbers: HashMap<String, HashSet<u32>> = HashMap::new();
    for (number, stream) in streams.iter() {
        numbers.entry(stream.device.clone()).or_default().insert(*number);
    }
    for (number, stream) in streams {
        if numbers.get(&stream.device).is_some_and(|numbers| numbers.len() > 1) {
            stream.device = format!("{} (device {number})", stream.device);
        }
    }
}

impl StreamStats {
    /// Returns whether `busy_ns` is only an upper bound.
    pub fn busy_is_bound(&self) -> bool {
        is_bound(self.busy_ns, self.uncertain_ns)
    }

    /// Returns whether `waiting_ns` is only an upper bound.
    pub fn waiting_is_bound(&self) -> bool {
        is_bound(self.waiting_ns, self.waiting_early_ns)
    }

    /// Returns whether the time in no recorded zone and no wait is only a lower bound.
    pub fn rest_is_bound(&self) -> bool {
        is_bound(self.idle_ns.unwrap_or(self.not_recorded_ns), self.uncertain_ns + self.waiting_early_ns)
    }
}

/// Waits of one stream for another, or for a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitedFor {
    /// The name of the stream or thread that signalled; empty if it is unknown.
    pub by: String,
    /// The number of waits.
    pub count: u64,
    /// The total time of these waits, in ns; an upper bound if [`is_bound`](Self::is_bound).
    pub ns: i64,
    /// The time by which `ns` may be shorter, in ns, because no event times the ends of waits.
    pub early_ns: i64,
}

impl WaitedFor {
    /// Returns whether `ns` is only an upper bound.
    pub fn is_bound(&self) -> bool {
        is_bound(self.ns, self.early_ns)
    }
}

/// A semaphore that was waited for. Names of semaphores are chosen at run time, so the catalog does not have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SemaphoreStats {
    /// Its name. Semaphores of one name share an entry; beyond 4,096 names, the others share the name `(more)`.
    pub name: String,
    /// Waits that were recorded, of streams and threads.
    pub waits: u64,
    /// The total time of these waits, in ns; an upper bound if [`is_bound`](Self::is_bound).
    pub waited_ns: i64,
    /// The time by which `waited_ns` may be shorter, in ns, because no event times the ends of waits of streams.
    pub waited_early_ns: i64,
}

impl SemaphoreStats {
    /// Returns whether `waited_ns` is only an upper bound.
    pub fn is_bound(&self) -> bool {
        is_bound(self.waited_ns, self.waited_early_ns)
    }
}

/// The windows in which a session with a budget recorded, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowFigures {
    /// The number of windows in which the session recorded.
    pub windows: u64,
    /// The share of the session's time in which windows were open.
    pub recorded: f64,
    /// The share by which the program ran slower in windows: root zones came that much faster while they were only
    /// counted. None while too little was measured.
    pub slowdown: Option<f64>,
    /// The standard error of `slowdown`.
    pub slowdown_error: f64,
    /// The share by which the session slowed the program; none if `slowdown` is none.
    pub cost: Option<f64>,
    /// Windows that closed before their last root zone ended: the rest of that zone is missing.
    pub cut: u64,
}

/// The maximum share of the time that a session may cost before a line states the remedy.
pub const DEAR: f64 = 0.05;

/// What is said where a session with a budget recorded nothing but what needs no window.
const NO_WINDOW: &str = "no window of the budget opened before the end, so zones are missing; record for longer, or set `budget=100%` to \
                         record every zone";

/// Writes one sentence. A slowdown of at most twice its standard error is shown as an upper bound.
impl fmt::Display for WindowFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WindowFigures { windows, recorded, slowdown, slowdown_error, cost, cut } = *self;
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        if windows == 0 {
            return write!(f, "{NO_WINDOW}");
        }
        write!(f, "recorded {} of the time in {}", share(recorded), counted(windows, "window"))?;
        match slowdown.zip(cost) {
            None => write!(f, "; too few to measure the cost")?,
            Some((slowdown, _)) if slowdown <= 2.0 * slowdown_error => {
                let most = slowdown.max(0.0) + 2.0 * slowdown_error;
                write!(f, "; inside, the program ran at most {} slower", share(most))?;
            }
            Some((slowdown, cost)) => {
                let [slower, error] = [slowdown, slowdown_error].map(|share| format!("{:.0} %", share * 100.0));
                write!(f, "; the program ran {slower} (± {error}) slower inside; the session cost {}", share(cost))?;
            }
        }
        if slowdown.zip(cost).is_some_and(|(slowdown, cost)| slowdown > 2.0 * slowdown_error && cost > DEAR) {
            write!(f, "; a smaller `budget=`, `level=coarse` or a `filter=` costs less")?;
        }
        if cut > 0 {
            write!(f, "; {} closed before a root zone ended", counted(cut, "window"))?;
        }
        Ok(())
    }
}
