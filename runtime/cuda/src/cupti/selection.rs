//! What CUPTI is to record. The other modules derive the kinds of records and the calls from it.

/// The data that a session requests from CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whether kernels, copies and sets are recorded, each with its zone.
    pub records: bool,
    /// Whether zones on GPU streams are timed.
    pub times: bool,
    /// Whether synchronisations are recorded, each with its zone.
    pub syncs: bool,
    /// Whether only requests for submissions are answered: there is no session.
    pub submissions: bool,
}

impl Wanted {
    /// Returns whether CUPTI records work of the device.
    pub(super) fn work(self) -> bool {
        self.records || self.times || self.submissions
    }

    /// Returns whether CUPTI records synchronisations.
    pub(super) fn barriers(self) -> bool {
        self.syncs || self.submissions
    }

    /// Returns whether CUPTI records allocations and frees.
    pub(super) fn memory(self) -> bool {
        self.records
    }

    /// Returns whether launching threads tell CUPTI which zone they are in.
    pub(super) fn zones(self) -> bool {
        self.records || self.syncs
    }
}
