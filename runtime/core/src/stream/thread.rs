//! What one launching thread remembers: its id, how deep its zones are nested, and the contexts it used last.

use std::cell::{Cell, OnceCell, RefCell};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::context::StreamContext;
use super::current;
use super::recorder::Recorder;
use super::spans::SpanQueue;
use crate::backend::{StreamKey, StreamRef};
use crate::clock;
use crate::fork::Home;
use crate::inside::Inside;
use crate::record::ThreadInfo;

/// As many streams as a thread commonly works on at once.
const REMEMBERED: usize = 8;

thread_local! {
    static THREAD: Thread = Thread::new(false);
}

/// One launching thread.
pub struct Thread {
    id: Cell<u64>,
    /// The process in which it has this id.
    home: Cell<Home>,
    /// The thread's locals are gone or going: its name cannot be asked for any more.
    is_ending: bool,
    depth: Cell<u32>,
    memory: RefCell<Memory>,
    /// Where zones wait that are mirrored and not recorded.
    mirror: OnceCell<Arc<StreamContext>>,
}

#[derive(Default)]
struct Memory {
    epoch: Option<NonZeroU32>,
    /// The process that has the session.
    home: Option<Home>,
    streams: [Option<(StreamKey, Arc<StreamContext>)>; REMEMBERED],
    host: Option<Arc<StreamContext>>,
    /// What the session knows of the thread. It sees by this that the thread has not ended.
    known_as: Option<Arc<ThreadInfo>>,
    spans: Option<Arc<SpanQueue>>,
    /// The place that the next new stream takes.
    next: usize,
}

/// Calls `f` with this thread's state; while the thread's locals are being destroyed, with a fresh one.
#[inline]
pub fn with<R>(f: impl Fn(&Thread) -> R) -> R {
    THREAD.try_with(&f).unwrap_or_else(|_| f(&Thread::new(true)))
}

impl Thread {
    fn new(is_ending: bool) -> Thread {
        Thread::with_id(clock::thread_id(), is_ending)
    }

    pub(super) fn with_id(id: u64, is_ending: bool) -> Thread {
        let (id, home) = (Cell::new(id), Cell::new(Home::here()));
        Thread { id, home, is_ending, depth: Cell::new(0), memory: RefCell::default(), mirror: OnceCell::new() }
    }

    #[inline]
    pub fn id(&self) -> u64 {
        self.id.get()
    }

    /// The thread has another id where its process was forked from the one in which it got its last.
    fn look_where(&self) {
        if !self.home.get().is_here() {
            self.id.set(clock::thread_id());
            self.home.set(Home::here());
        }
    }

    /// The thread's name, if it has one and still knows it.
    pub fn name(&self) -> Option<String> {
        // Asking for the current thread while its locals are destroyed would panic.
        if self.is_ending { None } else { std::thread::current().name().map(str::to_owned) }
    }

    /// Makes the thread known to a recorder. The thread holds what this returns until it ends.
    pub fn make_known(&self, recorder: &Recorder) -> Arc<ThreadInfo> {
        recorder.discover_thread(ThreadInfo { id: self.id(), name: self.name() }, self.is_ending)
    }

    /// What people call the thread: its name, or else its number.
    pub fn called(&self) -> String {
        self.name().unwrap_or_else(|| format!("thread {}", self.id()))
    }

    /// How many zones are open on this thread; one more from now on.
    #[inline]
    pub(crate) fn push(&self) -> u32 {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        depth
    }

    #[inline]
    pub(crate) fn pop(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// The context of a stream in this epoch's session.
    #[inline]
    pub fn context(&self, epoch: NonZeroU32, stream: &StreamRef<'_>) -> Option<Arc<StreamContext>> {
        let mut memory = self.memory.try_borrow_mut().ok()?;
        if memory.epoch == Some(epoch) {
            for (key, context) in memory.streams.iter().flatten() {
                if Ok(*key) == stream.key && !context.is_retired() {
                    return Some(Arc::clone(context));
                }
            }
        }
        memory.discover_stream(self, epoch, stream)
    }

    /// The context of the host zones in this epoch's session.
    #[inline]
    pub fn host_context(&self, epoch: NonZeroU32) -> Option<Arc<StreamContext>> {
        let mut memory = self.memory.try_borrow_mut().ok()?;
        if memory.epoch != Some(epoch) {
            memory.enter(self, epoch)?;
        }
        memory.host.clone()
    }

    /// The context of this thread's zones that are mirrored and not recorded.
    #[inline]
    pub(crate) fn mirror(&self) -> Arc<StreamContext> {
        Arc::clone(self.mirror.get_or_init(StreamContext::mirror))
    }
}

impl Thread {
    /// The way of the spans of `tracing` to this epoch's session.
    #[inline]
    pub fn span_queue(&self, epoch: NonZeroU32) -> Option<Arc<SpanQueue>> {
        let mut memory = self.memory.try_borrow_mut().ok()?;
        if memory.epoch != Some(epoch) {
            memory.enter(self, epoch)?;
        }
        memory.spans.clone()
    }
}

impl Memory {
    #[cold]
    fn discover_stream(
        &mut self,
        thread: &Thread,
        epoch: NonZeroU32,
        stream: &StreamRef<'_>,
    ) -> Option<Arc<StreamContext>> {
        let _inside = Inside::enter();
        if self.epoch != Some(epoch) {
            self.enter(thread, epoch)?;
        }
        let context = current::recorder(epoch)?.context(stream)?;
        if let Ok(key) = stream.key {
            let stale = self.streams.iter().position(|known| known.as_ref().is_some_and(|(known, _)| *known == key));
            let at = stale.unwrap_or(self.next);
            self.streams[at] = Some((key, Arc::clone(&context)));
            self.next = if stale.is_none() { (self.next + 1) % REMEMBERED } else { self.next };
        }
        Some(context)
    }

    /// Forgets the last session and makes this thread known to the one of this epoch.
    #[cold]
    fn enter(&mut self, thread: &Thread, epoch: NonZeroU32) -> Option<()> {
        let _inside = Inside::enter();
        *self = Memory::default();
        self.home = Some(Home::here());
        let recorder = current::recorder(epoch)?;
        thread.look_where();
        self.known_as = Some(thread.make_known(&recorder));
        self.host = Some(Arc::clone(recorder.host()));
        self.spans = Some(Arc::clone(recorder.spans()));
        self.epoch = Some(epoch);
        Some(())
    }
}

impl Drop for Memory {
    /// What it has of a process that this one was forked from holds streams and events, which are not this one's to drop.
    fn drop(&mut self) {
        if self.home.is_some_and(|home| !home.is_here()) {
            std::mem::forget(std::mem::take(&mut self.streams));
            std::mem::forget(self.host.take());
            std::mem::forget(self.known_as.take());
            std::mem::forget(self.spans.take());
        }
    }
}
