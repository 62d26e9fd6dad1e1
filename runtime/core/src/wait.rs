//! Waits: the records of a timeline, as plain data.
//!
//! A [`WaitRecord`] is one edge of the order in which a program's streams and threads run: who waited, for what, for how
//! long, and who signalled. Sinks read it, as do tests and users' own analysis. Times are on the same clock as a zone's.

use std::sync::Arc;

use crate::record::{EndSource, Span, StreamInfo, ThreadInfo};

/// One wait of a stream or of a thread: for a value of a semaphore, or a wait that was declared.
///
/// `Send` and `Sync`; cloning shares the names.
#[derive(Clone, Debug)]
pub struct WaitRecord {
    /// The semaphore's name, or the one that a declared wait was given.
    pub semaphore: Arc<str>,
    /// The value that was waited for; none for a declared wait.
    pub value: Option<u64>,
    /// The stream that waited; none where the thread did.
    pub stream: Option<Arc<StreamInfo>>,
    /// The thread that waited, or that made the stream wait.
    pub thread: Arc<ThreadInfo>,
    /// The queue whose submission waited, if one did.
    pub queue: Option<Arc<str>>,
    /// Counts the zones and waits of the session on this stream, or on no stream, in the order in which they began.
    pub sequence: u64,
    /// When the thread waited; for a stream, when its thread made it wait. Of several values that one call waits for, each is
    /// waited for after the one that was signalled before it.
    pub host: Span,
    /// When the stream waited; none where the thread did. A wait for what was reached before has no length, but for what
    /// its two points cost.
    pub gpu: Option<Span>,
    /// How the end on the stream was found.
    pub end: EndSource,
    /// The true end is at most this much earlier than `gpu`'s, in ns; 0 where an event says it.
    pub end_early_by_ns: i64,
    /// What came of it.
    pub outcome: WaitOutcome,
    /// The signal that ended it; none where the session does not know it: it was given before the session began, long ago,
    /// or never.
    pub signal: Option<SignalInfo>,
}

impl WaitRecord {
    /// When it was: on its stream, or on its thread if it has no stream.
    pub fn span(&self) -> Span {
        self.gpu.unwrap_or(self.host)
    }

    /// How long it took, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.span().duration_ns()
    }
}

/// A signal, as the wait that it ended knows it.
#[derive(Clone, Debug)]
pub struct SignalInfo {
    /// The value that was signalled: the one that was waited for, or a greater one. None for a declared wait.
    pub value: Option<u64>,
    /// The stream that signalled; none where a thread did.
    pub stream: Option<Arc<StreamInfo>>,
    /// The thread that signalled, or that made the stream do so.
    pub thread: Arc<ThreadInfo>,
    /// The queue whose submission signalled, if one did.
    pub queue: Option<Arc<str>>,
    /// When that thread called, in ns; for several signals right behind one another, for the first of them.
    pub host_ns: i64,
    /// When the signal was given, in ns: never after the wait's end.
    pub at_ns: i64,
    /// It was given at most this much earlier than `at_ns`, in ns: on a CUDA stream a signal has no time of its own, and takes
    /// that of the zone that ended right before it, if one did.
    pub early_by_ns: i64,
}

impl SignalInfo {
    /// The name of the stream or the thread that signalled.
    pub fn by(&self) -> String {
        match (&self.stream, &self.thread.name) {
            (Some(stream), _) => stream.name.clone(),
            (None, Some(thread)) => thread.clone(),
            (None, None) => format!("thread {}", self.thread.id),
        }
    }
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitOutcome {
    /// What was waited for is there.
    #[default]
    Reached,
    /// The time was over first.
    TimedOut,
    /// The semaphore failed, or had failed.
    Failed,
}

impl WaitOutcome {
    /// The word that stands for it in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitOutcome::Reached => "reached",
            WaitOutcome::TimedOut => "timed out",
            WaitOutcome::Failed => "failed",
        }
    }
}

/// How many submissions a `timeline::Queue` held at a time: those held back, and host calls that have not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// The queue's name.
    pub queue: Arc<str>,
    /// When, in ns.
    pub at_ns: i64,
    /// How many, from then on.
    pub depth: u64,
}
