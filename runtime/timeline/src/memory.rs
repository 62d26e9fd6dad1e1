//! Buffers: memory that a queue allocates and frees in the order of its streams.
//!
//! A [`Buffer`] owns memory that is there between two points of a stream. `queue` issues both points, and `storage` is the memory itself. Nothing
//! here waits for a stream, and a buffer may be dropped on any thread, also in a host function of a stream: the queue's thread frees it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::call::Signals;
use crate::error::{Error, Failure};
use crate::point::device;
use crate::semaphore::Semaphore;
use crate::storage::{BufferAllocation, Live, host_call, is_working};
use crate::trace::{AskedFor, MemoryTrace};
use warpline_core::backend::{Source, StreamRef, source_of};

/// Memory of a device that a [`Queue`](super::Queue) allocates in the order of its streams: see [`Queue::alloca`](super::Queue::alloca).
///
/// It is there for work that waits for the allocation's signals, until [`Queue::dealloca`](super::Queue::dealloca) frees it. A buffer that is
/// dropped instead is freed by its queue, when all [references](Self::reference) are dropped as well: in the order of the streams, behind all
/// work that the queue has issued by then. Work of other queues or streams is not waited for, so hand a buffer that they use to `dealloca` with
/// their semaphores. Dropping a buffer never blocks, and may happen on any thread.
///
/// A buffer may outlive its queue. The queue's thread and streams then stay until the memory is freed.
///
/// `Send` and `Sync`. In a process that was forked from the one that allocated it, there is no memory, and dropping the buffer does nothing.
pub struct Buffer {
    memory: Arc<Memory>,
}

/// A reference to a [`Buffer`], for the work that uses it: it can be moved into [`Queue::submit`](super::Queue::submit).
///
/// References keep a buffer that was dropped from being freed. They do not keep it from being freed by
/// [`Queue::dealloca`](super::Queue::dealloca).
#[derive(Clone)]
pub struct BufferRef {
    memory: Arc<Memory>,
}

impl Buffer {
    /// Returns the size, in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Returns the address on the device; see [`BufferRef::address`].
    pub fn address(&self) -> Option<u64> {
        self.memory.address()
    }

    /// Returns a reference, for work that uses the memory.
    pub fn reference(&self) -> BufferRef {
        BufferRef { memory: Arc::clone(&self.memory) }
    }
}

impl BufferRef {
    /// Returns the size, in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Returns the address on the device; none before the memory is allocated, if the allocation failed, and after it was freed.
    ///
    /// On a CUDA stream it is a `CUdeviceptr`, known to all work that waits for the allocation's signals when that work is called. On an
    /// in-process stream it is the address of uninitialised host memory with an alignment of 256 bytes, known when the stream gets there: read
    /// it in the closures that the work launches.
    pub fn address(&self) -> Option<u64> {
        self.memory.address()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.show("Buffer", f)
    }
}

impl fmt::Debug for BufferRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.show("BufferRef", f)
    }
}

impl Buffer {
    pub(crate) fn new(memory: Arc<Memory>) -> Buffer {
        Buffer { memory }
    }

    pub(crate) fn into_memory(self) -> Arc<Memory> {
        self.memory
    }
}

/// The queue that allocated a buffer, without the type of its streams.
pub(crate) trait Origin: Send + Sync {
    fn name(&self) -> &Arc<str>;

    /// Returns whether the queue belongs to this process.
    fn is_here(&self) -> bool;

    /// Frees the memory of a buffer after these waits.
    fn dealloca(&self, waits: Vec<(Semaphore, u64)>, signals: Signals, memory: Arc<Memory>);

    /// Frees memory behind all work that the queue has issued.
    fn reclaim(&self, allocation: BufferAllocation);
}

/// The memory of one buffer.
pub(crate) struct Memory {
    bytes: u64,
    asked: AskedFor,
    origin: Arc<dyn Origin>,
    state: Mutex<MemoryState>,
}

struct MemoryState {
    stage: Stage,
    live: Option<Live>,
    /// The stream that allocated it, by its place in the queue.
    stream: usize,
}

enum Stage {
    /// The queue holds the allocation back.
    Reserved,
    /// An in-process stream will allocate it.
    Issued,
    Allocated(BufferAllocation),
    /// It was freed, or never allocated.
    Gone,
}

impl Memory {
    /// `live` keeps the thread and the streams of the queue `origin`.
    pub(crate) fn new(bytes: u64, asked: AskedFor, origin: Arc<dyn Origin>, live: Live) -> Memory {
        let state = MemoryState { stage: Stage::Reserved, live: Some(live), stream: 0 };
        Memory { bytes, asked, origin, state: Mutex::new(state) }
    }

    pub(crate) fn origin(&self) -> &Arc<dyn Origin> {
        &self.origin
    }

    /// Returns the place of the stream that allocated it.
    pub(crate) fn stream(&self) -> usize {
        self.lock().stream
    }

