//! The end of a session: the rings are closed, what is on its way is collected while there is time, and all is given back.
//!
//! The collector comes here once, when its loop is over. Whoever finishes the session waits for it, and no longer than it said: a
//! device or a sink that hangs costs what it holds, and that is said.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Collector;
use super::clocks::Clocks;
use super::pace::SHORTEST;
use crate::clock::now_ns;
use crate::lock::lock;
use crate::spelling::counted_are;

impl Collector {
    /// Collects until the deadline what has begun, completes the sinks, and lets go of the devices.
    pub(super) fn end(mut self, deadline: Instant) {
        self.drain(deadline);
        self.watch_last();
        if !self.tally.abandoned.load(Ordering::Acquire) {
            let duration = Duration::from_nanos((now_ns() - self.begin_ns).max(0) as u64);
            let report = self.tally.report(&self.recorder, duration);
            for index in 0..self.sinks.len() {
                self.finish_sink(index, &report);
            }
        }
        for index in 0..self.sinks.len() {
            self.end_sink(index);
        }
        self.end_guests();
        // Last, because a device that hangs may hang this, too.
        self.let_devices_go();
    }

    /// Closes the rings and collects what was published, until nothing waits or the time is up.
    fn drain(&mut self, deadline: Instant) {
        self.recorder.close();
        // Some zones take two looks.
        self.pass();
        loop {
            self.pass();
            self.pass_spans();
            let waiting = self.streams.iter().any(|stream| !stream.pending.is_empty());
            if !waiting || Instant::now() >= deadline || self.tally.abandoned.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(SHORTEST);
        }
        self.pass_waits(true);
        self.end_kernels();
        self.pass_stamps(true);
        self.pass_changes();
        self.tell_what_is_missing();
        self.give_up();
    }

    /// Says which streams were still busy.
    fn tell_what_is_missing(&mut self) {
        let mut notes = Vec::new();
        for stream in &mut self.streams {
            let Some(info) = &stream.context.info else { continue };
            let ring = stream.context.ring();
            let zones: Vec<_> = stream.pending.iter_mut().filter_map(|token| ring.slot(token)?.range).collect();
            if let (Some(range), waiting) = (zones.first(), zones.len()) {
                notes.push(format!(
                    "stream `{}` was still busy when the session ended: {} missing, the first of range `{}`; synchronise \
                     before `finish`, or give it a longer `timeout`",
                    info.name,
                    counted_are(waiting as u64, "zone"),
                    range.name()
                ));
            }
        }
        lock(&self.tally.notes).extend(notes);
    }

    /// Nobody reads any more what still waits: its events go back, and who asked for a zone is told.
    fn give_up(&mut self) {
        for stream in &mut self.streams {
            for token in &mut stream.pending {
                let Some(slot) = stream.context.ring().slot(token) else { continue };
                slot.ticket = None;
                if let Some(points) = &mut slot.points {
                    points.release();
                }
            }
        }
    }

    /// Gives back what the session holds on devices.
    fn let_devices_go(&mut self) {
        self.clocks = Clocks::default();
        self.streams.clear();
        #[cfg(feature = "cuda")]
        {
            self.stamps = None;
        }
        self.recorder.close_shared();
    }
}
