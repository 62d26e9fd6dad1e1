//! The wait records of a timeline, as plain data.
//!
//! A [`WaitRecord`] is one edge of the order in which a program's streams and threads run: the waiter, the value, the duration,
//! and the signaller. Sinks, tests and users' own analysis read it. Times are on the same clock as a zone's.

use std::sync::Arc;

use crate::record::{EndSource, Span, StreamInfo, ThreadInfo, is_bound};

/// One wait of a stream or a thread: for a value of a semaphore, or a declared wait.
///
/// `Send` and `Sync`; cloning shares the names.
#[derive(Clone, Debug)]
pub struct WaitRecord {
    /// The name of the semaphore or of the declared wait.
    pub semaphore: Arc<str>,
    /// The value that was waited for; none for a declared wait.
    pub value: Option<u64>,
    /// The stream that waited; none if the thread did.
    pub stream: Option<Arc<StreamInfo>>,
    /// The thread that waited, or that made the stream wait.
    pub thread: Arc<ThreadInfo>,
    /// The queue whose submission waited, if one did.
    pub queue: Option<Arc<str>>,
    /// The number of the wait among the session's zones and waits on this stream, or on no stream, in order of their begins.
    pub sequence: u64,
    /// The time for which the thread waited; for a stream, the time in which its thread queued the wait. If one call waits for
    /// several values, the wait for each begins when the previous one was signalled.
    pub host: Span,
    /// The time for which the stream waited; none if the thread did. A wait for a value that had already been reached has only
    /// the length that its two points add.
    pub gpu: Option<Span>,
    /// The method by which the end on the stream was found.
    pub end: EndSource,
    /// The maximum time by which the true end is earlier than `gpu`'s, in ns; 0 if an event marks it.
    pub end_early_by_ns: i64,
    /// The outcome.
    pub outcome: WaitOutcome,
    /// The signal that ended it; none if the session does not know it: it was given before the session began, long ago, or never.
    pub signal: Option<SignalInfo>,
}

impl WaitRecord {
    /// Returns its time span: on its stream, or on its thread if it has no stream.
    pub fn span(&self) -> Span {
        self.gpu.unwrap_or(self.host)
    }

    /// Returns the duration, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.span().duration_ns()
    }

    /// Returns whether [`duration_ns`](Self::duration_ns) is only an upper bound ([`is_bound`]): no event times the end of the wait on its
    /// stream, and it may be earlier by more than 5 % of the duration.
    pub fn is_bounded(&self) -> bool {
        self.gpu.is_some_and(|gpu| is_bound(gpu.duration_ns(), self.end_early_by_ns))
    }

    /// Returns the time by which the end may be earlier, in ns: 0 for a wait of a thread.
    #[doc(hidden)]
    pub fn early_by_ns(&self) -> i64 {
        self.gpu.map_or(0, |_| self.end_early_by_ns)
    }
}

/// A signal, as recorded in the wait that it ended.
#[derive(Clone, Debug)]
pub struct SignalInfo {
    /// The value that was signalled: the awaited one, or a greater one. None for a declared wait.
    pub value: Option<u64>,
    /// The stream that signalled; none if a thread did.
    pub stream: Option<Arc<StreamInfo>>,
    /// The thread that signalled, or that queued the signal on the stream.
    pub thread: Arc<ThreadInfo>,
    /// The queue whose submission signalled, if one did.
    pub queue: Option<Arc<str>>,
    /// The time of that thread's call, in ns; of several consecutive signals, the first.
    pub host_ns: i64,
    /// The time of the signal, in ns: never after the wait's end.
    pub at_ns: i64,
    /// The maximum time by which the signal was earlier than `at_ns`, in ns: a signal on a CUDA stream has no time of its own,
    /// and takes that of the zone that ended right before it, if there is one.
    pub early_by_ns: i64,
}

impl SignalInfo {
    /// Returns the name of the stream or the thread that signalled.
    pub fn by(&self) -> String {
        match (&self.stream, &self.thread.name) {
            (Some(stream), _) => stream.name.clone(),
            (None, Some(thread)) => thread.clone(),
            (None, None) => format!("thread {}", self.thread.id),
        }
    }
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitOutcome {
    /// The awaited value was reached.
    #[default]
    Reached,
    /// The timeout expired first.
    TimedOut,
    /// The semaphore failed, or had failed.
    Failed,
}

impl WaitOutcome {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitOutcome::Reached => "reached",
            WaitOutcome::TimedOut => "timed out",
            WaitOutcome::Failed => "failed",
        }
    }
}

/// The number of submissions in a `timeline::Queue` at one time: those held back, and unfinished host calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// The queue's name.
    pub queue: Arc<str>,
    /// The time, in ns.
    pub at_ns: i64,
    /// The number of submissions from then on.
    pub depth: u64,
}