    /// Takes the lock. No user code runs under it, so the state under a poisoned lock is sound.
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> Option<u64> {
        if !self.origin.is_here() {
            return None;
        }
        if let Stage::Allocated(allocation) = &self.lock().stage { Some(allocation.address()) } else { None }
    }

    fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("bytes", &self.bytes).field("address", &self.address()).finish()
    }

    /// Allocates it in the order of a stream, which is the queue's at this place. `signals` fail if an in-process stream cannot allocate it.
    pub(crate) fn issue(self: &Arc<Memory>, stream: &StreamRef<'_>, at: usize, signals: &Signals) -> Result<(), Error> {
        self.lock().stream = at;
        // Nobody is left who could use it.
        if Arc::strong_count(self) == 1 {
            self.abandon();
            return Ok(());
        }
        let trace = MemoryTrace::on(stream);
        let issued = match source_of(stream) {
            Source::Host(_) => is_working(stream, self.origin.name()).and_then(|()| {
                let fails = signals.list().iter().map(|(semaphore, _)| semaphore.clone()).collect();
                let commit = Commit { memory: Arc::clone(self), trace, fails };
                self.lock().stage = Stage::Issued;
                host_call(stream, self.origin.name(), move || commit.run())
            }),
            _ => BufferAllocation::on_device(stream, self.origin.name(), (self.bytes, &self.asked), trace)
                .map(|allocation| self.hold(allocation)),
        };
        issued.inspect_err(|_| self.abandon())
    }

    fn hold(&self, allocation: BufferAllocation) {
        let mut state = self.lock();
        let live = state.live.take();
        let stream = state.stream;
        state.stage = Stage::Allocated(allocation.of_queue(stream, live));
    }

    /// Notes that it was not and will not be allocated.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        if matches!(state.stage, Stage::Allocated(_)) {
            return;
        }
        state.stage = Stage::Gone;
        let live = state.live.take();
        drop(state);
        // This takes the lock of the queue.
        drop(live);
    }

    /// Frees it in the order of the stream that allocated it.
    pub(crate) fn free(self: &Arc<Memory>, stream: &StreamRef<'_>) -> Result<(), Error> {
        let mut state = self.lock();
        let is_on_host = matches!(source_of(stream), Source::Host(_));
        match &mut state.stage {
            Stage::Reserved | Stage::Gone => {
                let what = format!("a buffer of queue `{}`", self.origin.name());
                Err(device(&what, "it was not allocated: let `dealloca` wait for the signals of its `alloca`"))
            }
            stage if !is_on_host => {
                let taken = std::mem::replace(stage, Stage::Gone);
                drop(state);
                let Stage::Allocated(allocation) = taken else { return Ok(()) };
                allocation.free(stream, self.origin.name()).map_err(|refused| {
                    let (allocation, error) = refused.into_parts();
                    // Dropping the memory frees it later.
                    self.lock().stage = Stage::Allocated(allocation);
                    error
                })
            }
            // Work that is on the stream uses it until the stream gets to this call.
            stage => {
                let held_live = if let Stage::Allocated(allocation) = stage { allocation.take_live() } else { None };
                let live = held_live.or_else(|| state.live.take());
                drop(state);
                let memory = Arc::clone(self);
                let freed = host_call(stream, self.origin.name(), move || {
                    let stage = std::mem::replace(&mut memory.lock().stage, Stage::Gone);
                    if let Stage::Allocated(allocation) = stage {
                        allocation.free_now();
                    }
                });
                drop(live);
                freed
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let stage = std::mem::replace(&mut state.stage, Stage::Gone);
        if !self.origin.is_here() {
            // It is the parent's.
            std::mem::forget(stage);
        } else if let Stage::Allocated(allocation) = stage {
            self.origin.reclaim(allocation);
        }
    }
}

/// An allocation on its way to an in-process stream.
struct Commit {
    memory: Arc<Memory>,
    trace: Option<MemoryTrace>,
    /// The semaphores that fail if there is no memory.
    fails: Vec<Semaphore>,
}

impl Commit {
    fn run(mut self) {
        let Memory { bytes, asked, origin, .. } = &*self.memory;
        match BufferAllocation::on_host(origin.name(), (*bytes, asked), self.trace.take()) {
            Ok(allocation) => {
                self.memory.hold(allocation);
                self.fails.clear();
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Error) {
        self.memory.abandon();
        let failure = Failure::new(Arc::clone(self.memory.origin.name()), error);
        for semaphore in self.fails.drain(..) {
            semaphore.core.fail(failure.clone());
        }
    }
}

impl Drop for Commit {
    /// A stream that has failed drops the call, and a panic of the program's allocator ends it.
    fn drop(&mut self) {
        self.memory.abandon();
        if !self.fails.is_empty() {
            let what = format!("an allocation on queue `{}`", self.memory.origin.name());
            self.fail(device(&what, "the stream or the allocator failed before it was made"));
        }
    }
}
