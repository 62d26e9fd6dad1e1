//! What the streams of one HIP device share in one session: its name, and the number of events that the session may have.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use warpline_core::backend::{BackendError, Scope, Shared, new_space};
use warpline_core::lock::lock;
use warpline_core::record::{DeviceInfo, DeviceKind};

use crate::driver::{Driver, EventPtr, HipError};

/// Returns the id of a device's clock space, which is the same in every session.
pub(super) fn space(ordinal: c_int) -> u64 {
    static SPACES: Mutex<Option<HashMap<c_int, u64>>> = Mutex::new(None);
    *lock(&SPACES).get_or_insert_default().entry(ordinal).or_insert_with(|| new_space().id())
}

pub(super) struct DeviceState {
    pub(super) driver: &'static Driver,
    pub(super) ordinal: c_int,
    pub(super) info: DeviceInfo,
    /// The maximum number of events, and the number that exist.
    budget: usize,
    events: AtomicUsize,
    /// The number of slots that use them.
    slots: AtomicUsize,
    /// The events that no zone has.
    spare: Mutex<Vec<Events>>,
    closed: AtomicBool,
}

/// The begin and end of one zone.
pub(super) struct Events {
    pub(super) begin: EventPtr,
    pub(super) end: EventPtr,
}

// SAFETY: the runtime takes an event from any thread.
#[allow(unsafe_code)]
unsafe impl Send for Events {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Events {}

impl DeviceState {
    pub(super) fn new(driver: &'static Driver, ordinal: c_int, scope: &Scope) -> Result<DeviceState, BackendError> {
        let name = driver.device_name(ordinal).map_err(|error| driver.describe(error))?;
        Ok(DeviceState {
            driver,
            ordinal,
            info: DeviceInfo { ordinal: ordinal.unsigned_abs(), name, kind: DeviceKind::Hip },
            budget: scope.limits.events,
            events: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            spare: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Takes the events of a zone; none if the session has as many as it may have, and all are in use.
    pub(super) fn take(&self) -> Result<Option<Events>, HipError> {
        let spare = lock(&self.spare).pop();
        if spare.is_some() { Ok(spare) } else { self.create() }
    }

    /// Takes back the events of a zone.
    pub(super) fn give(&self, events: Events) {
        lock(&self.spare).push(events);
    }

    /// Adds a slot, and creates events for it if there are fewer than the slots need.
    pub(super) fn add_slot(&self) -> Result<(), HipError> {
        let slots = self.slots.fetch_add(1, Ordering::Relaxed) + 1;
        if self.events.load(Ordering::Relaxed) >= 2 * slots {
            return Ok(());
        }
        let created = self.create().inspect_err(|_| self.remove_slot())?;
        created.into_iter().for_each(|events| self.give(events));
        Ok(())
    }

    pub(super) fn remove_slot(&self) {
        self.slots.fetch_sub(1, Ordering::Relaxed);
    }

    /// Creates the events of a zone; none if the session has as many as it may have.
    fn create(&self) -> Result<Option<Events>, HipError> {
        if self.closed.load(Ordering::Relaxed) || self.events.fetch_add(2, Ordering::Relaxed) + 2 > self.budget {
            self.events.fetch_sub(2, Ordering::Relaxed);
            return Ok(None);
        }
        let pair = self.in_device(|| {
            let begin = self.driver.create_event()?;
            let end = self.driver.create_event().inspect_err(|_| self.driver.destroy_event(begin))?;
            Ok(Events { begin, end })
        });
        if pair.is_err() {
            self.events.fetch_sub(2, Ordering::Relaxed);
        }
        pair.map(Some)
    }

    /// Calls `work` with the device current, and without breaking captures.
    pub(super) fn in_device<T>(&self, work: impl FnOnce() -> Result<T, HipError>) -> Result<T, HipError> {
        self.driver.outside_captures(|| self.driver.with_device(self.ordinal, work))
    }

    pub(super) fn failed(&self, error: HipError) -> BackendError {
        self.driver.describe(error)
    }
}

impl Shared for DeviceState {
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        let driver = self.driver;
        let spare = std::mem::take(self.spare.get_mut().unwrap_or_else(PoisonError::into_inner));
        driver.outside_captures(|| {
            spare.iter().flat_map(|events| [events.begin, events.end]).for_each(|event| driver.destroy_event(event));
        });
    }
}
