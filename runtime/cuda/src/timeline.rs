//! Timelines on CUDA streams: events that one stream records and others wait for.
//!
//! The events have no times. They belong to a context and are reused: recording an event again does not
//! affect earlier waits for it. A thread keeps a few free events for itself, and shares the others. More free events than the
//! [capacity](set_event_pool_capacity) are destroyed, by threads that signal: whoever gives an event back may be a host function of a stream,
//! which must not call the driver. Nothing here waits for a device. On a stream that is being captured, the only call is the
//! query for that.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::allocator::Allocator;
use super::driver::{Code, ContextPtr, CudaError, Driver, EventPtr, StreamPtr, is_default};
use super::key::Key;
use warpline_core::backend::device::{DevicePoint, DeviceStream, KeepAlive, RawParts};
use warpline_core::backend::{NoKey, Refusal};
use warpline_core::counts::EventPoolCounts;
use warpline_core::fork::Home;

/// The number of events that are created at a time.
const STEP: usize = 16;

/// The number of free events that a thread keeps for itself.
const KEPT: usize = 2 * STEP;

/// The number of streams that a thread remembers.
const REMEMBERED: usize = 8;

table! {
    wait: b"cuStreamWaitEvent\0" fn(StreamPtr, EventPtr, c_uint);
}

/// The handle of a stream, and its context if that is known.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    pub(super) stream: StreamPtr,
    context: Option<ContextPtr>,
    /// The application's stream, whose context can be kept alive while a point of the stream is in use.
    of: &'a dyn DeviceStream,
}

/// The events of a context. It is never freed: there are few contexts, and threads keep references to them.
pub(super) struct Context {
    pub(super) driver: &'static Driver,
    symbols: &'static Symbols,
    pub(super) ptr: ContextPtr,
    id: u64,
    allocator: OnceLock<Result<Allocator, String>>,
    free: Mutex<Vec<Event>>,
    /// More events are free than the pool is to keep.
    has_surplus: AtomicBool,
}

/// The most free events that the pool of a context keeps, beside those of threads.
static CAPACITY: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Events that were created and destroyed, and how often a signal found no free event.
static CREATED: AtomicU64 = AtomicU64::new(0);
static DESTROYED: AtomicU64 = AtomicU64::new(0);
static EXHAUSTED: AtomicU64 = AtomicU64::new(0);

/// Sets the most free events that the pool of a context keeps, for all contexts of the process.
pub fn set_event_pool_capacity(events: usize) {
    CAPACITY.store(events, Ordering::Relaxed);
}

/// The counts of all pools since the process began.
pub fn event_pool() -> EventPoolCounts {
    let (created, destroyed) = (CREATED.load(Ordering::Relaxed), DESTROYED.load(Ordering::Relaxed));
    EventPoolCounts::new(created.saturating_sub(destroyed), created, EXHAUSTED.load(Ordering::Relaxed))
}

/// The handle of an event.
#[derive(Clone, Copy)]
struct Event(EventPtr);

// SAFETY: the driver takes an event from any thread.
unsafe impl Send for Event {}
// SAFETY: the driver takes a context from any thread; everything else is `Send` and `Sync`.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// An event that was recorded on a stream. The last owner returns it to the context.
pub(super) struct CudaPoint {
    context: &'static Context,
    /// Keeps the context alive, because the event is destroyed with it.
    owner: Option<Arc<dyn KeepAlive>>,
    event: Event,
    stream: u64,
}

// SAFETY: the driver takes an event from any thread.
unsafe impl Sync for CudaPoint {}

