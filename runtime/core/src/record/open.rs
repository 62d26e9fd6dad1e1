//! An open zone, as the flight recorder shows it.
//!
//! The collector copies it from the zone's note. Sinks never receive one.

use std::panic::Location;

use crate::catalog::RangeSpec;
use crate::fields::Value;

/// The state of an open zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenState {
    /// The mark has not ended.
    OnThread,
    /// The mark has ended, and the stream has not reached its end.
    OnStream,
}

/// An open zone, from its note.
#[derive(Clone, Debug)]
pub struct OpenZoneRecord {
    pub state: OpenState,
    /// The range; none if it is not in the catalog.
    pub range: Option<&'static RangeSpec>,
    pub thread: u64,
    pub begin_ns: i64,
    /// The end of the mark, if it has ended.
    pub launched_ns: i64,
    pub sequence: u64,
    /// The location of its begin: the call, the block or the mark.
    pub place: Option<&'static Location<'static>>,
    pub fields: Vec<(String, Value)>,
    pub label: Option<String>,
    /// The communicator of a collective, and its number there.
    pub collective: Option<(String, u64)>,
    /// Of a transfer between two ranks, the operation and the rank of the job at the other end.
    pub transfer: Option<(String, u32)>,
}
