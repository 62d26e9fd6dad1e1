//! The memory of a buffer while it is allocated: of a device, or of the host for in-process streams.
//!
//! `memory` decides when it is allocated and freed. Both are counted, and recorded in a session, here.

use std::sync::Arc;

use crate::error::Error;
use crate::point::{backend, device, refused};
use crate::trace::{AskedFor, MemoryTrace};
use crate::usage::{Usage, UsedDevice};
use warpline_core::backend::device::DeviceMemory;
use warpline_core::backend::host_order::HostPoint;
use warpline_core::backend::{Refusal, Source, StreamRef, key_of, source_of};
use warpline_core::memory::MemoryTiming;

/// A queue whose thread stays while memory of its buffers is not freed.
pub(crate) trait Stays: Send + Sync {
    /// Returns whether the queue belongs to this process.
    fn is_in_this_process(&self) -> bool;

    /// Forgets one buffer.
    fn release(&self);
}

/// Keeps the thread and the streams of a queue until it is dropped.
pub(crate) struct Live(Arc<dyn Stays>);

impl Live {
    /// The queue has counted the buffer.
    pub(crate) fn new(queue: Arc<dyn Stays>) -> Live {
        Live(queue)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.0.is_in_this_process() {
            self.0.release();
        }
    }
}

/// A piece of host memory. Its alignment is that of a device's allocations.
#[repr(C, align(256))]
struct Line([u8; LINE]);

const LINE: usize = 256;

/// Memory that is allocated.
pub(crate) struct BufferAllocation {
    bytes: u64,
    place: Place,
    usage: Arc<Usage>,
    trace: Option<MemoryTrace>,
    /// The stream that allocated it, by its place in the queue.
    stream: usize,
    live: Option<Live>,
}

enum Place {
    Host(Vec<Line>),
    Device(DeviceMemory),
}

impl BufferAllocation {
    /// Allocates host memory, now.
    pub(crate) fn on_host(
        queue: &Arc<str>,
        (bytes, asked): (u64, &AskedFor),
        trace: Option<MemoryTrace>,
    ) -> Result<BufferAllocation, Error> {
        let usage = Usage::of(UsedDevice::Host);
        let mut lines = Vec::new();
        let reserved = match usize::try_from(bytes.div_ceil(LINE as u64)) {
            Ok(count) => lines.try_reserve_exact(count).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = reserved {
            trace.iter().for_each(|trace| trace.refused(queue, asked, bytes));
            return Err(out_of_memory(queue, bytes, &usage, error));
        }
        usage.add(bytes);
        let mut allocation = BufferAllocation { bytes, place: Place::Host(lines), usage, trace, stream: 0, live: None };
        allocation.note(queue, asked, MemoryTiming::Stream);
        Ok(allocation)
    }

    /// Allocates memory of a stream's device, for work that is put on the stream from now on.
    pub(crate) fn on_device(
        stream: &StreamRef<'_>,
        queue: &Arc<str>,
        (bytes, asked): (u64, &AskedFor),
        trace: Option<MemoryTrace>,
    ) -> Result<BufferAllocation, Error> {
        let Source::Device(of) = source_of(stream) else { return Err(no_stream()) };
        match backend().and_then(|backend| backend.allocate(of, key_of(stream), bytes)) {
            Ok(memory) => {
                let usage = Usage::of(UsedDevice::Device(memory.device));
                usage.add(bytes);
                let mut allocation =
                    BufferAllocation { bytes, place: Place::Device(memory), usage, trace, stream: 0, live: None };
                allocation.note(queue, asked, MemoryTiming::Call);
                Ok(allocation)
            }
            Err(Refusal::OutOfMemory { device, error }) => {
                trace.iter().for_each(|trace| trace.refused(queue, asked, bytes));
                Err(out_of_memory(queue, bytes, &Usage::of(UsedDevice::Device(device)), error))
            }
            Err(refusal) => Err(refused(refusal, queue)),
        }
    }

    fn note(&mut self, queue: &Arc<str>, asked: &AskedFor, timing: MemoryTiming) {
        if let Some(trace) = &mut self.trace {
            trace.allocated(queue, asked, (self.bytes, self.place.address()), timing);
        }
    }

    /// Adds the queue's stream, and what keeps the queue's thread.
    pub(crate) fn of_queue(self, stream: usize, live: Option<Live>) -> BufferAllocation {
        BufferAllocation { stream, live, ..self }
    }

    /// Returns the place of the stream that allocated it.
    pub(crate) fn stream(&self) -> usize {
        self.stream
    }

    /// Lets the queue's thread end.
    pub(crate) fn take_live(&mut self) -> Option<Live> {
        self.live.take()
    }

    pub(crate) fn address(&self) -> u64 {
        self.place.address()
    }

    /// Frees it behind the work that is on the stream now. An error returns it.
    pub(crate) fn free(mut self, stream: &StreamRef<'_>, queue: &Arc<str>) -> Result<(), NotFreed> {
        let Place::Device(memory) = self.place else {
            // From here on, the stream has it.
            let live = self.live.take();
            let freed = Freed(Some(self));
            // A stream that has failed has no work left that could use it.
            let _ = host_call(stream, queue, move || drop(freed));
            drop(live);
            return Ok(());
        };
        let Source::Device(of) = source_of(stream) else { return Err(NotFreed::new(self, no_stream())) };
        // Recorded first: after the call, another thread may get the same address.
        if let Some(trace) = &mut self.trace {
            trace.freed(memory.address, MemoryTiming::Call);
        }
        match backend().and_then(|backend| backend.free(of, key_of(stream), memory)) {
            Ok(()) => {
                self.usage.subtract(self.bytes);
                Ok(())
            }
            Err(refusal) => {
                if let Some(trace) = &mut self.trace {
                    trace.not_freed(MemoryTiming::Call);
                }
                Err(NotFreed::new(self, refused(refusal, queue)))
            }
        }
    }

    /// Frees host memory, now. Memory of a device stays.
    pub(crate) fn free_now(self) {
        drop(Freed(Some(self)));
    }
}

/// Memory that its stream refused to free, and why.
pub(crate) struct NotFreed(Box<(BufferAllocation, Error)>);

impl NotFreed {
    pub(crate) fn new(allocation: BufferAllocation, error: Error) -> NotFreed {
        NotFreed(Box::new((allocation, error)))
    }

