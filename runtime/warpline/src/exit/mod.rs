//! Finishes the session of a program that ends without finishing it: a session in a static, one that was forgotten, a call of `exit`, SIGINT and
//! SIGTERM.
//!
//! A session registers when it starts. `exit` and the return from `main` run a handler of the C library on the thread that ends the program.
//! SIGINT and SIGTERM have a handler only if the program has none, and a thread of their own, since little may run in a handler; then the
//! signal ends the program as it would have without warpline. A second signal ends it at once.
#![allow(unsafe_code)]

use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};

use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;
use warpline_core::stderr;

#[cfg(unix)]
pub(crate) mod signals;
use signals::Watch;

/// The session that records, and what watches for signals on its behalf. A forked child has none.
static UNFINISHED: PerProcess<Mutex<Option<Unfinished>>> = PerProcess::new(|| Mutex::new(None));

struct Unfinished {
    epoch: NonZeroU32,
    finish: Arc<dyn Fn() + Send + Sync>,
    /// Held, not read: dropping it ends the watch.
    _signals: Option<Watch>,
}

/// The id of the process with the unfinished session, or 0. A forked child sees its parent's.
static RECORDS: AtomicU32 = AtomicU32::new(0);

/// Calls `finish` at the end of the program, unless the session of this epoch is finished before. With `on_signals`, SIGINT and SIGTERM count as
/// an end.
pub(crate) fn watch(epoch: NonZeroU32, finish: impl Fn() + Send + Sync + 'static, on_signals: bool) {
    static REGISTERED: Once = Once::new();
    register(&REGISTERED);
    let signals = on_signals.then(Watch::start).flatten();
    *lock(&UNFINISHED) = Some(Unfinished { epoch, finish: Arc::new(finish), _signals: signals });
    RECORDS.store(std::process::id(), Ordering::Relaxed);
}

/// Registers the handler again when a stream of a device is met, on the launching thread. The last handler that is registered runs first, and a device's library
/// has registered one by then, after which its events cannot be read.
pub(crate) fn watch_device() {
    static REGISTERED: Once = Once::new();
    register(&REGISTERED);
}

fn register(once: &Once) {
    // SAFETY: the handler lives as long as the program, and does not unwind.
    once.call_once(|| _ = unsafe { libc::atexit(at_exit) });
}

/// Stops watching: this session is finished.
pub(crate) fn forget(epoch: NonZeroU32) {
    let ended = lock(&UNFINISHED).take_if(|unfinished| unfinished.epoch == epoch);
    if ended.is_some() {
        RECORDS.store(0, Ordering::Relaxed);
    }
    // Dropped without the lock.
    drop(ended);
}

extern "C" fn at_exit() {
    // A panic must not leave a C function.
    let _ = panic::catch_unwind(|| {
        finish();
        say_if_left_behind();
    });
}

/// Finishes the session, if one is unfinished.
fn finish() {
    let finish = lock(&UNFINISHED).as_ref().map(|unfinished| Arc::clone(&unfinished.finish));
    if let Some(finish) = finish {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| finish()));
    }
}

/// Prints that nothing was recorded here, in a process that continues the work of the one that started the session, as after `daemon`.
fn say_if_left_behind() {
    let records = RECORDS.load(Ordering::Relaxed);
    if records == 0 || records == std::process::id() {
        return;
    }
    if !signals::is_running(records) {
        RECORDS.store(0, Ordering::Relaxed);
        stderr::line(format_args!(
            "nothing of this process was recorded: process {records} started the session, forked this one and ended without finishing the \
             session; start the session after the fork, here"
        ));
    }
}

#[cfg(not(unix))]
mod signals {
    //! No signals: this system has none.

    pub(super) struct Watch;

    impl Watch {
        pub(super) fn start() -> Option<Watch> {
            None
        }
    }

    /// Without forks, the process with the session is this one.
    pub(super) fn is_running(_: u32) -> bool {
        true
    }
}
