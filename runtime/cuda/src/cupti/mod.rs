//! Exact kernels: the records of each kernel, copy and memory set from CUPTI, NVIDIA's profiling library.
//!
//! `library` has the table of its symbols, `abi` the declarations of its headers, and `buffers` the memory that it fills. `activity` turns
//! recording on and off, `clock` converts its times to the host's, `records` and `reading` read its records, `zones` connects each launch with its zone,
//! `times` times zones, and `nodes` and `replays` do the same for graphs. `syncs` and `allocations` hold records until their calls are known,
//! `submissions` answers requests for single submissions, and `recorded` is what CUPTI records now of what is `wanted`. `gate` controls
//! calls of CUPTI, and `end` ends it. A session with `kernels`, `synchronizations` or `timing=kernels` starts it ([`Kernels::start`]), the
//! collector reads it, and it stops when the session ends. With `kernels` or `synchronizations`, launching threads push the zone that they
//! are in; with `timing=kernels` alone, they make no call.
//!
//! It must never wait for a device, force a flush while it records, or keep the session from starting. At the end of the session, CUPTI is
//! ended in the process if that is safe (`end`); otherwise a note in the report says why not and what stays.
#![allow(unsafe_code)]

mod abi;
mod activity;
mod allocations;
mod bodies;
mod buffers;
mod clock;
mod end;
mod gate;
mod launch;
mod library;
mod nodes;
mod reading;
mod recorded;
mod records;
mod replays;
mod selection;
mod submissions;
mod syncs;
mod times;
mod zones;

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::driver::Driver;
use crate::graph::ids::Provided;
use crate::stream;
use warpline_core::clock::now_ns;
use warpline_core::counts::{KernelCounts, SyncCounts};
use warpline_core::kernel::{KernelRecord, ZoneRef};
use warpline_core::lock::lock;
use warpline_core::plural::{counted_are, counted_as};
use warpline_core::record::{StreamInfo, ThreadInfo};
use warpline_core::signals::with_signals_blocked;
use warpline_core::stream::memory::{RefusedAllocation, ToolChange};
use warpline_core::synchronization::SyncRecord;

use abi::*;
use activity::{change, compare, disable, dropped, enable, end_or_unsubscribe, number_threads, start, traced, why};
use clock::Clock;
use launch::Launch;
use library::Cupti;
use recorded::{IS_RECORDING, RECORDED, numbers, outside_captures, relax_capture_mode};
pub use recorded::{has_requests, is_recording, next_submission};
use records::{Raw, Records};
pub use replays::Replays;
pub use selection::Wanted;
pub use times::{TimedZone, ZoneWork};

/// The time between two flushes, at which CUPTI delivers what is complete. A killed program may lose as much.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// The number of readings of CUPTI's clock and the host's, of which the best is used.
const LOOKS: usize = 5;
const FIRST_LOOKS: usize = 50;

/// Held by the thread that starts or ends CUPTI: a session can start while the collector of an abandoned one still ends it.
static TURN: Mutex<()> = Mutex::new(());

/// Who has started CUPTI.
static USER: Mutex<Option<User>> = Mutex::new(None);

#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Session,
    Requests,
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
    /// Synchronisations that were read and not taken.
    syncs: Vec<SyncRecord>,
    sync_counts: SyncCounts,
    flushed: Instant,
    /// When the last flush began.
    flushed_ns: i64,
    /// The number of flushes.
    flushes: u32,
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

    /// Returns a stream that is known, by context and stream.
    fn known_stream(&self, context: u32, stream: u32) -> Option<Arc<StreamInfo>>;

    /// Sets the name that the program gave a stream through NVTX, by context and stream.
    fn name_stream(&mut self, context: u32, stream: u32, name: String);

    /// Returns how many zones have begun on a stream of the session; 0 stands for the host.
    fn begun(&mut self, stream: u32) -> u64;

    fn thread(&mut self, id: u64) -> Arc<ThreadInfo>;

    /// Returns what stands for the stream of memory that no stream orders, by device.
    fn no_stream(&mut self, device: u32) -> Arc<StreamInfo>;
}

