//! A queue of traces that a separate thread writes one after the other, so that the collector goes on.
//!
//! While a trace is being written, one incident per reason is queued, because its trace also covers later incidents of that reason. A disk
//! that hangs blocks only this thread.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use warpline_core::lock::lock;
use warpline_trace::flight::open::{Incident, Reason};

#[derive(Default)]
pub(super) struct Writer {
    state: Mutex<WriteQueue>,
    is_idle: Condvar,
}

#[derive(Default)]
struct WriteQueue {
    /// Whether a writing thread is running.
    is_writing: bool,
    /// The queue of incidents.
    waiting: Vec<Incident>,
}

impl Writer {
    /// Returns whether a trace for this reason is queued.
    pub(super) fn has(&self, reason: Reason) -> bool {
        lock(&self.state).waiting.iter().any(|incident| incident.reason == reason)
    }

    /// Queues an incident. Returns true if no writing thread is running; the caller must then start one.
    pub(super) fn add(&self, incident: Incident) -> bool {
        let mut state = lock(&self.state);
        if !state.waiting.iter().any(|waiting| waiting.reason == incident.reason) {
            state.waiting.push(incident);
        }
        !std::mem::replace(&mut state.is_writing, true)
    }

    /// Writes traces until the queue is empty. The writing thread runs it.
    pub(super) fn write_all(&self, write: impl Fn(&Incident)) {
        loop {
            let mut state = lock(&self.state);
            if state.waiting.is_empty() {
                state.is_writing = false;
                return self.is_idle.notify_all();
            }
            let incident = state.waiting.remove(0);
            drop(state);
            write(&incident);
        }
    }

    /// Waits for the trace being written, and discards the queue. Returns false on timeout.
    pub(super) fn finish(&self, within: Duration) -> bool {
        let mut state = lock(&self.state).wait_while(&self.is_idle, within, |state| state.is_writing);
        state.waiting.clear();
        !state.is_writing
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn incident(reason: Reason) -> Incident {
        Incident { reason, ns: 0, title: String::new(), args: Vec::new() }
    }

    #[test]
    fn what_happens_while_a_trace_is_written_is_written_after_it_once_for_each_reason() {
        let writer = Writer::default();
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        assert!(writer.add(incident(Reason::Stall)), "nobody writes yet");
        std::thread::scope(|scope| {
            let its = &writer;
            scope.spawn(move || {
                its.write_all(|incident| {
                    begun.send(incident.reason).expect("the test listens");
                    may_go.recv().expect("the test sends");
                });
            });
            let next = || has_begun.recv_timeout(LONG).expect("it is written");
            assert_eq!(next(), Reason::Stall);
            assert!(!writer.has(Reason::Stall), "another one would wait");
            for reason in [Reason::Signal, Reason::StreamFailed, Reason::Signal] {
                assert!(!writer.add(incident(reason)), "there is a thread already");
                assert!(writer.has(reason));
            }
            for expected in [Reason::Signal, Reason::StreamFailed] {
                go.send(()).expect("it waits");
                assert_eq!(next(), expected);
            }
            go.send(()).expect("it waits");
            assert!(writer.finish(LONG));
            assert!(has_begun.try_recv().is_err(), "each once");
        });
        assert!(writer.add(incident(Reason::Signal)), "the thread has ended");
    }

    #[test]
    fn a_trace_that_hangs_holds_nobody_longer_than_the_limit() {
        let writer = Writer::default();
        let (begun, has_begun) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        writer.add(incident(Reason::Stall));
        std::thread::scope(|scope| {
            let its = &writer;
            scope.spawn(move || {
                its.write_all(|incident| {
                    begun.send(incident.reason).expect("the test listens");
                    let _ = may_go.recv();
                });
            });
            has_begun.recv_timeout(LONG).expect("it is written");
            writer.add(incident(Reason::Signal));
            assert!(!writer.finish(Duration::from_millis(10)), "it hangs");
            drop(go);
        });
        assert!(has_begun.try_recv().is_err(), "what waited behind it is given up");
    }
}
