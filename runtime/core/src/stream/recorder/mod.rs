//! The state that a session's zones share with its collector: all contexts, by stream. A process has one such recorder for its session,
//! whether it is recording or not.
//!
//! A session reserves the place of the recorder when it starts, and removes the recorder when it ends. A thread looks it up on the first use
//! of a session or a stream, and caches the contexts that it used last (`thread.rs`), so it takes the recorder's lock once per stream. No
//! driver and no code of a backend or of the application is called under that lock: such code may drop a stream, and then comes back here.
//! `registry.rs` has the data under it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::context::{Account, Owner, StreamContext};
use super::memory::MemoryLog;
use super::pauses::Pauses;
use super::registry::{MOST_DROPPED, StreamFacts, StreamRegistry};
use super::spans::SpanQueue;
use super::waits::Depths;
use super::waker::Waker;
use crate::backend::{self, Backend, Limits, NoKey, Scope, StreamKey, StreamRef};
use crate::counts::Dropped;
use crate::counts::SpanCounts;
use crate::fork::PerProcess;
use crate::lock::{Locked, lock};
use crate::record::{DeviceInfo, DeviceKind, StreamInfo, ThreadInfo};
use crate::steps::Steps;
use crate::switch::{self, MAX_EPOCH};
use crate::windows::Windows;

/// The state that one session's zones share with its collector.
pub struct Recorder {
    epoch: NonZeroU32,
    limits: Limits,
    scope: Scope,
    host: Arc<StreamContext>,
    /// The context of the zones that are captured into graphs.
    captures: Arc<StreamContext>,
    /// The session was stopped and not started again. This is not set by the end of the session.
    pub is_stopped: AtomicBool,
    pub pauses: Pauses,
    spans: Arc<SpanQueue>,
    /// The depths of timeline queues.
    depths: Depths,
    memory: MemoryLog,
    /// Launching threads keep a reference.
    windows: Arc<Windows>,
    steps: Steps,
    pub waker: Arc<Waker>,
    /// Called on the launching thread when a stream of a device is met.
    pub on_device: OnceLock<fn()>,
    /// The number of streams that the application has dropped.
    forgotten: AtomicU64,
    known: Mutex<StreamRegistry>,
    /// Increases when `known` gains a context, so that the collector takes the lock only then.
    pub generation: AtomicU64,
}

/// The collector is woken each time the application has dropped this many streams.
const MANY_FORGOTTEN: u64 = 64;

impl Recorder {
    pub fn new(epoch: NonZeroU32, limits: Limits) -> Recorder {
        let waker = Arc::default();
        Recorder {
            epoch,
            limits,
            scope: Scope { limits, by_kernels: AtomicBool::new(false), shared: Mutex::new(Some(HashMap::new())) },
            host: Arc::new(
                StreamContext::new(None, None, None, limits.zones, Arc::clone(&waker), limits.watch)
                    .owned_by(Owner::from_epoch(epoch), 0),
            ),
            captures: Arc::new(StreamContext::new(None, None, None, limits.zones, Arc::default(), limits.watch)),
            is_stopped: AtomicBool::new(false),
            pauses: Pauses::default(),
            spans: Arc::new(SpanQueue::new(limits.zones, Arc::clone(&waker))),
            depths: Depths::default(),
            memory: MemoryLog::default(),
            windows: Arc::new(Windows::new(epoch)),
            steps: Steps::new(),
            waker,
            on_device: OnceLock::new(),
            forgotten: AtomicU64::new(0),
            known: Mutex::default(),
            generation: AtomicU64::new(1),
        }
    }

