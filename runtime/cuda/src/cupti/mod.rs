//! Exact kernels: the records of each kernel, copy and memory set from CUPTI, NVIDIA's profiling library.
//!
//! `library` has the table of its symbols, `abi` the declarations of its headers, and `buffers` the memory that it fills. `activity` turns
//! recording on and off, `clock` converts its times to the host's, `records` reads its records, `zones` connects each launch with its zone,
//! `times` times zones, and `nodes` and `replays` do the same for graphs. `gate` controls calls of CUPTI, and `end` ends it. A session with
//! `kernels` or `timing=kernels` starts it ([`Kernels::start`]), the collector reads it, and it stops when the session ends. With
//! `kernels`, launching threads push the zone that they are in; with `timing=kernels` alone, they make no call.
//!
//! It must never wait for a device, force a flush while it records, or keep the session from starting. At the end of the session, CUPTI is
//! ended in the process if that is safe (`end`); otherwise a note in the report says why not and what stays.
#![allow(unsafe_code)]

mod abi;
mod activity;
mod buffers;
mod clock;
mod end;
mod gate;
mod library;
mod nodes;
mod records;
mod replays;
mod times;
mod zones;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::DefaultStream;
use crate::driver::Driver;
use crate::graph::ids::Provided;
use crate::stream;
use warpline_core::clock::now_ns;
use warpline_core::kernel::{KernelLaunch, KernelRecord, ZoneRef};
use warpline_core::lock::lock;
use warpline_core::record::{Span, StreamInfo, ThreadInfo};
use warpline_core::report::counts::KernelCounts;
use warpline_core::suggest::counted_are;

use abi::*;
use activity::{compare, disable, dropped, enable, end_or_unsubscribe, number_threads, start, traced, why};
use clock::Clock;
use library::Cupti;
use records::{Raw, Records};
pub use replays::Replays;
pub use times::{TimedZone, ZoneWork};

/// The time between two flushes, at which CUPTI delivers what is complete. A killed program may lose as much.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// The number of readings of CUPTI's clock and the host's, of which the best is used.
const LOOKS: usize = 5;
const FIRST_LOOKS: usize = 50;

/// Held by the thread that starts or ends CUPTI: a session can start while the collector of an abandoned one still ends it.
static TURN: Mutex<()> = Mutex::new(());

/// Whether CUPTI records for a session, so that streams get its numbers.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);

/// The data that a session requests from CUPTI.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Whether kernels, copies and sets are recorded, each with its zone.
    pub records: bool,
    /// Whether zones on GPU streams are timed.
    pub times: bool,
}

/// CUPTI, recording for one session.
pub struct Kernels {
    cupti: &'static Cupti,
    subscriber: Subscriber,
    wanted: Wanted,
    /// Gives CUPTI's ids to graphs that are registered during the session.
    node_ids: Option<Provided>,
    /// The previous kind of thread ids.
    thread_ids: c_int,
    clock: Clock,
    records: Records,
    /// The number of times that buffers were read.
    reads: u64,
    /// Work whose launch was not known at the last read.
    waiting: Vec<Raw>,
    counts: KernelCounts,
    flushed: Instant,
    /// Why CUPTI stays in the process after the session.
    stays: Option<String>,
    /// Whether the session is stopped for now: nothing is recorded, and CUPTI is not queried.
    is_paused: bool,
    /// Why CUPTI does not record although it should.
    failure: Option<String>,
    is_stopped: bool,
}

// SAFETY: CUPTI takes a subscriber from any thread.
unsafe impl Send for Kernels {}

/// The names of what CUPTI identifies by numbers.
pub trait Names {
    /// Returns a stream, by device, context and stream.
    fn stream(&mut self, device: u32, context: u32, stream: u32) -> Arc<StreamInfo>;

    /// Returns how many zones have begun on a stream of the session; 0 stands for the host.
    fn begun(&mut self, stream: u32) -> u64;

    fn thread(&mut self, id: u64) -> Arc<ThreadInfo>;
}

