//! Signals while a recording is written: Ctrl-C asks the program for the end, everything else ends at once, and what has come is
//! written in either case.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Shells add this to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// Writing what has come takes no longer, unless the place where it is written takes nothing.
const WRITES_WITHIN: Duration = Duration::from_secs(1);

/// The signal that has cut the connection, or 0.
#[derive(Clone, Default)]
pub(super) struct Cut(Arc<AtomicI32>);

impl Cut {
    /// The status with which this process ends if a signal has cut the connection: 130 after SIGINT, 143 after SIGTERM.
    pub(super) fn status(&self) -> Option<u8> {
        let signal = self.0.load(Ordering::Acquire);
        (signal != 0).then(|| u8::try_from(BY_SIGNAL + signal).unwrap_or(u8::MAX))
    }

    /// Ends the connection: whoever reads it comes to its end.
    fn make(&self, stream: &UnixStream, signal: i32) {
        self.0.store(signal, Ordering::Release);
        let _ = stream.shutdown(Shutdown::Both);
        thread::sleep(WRITES_WITHIN);
        exit(BY_SIGNAL + signal);
    }
}

/// From now on signals end what comes over this connection: the first Ctrl-C within `ends_within`, whatever the program does.
pub(super) fn end(stream: UnixStream, ends_within: Duration) -> Cut {
    let cut = Cut::default();
    // Where signals cannot be caught, one just ends this process, and the program notices.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return cut };
    let (maker, stream) = (cut.clone(), Arc::new(stream));
    let _ = thread::Builder::new().spawn(move || {
        let mut is_asked = false;
        for signal in signals.forever() {
            if signal != SIGINT || std::mem::replace(&mut is_asked, true) {
                return maker.make(&stream, signal);
            }
            let _ = stream.shutdown(Shutdown::Write);
            let (maker, stream) = (maker.clone(), Arc::clone(&stream));
            let _ = thread::Builder::new().spawn(move || {
                thread::sleep(ends_within);
                maker.make(&stream, signal);
            });
        }
    });
    cut
}