    pub fn epoch(&self) -> NonZeroU32 {
        self.epoch
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Makes zones on GPU streams use the times of CUPTI's records. Called before the first zone begins.
    pub fn time_by_kernels(&self) {
        self.scope.by_kernels.store(true, Ordering::Release);
    }

    /// The windows of a session with a budget, and what the session says to every zone.
    pub fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    /// The steps of the program, if the session takes them.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Turns the session on, or on again after a stop. With a schedule of steps, a step that is recorded does so.
    pub fn turn_on(&self) {
        self.steps.turn_on(&self.windows);
    }

    /// Turns the session off, until [`turn_on`](Self::turn_on).
    pub fn turn_off(&self) {
        self.steps.turn_off(self.epoch);
    }

    /// Returns whether zones begin.
    pub fn is_on(&self) -> bool {
        if self.epoch == switch::REQUESTS_EPOCH { switch::is_armed() } else { switch::epoch() == Some(self.epoch) }
    }

    /// Returns the context of the zones without a stream.
    pub fn host(&self) -> &Arc<StreamContext> {
        &self.host
    }

    /// Returns the context of a stream, and creates it on the session's first use of the stream. Returns none if the stream cannot be
    /// timed: its zone is counted, and the user is told once. Also returns none if no more zones begin.
    pub fn context(&self, stream: &StreamRef<'_>) -> Option<Arc<StreamContext>> {
        let mut known = self.lock();
        if let Some(context) = stream.key.ok().and_then(|key| known.streams.get(&key)) {
            return Some(Arc::clone(context));
        }
        // No zone has begun, as with a closed ring, so none is counted.
        if known.is_closed {
            return None;
        }
        if let Err(NoKey::Captured) = stream.key {
            known.lose(Dropped { capture_failed: 1, ..Dropped::default() });
            return None;
        }
        let must_wait = known.dropped >= MOST_DROPPED;
        drop(known);
        // Without the lock, because this calls the backend.
        let created = match (stream.key, stream.backend(&self.scope)) {
            (Ok(key), Ok(_)) if must_wait => Ok((key, None)),
            (Ok(key), Ok(backend)) => Ok((key, Some(self.new_context(key, backend)))),
            (_, backend) => {
                Err(backend.err().map_or_else(|| "its device does not identify it".to_owned(), |error| error.0))
            }
        };
        let mut known = self.lock();
        if known.is_closed {
            // What was created is dropped without the lock, as at each return.
            drop(known);
            return None;
        }
        let (key, created) = match created {
            Ok(created) => created,
            Err(why) => {
                known.refuse(&why);
                self.generation.fetch_add(1, Ordering::Release);
                return None;
            }
        };
        if let Some(context) = known.streams.get(&key).cloned() {
            drop(known);
            return Some(context);
        }
        let Some((context, facts)) = created else {
            known.refuse_one_more();
            self.generation.fetch_add(1, Ordering::Release);
            self.waker.wake_now();
            return None;
        };
        let (info, first) = known.info(key, facts);
        let owner = Owner::from_epoch(self.epoch);
        let context = Arc::new(context.owned_by(owner, first).known_as(Arc::clone(&info)));
        known.streams.insert(key, Arc::clone(&context));
        self.generation.fetch_add(1, Ordering::Release);
        drop(known);
        let name = info;
        if let Some(on_device) = self.on_device.get().filter(|_| name.device.kind != DeviceKind::Host) {
            on_device();
        }
        // Without the lock, because this may call a tool. Only sessions set names, not individual requests.
        if let (Owner::Session, Some(backend)) = (owner, &context.backend) {
            backend.set_name_in_tools(&name.name);
        }
        Some(context)
    }

    /// Creates the context of a stream, and asks its backend for what the registry needs. The session does not have it yet: another thread may be
    /// faster.
    fn new_context(&self, key: StreamKey, backend: Arc<dyn Backend>) -> (StreamContext, StreamFacts) {
        let facts =
            StreamFacts { name: backend.name(), device: backend.device(), tool_numbers: backend.tool_numbers() };
        let Limits { zones, watch, .. } = self.limits;
        (StreamContext::new(Some(key), None, Some(backend), zones, Arc::clone(&self.waker), watch), facts)
    }

    /// Returns the context of the zones on streams that are being captured. The collector does not read it, because such zones have no
    /// times.
    pub fn captures(&self) -> &Arc<StreamContext> {
        &self.captures
    }

    /// Returns every context that the collector reads, including that of the host zones.
    pub fn contexts(&self) -> Vec<Arc<StreamContext>> {
        let known = self.lock();
        let mut contexts: Vec<_> = known.streams.values().chain(known.retiring.values()).cloned().collect();
        contexts.push(Arc::clone(&self.host));
        contexts
    }

    /// Prevents all further zones and spans from beginning.
    pub fn close(&self) {
        self.lock().is_closed = true;
        for context in self.contexts() {
            // The rings of evicted streams are closed already; now the session has also ended for their zones.
            context.retired.store(false, Ordering::Release);
            context.ring().close();
        }
        self.captures.ring().close();
        self.spans.close();
        self.depths.close();
        self.memory.close();
    }

    /// Returns whether no more zones begin.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Evicts a stream: its ring is closed, and the next zone on the stream adds it again.
    pub fn evict(&self, context: &Arc<StreamContext>) {
        let Some(key) = context.key else { return };
        let mut known = self.lock();
        if known.streams.get(&key).is_some_and(|known| Arc::ptr_eq(known, context)) {
            known.streams.remove(&key);
            context.retired.store(true, Ordering::Release);
            context.ring.close();
            known.turn += 1;
            let turn = known.turn;
            if let Some(remembered) = known.infos.get_mut(&key) {
                (remembered.begun, remembered.turn) = (context.begun(), turn);
            }
            known.retiring.insert(Arc::as_ptr(context).addr(), Arc::clone(context));
            drop(known);
            if let Some(backend) = &context.backend {
                backend.retire();
            }
        }
    }

    /// The application has dropped a stream: the collector may forget it when its pending zones are recorded.
    pub(crate) fn forget(&self, key: StreamKey) {
        let mut known = self.lock();
        let Some(context) = known.streams.get(&key).cloned() else { return };
        // Under the lock, which also protects the count.
        known.dropped += usize::from(!context.forgotten.swap(true, Ordering::Release));
        drop(known);
        // A program can drop streams faster than the collector looks for them, and their memory must stay bounded.
        if self.forgotten.fetch_add(1, Ordering::Relaxed) % MANY_FORGOTTEN == MANY_FORGOTTEN - 1 {
            self.waker.wake_now();
        }
    }

    /// Forgets an evicted stream if every zone that began on it is accounted for. Returns whether that is so.
    pub fn retire(&self, context: &Arc<StreamContext>) -> bool {
        let mut known = self.lock();
        let (account, is_settled) = context.settled();
        if !is_settled {
            return false;
        }
        if known.retiring.remove(&Arc::as_ptr(context).addr()).is_some() {
            known.dropped -= usize::from(context.forgotten.load(Ordering::Relaxed));
            known.retired.add(account);
        }
        true
    }

    /// Releases what the streams shared, at the end of the session.
    pub fn close_shared(&self) {
        let shared = lock(&self.scope.shared).take();
        shared.iter().flat_map(HashMap::values).for_each(|shared| shared.close());
    }

    /// Returns why the last stream was refused.
    pub(crate) fn last_refusal(&self) -> Option<String> {
        self.lock().refused.last().cloned()
    }

    /// Takes the messages that the user has not seen.
    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().refusals)
    }

    /// Returns the counts of the whole session so far.
    pub fn account(&self) -> Account {
        let known = self.lock();
        let mut account = known.retired;
        for context in known.streams.values().chain(known.retiring.values()).chain([&self.host, &self.captures]) {
            account.add(context.account());
        }
        drop(known);
        (account.waits.depths, account.waits.depths_dropped) = self.depths.counts();
        account
    }

    /// The depths of timeline queues, on their way to the collector.
    pub fn depths(&self) -> &Depths {
        &self.depths
    }

    /// The device memory of the session.
    pub fn memory(&self) -> &MemoryLog {
        &self.memory
    }

    /// The spans of `tracing`, on their way to the collector.
    pub fn spans(&self) -> &Arc<SpanQueue> {
        &self.spans
    }

    /// Returns the counts of the spans of `tracing` so far.
    pub fn span_counts(&self) -> SpanCounts {
        self.spans.counts()
    }

    /// Returns the stream with these CUPTI numbers: one on which zones began, or one that only CUPTI saw.
    pub fn stream_of_tool(&self, numbers: (u32, u32), device: impl FnOnce() -> DeviceInfo) -> Arc<StreamInfo> {
        if let Some(info) = self.known_stream_of_tool(numbers) {
            return info;
        }
        // Without the lock, because this calls a driver.
        let device = device();
        self.lock().stream_of_tool(numbers, device)
    }

    /// Sets the name that another tool's call gave a stream, by CUPTI's numbers. A stream that is already known keeps its name.
    pub fn name_stream_of_tool(&self, numbers: (u32, u32), name: String) {
        self.lock().name_stream_of_tool(numbers, name);
    }

    /// Returns the stream with these CUPTI numbers, if it is known.
    pub fn known_stream_of_tool(&self, numbers: (u32, u32)) -> Option<Arc<StreamInfo>> {
        let known = self.lock();
        if let Some(info) = known.known_stream_of_tool(numbers) {
            return Some(info);
        }
        let contexts: Vec<_> = known.streams.values().cloned().collect();
        drop(known);
        // A stream that was added while CUPTI was paused has its numbers since its next zone. Without the lock, because this calls the backend.
        let has_them = |context: &&Arc<StreamContext>| {
            context.backend.as_ref().is_some_and(|backend| backend.tool_numbers() == Some(numbers))
        };
        let info = contexts.iter().find(has_them)?.info.clone()?;
        self.lock().of_tool.insert(numbers, Arc::clone(&info));
        Some(info)
    }

    /// Returns the stream that stands for the unknown streams of replayed graphs. There is one per context.
    pub fn stream_of_graphs(&self, context: u64, device: &DeviceInfo) -> Arc<StreamInfo> {
        self.lock().stream_of_graphs(context, device)
    }

    /// Adds a thread at its first zone of the session. A thread that is ending has lost its name, so it keeps the entry of its id. Any
    /// other thread gets a new entry, because ids are reused. The thread keeps the returned reference until it ends.
    pub(crate) fn discover_thread(&self, thread: ThreadInfo, is_ending: bool) -> Arc<ThreadInfo> {
        self.lock().discover_thread(thread, is_ending)
    }

    pub fn thread(&self, id: u64) -> Arc<ThreadInfo> {
        let known = self.lock().threads.get(&id).map(|thread| Arc::clone(&thread.info));
        known.unwrap_or_else(|| Arc::new(ThreadInfo { id, name: None }))
    }

    fn lock(&self) -> Locked<'_, StreamRegistry> {
        lock(&self.known)
    }
}

