//! What can go wrong on a timeline, and the failure that travels from one semaphore to all that depend on it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a semaphore or a queue could not do. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A signal that does not go forward.
    #[error(
        "semaphore `{semaphore}` was signalled {asked}, but {current} has been submitted already: a signal has to be greater than every one before it"
    )]
    NotMonotonic {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The greatest value that was submitted, by the host or by a stream.
        current: u64,
        /// The value that was asked for.
        asked: u64,
    },
    /// The semaphore has failed, and stays so.
    #[error("semaphore `{semaphore}` failed: {failure}")]
    Failed {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The first failure, and where it began.
        failure: Failure,
    },
    /// The time was over first.
    #[error(
        "semaphore `{semaphore}` did not reach {value} within {timeout:?}, it is at {reached}: signal it, or wait longer"
    )]
    Timeout {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The value that was waited for.
        value: u64,
        /// The value that it is known to have reached.
        reached: u64,
        /// How long the wait was.
        timeout: Duration,
    },
    /// A stream cannot wait for a value that nobody has submitted yet.
    #[error(
        "value {value} of semaphore `{semaphore}` has not been submitted, the greatest submitted one is {submitted}: submit the \
         signal first, or pass the work to a `timeline::Queue`, which holds it back until then"
    )]
    NotSubmitted {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The value that was waited for.
        value: u64,
        /// The greatest value that was submitted.
        submitted: u64,
    },
    /// The stream is being captured into a graph.
    #[error("`{name}`: the stream is being captured into a graph: signal and wait outside of the capture")]
    Captured {
        /// The name of the semaphore, or of the queue whose stream it is.
        name: Arc<str>,
    },
    /// The device, or the system, did not do it.
    #[error("{what}: {error}")]
    Device {
        /// What was asked.
        what: Arc<str>,
        /// What it said.
        error: Arc<str>,
    },
    /// The queue holds as much as it may.
    #[error(
        "queue `{queue}` holds {capacity} submissions that are not issued: give it more capacity, or let it wait with `WhenFull::Wait`"
    )]
    QueueFull {
        /// The queue's name.
        queue: Arc<str>,
        /// How many it may hold.
        capacity: usize,
    },
    /// The queue was dropped before what the work waits for was there.
    #[error("queue `{queue}` was dropped before the work could begin: wait for the queue's signals before you drop it")]
    QueueDropped {
        /// The queue's name.
        queue: Arc<str>,
    },
    /// Work of a queue panicked.
    #[error("work on queue `{queue}` panicked: {text}")]
    Panicked {
        /// The queue's name.
        queue: Arc<str>,
        /// The panic's message.
        text: Arc<str>,
    },
    /// This process was forked from the one that has the semaphore or the queue.
    #[error("`{name}` belongs to the parent process: create another one after the fork")]
    Inherited {
        /// The name of the semaphore or the queue.
        name: Arc<str>,
    },
    /// A host call that put its signals off let go of them.
    #[error("a host call dropped its signals: call `Signals::signal` or `Signals::fail`")]
    SignalsDropped,
}

/// Why a semaphore failed: the error that somebody gave to [`Semaphore::fail`](super::Semaphore::fail), or that a device or
/// a piece of work had. Every semaphore that depends on it gets the same one.
#[derive(Clone)]
pub struct Failure {
    origin: Arc<str>,
    error: Arc<dyn StdError + Send + Sync>,
}

impl Failure {
    pub(super) fn new(origin: Arc<str>, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        let error: Box<dyn StdError + Send + Sync> = error.into();
        // What failed because a semaphore did hands that semaphore's failure on.
        match error.downcast::<Error>().map(|error| *error) {
            Ok(Error::Failed { failure, .. }) => failure,
            Ok(error) => Failure { origin, error: Arc::new(error) },
            Err(error) => Failure { origin, error: Arc::from(error) },
        }
    }

    /// The name of the semaphore or queue that failed first.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The error itself.
    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (first at `{}`)", self.error, self.origin)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("origin", &self.origin).field("error", &self.error).finish()
    }
}
