//! The memory that the queues of this process hold, by device, with or without a session. An allocation that fails says so much.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;

/// A device: an in-process one, or a device by its ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedDevice {
    Host,
    Device(u32),
}

/// The bytes of one device.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    current: AtomicU64,
    peak: AtomicU64,
}

type Devices = Vec<(UsedDevice, Arc<Usage>)>;

static DEVICES: PerProcess<Mutex<Devices>> = PerProcess::new(Mutex::default);

impl Usage {
    pub(crate) fn of(device: UsedDevice) -> Arc<Usage> {
        let mut devices = lock(&DEVICES);
        if let Some((_, usage)) = devices.iter().find(|(known, _)| *known == device) {
            return Arc::clone(usage);
        }
        let usage = Arc::<Usage>::default();
        devices.push((device, Arc::clone(&usage)));
        usage
    }

    pub(crate) fn add(&self, bytes: u64) {
        let current = self.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(current, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        self.current.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes now, and the most so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.current.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }
}
