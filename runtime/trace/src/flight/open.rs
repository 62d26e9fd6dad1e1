//! What the flight recorder writes besides records: open zones, and incidents.

use warpline_core::catalog::RangeSpec;
use warpline_core::record::open::OpenZoneRecord;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Incident {
    pub reason: Reason,
    pub ns: i64,
    /// What happened, in one sentence.
    pub title: String,
    pub args: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Panic,
    Stall,
    StreamFailed,
    Signal,
}

impl Reason {
    /// In the name of a trace.
    pub fn name(self) -> &'static str {
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
pub struct OpenZone {
    /// The row on which it is shown.
    pub row: String,
    pub stream: Option<String>,
    pub thread: String,
    pub open: OpenZoneRecord,
}

impl OpenZone {
    /// Its range's name.
    pub fn name(&self) -> &'static str {
        self.open.range.map_or("a range that is not in the catalog", RangeSpec::name)
    }
}
