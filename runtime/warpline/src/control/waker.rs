//! What wakes the thread that listens: a byte on a pair of sockets. It never waits, so that a collector may call it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::sys;

/// Wakes the thread that listens.
pub struct Waker(UnixStream);

impl Waker {
    pub(super) fn pair() -> std::io::Result<(Arc<Waker>, UnixStream)> {
        let (waker, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        Ok((Arc::new(Waker(waker)), woken))
    }

    /// Never waits: where so many calls are unheard that there is no room, it will wake anyway.
    pub(crate) fn wake(&self) {
        let _ = sys::send(&self.0, &[1]);
    }
}
