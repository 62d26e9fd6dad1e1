//! What a report says of timelines: the account of waits, what each stream did with its time, and for whom it waited.

use std::fmt;

use super::report::{Dropped, Time, table};
use crate::path::CriticalPath;

/// The account of the waits of one session. `recorded + dropped.total() == begun`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitCounts {
    /// Waits of streams and threads, for semaphores or declared. A thread that waits for several values has as many.
    pub begun: u64,
    /// Those that were handed to the sinks.
    pub recorded: u64,
    /// Those that were not, by reason.
    pub dropped: Dropped,
    /// How often a queue said how much it holds.
    pub depths: u64,
    /// How often of these it found the buffer full.
    pub depths_dropped: u64,
}

impl WaitCounts {
    /// What traces say of it: names with counts; nothing where nobody waited and no queue was used.
    #[cfg(feature = "enable")]
    pub(crate) fn said(&self) -> Vec<(String, u64)> {
        let mut said = Vec::new();
        if self.begun > 0 {
            let counts = [("begun", self.begun), ("recorded", self.recorded), ("dropped", self.dropped.total())];
            said.extend(counts.map(|(name, count)| (name.to_owned(), count)));
            said.extend(self.dropped.reasons().map(|(reason, count)| (format!("dropped.{reason}"), count)));
        }
        if self.depths_dropped > 0 {
            said.push(("depths_dropped".to_owned(), self.depths_dropped));
        }
        said
    }
}

/// What one stream did in the time from the first zone or wait on any stream to the last. Beyond 1,024 streams, the others
/// share the name `…`. `busy_ns + waiting_ns + idle_ns` is
/// that time, but for streams with more than some ten thousand gaps, of which the earlier ones count as they were first seen.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamStats {
    /// The stream's name.
    pub name: String,
    /// Its device's name.
    pub device: String,
    /// In at least one zone, and in no wait, in ns.
    pub busy_ns: i64,
    /// In a wait, in ns, also where that is in a zone.
    pub waiting_ns: i64,
    /// In neither, in ns.
    pub idle_ns: i64,
    /// For whom it waited, the longest first.
    pub waited_for: Vec<WaitedFor>,
}

/// Waits of one stream for another, or for a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedFor {
    /// The name of the stream or the thread that signalled; empty where the session does not know it.
    pub by: String,
    /// How many waits.
    pub count: u64,
    /// Their sum, in ns.
    pub ns: i64,
}

/// A semaphore that somebody waited for: the session's list of names, which no catalog can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreStats {
    /// Its name. Semaphores of one name share an entry; beyond 256 names, the others share the name `…`.
    pub name: String,
    /// Waits that were recorded, of streams and threads.
    pub waits: u64,
    /// Their sum, in ns.
    pub waited_ns: i64,
}

/// The tables of a report.
pub(super) fn show(f: &mut fmt::Formatter<'_>, streams: &[StreamStats], path: Option<&CriticalPath>) -> fmt::Result {
    let time = |ns| Time(ns).to_string();
    let rows: Vec<_> = streams
        .iter()
        .take(STREAMS)
        .map(|stream| {
            let who: Vec<_> = stream.waited_for.iter().take(3).map(|on| on.of(stream.waiting_ns)).collect();
            [
                stream.name.clone(),
                time(stream.busy_ns),
                time(stream.waiting_ns),
                time(stream.idle_ns),
                if who.is_empty() { "-".to_owned() } else { who.join(", ") },
            ]
        })
        .collect();
    table(f, ["stream", "busy", "waiting", "idle", "waited for"], &rows)?;
    if streams.len() > STREAMS {
        writeln!(f, "… and {} streams more", streams.len() - STREAMS)?;
    }
    let Some(path) = path else { return Ok(()) };
    let rows: Vec<_> = path
        .parts
        .iter()
        .take(SHOWN)
        .map(|part| [part.name.clone(), part.on.clone(), time(part.ns), format!("{:.1} %", part.share * 100.0)])
        .collect();
    table(f, ["on the critical path", "on", "time", "share"], &rows)?;
    if path.parts.len() > SHOWN {
        writeln!(f, "… and {} more", path.parts.len() - SHOWN)?;
    }
    let plural = if path.arrows == 1 { "" } else { "s" };
    writeln!(f, "critical path of {}, over {} arrow{}", time(path.to_ns - path.from_ns), path.arrows, plural)
}

/// So many streams are printed.
const STREAMS: usize = 16;

/// So many parts of the critical path are printed.
const SHOWN: usize = 10;

impl WaitedFor {
    fn of(&self, waiting_ns: i64) -> String {
        let by = if self.by.is_empty() { "?" } else { &self.by };
        format!("{by} {:.0} %", 100.0 * self.ns as f64 / waiting_ns.max(1) as f64)
    }
}
