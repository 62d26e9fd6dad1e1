//! A zone that has not ended, as the flight recorder shows it.
//!
//! The collector copies it out of the zone's note. Sinks never get one.

use std::panic::Location;

use crate::catalog::RangeSpec;
use crate::fields::Value;

/// Where an open zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    /// The mark has not ended.
    OnThread,
    /// The mark has ended, and the stream has not come to its end.
    OnStream,
}

/// An open zone, as its note has it.
#[derive(Clone, Debug)]
pub(crate) struct OpenZoneRecord {
    pub(crate) state: OpenState,
    /// None for a range that is not in the catalog.
    pub(crate) range: Option<&'static RangeSpec>,
    pub(crate) thread: u64,
    pub(crate) begin_ns: i64,
    /// When the mark ended, where it has.
    pub(crate) launched_ns: i64,
    pub(crate) sequence: u64,
    /// Where it began: the call, the block or the mark.
    pub(crate) place: Option<&'static Location<'static>>,
    pub(crate) fields: Vec<(String, Value)>,
    pub(crate) label: Option<String>,
}
