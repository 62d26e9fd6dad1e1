//! The critical path: the work that must become shorter for a run to become shorter.
//!
//! The path is walked backwards, from the end of the last zone, which is on a stream or on a thread. The walk follows that stream
//! or thread back to the end of the latest wait that held it up: a wait whose signal came after the wait had begun. There it
//! follows the arrow to the stream or thread that signalled, at the time of the signal, and continues from there. A wait for a
//! value that had already been signalled held up nothing, and the walk passes it. Where a stream was idle before a zone, the walk
//! moves to the thread that launched the zone. Where a thread synchronised with the device and work that it had launched ended
//! meanwhile, the walk moves to that work. If no synchronisation is recorded, each thread is taken to wait for all the work that it launched,
//! and [`CriticalPath::is_assumed`] says whether that decides what is longest on the path. Without further
//! arrows, the path ends at the begin of the window. Each moment on the path counts for the innermost zone: a zone's part is its
//! own time on the path, without the zones within it. The collector finds the path in the last records of a session;
//! [`critical_path`] finds it in any records. `log` keeps the records, and `walk` walks through them.

#[cfg(feature = "build")]
mod log;
#[cfg(all(test, feature = "build"))]
mod tests;
#[cfg(feature = "build")]
mod walk;

use std::fmt;

use warpline_core::record::{Span, ZoneRecord};
use warpline_core::synchronization::SyncRecord;
use warpline_core::wait::WaitRecord;

#[cfg(feature = "build")]
pub use log::PathLog;

/// The critical path of a window, through the recorded zones. Zones that were not recorded may also be on it. For a session,
/// [`Report::is_complete`](crate::Report::is_complete) returns whether there can be any.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticalPath {
    /// The begin of the window, in ns.
    pub from_ns: i64,
    /// The end of the path, which is the end of the last zone in the window, in ns.
    pub to_ns: i64,
    /// The time by which the path may end earlier, in ns, because the end of that zone is not timed and its length is only a bound
    /// ([`is_bound`](warpline_core::record::is_bound)).
    pub early_by_ns: i64,
    /// Whether another part would be the longest if threads had not waited for the work that they launched. No record shows whether they did: a
    /// session records it with [`synchronizations`](https://docs.rs/warpline/latest/warpline/struct.SessionBuilder.html).
    pub is_assumed: bool,
    /// The number of arrows on it.
    pub arrows: u64,
    /// The stretches of the path in chronological order: the stream or thread, and the time.
    pub stretches: Vec<PathSegment>,
    /// The parts of the path, longest first. The sum of their times is `to_ns - from_ns`.
    pub parts: Vec<PathPart>,
}

impl CriticalPath {
    /// Returns the longest part that is of a range; none if the path passes no recorded zone.
    pub fn range(&self) -> Option<&PathPart> {
        self.parts.iter().find(|part| !part.name.starts_with('('))
    }
}

/// A stretch of the path on one stream or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSegment {
    /// The name of the stream or thread.
    pub on: String,
    /// The time span.
    pub span: Span,
}

/// The contribution of one range's zones, or of time without a zone.
#[derive(Clone, Debug, PartialEq)]
pub struct PathPart {
    /// The range's name; `(no recorded zone)` where the path passes no recorded zone, `(launch or signal delay)` between a signal and the
    /// end of its wait, or a launch and the begin of its zone, and `(end not timed)` where a zone or a wait, whose length is only a bound,
    /// may have ended.
    pub name: String,
    /// The name of the stream or thread.
    pub on: String,
    /// The time, in ns.
    pub ns: i64,
    /// The share of the whole path, 0 to 1.
    pub share: f64,
}

/// Returns the critical path through these records, in `window` or in the whole time that they cover; none if no zone ends there.
///
/// Without the features `enable` and `export`, it returns none. Pass the records of one session, as
/// [`MemorySink`](crate::sink::MemorySink) keeps them. Zones and waits that are partly in the window count for that
/// part. If there are synchronisations, they must be all of the window: a thread that made none did not wait.
pub fn critical_path(
    zones: &[ZoneRecord],
    waits: &[WaitRecord],
    synchronizations: &[SyncRecord],
    window: Option<Span>,
) -> Option<CriticalPath> {
    warpline_core::if_feature!(
        "build",
        {
            let (mut log, mut names) = (PathLog::new(usize::MAX), crate::names::Names::default());
            zones.iter().for_each(|zone| log.zone(zone, names.number_if(zone.range.name(), true)));
            waits.iter().for_each(|wait| log.wait(wait));
            synchronizations.iter().for_each(|call| log.synchronization(call));
            log.path(window, &names)
        },
        {
            let _ = (zones, waits, synchronizations, window);
            None
        }
    )
}

/// A stream or a thread.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    Stream(u32),
    Thread(u64),
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Track::Stream(id) => write!(f, "stream {id}"),
            Track::Thread(id) => write!(f, "thread {id}"),
        }
    }
}
