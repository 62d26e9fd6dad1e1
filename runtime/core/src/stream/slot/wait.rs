//! The wait of a timeline in a slot.

use super::{Lost, Slot};
use crate::backend::Call;
use crate::clock::now_ns;
use crate::record::Span;
use crate::stream::waits::Waited;

impl Slot {
    /// Puts the first point of a wait on its stream.
    pub fn begin_wait(&mut self, thread: u64, waited: Waited) -> Result<(), Lost> {
        self.range = None;
        self.extras_to_fill().wait = Some(Box::new(waited));
        self.thread = thread;
        self.host.begin_ns = now_ns();
        let call = Call { thread: self.thread, begin_ns: self.host.begin_ns };
        self.points.as_mut().map_or(Ok(()), |points| points.begin(call).map_err(Lost::from))
    }

    /// Puts the second point of the wait on its stream.
    pub fn end_wait(&mut self, thread: u64) -> Result<(), Lost> {
        let call = Call { thread, begin_ns: self.host.begin_ns };
        let ended = self.points.as_mut().map_or(Ok(()), |points| points.end(call).map(drop).map_err(Lost::from));
        self.host.end_ns = now_ns();
        ended
    }

    /// Fills in a wait of the calling thread that is over.
    pub fn take_host_wait(&mut self, thread: u64, waited: Waited, begin_ns: i64, end_ns: i64) {
        self.range = None;
        self.extras_to_fill().wait = Some(Box::new(waited));
        self.thread = thread;
        self.host = Span { begin_ns, end_ns };
    }

    /// Returns whether the slot holds a wait.
    #[inline]
    pub fn is_wait(&self) -> bool {
        self.extras().is_some_and(|extras| extras.wait.is_some())
    }

    /// Returns the wait, with its number on the stream and the time of its call, and takes it out.
    pub fn take_wait(&mut self) -> Option<(Waited, u64, Span)> {
        let waited = self.extras_to_take()?.wait.take()?;
        Some((*waited, self.sequence, self.host))
    }
}
