//! The engine: the thread that turns finished events into [`ZoneRecord`]s and hands them to the subscriptions.
//!
//! Only this thread asks a backend whether an event is complete, and only it calls sinks while a session runs. It never makes a
//! launching thread wait: zones that it has not read yet stay in the rings.
//!
//! `pace` decides how often it looks. `streams` discovers and evicts streams, and `stream` is one stream with its pending zones.
//! `clocks` holds the clocks of their devices. `pass` reads complete zones, and `drain` ends a session. What comes from elsewhere than the
//! rings is a [`Stage`]: `budget`, `spans` of `tracing`, `steps`, `memory`, `kernels` of CUPTI, and replays of graphs (`stamps`). `waits` of
//! timelines and the flight recorder's `stall_monitor` take part in the reading of zones. `held` keeps zones until CUPTI has delivered
//! their work. `context` is the state that the stages share, `subscriptions` are the consumers of records, and `admission` admits external
//! requests. `session_stats` holds the session's figures and its account, with `left_out`.

mod admission;
mod batch_part;
mod budget;
mod clocks;
mod context;
mod drain;
pub(crate) mod engine;
mod held;
#[cfg(feature = "cupti")]
mod kernels;
pub(crate) mod left_out;
mod memory;
mod newcomer;
mod pace;
mod pass;
#[cfg_attr(
    not(all(feature = "cuda", feature = "cupti")),
    allow(dead_code, reason = "only the stages for CUDA know replays")
)]
mod replays;
mod session_stats;
#[cfg(feature = "tracing")]
mod spans;
mod stage;
#[cfg(unix)]
mod stall_monitor;
#[cfg(feature = "cuda")]
mod stamps;
mod steps;
mod stream;
mod streams;
mod subscriptions;
mod waits;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::flight::Flight;
use warpline_core::clock::{Ticks, now_ns};
use warpline_core::if_feature;
use warpline_core::lock::lock;
use warpline_core::record::ZoneRecord;
use warpline_core::stream::recorder::Recorder;
use warpline_report::sink::SessionInfo;
use warpline_report::sink::held::HeldSinks;

pub(crate) use context::Context;
use pace::Look;
pub(crate) use session_stats::SessionStats;
pub(crate) use stage::Stage;
use stall_monitor::StallMonitor;
use stream::Stream;
use streams::Streams;
use subscriptions::Subscriptions;
pub(crate) use subscriptions::{Inbox, NewSubscription, Outcome, SubscriptionHandle};
use waits::WaitStage;

/// The maximum number of records that a sink gets at once, not counting the entries of one batch of collectives.
const BATCH: usize = 256;

pub(crate) struct Collector {
    cx: Context,
    waits: WaitStage,
    stages: Vec<Box<dyn Stage>>,
    flight: Option<StallMonitor>,
    ticks: Ticks,
    begin_ns: i64,
    /// The zones of one stream that were read and not handed on yet.
    batch: Vec<ZoneRecord>,
    /// The number of records in it that `waits` has seen.
    shown: usize,
}