/// The contexts of the streams that a thread used last, by the ids of the streams, which are never reused.
struct ContextCache {
    places: [Option<(u64, &'static Context)>; REMEMBERED],
    /// The place that the next new stream takes.
    next: usize,
}

/// The free events that a thread keeps for itself, all of one context.
struct KeptEvents {
    /// The context, and the process in which the thread took them.
    of: Option<(&'static Context, Home)>,
    events: Vec<Event>,
}

thread_local! {
    static KEPT_EVENTS: RefCell<KeptEvents> = const { RefCell::new(KeptEvents { of: None, events: Vec::new() }) };
    static KNOWN: RefCell<ContextCache> = const { RefCell::new(ContextCache { places: [None; REMEMBERED], next: 0 }) };
}

impl<'a> Lane<'a> {
    pub(super) fn new(of: &'a dyn DeviceStream) -> Lane<'a> {
        // A stream without a key is not touched.
        let none = RawParts { stream: std::ptr::null_mut(), context: None };
        let RawParts { stream, context } = of.parts().unwrap_or(none);
        Lane { stream, context, of }
    }

    /// Records an event behind the work that is on the stream now.
    pub(super) fn record(self, key: Key) -> Result<Arc<CudaPoint>, Refusal> {
        let (id, context) = self.context(key)?;
        let failed = |error| context.failed("a signal on a CUDA stream", error);
        let event = context.take().map_err(failed)?;
        // From here on, dropping the point returns the event.
        let owner = self.of.keep_context_alive();
        let point = Arc::new(CudaPoint { context, owner, event, stream: id });
        context.where_known(self.stream, || context.driver.record(event.0, self.stream)).map_err(failed)?;
        Ok(point)
    }

    /// Makes work that is put on the stream from now on wait for a point.
    pub(super) fn wait(self, key: Key, point: &CudaPoint) -> Result<(), Refusal> {
        let (_, context) = self.context(key)?;
        let failed = |error| context.failed("a wait on a CUDA stream", error);
        // The stream's own context is alive; that of the point may have been destroyed with its events.
        if !std::ptr::eq(context, point.context) && !point.context.is_alive().map_err(failed)? {
            return Err(failed(CudaError::CONTEXT_IS_GONE));
        }
        let wait = || {
            // SAFETY: an event of ours, and a stream whose owner vouches for it.
            let code = unsafe { (context.symbols.wait)(self.stream, point.event.0, 0) };
            context.driver.check("cuStreamWaitEvent", code)
        };
        context.where_known(self.stream, wait).map_err(failed)
    }

    /// Calls `work` with the stream's context current, and restores the context that was current before.
    pub(super) fn with_context<T>(self, key: Key, work: impl FnOnce() -> T) -> Result<T, Refusal> {
        let (_, context) = self.context(key)?;
        context
            .driver
            .with_context(context.ptr, || Ok(work()))
            .map_err(|error| context.failed("the context of a CUDA stream", error))
    }

    pub(super) fn context(self, key: Key) -> Result<(u64, &'static Context), Refusal> {
        match key {
            Err(NoKey::Captured) => Err(Refusal::Captured),
            Err(NoKey::Unknown | NoKey::NoStream) => {
                let error = match Driver::get() {
                    Err(error) => error.0,
                    Ok(_) => "the driver does not know the stream: it was destroyed, or it is a default stream and no context is current".to_owned(),
                };
                Err(Refusal::Failed { what: "a CUDA stream", error })
            }
            Ok(key) => {
                let id = key.number();
                if let Some(context) = remembered(id) {
                    return Ok((id, context));
                }
                let context = self.discover().map_err(|error| Refusal::Failed { what: "a CUDA stream", error })?;
                remember(id, context);
                Ok((id, context))
            }
        }
    }

    /// Finds the context of a stream that this thread does not remember.
    #[cold]
    fn discover(self) -> Result<&'static Context, String> {
        static CONTEXTS: Mutex<Vec<&'static Context>> = Mutex::new(Vec::new());
        static SYMBOLS: OnceLock<Result<Symbols, String>> = OnceLock::new();
        let driver = Driver::get().map_err(|error| error.0)?;
        let told = |error: CudaError| driver.describe(error).0;
        let symbols = SYMBOLS.get_or_init(|| Symbols::load(&driver.library).map_err(|error| error.0));
        let symbols = symbols.as_ref().map_err(Clone::clone)?;
        let ptr = driver.home(self.stream, self.context).map_err(|error| error.0)?;
        let id = driver.context_id(ptr).map_err(told)?;
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.iter().find(|context| context.id == id) {
            return Ok(context);
        }
        let context: &'static Context = Box::leak(Box::new(Context {
            driver,
            symbols,
            ptr,
            id,
            allocator: OnceLock::new(),
            free: Mutex::default(),
            has_surplus: AtomicBool::new(false),
        }));
        // Threads may still refer to a destroyed context, but no stream leads to it again.
        contexts.retain(|context| {
            let is_alive = context.is_alive() != Ok(false);
            if !is_alive {
                // They went with the context.
                let gone = std::mem::take(&mut *context.free()).len();
                DESTROYED.fetch_add(gone as u64, Ordering::Relaxed);
            }
            is_alive
        });
        contexts.push(context);
        Ok(context)
    }
}

