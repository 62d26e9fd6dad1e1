//! The state of one launching thread: its id, the nesting depth of its zones, the contexts that it used last, and its roots in a session
//! with windows.
//!
//! `windows` decides which roots are recorded, by what the thread knows.

use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::context::StreamContext;
use super::recorder::{self, Recorder};
use super::spans::SpanQueue;
use crate::backend::{StreamKey, StreamRef};
use crate::catalog::RangeSpec;
use crate::clock;
use crate::fork::Home;
use crate::record::ThreadInfo;
use crate::reentrancy::Inside;
use crate::sample::Sampled;
use crate::windows::{Admission, RootKind, ThreadRoots};

/// The number of streams that a thread commonly uses at once.
const REMEMBERED: usize = 8;

/// The number of open zones whose ranges a thread remembers; those of deeper ones are not known.
const OPEN: usize = 16;

thread_local! {
    static THREAD: Thread = Thread::new(false);
}

/// One launching thread.
pub struct Thread {
    id: Cell<u64>,
    /// The process in which the thread has this id.
    home: Cell<Home>,
    /// The thread's locals are being destroyed or are gone, so its name is not available.
    is_ending: bool,
    depth: Cell<u32>,
    /// The ranges of the outermost open zones, by depth.
    open: [Cell<Option<&'static RangeSpec>>; OPEN],
    memory: RefCell<Memory>,
    /// The context of zones that are only mirrored.
    mirror: RefCell<Option<Arc<StreamContext>>>,
    /// What the thread knows of the windows of a session with a budget.
    roots: RefCell<ThreadRoots>,
}

#[derive(Default)]
struct Memory {
    epoch: Option<NonZeroU32>,
    /// The process of the session.
    home: Option<Home>,
    streams: [Option<(StreamKey, Arc<StreamContext>)>; REMEMBERED],
    host: Option<Arc<StreamContext>>,
    /// The session's entry for the thread. While the thread holds it, the session knows that the thread has not ended.
    known_as: Option<Arc<ThreadInfo>>,
    spans: Option<Arc<SpanQueue>>,
    /// The index for the next new stream.
    next: usize,
}

/// Calls `f` with this thread's state, or with a new state while the thread's locals are being destroyed.
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
        let (depth, open) = (Cell::new(0), [const { Cell::new(None) }; OPEN]);
        let (memory, mirror, roots) = (RefCell::default(), RefCell::default(), RefCell::default());
        Thread { id, home, is_ending, depth, open, memory, mirror, roots }
    }

    #[inline]
    pub fn id(&self) -> u64 {
        self.id.get()
    }

    /// Updates the thread's id if the process was forked since the last update.
    fn look_where(&self) {
        if !self.home.get().is_here() {
            self.id.set(clock::thread_id());
            self.home.set(Home::here());
        }
    }

    /// Returns the thread's name, if it has one and the name is still available.
    pub fn name(&self) -> Option<String> {
        // `std::thread::current` would panic while the thread's locals are destroyed.
        if self.is_ending { None } else { std::thread::current().name().map(str::to_owned) }
    }

    /// Adds the thread to a recorder. The thread keeps the returned reference until it ends.
    pub(crate) fn make_known(&self, recorder: &Recorder) -> Arc<ThreadInfo> {
        recorder.discover_thread(ThreadInfo { id: self.id(), name: self.name() }, self.is_ending)
    }

    /// Returns the thread's name, or its number if it has none.
    pub fn called(&self) -> String {
        self.name().unwrap_or_else(|| format!("thread {}", self.id()))
    }

    /// Returns how many zones are open on this thread, and counts one more.
    #[inline]
    pub(crate) fn push(&self, range: Option<&'static RangeSpec>) -> u32 {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if let Some(place) = self.open.get(depth as usize) {
            place.set(range);
        }
        depth
    }

    /// Returns the range of the innermost recorded zone that is open on this thread; of more than 16, that of the sixteenth.
    pub fn innermost(&self) -> Option<&'static RangeSpec> {
        let depth = self.depth.get() as usize;
        self.open.get(depth.min(OPEN).checked_sub(1)?)?.get()
    }

    #[inline]
    pub(crate) fn pop(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// Returns the context of a stream in the session of this epoch.
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

    /// Returns the context of the host zones in the session of this epoch.
    #[inline]
    pub fn host_context(&self, epoch: NonZeroU32) -> Option<Arc<StreamContext>> {
        let mut memory = self.memory.try_borrow_mut().ok()?;
        if memory.epoch != Some(epoch) {
            memory.enter(self, epoch)?;
        }
        memory.host.clone()
    }

    /// Returns the context of this thread's zones that are only mirrored. There is none while the thread's locals are destroyed: a new one for
    /// each zone of a marked allocator, which frees the one before, would never end.
    #[inline]
    pub(crate) fn mirror(&self) -> Option<Arc<StreamContext>> {
        if self.is_ending {
            return None;
        }
        let mut mirror = self.mirror.try_borrow_mut().ok()?;
        if mirror.as_ref().is_some_and(|mirror| mirror.is_inherited()) {
            // Zones that were open at the fork hold its slots, and no thread of a forked process ends them.
            std::mem::forget(mirror.take());
        }
        Some(Arc::clone(mirror.get_or_insert_with(StreamContext::mirror)))
    }
}

