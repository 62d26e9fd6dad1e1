//! The state of a connection's request: `begin` creates it and `progress` advances it. Nothing here sends or blocks.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::collector::engine::Subscriber;
use crate::collector::left_out::not_sampled;
use crate::control::answers;
use crate::control::live_stats::LiveStats;
use crate::control::pipe::Pipe;
use crate::flight::Flight;
use warpline_core::catalog::catalog;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::profile::pending::PendingZones;
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{Decoder, Kind};

/// How long a connection waits for the engine to end its subscription. A slow sink of the program can exceed it.
pub(super) const LEAVES_WITHIN: Duration = Duration::from_secs(4);

/// Interval between polls for armed zones, and for the collector's reply to a dump.
pub(super) const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Largest payload of a trace frame, in bytes.
const PIECE: usize = 64 << 10;

pub(super) enum ConnectionState {
    Asking {
        decoder: Decoder,
        until: Instant,
    },
    Recording(Recording),
    Watching(Watching),
    Arming(Arming),
    Dumping(Dumping),
    /// Only queued bytes are left to send.
    Telling,
}

pub(super) struct Recording {
    pub(super) subscriber: Subscriber,
    pub(super) pipe: Arc<Pipe>,
    pub(super) until: Option<Instant>,
    pub(super) leaving: Option<Leaving>,
    /// Bytes taken from the pipe that are not framed yet.
    pub(super) rest: Vec<u8>,
}

pub(super) struct Watching {
    pub(super) subscriber: Subscriber,
    pub(super) watch: Arc<Mutex<LiveStats>>,
    pub(super) every: Duration,
    pub(super) last: Instant,
    /// The process's count of unsampled zones at the last tick.
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

/// A dump that waits for the collector's flush to the recorder's file.
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
    pub(super) fn tick(&mut self, now: Instant) -> Value {
        let length_ns = answers::since_ns(self.last, now);
        let passed_over = not_sampled();
        let not_sampled = passed_over.saturating_sub(self.passed_over);
        let engine = &self.subscriber.engine;
        let left_out = lock(&engine.stats.left_out).since(Some(self.last));
        (self.last, self.passed_over) = (now, passed_over);
        let (devices, ranges) = lock(&self.watch).take_figures(now_ns(), length_ns);
        json!({
            "is": "figures",
            "seconds": length_ns as f64 / 1e9,
            "session": if engine.is_held { "held" } else { "own" },
            "is_recording": engine.is_on(),
            "zones": answers::account(&engine.recorder.account()),
            "devices": devices,
            "ranges": ranges,
            "ranges_in_catalog": catalog().len(),
            "ranges_left_out": left_out.ranges,
            "was_stopped": left_out.while_stopped,
            "not_sampled": not_sampled,
            "recorded_share": lock(&engine.stats.windows).map(|windows| windows.recorded),
        })
    }
}
