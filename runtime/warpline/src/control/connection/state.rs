//! What has been begun for a connection: `begin` makes it, `progress` goes on with it. Nothing here sends or waits.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::collector::left_out::not_sampled;
use crate::control::answers;
use crate::control::host::Seat;
use crate::control::live_stats::LiveStats;
use crate::control::pipe::Pipe;
use crate::flight::Flight;
use warpline_core::catalog::catalog;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::profile::pending::PendingZones;
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{Decoder, Kind};

/// A session sees a guest off within this time; a sink of the program's may keep it from that.
pub(super) const LEAVES_WITHIN: Duration = Duration::from_secs(4);

/// Between two looks for zones that were asked for.
pub(super) const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// A piece of a trace, and how many of them a connection gets at once.
const PIECE: usize = 64 << 10;

pub(super) enum State {
    Asking {
        decoder: Decoder,
        until: Instant,
    },
    Recording(Recording),
    Watching(Watching),
    Arming(Arming),
    Dumping(Dumping),
    /// What is left to send, and no more.
    Telling,
}

pub(super) struct Recording {
    pub(super) seat: Seat,
    pub(super) pipe: Arc<Pipe>,
    pub(super) until: Option<Instant>,
    pub(super) leaving: Option<Leaving>,
    /// Of what was taken out of the pipe, what is not sent yet.
    pub(super) rest: Vec<u8>,
}

pub(super) struct Watching {
    pub(super) seat: Seat,
    pub(super) watch: Arc<Mutex<LiveStats>>,
    pub(super) every: Duration,
    pub(super) last: Instant,
    /// How many zones had been passed over at the last look.
    pub(super) passed_over: u64,
    pub(super) leaving: Option<Leaving>,
}

#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) since: Instant,
    pub(super) why: &'static str,
}

pub(super) struct Arming {
    pub(super) pending: PendingZones,
    pub(super) until: Instant,
    pub(super) next: Instant,
}

/// The collector writes down what it knows.
pub(super) struct Dumping {
    pub(super) flight: Arc<Flight>,
    pub(super) written: Receiver<()>,
    pub(super) until: Instant,
    pub(super) next: Instant,
}

impl Recording {
    pub(super) fn next_piece(&mut self, out: &mut Vec<u8>) {
        if self.rest.is_empty() {
            self.rest = self.pipe.take();
        }
        let piece = self.rest.len().min(PIECE);
        if piece > 0 {
            protocol::frame(Kind::Trace, &self.rest[..piece], out);
            self.rest.drain(..piece);
        }
    }
}

impl Watching {
    pub(super) fn look(&mut self, now: Instant) -> Value {
        let length_ns = answers::since_ns(self.last, now);
        let passed_over = not_sampled();
        let not_sampled = passed_over.saturating_sub(self.passed_over);
        let left_out = lock(&self.seat.session().tally.left_out).since(Some(self.last));
        (self.last, self.passed_over) = (now, passed_over);
        let (devices, ranges) = lock(&self.watch).look(now_ns(), length_ns);
        let session = self.seat.session();
        json!({
            "is": "figures",
            "seconds": length_ns as f64 / 1e9,
            "session": if session.is_held { "held" } else { "own" },
            "is_recording": session.is_recording(),
            "zones": answers::account(&session.recorder.account()),
            "devices": devices,
            "ranges": ranges,
            "ranges_in_catalog": catalog().len(),
            "ranges_left_out": left_out.ranges,
            "was_stopped": left_out.while_stopped,
            "not_sampled": not_sampled,
        })
    }
}
