//! What a session sees of timelines: who signalled, who waited, and how much a queue holds.
//!
//! Semaphores, host waits and queues call this at the places where they signal and wait. `on` records while a session does;
//! it never changes what is on a stream but for the two points around a wait, and without a session it is one load of the
//! switch. Without the feature `enable` the same names in `off` are nothing.

#[cfg(not(feature = "enable"))]
mod off;
#[cfg(feature = "enable")]
mod on;

#[cfg(not(feature = "enable"))]
pub(super) use off::{Called, HostWait, called, depth, passed, signalling, waiting};
#[cfg(feature = "enable")]
pub(super) use on::{Called, HostWait, called, depth, passed, signalling, waiting};

use std::sync::Arc;

use super::point::Timepoint;
use super::state::Core;
use warpline_core::backend::AsStream;

/// A value that somebody waits for.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "enable"), expect(dead_code, reason = "nobody looks"))]
pub(super) struct Edge<'a> {
    pub(super) core: &'a Core<Timepoint>,
    pub(super) value: u64,
    /// Who waits for it, if a queue does.
    pub(super) queue: Option<&'a Arc<str>>,
}

/// Tells a session that `wait` makes one stream wait for another in a way of its own, such as cudarc's
/// `stream.wait(&event)`: the wait is in the trace then, with an arrow from `signalling`, as if a semaphore of this name had
/// ordered the two.
///
/// Call it in place of the wait, and give it the wait. Whatever `wait` returns is returned. The arrow begins where
/// `signalling` was when this was called: the sooner after the event was recorded, the truer.
///
/// ```
/// # use std::sync::mpsc::channel;
/// use warpline::HostStream;
/// use warpline::timeline::declare_wait;
///
/// let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
/// let (copied, is_copied) = channel();
/// copy.launch(move || copied.send(()).unwrap_or_default());
/// declare_wait("weights", &compute, &copy, || {
///     compute.launch(move || is_copied.recv().unwrap_or_default());
/// });
/// # compute.synchronize().unwrap();
/// ```
///
/// While a session records, it puts a point before the wait and one behind it, on the waiting stream alone. Otherwise it calls
/// `wait` and does nothing else; nor does it where one of the streams is being captured into a graph.
pub fn declare_wait<T>(
    name: &str,
    waiting: &(impl AsStream + ?Sized),
    signalling: &(impl AsStream + ?Sized),
    wait: impl FnOnce() -> T,
) -> T {
    #[cfg(feature = "enable")]
    return on::declared(name, waiting, signalling, wait);
    #[cfg(not(feature = "enable"))]
    {
        let _ = (name, waiting, signalling);
        wait()
    }
}
