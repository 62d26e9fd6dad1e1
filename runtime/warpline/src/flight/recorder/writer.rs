//! The traces that are written on a thread of their own, one after the other, so that the collector goes on.
//!
//! What happens while one is being written waits, once for each reason: the trace that is written then has what a later
//! incident of that reason would have shown. A disk that hangs keeps the thread, and nobody else.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use warpline_trace::flight::{Incident, Reason};
use warpline_core::lock::lock;

#[derive(Default)]
pub(super) struct Writer {
    state: Mutex<State>,
    is_idle: Condvar,
}

#[derive(Default)]
struct State {
    /// There is a thread that writes.
    is_writing: bool,
    /// What it writes next.
    waiting: Vec<Incident>,
}

impl Writer {
    /// Whether a trace for this reason waits for its turn.
    pub(super) fn has(&self, reason: Reason) -> bool {
        lock(&self.state).waiting.iter().any(|incident| incident.reason == reason)
    }

    /// Has it written in its turn; true where there is no thread that writes, and the caller has to start one.
    pub(super) fn add(&self, incident: Incident) -> bool {
        let mut state = lock(&self.state);
        if !state.waiting.iter().any(|waiting| waiting.reason == incident.reason) {
            state.waiting.push(incident);
        }
        !std::mem::replace(&mut state.is_writing, true)
    }

    /// What the thread does: writes all that waits.
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

    /// Waits for what is being written, for so long; false where it is not done then. What waits behind it is given up.
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