fn remembered(id: u64) -> Option<&'static Context> {
    let find = |known: &RefCell<ContextCache>| {
        let known = known.try_borrow().ok()?;
        known.places.iter().flatten().find(|(of, _)| *of == id).map(|(_, context)| *context)
    };
    KNOWN.try_with(find).ok()?
}

fn remember(id: u64, context: &'static Context) {
    // A thread whose thread-local values are destroyed looks the context up each time.
    let _ = KNOWN.try_with(|known| {
        if let Ok(mut known) = known.try_borrow_mut() {
            let next = known.next;
            known.places[next] = Some((id, context));
            known.next = (next + 1) % REMEMBERED;
        }
    });
}

impl Context {
    /// Calls `work` with a current context in which the stream's handle means this context's stream.
    #[inline]
    fn where_known<T>(&self, stream: StreamPtr, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        self.driver.in_context(is_default(stream).then_some(self.ptr), work)
    }

    /// Takes a free event: one of the thread's own, else one that is shared, else a new one.
    fn take(&'static self) -> Result<Event, CudaError> {
        if self.has_surplus.load(Ordering::Relaxed) {
            self.trim();
        }
        let kept = with_kept(|kept| {
            if !kept.is_of(self) {
                return self.free().pop();
            }
            if kept.events.is_empty() {
                let mut free = self.free();
                let rest = free.len().saturating_sub(STEP);
                kept.events.extend(free.drain(rest..));
            }
            kept.events.pop()
        });
        let event = kept.unwrap_or_else(|| self.free().pop());
        event.map_or_else(|| self.make(), Ok)
    }

