//! One context a stream and session: its ring, its backend and its counts.
//!
//! [`Recorder`] is what a session's zones and its collector share: all contexts, found by stream. A thread remembers the
//! contexts that it used last (`thread.rs`), so the recorder's lock is taken once a thread and stream.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ring::{Ring, Taken, Token};
use super::{StreamKey, StreamRef};
use crate::backend::{Backend, BackendError, Event};
use crate::catalog::RangeSpec;
use crate::fields::Fields;
use crate::record::{Span, Status, StreamInfo, ThreadInfo};
use crate::session::Dropped;
use crate::switch;

/// What a zone writes down while it is open, and the collector reads when it is over.
#[derive(Default)]
pub(crate) struct Slot {
    /// Begin and end; none in the ring of the host zones.
    pub(crate) events: Option<[Box<dyn Event>; 2]>,
    pub(crate) range: Option<&'static RangeSpec>,
    pub(crate) thread: u64,
    pub(crate) depth: u32,
    /// The zone counts in its thread's nesting.
    pub(crate) nested: bool,
    pub(crate) start: Start,
    /// The thread was unwinding before the zone began, so its end says nothing of a panic.
    pub(crate) was_panicking: bool,
    pub(crate) sequence: u64,
    pub(crate) host: Span,
    pub(crate) status: Status,
    pub(crate) error: Option<Box<str>>,
    pub(crate) fields: Fields,
}

/// How far a zone's begin came.
#[derive(Clone, Copy, Default)]
pub(crate) enum Start {
    /// The marked function left while it filled in the fields.
    #[default]
    Never,
    /// The begin is on the stream.
    Begun,
    /// The stream did not take the begin.
    Failed,
}

/// One stream in one session.
pub(crate) struct StreamContext {
    pub(crate) key: Option<StreamKey>,
    /// None for the ring of the host zones.
    pub(crate) info: Option<Arc<StreamInfo>>,
    /// None for the ring of the host zones.
    pub(crate) backend: Option<Arc<dyn Backend>>,
    ring: Ring<Slot>,
    pub(crate) ring_full: AtomicU64,
    pub(crate) event_failed: AtomicU64,
    /// Zones that took a slot and never started; they count as unfinished.
    abandoned: AtomicU64,
    /// Zones that got no slot because the stream's events could not be made.
    not_made: AtomicU64,
    /// Written by the collector alone, like the next one.
    pub(crate) recorded: AtomicU64,
    pub(crate) stream_failed: AtomicU64,
    /// The application has let go of the stream: no zone will begin on it any more.
    pub(crate) forgotten: AtomicBool,
}

/// A slot in use: the one handle on its zone, until it is published or dropped.
pub(crate) struct Claim {
    context: Arc<StreamContext>,
    token: Token,
}

impl StreamContext {
    fn of_stream(id: u32, stream: &StreamRef<'_>, capacity: usize) -> StreamContext {
        let backend = stream.source.backend();
        let name = backend.name().unwrap_or_else(|| format!("stream {id}"));
        let info = StreamInfo { id, name, device: backend.device() };
        StreamContext::new(Some(stream.key), Some(Arc::new(info)), Some(backend), capacity)
    }

    fn new(
        key: Option<StreamKey>,
        info: Option<Arc<StreamInfo>>,
        backend: Option<Arc<dyn Backend>>,
        capacity: usize,
    ) -> StreamContext {
        let context = StreamContext {
            key,
            info,
            backend,
            ring: Ring::new(capacity),
            ring_full: AtomicU64::new(0),
            event_failed: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            not_made: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            stream_failed: AtomicU64::new(0),
            forgotten: AtomicBool::new(false),
        };
        // A failure here comes again, and is counted, when the first zone asks for a slot.
        let _ = context.ring.grow(|| context.new_slot());
        context
    }

