//! A point in the work of a stream that another stream, or the host, can wait for. Applications order their streams
//! with it; the operations never do.

use std::sync::mpsc::{Receiver, channel};

use crate::cuda::Point;
use crate::error::Error;
use crate::stream::{self, Stream};

/// A point in a stream's work, for one waiter.
///
/// If an in-process stream goes away before it gets there, whoever waits goes on.
#[derive(Debug)]
pub struct Event(Kind);

#[derive(Debug)]
enum Kind {
    Host(Receiver<()>),
    Gpu(Point),
}

impl Event {
    /// The point behind everything that is queued on `stream` now.
    ///
    /// # Errors
    /// The driver makes no event.
    pub fn record(stream: &Stream) -> Result<Event, Error> {
        Ok(Event(match &stream.0 {
            stream::Kind::Host(stream) => {
                let (reached, event) = channel();
                stream.launch(move || {
                    // Nobody may be waiting any more; then there is nobody to tell.
                    let _ = reached.send(());
                });
                Kind::Host(event)
            }
            stream::Kind::Gpu(queue) => Kind::Gpu(queue.record()?),
        }))
    }

    /// Makes what is queued on `stream` from now on wait for the event. Does not block the caller.
    ///
    /// # Errors
    /// The stream is of another device, or its driver refuses.
    pub fn hold(self, stream: &Stream) -> Result<(), Error> {
        match (self.0, &stream.0) {
            (Kind::Host(event), stream::Kind::Host(stream)) => stream.launch(move || reach(&event)),
            (Kind::Gpu(point), stream::Kind::Gpu(queue)) => queue.wait_for(&point)?,
            _ => return Err(Error::OtherDevice("hold")),
        }
        Ok(())
    }

    /// Blocks the calling thread until the stream has reached the event.
    ///
    /// # Errors
    /// What has failed on the stream, if the driver says so.
    pub fn wait(self) -> Result<(), Error> {
        match self.0 {
            Kind::Host(event) => reach(&event),
            Kind::Gpu(point) => point.wait()?,
        }
        Ok(())
    }
}

fn reach(event: &Receiver<()>) {
    // An error says that the stream is gone: there is nothing left to wait for.
    let _ = event.recv();
}