    pub(crate) fn into_parts(self) -> (BufferAllocation, Error) {
        *self.0
    }
}

impl Place {
    fn address(&self) -> u64 {
        match self {
            Place::Host(lines) => lines.as_ptr().expose_provenance() as u64,
            Place::Device(memory) => memory.address,
        }
    }
}

/// Host memory that is freed when it is dropped: by the call on its stream, or without it on a stream that has failed.
struct Freed(Option<BufferAllocation>);

impl Drop for Freed {
    fn drop(&mut self) {
        let Some(BufferAllocation { bytes, place: Place::Host(lines), usage, mut trace, live, .. }) = self.0.take()
        else {
            return;
        };
        if let Some(trace) = &mut trace {
            trace.freed(lines.as_ptr().addr() as u64, MemoryTiming::Stream);
        }
        usage.subtract(bytes);
        drop(lines);
        drop(live);
    }
}

/// Puts a call on an in-process stream.
pub(crate) fn host_call(
    stream: &StreamRef<'_>,
    queue: &Arc<str>,
    call: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let Source::Host(of) = source_of(stream) else { return Err(no_stream()) };
    HostPoint::call(of, call).map_err(|refusal| refused(refusal, queue))
}

/// Checks that an in-process stream has not failed.
pub(crate) fn is_working(stream: &StreamRef<'_>, queue: &Arc<str>) -> Result<(), Error> {
    let Source::Host(of) = source_of(stream) else { return Err(no_stream()) };
    HostPoint::check(of).map_err(|refusal| refused(refusal, queue))
}

fn no_stream() -> Error {
    device("memory of a stream", "there is no stream: give the queue one")
}

fn out_of_memory(queue: &Arc<str>, bytes: u64, usage: &Usage, error: String) -> Error {
    let (current, peak) = usage.bytes();
    Error::OutOfMemory { queue: Arc::clone(queue), bytes, current, peak, error: error.into() }
}
