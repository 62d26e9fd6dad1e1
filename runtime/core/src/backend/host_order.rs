//! Timeline operations on in-process streams: points that a stream reaches, and streams that wait for a point.
//!
//! The worker of a [`HostStream`](super::host::HostStream) acts as the device. When a stream waits, its worker waits; no
//! launching thread does.

use std::sync::{Arc, Condvar, Mutex};

use super::Refusal;
use super::host::{Op, Queue};
use crate::lock::lock;

/// A position on an in-process stream.
pub struct HostPoint {
    stream: u64,
    state: Mutex<PointState>,
    settled: Condvar,
}

#[derive(Default)]
struct PointState {
    /// The outcome, once it is known; the text is the stream's error.
    outcome: Option<Result<(), String>>,
    /// The callbacks: several values may be signalled at one point.
    then: Vec<Then>,
}

type Then = Box<dyn FnOnce(Result<(), String>) + Send>;

impl HostPoint {
    /// Records a point after the work that is on the stream now.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn put(queue: &Queue) -> Result<Arc<HostPoint>, Refusal> {
        let failed = |error| Refusal::Failed { what: "a signal on a host stream", error };
        queue.faults.before_record().map_err(failed)?;
        let point = Arc::new(HostPoint { stream: queue.id, state: Mutex::default(), settled: Condvar::new() });
        let arrival = Arrival(Some(Arc::clone(&point)));
        queue.push(Op::Run(Box::new(move || arrival.arrive())));
        Ok(point)
    }

    /// Makes the stream wait for the point before it continues.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn hold(self: Arc<HostPoint>, queue: &Queue) -> Result<(), Refusal> {
        queue.faults.stream().map_err(|error| Refusal::Failed { what: "a wait on a host stream", error })?;
        queue.push(Op::Run(Box::new(move || {
            let mut state = lock(&self.state);
            while state.outcome.is_none() {
                state = state.wait(&self.settled);
            }
        })));
        Ok(())
    }

    /// Puts a call on the stream, after the work that is on it now. A stream that has failed drops the call.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn call(queue: &Queue, call: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
        HostPoint::check(queue)?;
        queue.push(Op::Run(Box::new(call)));
        Ok(())
    }

    /// Checks that the stream has not failed.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn check(queue: &Queue) -> Result<(), Refusal> {
        queue.faults.stream().map_err(|error| Refusal::Failed { what: "memory of a host stream", error })
    }

    /// Calls `then` when the outcome is known, on the thread that determines it; immediately if it is already known.
    pub fn then(&self, then: impl FnOnce(Result<(), String>) + Send + 'static) {
        let mut state = lock(&self.state);
        match state.outcome.clone() {
            Some(outcome) => {
                drop(state);
                then(outcome);
            }
            None => state.then.push(Box::new(then)),
        }
    }

    pub fn stream(&self) -> u64 {
        self.stream
    }

    fn settle(&self, outcome: Result<(), String>) {
        let mut state = lock(&self.state);
        state.outcome = Some(outcome.clone());
        let then = std::mem::take(&mut state.then);
        drop(state);
        self.settled.notify_all();
        then.into_iter().for_each(|then| then(outcome.clone()));
    }
}

/// A queued point. A stream that has failed drops it.
struct Arrival(Option<Arc<HostPoint>>);

impl Arrival {
    fn arrive(mut self) {
        if let Some(point) = self.0.take() {
            point.settle(Ok(()));
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(point) = self.0.take() {
            point.settle(Err("the stream failed before it got there".to_owned()));
        }
    }
}
