//! The thread that turns finished events into [`ZoneRecord`]s and hands them to the sinks.
//!
//! It is the only one that asks a backend whether an event is complete, and the only one that calls sinks once a session runs. It
//! never makes a launching thread wait: what it has not come to stays in the rings.
//!
//! `pace` says when it looks and reads, `streams` meets streams and lets them go, `stream` is one of them with what waits on it,
//! `clocks` are those of their devices, `pass` reads what is complete, and `drain` is the end. `sinks` hands on what is recorded,
//! `spans` takes the spans of `tracing`, `kernels` what CUPTI says, `stamps` what replayed graphs do, `waits` what waited for
//! timelines, and `absent` stands for those that are not built in. `timelines` is what the report says of waits, `guests` lets
//! sinks come and go, `watch` sees for the flight recorder what is open, `tally` is what is known of the session meanwhile,
//! and `left_out` what its settings leave out.

mod absent;
mod clocks;
mod drain;
mod guests;
#[cfg(feature = "cupti")]
mod kernels;
pub(crate) mod left_out;
mod pace;
mod pass;
mod sinks;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(feature = "cuda")]
mod stamps;
mod stream;
mod streams;
mod tally;
#[cfg(feature = "timeline")]
mod timelines;
#[cfg(feature = "timeline")]
mod waits;
#[cfg(unix)]
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::budget::Budget;
use crate::lock::lock;
use crate::record::{ThreadInfo, ZoneRecord};
use crate::session::{Ends, SinkReport};
use crate::sink::SessionInfo;
use crate::sink::held::{HeldSink, HeldSinks};
use crate::stream::recorder::Recorder;

use clocks::Clocks;
use guests::Seated;
pub(crate) use guests::{Guest, Guests, Over, Tie};
use pace::Pace;
use stream::Stream;
pub(crate) use tally::Tally;

/// A sink gets no more records than this at once, but for the entries of one batch of collectives.
const BATCH: usize = 1024;

pub(crate) struct Collector {
    recorder: Arc<Recorder>,
    tally: Arc<Tally>,
    begin_ns: i64,
    /// One that did not start has ended.
    sinks: Vec<HeldSink>,
    /// Sinks that come and go, and where they come in.
    guests: Vec<Seated>,
    door: Arc<Guests>,
    streams: Vec<Stream>,
    generation: u64,
    clocks: Clocks,
    ends: Ends,
    budget: Option<Budget>,
    pace: Pace,
    /// When a stream was met last, until it is long ago.
    settling: Option<Instant>,
    threads: HashMap<u64, Arc<ThreadInfo>>,
    batch: Vec<ZoneRecord>,
    #[cfg(feature = "tracing")]
    spans: Vec<crate::record::SpanRecord>,
    /// How many had begun at the last pass.
    #[cfg(feature = "tracing")]
    spans_begun: u64,
    #[cfg(feature = "cupti")]
    kernels: Option<kernels::Side>,
    #[cfg(feature = "cuda")]
    stamps: Option<stamps::Side>,
    #[cfg(feature = "timeline")]
    waits: waits::Waits,
    flushed: Instant,
    dirty: bool,
    #[cfg(unix)]
    watch: Option<watch::Watch>,
}

impl Collector {
    /// Starts the sinks; one that fails is left out, and the report says so and counts its records as lost.
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        tally: Arc<Tally>,
        sinks: HeldSinks,
        info: &SessionInfo,
        ends: Ends,
        budget: Option<Budget>,
    ) -> Collector {
        let mut collector = Collector {
            recorder,
            tally,
            begin_ns: info.begin_ns,
            sinks: Vec::new(),
            guests: Vec::new(),
            door: Arc::default(),
            streams: Vec::new(),
            generation: 0,
            clocks: Clocks::default(),
            ends,
            budget,
            pace: Pace::default(),
            settling: None,
            threads: HashMap::new(),
            batch: Vec::with_capacity(BATCH),
            #[cfg(feature = "tracing")]
            spans: Vec::new(),
            #[cfg(feature = "tracing")]
            spans_begun: 0,
            #[cfg(feature = "cupti")]
            kernels: None,
            #[cfg(feature = "cuda")]
            stamps: None,
            #[cfg(feature = "timeline")]
            waits: waits::Waits::default(),
            flushed: Instant::now(),
            dirty: false,
            #[cfg(unix)]
            watch: None,
        };
        for sink in sinks {
            let index = collector.sinks.len();
            let name = sink.name();
            lock(&collector.tally.sinks).push(SinkReport { name, ..SinkReport::default() });
            collector.sinks.push(sink);
            if !collector.call_sink(index, |sink| sink.start(info)) {
                collector.end_sink(index);
            }
        }
        collector
    }

    /// Collects until the session is over, then drains, and completes the sinks.
    pub(crate) fn run(mut self) {
        crate::inside::stay();
        #[cfg(feature = "tracing")]
        crate::spans::mute();
        let deadline = loop {
            self.pass_guests();
            let is_launching = self.look();
            let collected =
                self.pass_in_time(is_launching) + self.pass_spans() + self.pass_kernels() + self.pass_stamps(false);
            self.pass_changes();
            self.flush_when_due();
            self.watch();
            if let Some(deadline) = *lock(&self.tally.deadline) {
                break deadline;
            }
            self.rest(is_launching, collected);
        };
        self.end(deadline);
    }
}
