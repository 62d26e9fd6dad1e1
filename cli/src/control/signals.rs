//! Signals while a recording is written. The first Ctrl-C asks the program to end the recording; any other signal ends
//! it at once. In both cases, the data that has arrived is written. `record` calls this module.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Shells report a process that a signal ended with this plus the number of the signal.
const BY_SIGNAL: i32 = 128;

/// The time for writing the data that has arrived. It is only exceeded if the file blocks.
const WRITES_WITHIN: Duration = Duration::from_secs(1);

/// The signal that has cut the connection, or 0; and whether the recording is over, and there is nothing to cut.
#[derive(Clone, Default)]
pub(super) struct CutBySignal {
    signal: Arc<AtomicI32>,
    is_over: Arc<AtomicBool>,
}

impl CutBySignal {
    /// The status with which this process ends if a signal has cut the connection: 130 after SIGINT, 143 after SIGTERM.
    pub(super) fn status(&self) -> Option<u8> {
        let signal = self.signal.load(Ordering::Acquire);
        (signal != 0).then(|| u8::try_from(BY_SIGNAL + signal).unwrap_or(u8::MAX))
    }

    /// The recording is over. From now on, a signal ends the process at once.
    pub(super) fn recording_is_over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Closes the connection, so that its reader reaches the end, and ends the process a moment later.
    fn make(&self, stream: &UnixStream, signal: i32) {
        if self.is_over.load(Ordering::Acquire) {
            exit(BY_SIGNAL + signal);
        }
        self.signal.store(signal, Ordering::Release);
        let _ = stream.shutdown(Shutdown::Both);
        thread::sleep(WRITES_WITHIN);
        exit(BY_SIGNAL + signal);
    }
}

/// From now on, a signal ends the recording on this connection. After the first Ctrl-C the program has `ends_within` to
/// end it.
pub(super) fn end(stream: UnixStream, ends_within: Duration) -> CutBySignal {
    let cut = CutBySignal::default();
    // If signals cannot be caught, a signal ends this process, and the program notices that.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return cut };
    let (maker, stream) = (cut.clone(), Arc::new(stream));
    let _ = thread::Builder::new().spawn(move || {
        let mut is_asked = false;
        for signal in signals.forever() {
            let is_over = maker.is_over.load(Ordering::Acquire);
            if is_over || signal != SIGINT || std::mem::replace(&mut is_asked, true) {
                return maker.make(&stream, signal);
            }
            let _ = stream.shutdown(Shutdown::Write);
            let (maker, stream) = (maker.clone(), Arc::clone(&stream));
            let _ = thread::Builder::new().spawn(move || {
                thread::sleep(ends_within);
                if !maker.is_over.load(Ordering::Acquire) {
                    maker.make(&stream, signal);
                }
            });
        }
    });
    cut
}
