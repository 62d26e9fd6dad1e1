//! Timelines: semaphores that order streams and host threads, and queues whose work waits for them.
//!
//! A [`Semaphore`] is a 64-bit number that only grows. A host thread or a stream *signals* a value; host threads, tasks and streams *wait*
//! for one. A stream waits on the device, and the thread that requests the wait does not block.
//!
//! ```
//! use std::time::Duration;
//! use warpline::HostStream;
//! use warpline::timeline::Semaphore;
//!
//! # fn main() -> Result<(), warpline::timeline::Error> {
//! let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
//! let loaded = Semaphore::named("weights loaded", 0);
//!
//! copy.launch(|| { /* copies */ });
//! loaded.signal_on(&copy, 1)?; // when the copies are done
//! loaded.wait_on(&compute, 1)?; // what comes now on `compute` starts after them
//! compute.launch(|| { /* uses them */ });
//!
//! loaded.wait(1, Duration::from_secs(5))?; // and so can a thread
//! # Ok(())
//! # }
//! ```
//!
//! A [`Queue`] accepts work whose waits may be signalled *later*. It holds the work back on the host, and issues it when the awaited values
//! have been submitted. It needs no thread that waits for a device.
//!
//! Nothing here synchronises a stream or a device. Timelines work with and without the feature `enable`. With it, a session records each
//! signal and each wait, and the trace shows arrows between the streams' tracks, which thread or stream waited for which, and the critical
//! path of the run. `docs/timelines.md` contains the exact rules.
#![deny(unsafe_code)]
#![allow(missing_docs, reason = "what users see is documented; the rest serves warpline's other crates")]

mod call;
mod error;
mod future;
mod history;
mod memory;
mod point;
mod queue;
mod semaphore;
mod state;
#[cfg(all(test, loom))]
mod state_model;
mod storage;
mod trace;
mod usage;
mod wait;
mod watcher;

pub use call::{HostCall, Signals};
pub use error::{Error, Failure};
pub use future::Reached;
pub use memory::{Buffer, BufferRef};
pub use queue::{Queue, QueueBuilder, WhenFull, WorkResult};
pub use semaphore::Semaphore;
pub use trace::declare_wait;
pub use wait::{wait_all, wait_any};

/// Sets the most free events that the pool of a GPU context keeps, for all contexts of the process. There is no limit by default.
///
/// A signal on a CUDA stream takes an event, and creates some if none is free. Threads that signal destroy free events beyond the
/// capacity, a few with each signal. Beside the pool, each thread keeps up to 32 free events, and no more than the capacity. The report of a
/// session says how many events exist, how many were created, and how often none was free
/// (`Report::event_pool`). Without feature `cuda` it does nothing.
pub fn set_event_pool_capacity(events: usize) {
    warpline_core::if_feature!("cuda", warpline_cuda::set_event_pool_capacity(events), {
        let _ = events;
    });
}
