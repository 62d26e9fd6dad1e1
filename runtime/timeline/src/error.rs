//! The errors of timelines, and the failure that passes from one semaphore to all that depend on it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An error of a semaphore or a queue. It is cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The value of a signal is not greater than all submitted values.
    #[error(
        "semaphore `{semaphore}` was signalled {asked}, but {current} has been submitted already: a signal has to be greater than every one before it"
    )]
    NotMonotonic {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The greatest value that was submitted, by the host or by a stream.
        current: u64,
        /// The rejected value.
        asked: u64,
    },
    /// The semaphore has failed permanently.
    #[error("semaphore `{semaphore}` failed: {failure}")]
    Failed {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The first failure, with its origin.
        failure: Failure,
    },
    /// The timeout expired before the value was reached.
    #[error(
        "semaphore `{semaphore}` did not reach {value} within {timeout:?}, it is at {reached}: signal it, or wait longer"
    )]
    Timeout {
        /// The semaphore's name.
        semaphore: Arc<str>,
        /// The value that was waited for.
        value: u64,
        /// The greatest value that the semaphore is known to have reached.
        reached: u64,
        /// The timeout of the wait.
        timeout: Duration,
    },
    /// A stream cannot wait for a value that has not been submitted.
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
    /// A stream, the device or the operating system refused the operation.
    #[error("{what}: {error}")]
    Device {
        /// The operation, or the object on which it failed.
        what: Arc<str>,
        /// The error's message.
        error: Arc<str>,
    },
    /// The device has no memory for an allocation. The context, and what was allocated before, stay usable.
    #[error(
        "queue `{queue}` cannot allocate {bytes} bytes: {error}; the queues of this process hold {current} bytes of the device, and held \
         {peak} at most: free buffers and wait for them to be freed, or ask for less"
    )]
    OutOfMemory {
        /// The queue's name.
        queue: Arc<str>,
        /// The bytes that were asked for.
        bytes: u64,
        /// The bytes of the device that queues of this process hold.
        current: u64,
        /// The most that they have held at one time.
        peak: u64,
        /// The error of the driver or the operating system.
        error: Arc<str>,
    },
    /// The queue is full.
    #[error(
        "queue `{queue}` holds {capacity} submissions that are not issued: give it more capacity, or let it wait with `WhenFull::Wait`"
    )]
    QueueFull {
        /// The queue's name.
        queue: Arc<str>,
        /// The most submissions that the queue may hold back.
        capacity: usize,
    },
    /// The queue was dropped before the work's waits were over.
    #[error("queue `{queue}` was dropped before the work could begin: wait for the queue's signals before you drop it")]
    QueueDropped {
        /// The queue's name.
        queue: Arc<str>,
    },
    /// The work of a submission panicked.
    #[error("work on queue `{queue}` panicked: {text}")]
    Panicked {
        /// The queue's name.
        queue: Arc<str>,
        /// The panic's message.
        text: Arc<str>,
    },
    /// This process was forked from the one that created the semaphore or the queue.
    #[error("`{name}` belongs to the parent process: create another one after the fork")]
    Inherited {
        /// The name of the semaphore or the queue.
        name: Arc<str>,
    },
    /// A host call deferred its signals and then dropped them.
    #[error("a host call dropped its signals: call `Signals::signal` or `Signals::fail`")]
    SignalsDropped,
}

/// The reason why a semaphore failed: the error that was passed to [`Semaphore::fail`](super::Semaphore::fail), or that a device or a piece
/// of work returned. All semaphores that depend on it fail with the same failure.
#[derive(Clone, Debug)]
pub struct Failure {
    origin: Arc<str>,
    error: Arc<dyn StdError + Send + Sync>,
}

impl Failure {
    pub(super) fn new(origin: Arc<str>, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Failure {
        let error: Box<dyn StdError + Send + Sync> = error.into();
        // An error that a failed semaphore caused keeps that semaphore's failure.
        match error.downcast::<Error>().map(|error| *error) {
            Ok(Error::Failed { failure, .. }) => failure,
            Ok(error) => Failure { origin, error: Arc::new(error) },
            Err(error) => Failure { origin, error: Arc::from(error) },
        }
    }

    /// Returns the name of the semaphore or queue that failed first.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the error.
    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (first at `{}`)", self.error, self.origin)
    }
}
