//! The stamps of one context in a session, from the first use of the context to the end of the session, by the host's clock.
//!
//! Only the collector uses this. It reads memory of the process, and keeps the device's clock compared, on a stream of our own.

use std::sync::{Arc, Mutex};

use super::clock::{self, DeviceClock};
use super::device::{OWN, SLOTS, Stamper};
use super::ring::{Found, Reader};
use crate::driver::Driver;
use crate::owner::Hold;
use warpline_core::lock::lock;
use warpline_core::record::DeviceInfo;

/// A stamp that was read.
#[derive(Clone, Copy, Debug)]
pub struct Stamped {
    pub id: u32,
    /// By the device's clock.
    pub device_ns: i64,
    /// By the host's clock.
    pub host_ns: i64,
}

pub struct Source {
    stamper: Arc<Stamper>,
    /// Keeps the context alive.
    hold: Option<Hold>,
    reader: Reader,
    came: Vec<(u32, u64)>,
    clock: Arc<Mutex<DeviceClock>>,
    /// The largest uncertainty of a stamp's position so far, in ns.
    worst_ns: i64,
    bracket_ns: Option<i64>,
}

impl Source {
    /// Creates a source of the stamps from now on; none if the context was destroyed or cannot be kept alive. It runs measurements on the
    /// device, which takes about 1 ms.
    pub fn new(stamper: Arc<Stamper>) -> Option<Source> {
        let driver = Driver::get().ok()?;
        if !stamper.is_there() {
            return None;
        }
        let hold = super::hold(driver, stamper.context(), stamper.id)?;
        // In a context that this session has prepared, replays may have begun before this call.
        let is_new = stamper.session == super::session();
        let reader = if is_new { Reader::from_start() } else { Reader::new(stamper.ring()) };
        let bracket_ns = stamper.measure_bracket().ok().flatten();
        let came = Vec::with_capacity(SLOTS / 16);
        let clock = clock::device_clock(stamper.device.ordinal);
        lock(&clock).begin(&stamper);
        Some(Source { stamper, hold: Some(hold), reader, came, clock, worst_ns: 0, bracket_ns })
    }

    pub fn context_id(&self) -> u64 {
        self.stamper.id
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.stamper.device
    }

    /// Returns by how much two stamps lengthen the kernels between them, in ns; none if it could not be measured.
    pub fn bracket_ns(&self) -> Option<i64> {
        self.bracket_ns
    }

    /// Returns the largest uncertainty of the position of a stamp so far, in ns.
    pub fn uncertainty_ns(&self) -> i64 {
        self.worst_ns
    }

    /// Calls `each` with the new stamps, in the order in which the device executed them, up to the first lost stamps. If `may_ask` is
    /// false, the device is not queried.
    pub fn read(&mut self, may_ask: bool, mut each: impl FnMut(Stamped)) -> Found {
        let Source { stamper, reader, came, clock, worst_ns, .. } = self;
        came.clear();
        let mut found = reader.read(stamper.ring(), |id, time| {
            if id != OWN {
                came.push((id, time));
            }
        });
        found.taken = came.len() as u64;
        let mut clock = lock(clock);
        if may_ask {
            clock.renew(stamper, !came.is_empty());
        }
        if let Some(&(_, newest)) = came.last() {
            clock.suppose(newest);
        }
        for &(id, time) in &*came {
            if let Some((device_ns, host_ns, uncertainty_ns)) = clock.place(time) {
                *worst_ns = (*worst_ns).max(uncertainty_ns);
                each(Stamped { id, device_ns, host_ns });
            }
        }
        found
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release_owner();
        }
    }
}
