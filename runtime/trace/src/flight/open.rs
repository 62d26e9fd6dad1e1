//! What the flight recorder writes besides records: zones that are open, and what happened.

use warpline_core::catalog::RangeSpec;
use warpline_core::record::open::OpenZoneRecord;

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) struct Incident {
    pub(crate) reason: Reason,
    pub(crate) ns: i64,
    /// What happened, in one sentence.
    pub(crate) title: String,
    pub(crate) args: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Panic,
    Stall,
    StreamFailed,
    Signal,
}

impl Reason {
    /// In the name of a trace.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Panic => "panic",
            Reason::Stall => "stall",
            Reason::StreamFailed => "stream_failed",
            Reason::Signal => "sigusr2",
        }
    }
}

/// An open zone, with the names of what it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct OpenZone {
    /// The row on which it is shown.
    pub(crate) row: String,
    pub(crate) stream: Option<String>,
    pub(crate) thread: String,
    pub(crate) open: OpenZoneRecord,
}

impl OpenZone {
    /// Its range's name.
    pub(crate) fn name(&self) -> &'static str {
        self.open.range.map_or("a range that is not in the catalog", RangeSpec::name)
    }
}