/// The recorder of the current session.
static CURRENT: PerProcess<Mutex<Option<Arc<Recorder>>>> = PerProcess::new(Mutex::default);

/// A forked child continues the count, so its epochs differ from those of its parent. Only `reserve` writes this, under the lock.
static LAST_EPOCH: AtomicU32 = AtomicU32::new(0);

/// Returns the recorder of the session of this epoch, if that session exists.
pub fn current(epoch: NonZeroU32) -> Option<Arc<Recorder>> {
    lock(&CURRENT).clone().filter(|recorder| recorder.epoch() == epoch)
}

/// Returns the recorder, if there is a session.
pub(crate) fn any() -> Option<Arc<Recorder>> {
    lock(&CURRENT).clone()
}

/// Creates a recorder for a new epoch; none if there is another session.
pub fn reserve(make: impl FnOnce(NonZeroU32) -> Arc<Recorder>) -> Option<Arc<Recorder>> {
    backend::on_drop(forget);
    let mut slot = lock(&CURRENT);
    if slot.is_some() {
        return None;
    }
    let last = LAST_EPOCH.load(Ordering::Relaxed);
    let epoch = if last == MAX_EPOCH { 1 } else { last + 1 };
    LAST_EPOCH.store(epoch, Ordering::Relaxed);
    let recorder = make(NonZeroU32::new(epoch)?);
    *slot = Some(Arc::clone(&recorder));
    Some(recorder)
}

/// Removes the recorder, so that another session can start.
pub fn remove(epoch: NonZeroU32) {
    switch::turn_off(epoch);
    let mut slot = lock(&CURRENT);
    if slot.as_ref().is_some_and(|recorder| recorder.epoch() == epoch) {
        *slot = None;
    }
}

/// The application has dropped a stream.
fn forget(key: StreamKey) {
    if let Some(recorder) = any() {
        recorder.forget(key);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
