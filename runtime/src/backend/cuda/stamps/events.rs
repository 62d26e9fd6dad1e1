//! Borders of zones as event-record nodes, with `graph_timing=events`: each launch of a graph has events of its own in them.
//!
//! A capture gets a node with an event that nobody reads, the spare one. Ahead of each launch `crate::graph::exchange` has the
//! executable graph record a set of events instead, which its [`Ring`] keeps until the collector has read them. A set is free again
//! when the next launch of the same executable graph has been read: launches of one never overlap, so whatever was recorded
//! before the last launch ended is not of the next one. That is how an event that was not recorded yet is told from one that
//! was, whatever the driver says of it between launch and record.
//!
//! Events in nodes are never destroyed: nobody tells when an executable graph is gone. Nothing here waits.
#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};

use super::super::driver::{Code, ContextPtr, CudaError, Driver, EventPtr, StreamPtr};
use super::super::graphs::Handle;
use super::event_clock::EventClock;
use super::source::Stamped;
use crate::fork::PerProcess;
use crate::lock::lock;

/// Launches of one executable graph that wait to be read, and events of the process.
const MOST_SETS: usize = 64;
const MOST_EVENTS: usize = 1 << 16;

/// `CU_EVENT_RECORD_EXTERNAL`: the record is a node, not a dependency.
const EXTERNAL: c_uint = 1;
/// `CUDA_ERROR_INVALID_HANDLE`: what the driver says of a time that was never recorded. `CUDA_ERROR_NOT_FOUND`.
const INVALID_HANDLE: Code = 400;
const NOT_FOUND: Code = 500;

static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new(Mutex::default);
static EVENTS: AtomicUsize = AtomicUsize::new(0);
/// Launches in all rings that were told of, and not read.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The spare events of all borders.
#[derive(Default)]
struct Known {
    ids: HashMap<EventAddress, u32>,
    spares: HashMap<u32, Spare>,
}

type EventAddress = usize;

#[derive(Clone, Copy)]
struct Spare {
    event: EventAddress,
    context: usize,
    context_id: u64,
}

/// The symbols, all since CUDA 11.1.
struct Calls {
    record: unsafe extern "C" fn(EventPtr, StreamPtr, c_uint) -> Code,
    get: unsafe extern "C" fn(*mut c_void, *mut EventPtr) -> Code,
    exchange: unsafe extern "C" fn(*mut c_void, *mut c_void, EventPtr) -> Code,
}

