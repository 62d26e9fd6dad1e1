//! A call of the application that launched work, as far as CUPTI has told of it.

use super::times::{Listed, Work};
use super::zones::Zone;

/// The call that launched work.
#[derive(Clone, Copy, Default)]
pub(super) struct Launch {
    /// The external id of the zone that it was made in.
    pub(super) zone: Option<u64>,
    /// Thread, begin and end on CUPTI's clock.
    pub(super) call: Option<(u32, u64, u64)>,
    /// Whether the call puts work on a device, and whether that work has been reported.
    pub(super) wants_work: bool,
    pub(super) has_work: bool,
    /// Whether the call waits, or makes a stream wait.
    pub(super) is_sync: bool,
    /// Its work and its position in `times`, if zones are timed by it.
    pub(super) work: Work,
    pub(super) listed: Option<Listed>,
    pub(super) is_called: bool,
}

impl Launch {
    pub(super) fn zone(&self) -> Option<Zone> {
        self.zone.and_then(Zone::from_id)
    }

    /// Returns whether the call waits, or makes a stream wait; none while the call is unknown.
    pub(super) fn waits(&self) -> Option<bool> {
        self.call.map(|_| self.is_sync)
    }

    /// Returns whether anything but its work was reported.
    pub(super) fn is_known(&self) -> bool {
        self.zone.is_some() || self.call.is_some()
    }

    pub(super) fn is_at_work(&self) -> bool {
        self.wants_work && !self.has_work
    }
}