impl Kernels {
    /// Starts CUPTI.
    ///
    /// # Errors
    /// The reason why there will be no kernels, with a remedy. Everything is then disabled.
    pub fn start(wanted: Wanted) -> Result<Kernels, String> {
        // This is a thread of the application, and others may be capturing.
        outside_captures(|| Kernels::start_here(wanted))
    }

    fn start_here(wanted: Wanted) -> Result<Kernels, String> {
        // The application's thread does not wait.
        let _turn = match TURN.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err("the previous session is still finalizing CUPTI: start this one later".to_owned());
            }
        };
        let cupti = Cupti::get()?;
        let symbols = &cupti.symbols;
        if wanted.times && symbols.set_thread_id.is_none() {
            return Err("this CUPTI does not record which thread launches: install a newer one".to_owned());
        }
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, and a callback that is a function of the program.
        let code = unsafe { (symbols.subscribe)(&raw mut subscriber, end::told, std::ptr::null_mut()) };
        cupti.check("cuptiSubscribe", code).map_err(|error| why(cupti, error))?;
        gate::open();
        buffers::open();
        let thread_ids = number_threads(cupti, THREAD_ID_SYSTEM);
        let started = start(cupti, wanted.records).and_then(|()| compare(cupti, FIRST_LOOKS));
        match started {
            Ok(compared) => {
                // Earlier drops do not belong to this session.
                let _ = dropped(cupti);
                crate::ask_tool_numbers(numbers);
                IS_RECORDING.store(true, Ordering::Release);
                zones::turn(wanted.records);
                stream::by_kernels::set_uncertainty(compared.uncertainty_ns);
                Ok(Kernels {
                    cupti,
                    subscriber,
                    wanted,
                    node_ids: Some(nodes::node_ids(cupti)),
                    thread_ids,
                    clock: Clock::new(compared),
                    records: Records::new(wanted),
                    reads: 0,
                    waiting: Vec::new(),
                    counts: KernelCounts::default(),
                    flushed: Instant::now(),
                    stays: None,
                    is_paused: false,
                    failure: None,
                    is_stopped: false,
                })
            }
            Err(error) => {
                disable(cupti);
                number_threads(cupti, thread_ids);
                // Kernels may have been enabled, and other threads may have launched some.
                let stays = end_or_unsubscribe(cupti, subscriber, &traced(cupti), buffers::refused());
                let why = why(cupti, error);
                Err(stays.map_or(why.clone(), |stays| format!("{why}; {stays}")))
            }
        }
    }

    /// Returns the records that CUPTI has delivered since the last call, and requests a delivery about ten times a second. Only the
    /// collector's thread may call this.
    pub fn collect(&mut self, is_on: bool, names: &mut dyn Names) -> Vec<KernelRecord> {
        if is_on == self.is_paused {
            self.pause(!is_on);
        }
        if !self.is_paused && self.flushed.elapsed() >= FLUSH_EVERY {
            // CUPTI's own calls must invalidate no capture of another thread.
            relax_capture_mode();
            self.flush(0);
        } else if !buffers::is_waiting() {
            return Vec::new();
        }
        self.read(names, false)
    }

    /// Returns when CUPTI was last flushed; none while it is paused.
    pub fn flushed(&self) -> Option<Instant> {
        (!self.is_paused).then_some(self.flushed)
    }

    /// Stops CUPTI, returns the last records, and ends CUPTI if that is safe. The zones are drained by then, so all work that they launched
    /// is complete.
    pub fn finish(&mut self, names: &mut dyn Names) -> Vec<KernelRecord> {
        self.stop();
        let records = self.read(names, true);
        let lost = self.counts.dropped + self.counts.buffers_refused;
        // Without a collector, this is a thread of the application.
        self.stays = outside_captures(|| {
            let _turn = lock(&TURN);
            end_or_unsubscribe(self.cupti, self.subscriber, &self.records, lost)
        });
        records
    }

    /// Turns recording off, or on again. Earlier work that is still running is delivered with the next records.
    fn pause(&mut self, pause: bool) {
        relax_capture_mode();
        self.is_paused = pause;
        if pause {
            if let Some(times) = &mut self.records.times {
                times.pause(now_ns());
            }
            IS_RECORDING.store(false, Ordering::Release);
            zones::turn(false);
            disable(self.cupti);
            self.flush(0);
        } else if self.failure.is_none() {
            // Zones are turned on first, so that no kernel is recorded without its zone.
            zones::turn(self.wanted.records);
            IS_RECORDING.store(true, Ordering::Release);
            self.failure = enable(self.cupti, self.wanted.records).err().map(|error| why(self.cupti, error));
            if self.failure.is_some() {
                IS_RECORDING.store(false, Ordering::Release);
                zones::turn(false);
            } else if let Some(times) = &mut self.records.times {
                times.resume(now_ns());
            }
        }
    }

    /// Returns a zone's work, as far as CUPTI has delivered it; after the session, nothing more is delivered.
    pub fn work(&self, zone: &TimedZone) -> ZoneWork {
        let times = self.records.times.as_ref();
        times.map_or(ZoneWork::Lost, |times| times.work(zone, &self.clock, self.is_stopped))
    }

    /// Returns how often buffers were read. When it increases, more may be known of zones.
    pub fn read_count(&self) -> u64 {
        self.reads
    }

    /// Returns the counts of the records so far.
    pub fn counts(&self) -> KernelCounts {
        self.counts
    }

    /// Returns the notes for the user after the session.
    pub fn notes(&self) -> Vec<String> {
        let failed = self
            .failure
            .as_ref()
            .map(|error| format!("no kernels were recorded after the session was started again: {error}"));
        let unsound = self.records.unsound;
        let version = self.cupti.version;
        let newer = (unsound > 0 && version > NEWEST).then(|| {
            format!(
                "CUPTI's version {version} is newer than those that warpline knows, and {unsound} of its records could \
                 not be read: update warpline, or name the library of CUDA 13.5 or older in WARPLINE_CUPTI"
            )
        });
        let setting = if self.wanted.times { "timing=kernels" } else { "kernels" };
        let of_graphs = self.records.graph_launches();
        let cost = self.records.graph_launch_ns().map(|ns| {
            let plural = if of_graphs == 1 { "launch" } else { "launches" };
            format!(
                "{of_graphs} {plural} of CUDA graphs took {:.2} µs each (median) with `{setting}`: CUPTI makes them slower; \
                 `graph_timing=stamps` times replays without it",
                ns as f64 / 1e3
            )
        });
        let lost = self.counts.dropped + self.counts.buffers_refused + self.counts.untimed;
        let unsure = (self.wanted.times && lost > 0).then(|| {
            format!("GPU spans of zones may be incomplete: {} missing from CUPTI", counted_are(lost, "record"))
        });
        [failed, newer, cost, unsure, self.stays.clone()].into_iter().flatten().collect()
    }

    fn flush(&mut self, flag: u32) {
        // SAFETY: the call takes a number.
        let _ = unsafe { (self.cupti.symbols.flush_all)(flag) };
        self.flushed = Instant::now();
        if let Some(times) = &mut self.records.times {
            times.flushed();
        }
        if let Ok(compared) = compare(self.cupti, LOOKS) {
            self.clock.compare(compared);
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            // Without a collector, this is a thread of the application.
            outside_captures(|| self.stop_here());
        }
    }

    fn stop_here(&mut self) {
        IS_RECORDING.store(false, Ordering::Release);
        zones::turn(false);
        self.node_ids = None;
        disable(self.cupti);
        number_threads(self.cupti, self.thread_ids);
        // The first flush delivers what is complete, the second everything. Work without times is still running.
        self.flush(0);
        self.flush(FLUSH_FORCED);
        self.counts.dropped += dropped(self.cupti);
    }

    fn read(&mut self, names: &mut dyn Names, last: bool) -> Vec<KernelRecord> {
        while let Some(full) = buffers::take() {
            self.records.read(self.cupti, &full);
            buffers::give_back(full);
        }
        if self.clock.is_torn()
            && let Ok(compared) = compare(self.cupti, 1)
        {
            self.clock.compare(compared);
        }
        if !last {
            self.counts.dropped += dropped(self.cupti);
        }
        self.reads += 1;
        self.records.list_calls(&self.clock);
        if let (Some(times), Some(ns)) = (&mut self.records.times, buffers::delivered_ns()) {
            times.delivered(ns);
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let raw = self.records.take(&mut waiting, last);
        self.waiting = waiting;
        self.counts.untimed = self.records.untimed + self.records.unsound;
        self.counts.buffers_refused = buffers::refused();
        self.counts.recorded += raw.len() as u64;
        raw.into_iter().map(|raw| self.record(raw, names)).collect()
    }

    fn record(&self, raw: Raw, names: &mut dyn Names) -> KernelRecord {
        let Raw { name, work, start, end, device, context, stream, correlation, graph } = raw;
        let launch = self.records.launch_of(correlation);
        let zone = launch.zone().and_then(|zone| {
            let sequence = zone.sequence_of(names.begun(zone.stream));
            Some(ZoneRef { range: zone.range()?, stream: (zone.stream > 0).then_some(zone.stream), sequence })
        });
        KernelRecord {
            name,
            work,
            stream: names.stream(device, context, stream),
            gpu: self.span(start, end),
            correlation,
            context,
            cuda_stream: stream,
            graph,
            zone,
            launch: launch.call.map(|(thread, start, end)| KernelLaunch {
                thread: names.thread(u64::from(thread)),
                host: self.span(start, end.max(start)),
            }),
        }
    }

    /// Converts a span of CUPTI's clock to the host's. The length is CUPTI's own.
    fn span(&self, start: u64, end: u64) -> Span {
        let begin_ns = self.clock.host_ns(start);
        Span { begin_ns, end_ns: begin_ns.saturating_add(end.saturating_sub(start).cast_signed()) }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.stop();
            end::keep("the session ended early, and nobody read what CUPTI traced");
            let _turn = lock(&TURN);
            let _ = end_or_unsubscribe(self.cupti, self.subscriber, &self.records, 0);
        }
    }
}