fn calls(driver: &'static Driver) -> Result<&'static Calls, CudaError> {
    static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
    let load = || {
        let library = driver.library;
        // SAFETY: the types are those that CUDA's headers declare for these symbols.
        unsafe {
            Some(Calls {
                record: *library.get(b"cuEventRecordWithFlags\0").ok()?,
                get: *library.get(b"cuGraphEventRecordNodeGetEvent\0").ok()?,
                exchange: *library.get(b"cuGraphExecEventRecordNodeSetEvent\0").ok()?,
            })
        }
    };
    CALLS.get_or_init(load).as_ref().ok_or(CudaError { call: "cuEventRecordWithFlags", code: NOT_FOUND })
}

/// Captures a node on a stream of the context, which is current.
pub(super) fn capture(
    driver: &'static Driver,
    stream: StreamPtr,
    context: ContextPtr,
    context_id: u64,
    id: u32,
) -> Result<(), CudaError> {
    let calls = calls(driver)?;
    let event = driver.outside_captures(|| make(driver, 1))?[0];
    // SAFETY: an event of ours, and a stream whose owner vouches for it.
    let code = unsafe { (calls.record)(event, stream, EXTERNAL) };
    if let Err(error) = driver.check("cuEventRecordWithFlags", code) {
        destroy(driver, &[event]);
        return Err(error);
    }
    let mut known = lock(&KNOWN);
    known.ids.insert(event as EventAddress, id);
    known.spares.insert(id, Spare { event: event as EventAddress, context: context as usize, context_id });
    Ok(())
}

/// Which border a node that records an event is; none if it is not one of ours.
pub(crate) fn id_of(driver: &'static Driver, node: Handle) -> Option<u32> {
    if lock(&KNOWN).ids.is_empty() {
        return None;
    }
    let mut event = std::ptr::null_mut();
    // SAFETY: a valid out-pointer, and a node that the caller vouches for.
    let code = unsafe { (calls(driver).ok()?.get)(node as *mut c_void, &raw mut event) };
    driver.check("cuGraphEventRecordNodeGetEvent", code).ok()?;
    let (id, spare) = {
        let known = lock(&KNOWN);
        let id = *known.ids.get(&(event as EventAddress))?;
        (id, *known.spares.get(&id)?)
    };
    // The handle may be another event's by now.
    (driver.context_id(spare.context as ContextPtr) == Ok(spare.context_id)).then_some(id)
}

/// Events of the current context, if there may be more.
fn make(driver: &Driver, count: usize) -> Result<Vec<EventPtr>, CudaError> {
    const TOO_MANY: CudaError = CudaError { call: "cuEventCreate", code: NOT_FOUND };
    if EVENTS.fetch_add(count, Ordering::Relaxed) + count > MOST_EVENTS {
        EVENTS.fetch_sub(count, Ordering::Relaxed);
        return Err(TOO_MANY);
    }
    driver.create_events(count).inspect_err(|_| {
        EVENTS.fetch_sub(count, Ordering::Relaxed);
    })
}

fn destroy(driver: &Driver, events: &[EventPtr]) {
    events.iter().for_each(|event| driver.destroy_event(*event));
    EVENTS.fetch_sub(events.len(), Ordering::Relaxed);
}

/// The events of the launches of one executable graph.
pub(crate) struct Ring {
    pub(super) driver: &'static Driver,
    pub(super) context: ContextPtr,
    pub(crate) context_id: u64,
    /// The borders' nodes, in the order of the graph's plan.
    nodes: Vec<Handle>,
    spares: Vec<EventPtr>,
    state: Mutex<State>,
    /// How long the queue is: the state is locked while the driver is called.
    queued: AtomicUsize,
    /// Held by whoever reads: a collector that was left to itself may still be there when another one comes.
    reading: Mutex<()>,
}

// SAFETY: the driver takes handles from any thread; everything else is `Send` and `Sync`.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

#[derive(Default)]
struct State {
    free: VecDeque<Vec<EventPtr>>,
    made: usize,
    /// Launches that were told of, and not read.
    queue: VecDeque<Launch>,
    last: Option<Last>,
    /// The nodes record a set, not the spare events.
    is_exchanged: bool,
}

#[derive(Clone)]
struct Launch {
    set: Vec<EventPtr>,
    session: u64,
}

/// The launch that was read last.
#[derive(Clone)]
struct Last {
    set: Vec<EventPtr>,
    /// The event that came last, and when.
    latest: EventPtr,
    device_ns: i64,
}

/// What became of a launch that was told of.
pub(crate) struct Done {
    pub(crate) session: u64,
    /// None for one that never came.
    pub(crate) times: Option<Vec<Stamped>>,
    /// The launch before it was followed by one that nobody told of.
    pub(crate) is_behind_untold: bool,
}

enum Seen {
    /// It is under way.
    NotReady,
    /// Nothing was recorded since the last launch.
    Not,
    All,
}

impl Ring {
    /// For the nodes of a graph, each with the id of its border; none where these are no events, or where pieces of the graph were
    /// captured in several contexts. Within one capture, borders are of one.
    pub(crate) fn new(driver: &'static Driver, borders: &[(Handle, u32)]) -> Option<Ring> {
        let spares: Option<Vec<Spare>> = {
            let known = lock(&KNOWN);
            borders.iter().map(|(_, id)| known.spares.get(id).copied()).collect()
        };
        let spares = spares?;
        let first = *spares.first()?;
        if spares.iter().any(|spare| spare.context_id != first.context_id) {
            return None;
        }
        Some(Ring {
            driver,
            context: first.context as ContextPtr,
            context_id: first.context_id,
            nodes: borders.iter().map(|(node, _)| *node).collect(),
            spares: spares.iter().map(|spare| spare.event as EventPtr).collect(),
            state: Mutex::default(),
            queued: AtomicUsize::new(0),
            reading: Mutex::default(),
        })
    }

    /// Whether any of these borders is an event.
    pub(crate) fn has_events(borders: &[(Handle, u32)]) -> bool {
        let known = lock(&KNOWN);
        borders.iter().any(|(_, id)| known.spares.contains_key(id))
    }

    /// Whether it is for these nodes.
    pub(crate) fn is_of(&self, borders: &[(Handle, u32)]) -> bool {
        self.nodes.iter().eq(borders.iter().map(|(node, _)| node))
    }

    /// Whether the context still is what it was.
    pub(crate) fn is_there(&self) -> bool {
        self.driver.context_id(self.context) == Ok(self.context_id)
    }

    /// Gives the next launch events of its own; false where all wait to be read.
    pub(crate) fn exchange(&self, exec: Handle, session: u64) -> Result<bool, CudaError> {
        let mut state = lock(&self.state);
        let set = state.free.pop_front().or_else(|| {
            if state.made == MOST_SETS {
                return None;
            }
            let make = || make(self.driver, self.nodes.len());
            let set = self.driver.outside_captures(|| self.driver.with_context(self.context, make)).ok()?;
            state.made += 1;
            Some(set)
        });
        let Some(set) = set else {
            self.put(&mut state, exec)?;
            return Ok(false);
        };
        // One that is refused in the middle is in some of the nodes: it is not used again.
        state.is_exchanged = true;
        self.set(exec, &set)?;
        state.queue.push_back(Launch { set, session });
        self.queued.fetch_add(1, Ordering::Relaxed);
        WAITING.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// The next launches record what nobody reads.
    pub(crate) fn park(&self, exec: Handle) -> Result<(), CudaError> {
        self.put(&mut lock(&self.state), exec)
    }

    fn put(&self, state: &mut State, exec: Handle) -> Result<(), CudaError> {
        if state.is_exchanged {
            self.set(exec, &self.spares)?;
            state.is_exchanged = false;
        }
        Ok(())
    }

    fn set(&self, exec: Handle, events: &[EventPtr]) -> Result<(), CudaError> {
        let exchange = calls(self.driver)?.exchange;
        for (node, event) in self.nodes.iter().zip(events) {
            // SAFETY: an event of ours; the caller vouches for the executable graph and for the graph with its nodes.
            let code = unsafe { exchange(exec as *mut c_void, *node as *mut c_void, *event) };
            self.driver.check("cuGraphExecEventRecordNodeSetEvent", code)?;
        }
        Ok(())
    }

    /// Launches of this session that wait.
    pub(crate) fn waiting(&self, session: u64) -> u64 {
        lock(&self.state).queue.iter().filter(|launch| launch.session == session).count() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued.load(Ordering::Relaxed) == 0
    }

    /// What has been recorded since the last look, of the launches of a session and of those before it; no launching thread waits for
    /// it.
    pub(crate) fn read(&self, clock: &EventClock, session: u64) -> Vec<Done> {
        let _reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Vec::new(),
        };
        let (queue, mut last) = {
            let state = lock(&self.state);
            let ours = state.queue.iter().take_while(|launch| launch.session <= session);
            (ours.cloned().collect::<Vec<_>>(), state.last.clone())
        };
        let (mut done, mut free, mut begin) = (Vec::new(), Vec::new(), 0);
        'launches: while begin < queue.len() {
            let mut at = begin;
            loop {
                match self.seen(last.as_ref(), &queue[at].set) {
                    Seen::All => break,
                    // It, or one behind it, may not have been launched.
                    Seen::Not if at + 1 < queue.len() => at += 1,
                    Seen::Not | Seen::NotReady => break 'launches,
                }
            }
            let Some(times) = self.times(clock, &queue[at].set) else { break };
            for launch in &queue[begin..at] {
                done.push(Done { session: launch.session, times: None, is_behind_untold: false });
                free.push(launch.set.clone());
            }
            let is_behind_untold = last.as_ref().is_some_and(|last| self.has_moved(last, &queue[at].set, &times));
            let latest = (0..times.len()).max_by_key(|at| times[*at].device_ns).unwrap_or(0);
            let (set, device_ns) = (queue[at].set.clone(), times[latest].device_ns);
            free.extend(last.map(|last| last.set));
            last = Some(Last { latest: set[latest], set, device_ns });
            done.push(Done { session: queue[at].session, times: Some(times), is_behind_untold });
            begin = at + 1;
        }
        let mut state = lock(&self.state);
        state.queue.drain(..begin);
        self.queued.fetch_sub(begin, Ordering::Relaxed);
        WAITING.fetch_sub(begin, Ordering::Relaxed);
        state.free.extend(free);
        state.last = last;
        done
    }

    /// Whether all of a set was recorded behind the last launch.
    fn seen(&self, last: Option<&Last>, set: &[EventPtr]) -> Seen {
        // The last border first: it mostly says it all.
        for event in set.iter().rev() {
            // The events of a first launch were never recorded before.
            let since = last.map_or(*event, |last| last.latest);
            match self.driver.elapsed_ns(since, *event) {
                Ok(Some(0..)) => {}
                Ok(None) => return Seen::NotReady,
                Ok(Some(_)) | Err(CudaError { code: INVALID_HANDLE, .. }) => return Seen::Not,
                Err(_) => return Seen::NotReady,
            }
        }
        Seen::All
    }

    fn times(&self, clock: &EventClock, set: &[EventPtr]) -> Option<Vec<Stamped>> {
        let elapsed = |since, event| self.driver.elapsed_ns(since, event).ok().flatten();
        let (base_ns, host_ns) = clock.at(set[0])?;
        let time = |event: &EventPtr| {
            let ns = elapsed(set[0], *event)?;
            Some(Stamped { id: 0, device_ns: base_ns + ns, host_ns: host_ns + ns })
        };
        set.iter().map(time).collect()
    }

    /// Whether the last launch's latest event is nearer to this launch than it was when it was read.
    fn has_moved(&self, last: &Last, set: &[EventPtr], times: &[Stamped]) -> bool {
        let then_ns = times[0].device_ns - last.device_ns;
        let Ok(Some(now_ns)) = self.driver.elapsed_ns(last.latest, set[0]) else { return false };
        // Times far apart are told in coarse steps.
        then_ns - now_ns > 1_000 + (then_ns >> 18)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        WAITING.fetch_sub(*self.queued.get_mut(), Ordering::Relaxed);
    }
}

/// Whether there may be something to read in any ring.
pub(crate) fn are_launches_waiting() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}
