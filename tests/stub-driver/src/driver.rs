//! What the driver keeps for the process: contexts, streams, events, and the settings of the tests. One lock for all.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::capture::{Capture, CaptureId};
use crate::clock::{self, DeviceClock};
use crate::code::Code;
use crate::faults::Faults;
use crate::graph::{Exec, Graph, Kind, Node};
use crate::journal::Journal;
use crate::module::Modules;
use crate::moment::{GateId, Moment};
use crate::orders;
use crate::page::Page;
use crate::table::{Handle, Table};
use crate::thread;

/// What `cuDriverGetVersion` says unless a test says otherwise: CUDA 13.0, or 11.8 with feature `old`.
const VERSION: i32 = if cfg!(feature = "old") { 11_080 } else { 13_000 };

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`; NULL is the legacy stream, too.
const LEGACY: Handle = 1;
const PER_THREAD: Handle = 2;

/// What `cuStreamGetId` gives: never used twice.
pub type StreamId = u64;

/// Names a moment that a thread waits for.
pub type MarkId = u64;

/// The driver, locked.
pub type Locked = MutexGuard<'static, Driver>;

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));
static CHANGED: Condvar = Condvar::new();

/// Locks the driver. A call that panicked leaves it usable.
pub fn lock() -> Locked {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of the driver.
pub struct Driver {
    pub journal: Journal,
    pub faults: Faults,
    pub clock: DeviceClock,
    pub is_initialized: bool,
    pub version: i32,
    pub devices: i32,
    pub contexts: Table<Context>,
    pub primary: HashMap<i32, Handle>,
    pub streams: HashMap<StreamId, Stream>,
    pub stream_handles: Table<StreamId>,
    pub events: Table<Event>,
    pub graphs: Table<Graph>,
    pub nodes: Table<Node>,
    pub execs: Table<Exec>,
    pub modules: Modules,
    /// What is allocated in the order of streams: bytes by address.
    pub memory: BTreeMap<u64, u64>,
    /// Frees of what is not allocated.
    pub memory_misuse: u64,
    pub has_memory_pools: bool,
    /// The last id of a graph or an executable one.
    pub last_graph: u32,
    /// Whether the driver is one for 13.1 or newer, which tells ids of graphs.
    pub tells_ids: bool,
    /// Whether it tells the parameters of every node.
    pub tells_bodies: bool,
    pub captures: HashMap<CaptureId, Capture>,
    default_streams: HashMap<DefaultStream, StreamId>,
    /// When each gate began to be shut.
    gates: HashMap<GateId, Moment>,
    /// What the next stream that is made waits behind.
    next_gate: Option<GateId>,
    /// The call that the next thread but this one stops at, and whether one stands there.
    stop_at: Option<(String, i32)>,
    pub is_stopped: bool,
    /// What threads wait for.
    marks: HashMap<MarkId, Moment>,
    last_id: u64,
    /// The most events that were live at once.
    pub peak_events: u64,
    /// Streams and events that were live when their context ended.
    pub leaked: u64,
    /// Contexts that had ended when they were made current.
    pub orphans_pushed: u64,
    /// How long events take on streams that wait for no other.
    pub event_costs: EventCosts,
    /// The threads to which green contexts are current.
    green_holders: HashMap<Handle, i32>,
    /// How often one was made current to a second thread.
    pub green_misuse: u64,
    /// Event records that went into a capture.
    pub captured_records: u64,
    /// Behind so many questions where a stream stands in its capture another thread is first with a call for the stream.
    pub overtaken: u64,
    /// Driver calls of host functions.
    pub host_function_calls: u64,
}

/// A context. A primary one stays when nobody retains it, and becomes active again.
pub struct Context {
    pub device: i32,
    pub id: u64,
    pub is_active: bool,
    pub retained: u64,
    /// The primary context of which it is a part, if it is a green one.
    pub part_of: Option<Handle>,
}

/// A stream and the moment at which it will have done all its work.
pub struct Stream {
    pub context: Handle,
    pub is_blocking: bool,
    pub free: Moment,
    pub capture: Option<CaptureId>,
    /// While it captures: what its next node depends on.
    pub frontier: Vec<Handle>,
    /// Those of them for whose launch alone the next kernel waits.
    pub by_launch: Vec<Handle>,
    /// What `cuStreamGetCaptureInfo` handed out last: it is there until the next call for the stream, from any thread.
    pub told: Option<Page>,
    /// The data of the edges, as the same answer had them.
    pub told_edges: Option<Page>,
}

/// An event.
pub struct Event {
    pub context: Handle,
    pub is_timed: bool,
    pub state: EventState,
}

/// How much later comes what is behind an event.
///
/// Where events take time, a thread that records two of them on a stream, and calls nothing between, keeps up with the
/// stream: the events are exactly that time apart, however long the thread waits for a processor.
#[derive(Default)]
pub struct EventCosts {
    pub quiet_ns: i64,
    pub busy_ns: i64,
    /// Of ten events, so many are followed by other work of the device's.
    pub in_ten: u64,
    pub recorded: u64,
    /// The thread that recorded the last one, and the stream.
    pub last: Option<(i32, StreamId)>,
}

impl EventCosts {
    /// The next event's.
    pub fn next_ns(&mut self) -> i64 {
        self.recorded += 1;
        // Spread over the ten.
        if self.recorded * 7 % 10 < self.in_ten { self.busy_ns } else { self.quiet_ns }
    }
}

/// What an event stands for.
pub enum EventState {
    Fresh,
    Recorded(Moment),
    Captured(CaptureId, Vec<Handle>),
}

#[derive(PartialEq, Eq, Hash)]
enum DefaultStream {
    Legacy(Handle),
    PerThread(Handle, i32),
}

impl Driver {
    fn new() -> Driver {
        Driver {
            journal: orders::journal(),
            faults: Faults::default(),
            clock: DeviceClock::new(),
            is_initialized: false,
            version: orders::number("version").unwrap_or(VERSION),
            devices: orders::number("devices").unwrap_or(1),
            contexts: Table::new(0x1000_0000, false),
            primary: HashMap::new(),
            streams: HashMap::new(),
            stream_handles: Table::new(0x2000_0000, true),
            // Not reused, so that every use after the end is seen.
            events: Table::new(0x40_0000_0000, false),
            graphs: Table::new(0x3000_0000, true),
            nodes: Table::new(0x5000_0000, true),
            execs: Table::new(0x6000_0000, true),
            modules: Modules::default(),
            memory: BTreeMap::new(),
            memory_misuse: 0,
            has_memory_pools: true,
            last_graph: 0,
            tells_ids: false,
            tells_bodies: false,
            captures: HashMap::new(),
            default_streams: HashMap::new(),
            gates: HashMap::new(),
            next_gate: None,
            stop_at: None,
            is_stopped: false,
            marks: HashMap::new(),
            last_id: 16,
            peak_events: 0,
            leaked: 0,
            orphans_pushed: 0,
            event_costs: EventCosts::default(),
            green_holders: HashMap::new(),
            green_misuse: 0,
            captured_records: 0,
            overtaken: 0,
            host_function_calls: 0,
        }
    }

    /// As when the driver was loaded; no handle and no id of before comes back.
    pub fn reset(&mut self) {
        let mut fresh = Driver::new();
        fresh.contexts = self.contexts.emptied();
        fresh.stream_handles = self.stream_handles.emptied();
        fresh.events = self.events.emptied();
        fresh.graphs = self.graphs.emptied();
        fresh.nodes = self.nodes.emptied();
        fresh.execs = self.execs.emptied();
        fresh.last_graph = self.last_graph;
        fresh.last_id = self.last_id;
        *self = fresh;
        CHANGED.notify_all();
    }

    /// A number that names one thing for ever.
    pub fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A device's ordinal, which is its handle, too.
    pub fn device(&self, device: i32) -> Result<i32, Code> {
        if (0..self.devices).contains(&device) { Ok(device) } else { Err(Code::INVALID_DEVICE) }
    }
}

/// Contexts.
impl Driver {
    /// Makes a context of a device.
    pub fn create_context(&mut self, device: i32) -> Handle {
        let id = self.new_id();
        self.contexts.insert(Context { device, id, is_active: true, retained: 0, part_of: None })
    }

    /// The primary context of which a context is a part, or the context itself.
    pub fn whole(&self, context: Handle) -> Handle {
        self.contexts.peek(context).and_then(|context| context.part_of).unwrap_or(context)
    }

    /// Changes which context is current to the calling thread. A green context that is current to another one already is counted.
    pub fn change_current(&mut self, change: impl FnOnce() -> Result<(), Code>) -> Result<(), Code> {
        let (tid, before) = (thread::tid(), thread::current());
        change()?;
        let now = thread::current();
        if self.green_holders.get(&before) == Some(&tid) {
            self.green_holders.remove(&before);
        }
        if self.whole(now) != now && *self.green_holders.entry(now).or_insert(tid) != tid {
            self.green_misuse += 1;
        }
        Ok(())
    }

    /// A context that can be used.
    pub fn context(&mut self, context: Handle) -> Result<&mut Context, Code> {
        if context == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        match self.contexts.get(context) {
            Ok(active) if active.is_active => Ok(active),
            Ok(_) | Err(Code::CONTEXT_IS_DESTROYED) => Err(Code::CONTEXT_IS_DESTROYED),
            Err(_) => Err(Code::INVALID_CONTEXT),
        }
    }

    /// The calling thread's context, which must be usable.
    pub fn current(&mut self) -> Result<Handle, Code> {
        let context = thread::current();
        self.context(context)?;
        Ok(context)
    }

    /// Ends all that lives in a context.
    pub fn end_contents(&mut self, context: Handle) {
        let captures: Vec<_> = self
            .streams
            .values()
            .filter(|stream| stream.context == context)
            .filter_map(|stream| stream.capture)
            .collect();
        captures.into_iter().for_each(|id| self.forget_capture(id));
        self.streams.retain(|_, stream| stream.context != context);
        let streams = &self.streams;
        self.default_streams.retain(|_, id| streams.contains_key(id));
        self.leaked += self.stream_handles.orphan(|id| !streams.contains_key(id));
        self.leaked += self.events.orphan(|event| event.context == context);
        CHANGED.notify_all();
    }

    /// Ends a context that was made, not retained.
    pub fn destroy_context(&mut self, context: Handle) -> Result<(), Code> {
        let id = self.context(context)?.id;
        self.end_contents(context);
        self.contexts.orphan(|context| context.id == id);
        Ok(())
    }
}

/// Streams.
impl Driver {
    /// Makes a stream in the current context.
    pub fn create_stream(&mut self, is_blocking: bool) -> Result<Handle, Code> {
        let context = self.current()?;
        let id = self.add_stream(context, is_blocking);
        if let Some(gate) = self.next_gate.take() {
            self.shut_behind(id, gate)?;
        }
        Ok(self.stream_handles.insert(id))
    }

    pub fn add_stream(&mut self, context: Handle, is_blocking: bool) -> StreamId {
        let id = self.new_id();
        self.streams.insert(
            id,
            Stream {
                context,
                is_blocking,
                free: Moment::default(),
                capture: None,
                frontier: Vec::new(),
                by_launch: Vec::new(),
                told: None,
                told_edges: None,
            },
        );
        id
    }

    /// The stream that a handle stands for on this thread.
    pub fn resolve(&mut self, handle: Handle) -> Result<StreamId, Code> {
        let key = match handle {
            0 | LEGACY => DefaultStream::Legacy(self.current()?),
            PER_THREAD => {
                let current = self.current()?;
                // As seen on driver 580.159.04.
                if self.whole(current) != current {
                    return Err(Code::INVALID_HANDLE);
                }
                DefaultStream::PerThread(current, thread::tid())
            }
            _ => {
                let id = *self.stream_handles.get(handle)?;
                self.stream_mut(id)?.told = None;
                return Ok(id);
            }
        };
        if let Some(&id) = self.default_streams.get(&key) {
            self.stream_mut(id)?.told = None;
            return Ok(id);
        }
        let (DefaultStream::Legacy(context) | DefaultStream::PerThread(context, _)) = key;
        let id = self.add_stream(context, matches!(key, DefaultStream::PerThread(..)));
        self.default_streams.insert(key, id);
        Ok(id)
    }

    pub fn stream_mut(&mut self, stream: StreamId) -> Result<&mut Stream, Code> {
        self.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)
    }

    pub fn is_legacy(&self, stream: StreamId) -> bool {
        let of = self.streams.get(&stream);
        of.is_some_and(|of| self.default_streams.get(&DefaultStream::Legacy(of.context)) == Some(&stream))
    }

    /// Ends a stream. Its work goes on: events that are on it complete.
    pub fn destroy_stream(&mut self, handle: Handle) -> Result<(), Code> {
        let id = *self.stream_handles.get(handle)?;
        self.check_not_capturing(id)?;
        self.stream_handles.remove(handle)?;
        self.streams.remove(&id);
        Ok(())
    }

    /// Puts work of this length on a stream, or into its capture as a node of this kind.
    pub fn launch(&mut self, stream: StreamId, ns: i64, kind: Kind) -> Result<(), Code> {
        match self.capture_of_work(stream)? {
            Some(capture) => self.capture_node(stream, capture, kind, ns),
            None => {
                let of = self.stream_mut(stream)?;
                of.free = of.free.next(clock::now_ns());
                of.free.at_ns += ns;
                Ok(())
            }
        }
    }

    /// Puts a gate on a stream: what comes behind waits until it is opened.
    pub fn shut(&mut self, stream: StreamId) -> Result<GateId, Code> {
        let gate = self.new_id();
        self.shut_behind(stream, gate)?;
        Ok(gate)
    }

    /// The same of the next stream that is made.
    pub fn shut_next(&mut self) -> GateId {
        let gate = self.new_id();
        self.next_gate = Some(gate);
        gate
    }

    /// The device hangs: a gate on all streams that there are.
    pub fn shut_all(&mut self) -> GateId {
        let gate = self.new_id();
        let now_ns = clock::now_ns();
        for of in self.streams.values_mut() {
            of.free = of.free.next(now_ns);
            of.free.shut(gate);
        }
        self.gates.insert(gate, Moment { at_ns: now_ns, ..Moment::default() });
        gate
    }

    fn shut_behind(&mut self, stream: StreamId, gate: GateId) -> Result<(), Code> {
        let of = self.stream_mut(stream)?;
        of.free = of.free.next(clock::now_ns());
        let began = of.free.clone();
        of.free.shut(gate);
        self.gates.insert(gate, began);
        Ok(())
    }

    /// Opens a gate: all behind it comes as much later as it was shut.
    pub fn open(&mut self, gate: GateId) {
        let Some(began) = self.gates.remove(&gate) else { return };
        let delay_ns = (clock::now_ns() - began.at_ns).max(0);
        let streams = self.streams.values_mut().map(|stream| &mut stream.free);
        let events = self.events.values_mut().filter_map(|event| match &mut event.state {
            EventState::Recorded(moment) => Some(moment),
            _ => None,
        });
        let faults = self.faults.pending.iter_mut().map(|(moment, _)| moment);
        let others = self.gates.values_mut().chain(self.marks.values_mut());
        for moment in streams.chain(events).chain(others).chain(faults) {
            moment.open(gate, delay_ns);
        }
        CHANGED.notify_all();
    }
}

/// Events.
impl Driver {
    /// Makes an event in the current context.
    pub fn create_event(&mut self, is_timed: bool) -> Result<Handle, Code> {
        let context = self.current()?;
        let event = self.events.insert(Event { context, is_timed, state: EventState::Fresh });
        self.peak_events = self.peak_events.max(self.events.count());
        Ok(event)
    }

    /// Whether a stream has got to an event; yes if it was never recorded.
    pub fn is_complete(&mut self, event: Handle) -> Result<bool, Code> {
        match &self.events.get(event)?.state {
            EventState::Fresh => Ok(true),
            EventState::Recorded(moment) => Ok(moment.is_reached(clock::now_ns())),
            EventState::Captured(..) => Err(Code::CAPTURED_EVENT),
        }
    }
}

/// Waiting.
impl Driver {
    /// Notes a moment, so that it moves with the gates, for `wait`.
    pub fn mark(&mut self, moment: Moment) -> MarkId {
        let mark = self.new_id();
        self.marks.insert(mark, moment);
        mark
    }
}

/// Lets the next other thread that makes this call stop there.
pub fn stop_at(mut driver: Locked, symbol: String) {
    driver.stop_at = Some((symbol, thread::tid()));
}

/// Lets the thread that has stopped go on.
pub fn go_on(mut driver: Locked) {
    driver.is_stopped = false;
    CHANGED.notify_all();
}

/// Stops here, with the driver unlocked, if that is asked of the call.
pub fn stop(mut driver: Locked, symbol: &str) -> Locked {
    if driver.stop_at.as_ref().is_some_and(|(at, by)| at == symbol && *by != thread::tid()) {
        driver.stop_at = None;
        driver.is_stopped = true;
        while driver.is_stopped {
            driver = CHANGED.wait(driver).unwrap_or_else(PoisonError::into_inner);
        }
    }
    driver
}

/// Waits until the moment that was marked, with the driver unlocked.
pub fn wait(mut driver: Locked, mark: MarkId) -> Locked {
    while let Some(moment) = driver.marks.get(&mark) {
        if moment.is_reached(clock::now_ns()) {
            driver.marks.remove(&mark);
        } else if moment.behind.is_empty() {
            let limit = clock::until(moment.at_ns);
            driver = CHANGED.wait_timeout(driver, limit).unwrap_or_else(PoisonError::into_inner).0;
        } else {
            driver = CHANGED.wait(driver).unwrap_or_else(PoisonError::into_inner);
        }
    }
    driver
}

/// Waits until the streams have done all that is on them now.
pub fn wait_for_streams(mut driver: Locked, streams: &[StreamId]) {
    let ends: Vec<_> = streams.iter().filter_map(|id| Some(driver.streams.get(id)?.free.clone())).collect();
    let marks: Vec<_> = ends.into_iter().map(|end| driver.mark(end)).collect();
    for mark in marks {
        driver = wait(driver, mark);
    }
}
