//! A point in the work of a stream that another stream, or the host, can wait for. Applications order their streams
//! with it; the operations never do.

use std::sync::mpsc::{Receiver, channel};

use warpline::HostStream;

/// A point in a stream's work, for one waiter.
///
/// If the stream goes away before it gets there, whoever waits goes on.
#[derive(Debug)]
pub struct Event(Receiver<()>);

impl Event {
    /// The point behind everything that is queued on `stream` now.
    pub fn record(stream: &HostStream) -> Event {
        let (reached, event) = channel();
        stream.launch(move || {
            // Nobody may be waiting any more; then there is nobody to tell.
            let _ = reached.send(());
        });
        Event(event)
    }

    /// Makes what is queued on `stream` from now on wait for the event. Does not block the caller.
    pub fn hold(self, stream: &HostStream) {
        stream.launch(move || self.wait());
    }

    /// Blocks the calling thread until the stream has reached the event.
    pub fn wait(self) {
        // An error says that the stream is gone: there is nothing left to wait for.
        let _ = self.0.recv();
    }
}