/// Returns CUPTI's numbers of a context and of a stream, or of the context's default stream, which may be the thread's own. The stream is
/// not being captured.
fn numbers(context: *mut c_void, stream: Result<*mut c_void, DefaultStream>) -> Option<(u32, u32)> {
    if !IS_RECORDING.load(Ordering::Acquire) {
        return None;
    }
    let symbols = &Cupti::get().ok()?.symbols;
    // A created stream is identified by its handle, and a default stream by its context.
    let nothing = std::ptr::null_mut();
    let (of, stream, per_thread) = match stream {
        Ok(stream) => (nothing, stream, 0),
        Err(DefaultStream::Legacy) => (context, nothing, 0),
        Err(DefaultStream::PerThread) => (context, nothing, 1),
    };
    let (mut of_context, mut of_stream) = (0, 0);
    let ask = |_| {
        // SAFETY: the handles are of a live context and a live stream of the driver; the out-pointers are valid.
        unsafe {
            let found = (symbols.context_id?)(context, &raw mut of_context) == SUCCESS
                && (symbols.stream_id?)(of, stream, per_thread, &raw mut of_stream) == SUCCESS;
            found.then_some((of_context, of_stream))
        }
    };
    gate::inside(ask).flatten()
}

/// Relaxes this thread's capture mode: its later calls do not affect the captures of other threads.
fn relax_capture_mode() {
    if let Ok(driver) = Driver::get() {
        driver.relax_capture_mode();
    }
}

/// Calls `work` so that it does not affect the captures of other threads, and restores the thread's capture mode.
fn outside_captures<T>(work: impl FnOnce() -> T) -> T {
    match Driver::get() {
        Ok(driver) => driver.outside_captures(work),
        Err(_) => work(),
    }
}

/// Returns the name and the version of this host's library, and whether it provides the ids of graph nodes. It does not initialise CUPTI.
pub(crate) fn found() -> Result<(String, u32, bool), String> {
    let cupti = Cupti::get()?;
    let symbols = &cupti.symbols;
    let tells_ids = symbols.graph_node_id.is_some() && symbols.graph_id.is_some() && symbols.graph_exec_id.is_some();
    Ok((cupti.name.clone(), cupti.version, tells_ids))
}

/// Returns the name of the device with this ordinal.
pub fn device_name(ordinal: u32) -> Option<String> {
    Driver::get().ok()?.device_name(ordinal.cast_signed()).ok()
}
