//! Why a request has no zone. Each error says what to do.

use std::fmt;

/// Why a request has no zone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// The catalog has no range of this name.
    NoSuchRange {
        /// The requested name.
        name: String,
        /// A similar name in the catalog.
        near: Option<&'static str>,
    },
    /// The timeout expired. The request stays until its handle is dropped.
    TimedOut {
        /// A zone has begun, and its stream has not completed it.
        has_begun: bool,
        /// The number of matching zones that ran on streams that were being captured into a graph.
        captured: u64,
    },
    /// The stream is being captured into a CUDA graph, to which nothing may be added.
    Captured,
    /// The stream was dropped before a zone began on it.
    StreamGone,
    /// The requesting thread ended before it began a zone.
    ThreadEnded,
    /// Nothing that the thread submitted on the stream has completed, as far as CUPTI has reported. The request stays until its handle is
    /// dropped.
    NotSubmitted,
    /// Submissions cannot be timed. The text says why, and what to do.
    NoKernels(String),
    /// The caller's event was not recorded. The text says why.
    Event(String),
    /// There is no stream: an `Option` that is `None`, or a [`StreamRef::none`](crate::backend::StreamRef::none).
    NoStream,
    /// The stream cannot be timed, or failed before the zone was complete. The text is the device's message.
    Stream(String),
    /// The stream refused an event.
    EventFailed,
    /// Too many zones or events were pending.
    Full,
    /// The zone did not end: an expression of its mark panicked, or its session ended first.
    Unfinished,
    /// This process was forked from the one that made the request.
    Inherited,
    /// The operating system could not start the thread that reads the zone.
    NoThread(String),
    /// The program was built without warpline's feature `enable`.
    NotEnabled,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::NoSuchRange { name, near: Some(near) } => {
                write!(f, "this program has no range `{}`; did you mean `{near}`?", name.escape_debug())
            }
            ProfileError::NoSuchRange { name, near: None } => {
                let name = name.escape_debug();
                write!(f, "this program has no range `{name}`; `warpline catalog` lists those that it has")
            }
            ProfileError::TimedOut { has_begun: true, .. } => f.write_str(
                "the zone has begun, but its stream has not completed it yet; wait longer, or let the stream's work finish",
            ),
            ProfileError::TimedOut { captured: 1.., .. } => f.write_str(
                "zones ran only on streams that were being captured into a graph, to which nothing may be added; \
                 profile one outside of the capture",
            ),
            ProfileError::TimedOut { .. } => {
                f.write_str("no such zone has begun; is the code marked, and does this thread run it on this stream?")
            }
            ProfileError::Captured => {
                f.write_str("the stream is being captured into a graph, to which nothing may be added; ask after the capture")
            }
            ProfileError::StreamGone => {
                f.write_str("the stream was dropped before a zone began on it; keep it until the zone is there")
            }
            ProfileError::ThreadEnded => f.write_str(
                "the thread that asked ended before it began a zone; ask on the thread that launches, or for a range",
            ),
            ProfileError::NotSubmitted => f.write_str(
                "nothing that this thread submitted on this stream has completed yet; does the thread that asked launch on this \
                 stream, and has the stream's work finished?",
            ),
            ProfileError::NoKernels(why) => write!(f, "submissions cannot be timed: {why}"),
            ProfileError::Event(why) => {
                write!(f, "the event was not recorded behind the zone: {why}; give a live event of the stream's context")
            }
            ProfileError::NoStream => {
                f.write_str("there is no stream; ask for the zones of a range by `profile::range`")
            }
            ProfileError::Stream(why) => write!(f, "the stream could not be timed: {why}; look at the stream's own errors"),
            ProfileError::EventFailed => {
                f.write_str("the stream did not take an event of the zone; look at the stream's own errors")
            }
            ProfileError::Full => {
                f.write_str("too many zones waited for their events; ask for fewer at once, or give the session a larger `ring`")
            }
            ProfileError::Unfinished => f.write_str(
                "the zone was not complete when its session ended, or its mark panicked; synchronise before `finish`",
            ),
            ProfileError::Inherited => f.write_str(
                "the parent process requested the zone before the fork and alone gets it; request zones after the fork",
            ),
            ProfileError::NoThread(why) => {
                write!(f, "the thread that reads the zone could not be started: {why}; end other threads, or raise the limit on threads of this user")
            }
            ProfileError::NotEnabled => {
                f.write_str("this program was built without warpline's feature `enable`: turn it on in the application")
            }
        }
    }
}

impl std::error::Error for ProfileError {}