impl Kernels {
    /// Starts CUPTI.
    ///
    /// # Errors
    /// The reason why there will be no kernels, with a remedy. Everything is then disabled.
    pub fn start(wanted: Wanted) -> Result<Kernels, String> {
        // This is a thread of the application, and others may be capturing. CUPTI's threads take no signal of the program, as ours do not.
        outside_captures(|| with_signals_blocked(|| Kernels::start_here(wanted)))
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
        match *lock(&USER) {
            Some(User::Requests) => {
                return Err("a request for a submission (`profile::next_submission`) uses CUPTI until a quarter of a second after \
                            its answer: start the session before the request, or later"
                    .to_owned());
            }
            Some(User::Session) if wanted.submissions => {
                return Err("a session that is stopped uses CUPTI: start it again, or finish it".to_owned());
            }
            _ => {}
        }
        let cupti = Cupti::get()?;
        let symbols = &cupti.symbols;
        if (wanted.times || wanted.submissions) && symbols.set_thread_id.is_none() {
            return Err("this CUPTI does not record which thread launches: install a newer one".to_owned());
        }
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, and a callback that is a function of the program.
        let code = unsafe { (symbols.subscribe)(&raw mut subscriber, end::told, std::ptr::null_mut()) };
        cupti.check("cuptiSubscribe", code).map_err(|error| why(cupti, error))?;
        gate::open();
        buffers::open();
        let thread_ids = number_threads(cupti, THREAD_ID_SYSTEM);
        let started = start(cupti, wanted).and_then(|()| compare(cupti, FIRST_LOOKS));
        match started {
            Ok(compared) => {
                // Earlier drops do not belong to this session.
                let _ = dropped(cupti);
                crate::ask_tool_numbers(numbers);
                *lock(&USER) = Some(if wanted.submissions { User::Requests } else { User::Session });
                *lock(&RECORDED) = Some(wanted);
                IS_RECORDING.store(true, Ordering::Release);
                zones::turn(wanted.zones());
                let clock = Clock::new(compared);
                stream::by_kernels::UNCERTAINTY_NS.store(clock.worst_uncertainty_ns(), Ordering::Relaxed);
                Ok(Kernels {
                    cupti,
                    subscriber,
                    wanted,
                    node_ids: Some(nodes::node_ids(cupti)),
                    thread_ids,
                    clock,
                    records: Records::new(wanted),
                    reads: 0,
                    waiting: Vec::new(),
                    counts: KernelCounts::default(),
                    syncs: Vec::new(),
                    sync_counts: SyncCounts::default(),
                    flushed: Instant::now(),
                    flushed_ns: now_ns(),
                    flushes: 0,
                    stays: None,
                    is_paused: false,
                    failure: None,
                    is_stopped: false,
                })
            }
            Err(error) => {
                disable(cupti, wanted);
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
            let stays = end_or_unsubscribe(self.cupti, self.subscriber, &self.records, lost);
            *lock(&USER) = None;
            stays
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
            self.record_nothing();
            submissions::fail_all();
            self.flush(0);
        } else if self.failure.is_none() {
            // Zones are turned on first, so that no kernel is recorded without its zone.
            zones::turn(self.wanted.zones());
            IS_RECORDING.store(true, Ordering::Release);
            self.failure = enable(self.cupti, self.wanted).err().map(|error| why(self.cupti, error));
            *lock(&RECORDED) = Some(self.wanted).filter(|_| self.failure.is_none());
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
        let uncertainty_ns = if self.counts == KernelCounts::default() { 0 } else { self.clock.worst_uncertainty_ns() };
        KernelCounts { uncertainty_ns, ..self.counts }
    }

    /// Takes the synchronisations that were read by the last calls of `collect` and `finish`.
    pub fn take_syncs(&mut self) -> Vec<SyncRecord> {
        std::mem::take(&mut self.syncs)
    }

    /// Takes the allocations and frees that were read by the last calls of `collect` and `finish`, in the order of their calls, and the time until
    /// which there are no others.
    pub fn take_memory(&mut self, names: &mut dyn Names) -> (Vec<ToolChange>, i64) {
        let mut allocations = std::mem::take(&mut self.records.allocations);
        let about = (&self.clock, self.flushed_ns, self.is_stopped);
        let taken = allocations.take(about, |correlation| self.records.launch_of(correlation), names);
        self.records.allocations = allocations;
        taken
    }

    /// Takes the allocations that failed for lack of memory and were read by the last calls of `collect` and `finish`.
    pub fn take_refused(&mut self, names: &mut dyn Names) -> Vec<RefusedAllocation> {
        let mut allocations = std::mem::take(&mut self.records.allocations);
        let taken = allocations.take_refused(&self.clock, |correlation| self.records.launch_of(correlation), names);
        self.records.allocations = allocations;
        taken
    }

    /// Returns the counts of synchronisations so far.
    pub fn sync_counts(&self) -> SyncCounts {
        self.sync_counts
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
        let setting = match self.wanted {
            Wanted { times: true, .. } => "timing=kernels",
            Wanted { records: true, .. } => "kernels",
            _ => "synchronizations",
        };
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
        let in_bodies = self.records.in_bodies;
        let in_bodies = (self.wanted.times && in_bodies > 0).then(|| {
            let kernels = counted_as(in_bodies, "kernel in a body", "kernels in bodies");
            format!(
                "{kernels} of conditional nodes count for no zone, because CUPTI reports no launch for them: with `timing=kernels`, a zone around \
                 the launch of a graph that ends in such a node ends too early; `timing=events` does not"
            )
        });
        let notes = [failed, newer, cost, unsure, in_bodies, self.stays.clone()];
        notes.into_iter().flatten().chain(self.records.allocations.notes()).collect()
    }

    fn flush(&mut self, flag: u32) {
        self.flushed_ns = now_ns();
        // SAFETY: the call takes a number.
        let _ = unsafe { (self.cupti.symbols.flush_all)(flag) };
        self.flushed = Instant::now();
        self.flushes += 1;
        if !self.is_stopped && !self.is_paused {
            self.narrow();
        }
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
        self.record_nothing();
        number_threads(self.cupti, self.thread_ids);
        // The first flush delivers what is complete, the second everything. Work without times is still running.
        self.flush(0);
        self.flush(FLUSH_FORCED);
        self.counts.dropped += dropped(self.cupti);
    }

    fn record_nothing(&self) {
        let recorded = lock(&RECORDED).take();
        disable(self.cupti, recorded.unwrap_or(self.wanted));
    }

    /// Stops recording what only requests wait for, if none waits any more.
    fn narrow(&self) {
        let mut recorded = lock(&RECORDED);
        if let Some(recorded) =
            recorded.as_mut().filter(|recorded| **recorded != self.wanted && !submissions::are_pending())
        {
            let _ = change(self.cupti, *recorded, self.wanted);
            *recorded = self.wanted;
        }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.stop();
            end::keep("the session ended early, and nobody read what CUPTI traced");
            let _turn = lock(&TURN);
            let _ = end_or_unsubscribe(self.cupti, self.subscriber, &self.records, 0);
            *lock(&USER) = None;
            submissions::fail_all();
        }
    }
}

/// Returns the zone in which a call was made.
fn zone_of(launch: &Launch, names: &mut dyn Names) -> Option<ZoneRef> {
    let zone = launch.zone()?;
    let sequence = zone.sequence_of(names.begun(zone.stream));
    Some(ZoneRef { range: zone.range()?, stream: (zone.stream > 0).then_some(zone.stream), sequence })
}

/// CUPTI of this host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CuptiProbe {
    /// The name or path under which it was found.
    pub library: String,
    /// CUPTI's own version number.
    pub version: u32,
    /// Whether it tells the ids of graph nodes.
    pub tells_ids: bool,
}

/// Opens CUPTI where a session with `kernels` looks for it, which depends on the driver's version, and reads its own. It does not initialise
/// CUPTI.
///
/// # Errors
/// Why it cannot be used, with the remedy.
pub fn cupti() -> Result<CuptiProbe, String> {
    let Cupti { symbols, version, name } = Cupti::get()?;
    let tells_ids = symbols.graph_node_id.is_some() && symbols.graph_id.is_some() && symbols.graph_exec_id.is_some();
    Ok(CuptiProbe { library: name.clone(), version: *version, tells_ids })
}

/// Returns the name of the device with this ordinal.
pub fn device_name(ordinal: u32) -> Option<String> {
    Driver::get().ok()?.device_name(ordinal.cast_signed()).ok()
}
