//! A zone that has not ended, as the flight recorder shows it.
//!
//! The collector copies it out of the zone's note. Sinks never get one.

use std::panic::Location;

use crate::catalog::RangeSpec;
use crate::fields::Value;

/// Where an open zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    /// The mark has not ended.
    OnThread,
    /// The mark has ended, and the stream has not come to its end.
    OnStream,
}

/// An open zone, as its note has it.
#[derive(Clone, Debug)]
pub struct OpenZoneRecord {
    pub state: OpenState,
    /// None for a range that is not in the catalog.
    pub range: Option<&'static RangeSpec>,
    pub thread: u64,
    pub begin_ns: i64,
    /// When the mark ended, where it has.
    pub launched_ns: i64,
    pub sequence: u64,
    /// Where it began: the call, the block or the mark.
    pub place: Option<&'static Location<'static>>,
    pub fields: Vec<(String, Value)>,
    pub label: Option<String>,
}
