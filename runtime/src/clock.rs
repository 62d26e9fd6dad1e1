//! Time: the host's clock, and where a device's clock stands against it.
//!
//! Lengths come from a zone's own two events. Positions come from a chain of anchors: events whose host time is known, each
//! the next one's base, summed in i64 ns, so that no distance is long enough for a device's time format to lose digits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::{Anchor, Backend, BackendError, Event};

/// Now, in ns of `CLOCK_BOOTTIME`: the clock of every record.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec, and the clock exists since Linux 2.6.39.
    #[allow(unsafe_code)]
    unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now);
    }
    #[allow(clippy::unnecessary_cast, reason = "both are narrower on some targets")]
    return now.tv_sec as i64 * 1_000_000_000 + now.tv_nsec as i64;
}

/// Now, in ns of a monotonic clock that starts with the process's first look at it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn now_ns() -> i64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as i64 + 1
}

/// Now in ns since the Unix epoch.
pub(crate) fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as i64
}

/// The operating system's id of this thread.
pub(crate) fn thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes nothing and cannot fail.
    #[allow(unsafe_code)]
    unsafe {
        libc::gettid() as u64
    }
    #[cfg(not(target_os = "linux"))]
    {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local!(static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
        ID.try_with(|id| *id).unwrap_or(0)
    }
}

/// How long an anchor serves before the next one is hung on it.
const ANCHOR_NS: i64 = 1_000_000_000;

/// One device's clock, as the collector knows it.
pub(crate) struct DeviceClock {
    anchor: Anchor,
}

impl DeviceClock {
    pub(crate) fn new(backend: &dyn Backend) -> Result<DeviceClock, BackendError> {
        Ok(DeviceClock { anchor: backend.anchor()? })
    }

    /// The host time of a complete event, in ns; none while it is not complete.
    pub(crate) fn position_ns(&self, event: &dyn Event) -> Result<Option<i64>, BackendError> {
        Ok(event.elapsed_ns(self.anchor.event.as_ref())?.map(|ns| self.anchor.host_ns + ns))
    }

    /// Hangs a new anchor on the chain when the last one is old.
    pub(crate) fn renew(&mut self, backend: &dyn Backend, now_ns: i64) -> Result<(), BackendError> {
        if now_ns - self.anchor.host_ns >= ANCHOR_NS {
            self.anchor = backend.anchor()?;
        }
        Ok(())
    }

    pub(crate) fn uncertainty_ns(&self) -> i64 {
        self.anchor.uncertainty_ns
    }
}