    /// A slot for a new zone; none when the session is over, or when the zone is dropped and counted.
    #[inline]
    pub(crate) fn claim(self: Arc<Self>) -> Option<Claim> {
        match self.ring.take(|| self.new_slot()) {
            Ok(Taken::Slot { token, sequence }) => {
                let mut claim = Claim { context: self, token };
                claim.slot()?.sequence = sequence;
                Some(claim)
            }
            Ok(Taken::Closed) => None,
            Ok(Taken::Full) => {
                self.ring_full.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(_) => {
                self.not_made.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Makes slots ahead of need, so that no launching thread has to.
    pub(crate) fn grow_ahead(&self, given_back: u64) {
        let grown = self.ring.grown();
        let unpublished = self.event_failed.load(Ordering::Relaxed) + self.abandoned.load(Ordering::Relaxed);
        let in_use = self.ring.taken().saturating_sub(given_back + unpublished);
        if grown < self.ring.capacity() && in_use as usize * 2 > grown {
            // A failure here comes again, and is counted, when a zone asks for a slot.
            let _ = self.ring.grow(|| self.new_slot());
        }
    }

    /// Zones begun, recorded and dropped until now; what is still on its way counts as unfinished.
    pub(crate) fn account(&self) -> Account {
        let ring_full = self.ring_full.load(Ordering::Relaxed);
        let not_made = self.not_made.load(Ordering::Relaxed);
        let dropped = Dropped {
            ring_full,
            event_failed: not_made + self.event_failed.load(Ordering::Relaxed),
            stream_failed: self.stream_failed.load(Ordering::Relaxed),
            unfinished: 0,
        };
        let recorded = self.recorded.load(Ordering::Relaxed);
        let begun = self.ring.taken() + ring_full + not_made;
        Account { begun, recorded, dropped: Dropped { unfinished: begun - recorded - dropped.total(), ..dropped } }
    }

    pub(crate) fn ring(&self) -> &Ring<Slot> {
        &self.ring
    }

    fn new_slot(&self) -> Result<Slot, BackendError> {
        let events = match &self.backend {
            Some(backend) => Some([backend.create_event()?, backend.create_event()?]),
            None => None,
        };
        Ok(Slot { events, ..Slot::default() })
    }
}

impl Claim {
    #[inline]
    pub(crate) fn slot(&mut self) -> Option<&mut Slot> {
        self.context.ring.slot(&mut self.token)
    }

    /// Whether the session is over: nothing more is to be recorded on the stream for it.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.context.ring.is_closed()
    }

    /// Hands the zone to the collector.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.context.ring.publish(self.token.take());
    }

    /// Drops the zone because its stream did not take an event.
    #[cold]
    pub(crate) fn event_failed(&mut self) {
        self.context.event_failed.fetch_add(1, Ordering::Relaxed);
        self.give();
    }

    /// Drops a zone that never started.
    #[cold]
    pub(crate) fn abandon(&mut self) {
        self.context.abandoned.fetch_add(1, Ordering::Relaxed);
        self.give();
    }

    fn give(&mut self) {
        if let Some(slot) = self.slot() {
            slot.clear();
        }
        self.context.ring.give(self.token.take());
    }
}

impl Slot {
    /// Forgets the zone; its events stay for the next one.
    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.error = None;
        self.status = Status::Complete;
        self.nested = false;
        self.start = Start::Never;
    }
}

/// What the zones of one session and its collector share.
pub(crate) struct Recorder {
    epoch: NonZeroU32,
    ring_capacity: usize,
    host: Arc<StreamContext>,
    known: Mutex<Known>,
    /// Goes up when `known` gains a context, so that the collector takes the lock only then.
    pub(crate) generation: AtomicU64,
}

#[derive(Default)]
struct Known {
    streams: HashMap<StreamKey, Arc<StreamContext>>,
    last_id: u32,
    threads: HashMap<u64, Arc<ThreadInfo>>,
    /// The account of the streams that are gone.
    retired: Account,
}

/// `begun == recorded + dropped.total()`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) begun: u64,
    pub(crate) recorded: u64,
    pub(crate) dropped: Dropped,
}

impl Account {
    fn add(&mut self, other: Account) {
        self.begun += other.begun;
        self.recorded += other.recorded;
        self.dropped.ring_full += other.dropped.ring_full;
        self.dropped.event_failed += other.dropped.event_failed;
        self.dropped.stream_failed += other.dropped.stream_failed;
        self.dropped.unfinished += other.dropped.unfinished;
    }
}

impl Recorder {
    pub(crate) fn new(epoch: NonZeroU32, ring_capacity: usize) -> Recorder {
        Recorder {
            epoch,
            ring_capacity,
            host: Arc::new(StreamContext::new(None, None, None, ring_capacity)),
            known: Mutex::default(),
            generation: AtomicU64::new(1),
        }
    }

    pub(crate) fn epoch(&self) -> NonZeroU32 {
        self.epoch
    }

    /// The context of the zones that have no stream.
    pub(crate) fn host(&self) -> &Arc<StreamContext> {
        &self.host
    }

    /// The context of a stream, made when the session meets the stream for the first time.
    pub(crate) fn context(&self, stream: &StreamRef<'_>) -> Arc<StreamContext> {
        let mut known = self.lock();
        if let Some(context) = known.streams.get(&stream.key) {
            return Arc::clone(context);
        }
        known.last_id += 1;
        let context = Arc::new(StreamContext::of_stream(known.last_id, stream, self.ring_capacity));
        known.streams.insert(stream.key, Arc::clone(&context));
        self.generation.fetch_add(1, Ordering::Release);
        context
    }

    /// Every context, the host zones' included.
    pub(crate) fn contexts(&self) -> Vec<Arc<StreamContext>> {
        let known = self.lock();
        let mut contexts: Vec<_> = known.streams.values().cloned().collect();
        contexts.push(Arc::clone(&self.host));
        contexts
    }

    /// Takes a context out whose zones are all accounted for, and keeps its account.
    pub(crate) fn retire(&self, context: &StreamContext) {
        let mut known = self.lock();
        if let Some(key) = context.key {
            known.streams.remove(&key);
            known.retired.add(context.account());
        }
    }

    /// The account of the whole session until now.
    pub(crate) fn account(&self) -> Account {
        let known = self.lock();
        let mut account = known.retired;
        for context in known.streams.values().chain([&self.host]) {
            account.add(context.account());
        }
        account
    }

    /// A thread begins its first zone of the session. One that is ending has lost its name and keeps the one it had.
    pub(crate) fn meet_thread(&self, id: u64, name: Option<String>) {
        let mut known = self.lock();
        if name.is_some() || !known.threads.contains_key(&id) {
            known.threads.insert(id, Arc::new(ThreadInfo { id, name }));
        }
    }

    pub(crate) fn thread(&self, id: u64) -> Arc<ThreadInfo> {
        let known = self.lock().threads.get(&id).cloned();
        known.unwrap_or_else(|| Arc::new(ThreadInfo { id, name: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The application lets go of a stream: the collector may forget it, once what waits on it is recorded.
pub(crate) fn forget(key: StreamKey) {
    if let Some(recorder) = switch::any_recorder() {
        let context = recorder.lock().streams.get(&key).cloned();
        if let Some(context) = context {
            context.forgotten.store(true, Ordering::Release);
        }
    }
}
