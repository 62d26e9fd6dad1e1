//! Wakes the server's thread with a byte on a socket pair. It never blocks, so the collector may call it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::sys;

/// The sending end of the socket pair that wakes the server's thread.
pub struct Waker(UnixStream);

impl Waker {
    pub(super) fn pair() -> std::io::Result<(Arc<Waker>, UnixStream)> {
        let (waker, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        Ok((Arc::new(Waker(waker)), woken))
    }

    /// Wakes the server's thread without blocking. If the socket's buffer is full, a wake-up is already pending.
    pub(crate) fn wake(&self) {
        let _ = sys::send(&self.0, &[1]);
    }
}
