//! Device memory that the application allocates itself, and tells the session of.
//!
//! The session's log of memory is in `warpline_core::stream::memory`; queues of timelines add to it by themselves.

use warpline_core::backend::AsStream;

/// Tells the session that this thread has allocated memory on the stream's device, with whatever allocator. Traces and the report then count
/// it, for the innermost zone that is open on this thread.
///
/// Call it after the allocation, and [`freed`] before the memory is freed. A session knows 65,536 allocations at once, and counts those beyond.
/// Memory that was allocated before the session, or while it was stopped, is in no figure. In a session with `kernels`, CUPTI reports the memory of CUDA
/// devices, and this names it.
///
/// It identifies the stream, as a zone does, allocates, and takes a lock for a few lines. Without a session it costs one relaxed load, and without
/// the feature `enable` nothing. Queues of `timeline` record their memory themselves.
///
/// ```
/// use warpline::{HostStream, memory};
///
/// # fn main() {
/// let stream = HostStream::new("compute");
/// let weights = vec![0_u8; 1 << 20]; // with cudarc: `stream.alloc_zeros(…)`, and the slice's `device_ptr`
/// let address = weights.as_ptr().addr() as u64;
/// memory::allocated(&stream, address, 1 << 20);
/// memory::freed(address);
/// drop(weights);
/// # }
/// ```
#[inline]
pub fn allocated(stream: &(impl AsStream + ?Sized), address: u64, bytes: u64) {
    warpline_core::if_feature!("enable", on::allocated(stream, address, bytes, None), {
        let _ = (stream, address, bytes);
    });
}

/// Works like [`allocated`]. In traces and in the report, the memory counts for this name, and not for a zone.
#[inline]
pub fn allocated_named(name: &str, stream: &(impl AsStream + ?Sized), address: u64, bytes: u64) {
    warpline_core::if_feature!("enable", on::allocated(stream, address, bytes, Some(name)), {
        let _ = (name, stream, address, bytes);
    });
}

/// Tells the session that the memory at this address is about to be freed.
///
/// If the session does not know it, this is counted. While no memory was ever told of, it costs one relaxed load.
#[inline]
pub fn freed(address: u64) {
    warpline_core::if_feature!("enable", on::freed(address), {
        let _ = address;
    });
}

#[cfg(feature = "enable")]
mod on {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicU32, Ordering};

    use warpline_core::backend::{AsStream, NoKey, key_of};
    use warpline_core::memory::MemoryTiming;
    use warpline_core::reentrancy::Inside;
    use warpline_core::stream::memory::Allocation;
    use warpline_core::stream::{recorder, thread};
    use warpline_core::switch;

    use crate::profile::asking;

    /// The last session that was told of an allocation; 0 before the first.
    static TOLD: AtomicU32 = AtomicU32::new(0);

    #[inline]
    pub(super) fn allocated(stream: &(impl AsStream + ?Sized), address: u64, bytes: u64, name: Option<&str>) {
        if let Some(epoch) = switch::epoch() {
            add(epoch, stream, (address, bytes), name);
        }
    }

    #[cold]
    fn add(epoch: NonZeroU32, stream: &(impl AsStream + ?Sized), (address, bytes): (u64, u64), name: Option<&str>) {
        let Some(recorder) = recorder::current(epoch) else { return };
        let stream = asking::stream_ref(stream);
        let _inside = Inside::enter();
        TOLD.store(epoch.get(), Ordering::Relaxed);
        let (thread, range) = thread::with(|thread| {
            // This adds the thread to the session.
            let range = thread.host_context(epoch).and_then(|_| thread.innermost());
            (thread.id(), range)
        });
        // A stream that is being captured has no context, and none is lost by it.
        let is_captured = matches!(key_of(&stream), Err(NoKey::Captured | NoKey::NoStream));
        let context = if is_captured { None } else { thread::with(|thread| thread.context(epoch, &stream)) };
        let Some(stream) = context.and_then(|context| context.info.clone()) else {
            return recorder.memory().untracked();
        };
        let name = name.filter(|name| !name.is_empty()).map(Into::into);
        let of = Allocation { stream, thread, queue: None, range, name, bytes, address };
        recorder.memory().allocated(of, MemoryTiming::Call);
    }

    #[inline]
    pub(super) fn freed(address: u64) {
        // Also while the session is stopped: it knows the allocation.
        if let Some(epoch) = NonZeroU32::new(TOLD.load(Ordering::Relaxed)) {
            remove(epoch, address);
        }
    }

    #[cold]
    fn remove(epoch: NonZeroU32, address: u64) {
        let Some(recorder) = recorder::current(epoch) else { return };
        let _inside = Inside::enter();
        let thread = thread::with(|thread| {
            // This adds the thread to the session.
            let _ = thread.host_context(epoch);
            thread.id()
        });
        recorder.memory().freed(address, thread, MemoryTiming::Call);
    }
}
