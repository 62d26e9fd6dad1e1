//! What the flight recorder writes in addition to records: open zones, and incidents.

use warpline_core::catalog::RangeSpec;
use warpline_core::record::open::OpenZoneRecord;

/// An incident.
#[derive(Clone, Debug)]
pub struct Incident {
    pub reason: Reason,
    pub ns: i64,
    /// A description of the incident, in one sentence.
    pub title: String,
    pub args: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Panic,
    Stall,
    StreamFailed,
    OutOfMemory,
    Signal,
}

impl Reason {
    /// Returns the name of the incident in a trace's file name.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Panic => "panic",
            Reason::Stall => "stall",
            Reason::StreamFailed => "stream_failed",
            Reason::OutOfMemory => "out_of_memory",
            Reason::Signal => "sigusr2",
        }
    }
}

/// An open zone, with the names of its row, stream and thread.
#[derive(Clone, Debug)]
pub struct OpenZone {
    /// The row on which it is shown.
    pub row: String,
    pub stream: Option<String>,
    pub thread: String,
    pub open: OpenZoneRecord,
}

impl OpenZone {
    /// Returns the name of the zone's range.
    pub fn name(&self) -> &'static str {
        self.open.range.map_or("a range that is not in the catalog", RangeSpec::name)
    }
}