    /// Gives an event back: to the thread if it has few, else to all threads.
    fn give_back(&'static self, event: Event) {
        let kept = with_kept(|kept| {
            let has_room = kept.is_of(self) && kept.events.len() < KEPT.min(CAPACITY.load(Ordering::Relaxed));
            if has_room {
                kept.events.push(event);
            }
            has_room
        });
        if kept != Some(true) {
            let mut free = self.free();
            free.push(event);
            if free.len() > CAPACITY.load(Ordering::Relaxed) {
                self.has_surplus.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Destroys some of the free events that the pool is not to keep. The caller's stream is alive, so the context is alive as well.
    #[cold]
    fn trim(&self) {
        let surplus: Vec<Event> = {
            let mut free = self.free();
            let kept = CAPACITY.load(Ordering::Relaxed).min(free.len()).max(free.len().saturating_sub(STEP));
            let surplus = free.drain(kept..).collect();
            self.has_surplus.store(free.len() > CAPACITY.load(Ordering::Relaxed), Ordering::Relaxed);
            surplus
        };
        DESTROYED.fetch_add(surplus.len() as u64, Ordering::Relaxed);
        self.driver.outside_captures(|| surplus.iter().for_each(|event| self.driver.destroy_event(event.0)));
    }

    /// Creates events, returns one and shares the others. The stream is alive, so its context is alive as well.
    #[cold]
    fn make(&self) -> Result<Event, CudaError> {
        EXHAUSTED.fetch_add(1, Ordering::Relaxed);
        // One for the caller, and no more free ones than the pool keeps.
        let wanted = CAPACITY.load(Ordering::Relaxed).saturating_add(1).min(STEP);
        let mut made = Vec::with_capacity(wanted);
        let driver = self.driver;
        driver.outside_captures(|| {
            driver.with_context(self.ptr, || {
                while made.len() < wanted {
                    match driver.create_event(false) {
                        Ok(event) => made.push(Event(event)),
                        Err(error) if made.is_empty() => return Err(error),
                        Err(_) => break,
                    }
                }
                Ok(())
            })
        })?;
        CREATED.fetch_add(made.len() as u64, Ordering::Relaxed);
        let first = made.pop();
        self.free().extend(made);
        first.ok_or(CudaError::CONTEXT_IS_GONE)
    }

    /// Returns the calls that allocate memory, or why there are none.
    pub(super) fn allocator(&self) -> &Result<Allocator, String> {
        self.allocator.get_or_init(|| Allocator::find(self.driver, self.ptr))
    }

    fn free(&self) -> MutexGuard<'_, Vec<Event>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the context is alive. This is checked before a handle is used that may be older than the current stream: the
    /// driver crashes on a handle of a destroyed context.
    fn is_alive(&self) -> Result<bool, CudaError> {
        match self.driver.context_id(self.ptr) {
            Err(error) if !error.context_is_gone() => Err(error),
            id => Ok(id == Ok(self.id)),
        }
    }

    pub(super) fn failed(&self, what: &'static str, error: CudaError) -> Refusal {
        if error.is_of_capture() {
            return Refusal::Captured;
        }
        Refusal::Failed { what, error: self.driver.describe(error).0 }
    }
}

/// Calls `work` with the thread's own free events; none while its thread-local values are destroyed.
fn with_kept<T>(work: impl FnOnce(&mut KeptEvents) -> T) -> Option<T> {
    KEPT_EVENTS.try_with(|kept| kept.try_borrow_mut().ok().map(|mut kept| work(&mut kept))).ok()?
}

impl KeptEvents {
    /// Returns whether the events belong to this context. A thread without events takes those of this context from now on.
    fn is_of(&mut self, context: &'static Context) -> bool {
        if self.events.is_empty() {
            self.of = Some((context, Home::here()));
        }
        self.of.is_some_and(|(of, _)| std::ptr::eq(of, context))
    }
}

impl Drop for KeptEvents {
    /// Returns the events to their context, except in a forked process, where the lock may be held forever.
    fn drop(&mut self) {
        if let Some((context, _)) = self.of.filter(|(_, home)| home.is_here()) {
            context.free().append(&mut self.events);
        }
    }
}

impl DevicePoint for CudaPoint {
    fn stream(&self) -> u64 {
        self.stream
    }

    fn is_reached_soon(&self, in_a_row: u32) -> Result<bool, String> {
        let driver = self.context.driver;
        let asked = self.context.is_alive().and_then(|is_alive| {
            if !is_alive {
                return Err(CudaError::CONTEXT_IS_GONE);
            }
            driver.outside_captures(|| {
                for _ in 1..in_a_row {
                    if driver.is_complete(self.event.0)? {
                        return Ok(true);
                    }
                    std::hint::spin_loop();
                }
                driver.is_complete(self.event.0)
            })
        });
        match asked {
            Err(error) if error.is_of_caller() => Ok(false),
            asked => asked.map_err(|error| driver.describe(error).0),
        }
    }
}

impl Drop for CudaPoint {
    fn drop(&mut self) {
        self.context.give_back(self.event);
        if let Some(owner) = self.owner.take() {
            owner.release_owner();
        }
    }
}