impl Collector {
    /// Starts the sinks. A sink that fails is left out, and the report says so and counts its records as lost.
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        stats: Arc<SessionStats>,
        inbox: Arc<Inbox>,
        sinks: HeldSinks,
        info: &SessionInfo,
    ) -> Collector {
        let subscriptions = Subscriptions::new(inbox, Arc::clone(&stats));
        let mut cx = Context::new(recorder, stats, Streams::new(), subscriptions);
        cx.has_kernels = info.kernels;
        cx.replays.expect_kernels(info.kernels);
        for sink in sinks {
            cx.subscriptions.add(sink, info);
        }
        let spans: Option<Box<dyn Stage>> =
            if_feature!("tracing", Some(Box::<spans::SpanStage>::default() as Box<dyn Stage>), None);
        let rest: [Box<dyn Stage>; 2] = [Box::<steps::StepStage>::default(), Box::new(memory::MemoryStage)];
        let stages = spans.into_iter().chain(rest).collect();
        Collector {
            cx,
            waits: WaitStage::default(),
            stages,
            flight: None,
            ticks: Ticks::start(),
            begin_ns: info.begin_ns,
            batch: Vec::with_capacity(BATCH),
            shown: 0,
        }
    }

    /// Adds a stage after the existing ones.
    pub(crate) fn add(&mut self, stage: Box<dyn Stage>) {
        self.stages.push(stage);
    }

    /// Watches the streams for a flight recorder.
    pub(crate) fn watch(&mut self, flight: Arc<Flight>) {
        self.flight = Some(StallMonitor::new(flight));
    }

    /// Collects until the session is over, then drains and completes the sinks.
    pub(crate) fn run(mut self) {
        warpline_core::reentrancy::stay();
        if_feature!("tracing", crate::spans::layer::mute(), ());
        self.cx.recorder.waker.set(std::thread::current());
        let deadline = loop {
            self.ticks.compare();
            self.pass_requests();
            let is_launching = self.scan_streams();
            let is_removing = !self.cx.subscriptions.removals.is_empty();
            let is_asked = self.flight.as_mut().is_some_and(StallMonitor::wants_all) || is_removing;
            self.cx.streams.is_asked = is_asked;
            let mut collected = self.pass(is_asked || !is_launching);
            if is_removing {
                // Some zones need two passes.
                collected += self.pass(true);
            }
            collected += self.stages.iter_mut().map(|stage| stage.pass(&mut self.cx)).sum::<usize>();
            collected += self.deliver_timed();
            self.cx.pass_changes();
            if is_asked {
                self.cx.flush()
            } else {
                self.cx.flush_when_due()
            }
            self.cx.remove_sinks(self.duration());
            self.flight.iter_mut().for_each(|flight| flight.end_round(&mut self.cx));
            if let Some(deadline) = *lock(&self.cx.stats.deadline) {
                break deadline;
            }
            self.rest(is_launching, collected > 0);
        };
        self.end(deadline);
    }

    /// Returns the time since the session's begin.
    fn duration(&self) -> Duration {
        let so_far = || Duration::from_nanos((now_ns() - self.begin_ns).max(0) as u64);
        self.cx.stats.duration.get().copied().unwrap_or_else(so_far)
    }

    fn pass_requests(&mut self) {
        let stages = &self.stages;
        self.cx.pass_requests(|since| stages.iter().any(|stage| stage.has_pending(since)));
    }

    /// Looks at the streams without querying a device. Returns whether GPU zones have begun since the last look.
    fn scan_streams(&mut self) -> bool {
        let cx = &mut self.cx;
        cx.discover_streams();
        cx.streams.see_what_begins(&cx.recorder)
    }

    /// Pauses after a look.
    fn rest(&mut self, is_launching: bool, has_collected: bool) {
        let cx = &mut self.cx;
        let is_waiting = cx.streams.are_waiting() || self.waits.is_holding();
        let polls = self.stages.iter().any(|stage| stage.polls(cx));
        let is_idle = cx.subscriptions.is_flushed() && cx.streams.are_unused() && !polls;
        let is_short = cx.streams.all.iter().any(Stream::is_short);
        let is_sparse = cx.streams.are_sparse();
        let look = Look { is_launching, is_sparse, is_short, is_waiting, has_collected, is_idle };
        let pause = cx.pace.next(look, Instant::now());
        let due = self.stages.iter().filter_map(|stage| stage.due()).min();
        self.pause(due.map_or(pause, |due| due.min(pause)));
    }

    /// Pauses, unless the pause is long and zones have begun since the look.
    fn pause(&self, pause: Duration) {
        if pause <= pace::LONG {
            return std::thread::park_timeout(pause);
        }
        let cx = &self.cx;
        cx.recorder.waker.rest();
        let has_begun = |stream: &Stream| stream.context.ring().taken() != stream.active.1;
        let has_begun = cx.streams.all.iter().any(has_begun) || self.stages.iter().any(|stage| stage.has_begun(cx));
        if cx.recorder.generation.load(Ordering::Acquire) == cx.streams.generation && !has_begun {
            std::thread::park_timeout(pause);
        }
        cx.recorder.waker.clear_idle();
    }
}

#[cfg(not(unix))]
mod stall_monitor {
    //! No stage: there is no flight recorder.

    use std::sync::Arc;

    use super::context::Context;
    use super::stream::Stream;
    use crate::flight::Flight;
    use warpline_core::backend::BackendError;

    pub(super) struct StallMonitor(Arc<Flight>);

    #[rustfmt::skip]
    impl StallMonitor {
        pub(super) fn new(flight: Arc<Flight>) -> StallMonitor { StallMonitor(flight) }
        pub(super) fn wants_all(&mut self) -> bool { match *self.0 {} }
        pub(super) fn end_round(&mut self, _: &mut Context) { match *self.0 {} }
        pub(super) fn stream_failed(&mut self, _: &mut Context, _: &mut Stream, _: &BackendError) { match *self.0 {} }
        pub(super) fn finish(&mut self, _: &mut Context) { match *self.0 {} }
    }
}