impl Drop for Thread {
    /// An allocator that the program has marked begins no zone while warpline frees what it kept for the thread.
    fn drop(&mut self) {
        let _inside = Inside::enter();
        drop(self.memory.take());
        drop(self.mirror.take());
        drop(self.roots.take());
    }
}

impl Thread {
    /// Returns the span queue of the session of this epoch.
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
        let context = recorder::current(epoch)?.context(stream)?;
        if let Ok(key) = stream.key {
            let stale = self.streams.iter().position(|known| known.as_ref().is_some_and(|(known, _)| *known == key));
            let at = stale.unwrap_or(self.next);
            self.streams[at] = Some((key, Arc::clone(&context)));
            self.next = if stale.is_none() { (self.next + 1) % REMEMBERED } else { self.next };
        }
        Some(context)
    }

    /// Discards the last session's entries, and adds this thread to the session of this epoch.
    #[cold]
    fn enter(&mut self, thread: &Thread, epoch: NonZeroU32) -> Option<()> {
        let _inside = Inside::enter();
        *self = Memory::default();
        self.home = Some(Home::here());
        let recorder = recorder::current(epoch)?;
        thread.look_where();
        self.known_as = Some(thread.make_known(&recorder));
        self.host = Some(Arc::clone(recorder.host()));
        self.spans = Some(Arc::clone(recorder.spans()));
        self.epoch = Some(epoch);
        Some(())
    }
}

impl Drop for Memory {
    /// In a forked process, the entries own streams and events of the parent, which this process must not drop.
    fn drop(&mut self) {
        if self.home.is_some_and(|home| !home.is_here()) {
            std::mem::forget(std::mem::take(&mut self.streams));
            std::mem::forget(self.host.take());
            std::mem::forget(self.known_as.take());
            std::mem::forget(self.spans.take());
        }
    }
}

impl Thread {
    /// Returns what the thread knows of the last session with windows. Nothing is known while its locals are destroyed.
    fn roots(&self) -> Option<RefMut<'_, ThreadRoots>> {
        if self.is_ending { None } else { self.roots.try_borrow_mut().ok() }
    }

    /// Returns what the thread knows of the windows of the session of this epoch.
    fn roots_of(&self, epoch: NonZeroU32) -> Option<RefMut<'_, ThreadRoots>> {
        let mut roots = self.roots()?;
        if roots.windows().is_none_or(|windows| windows.epoch() != epoch) {
            let _inside = Inside::enter();
            roots.enter(Arc::clone(recorder::current(epoch)?.windows()));
        }
        Some(roots)
    }
}

/// Calls `f` with what this thread knows of the last session with windows.
fn with_roots<R: Default>(f: impl Fn(&mut ThreadRoots) -> R) -> R {
    with(|thread| thread.roots().map(|mut roots| f(&mut roots))).unwrap_or_default()
}

/// Decides whether the session of this epoch records a zone that begins now.
#[cold]
pub(crate) fn admit(range: &'static RangeSpec, epoch: NonZeroU32) -> Admission {
    with(|thread| thread.roots_of(epoch).map(|mut roots| roots.admit(range))).unwrap_or_default()
}

/// Handles an admitted zone that is not recorded.
#[cold]
pub(crate) fn lose_admitted() {
    with_roots(ThreadRoots::lose);
}

/// Returns the share and the window of a zone that is recorded now and has the chance `sampled` in its window.
#[cold]
pub(crate) fn sampled_in_window(sampled: Sampled) -> Sampled {
    with(|thread| thread.roots().map(|mut roots| roots.sampled(sampled))).unwrap_or(sampled)
}

/// Starts the root of a zone that was admitted. The zone is a root if it nests and no root is open on this thread.
#[cold]
pub(crate) fn start_root(range: &'static RangeSpec, nests: bool, is_followed: bool) -> RootKind {
    match nests {
        true => with_roots(|roots| roots.start(range, is_followed)),
        false => {
            with_roots(ThreadRoots::pass_over);
            RootKind::None
        }
    }
}

/// Ends the root of a zone; without a range, the zone never started.
#[cold]
pub(crate) fn end_root(range: Option<&'static RangeSpec>, kind: RootKind, cycle: u32) {
    match range {
        None => with_roots(ThreadRoots::pass_over),
        Some(range) => with_roots(|roots| roots.end(range, kind, cycle)),
    }
}
