//! The streams of a session: they are discovered when zones begin on them, kept supplied, and evicted when they are no longer used.
//!
//! The collector's loop and each pass call this module. It prepares what launching threads would otherwise have to create, and does not
//! ask devices whether anything is complete.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SessionStats;
use super::clocks::Clocks;
use super::newcomer::Newcomer;
use super::stream::Stream;
use warpline_core::lock::lock;
use warpline_core::record::DeviceKind;
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::recorder::Recorder;

/// The number of slots that the collector creates ahead for a stream with more than a few zones.
const SLOTS_AHEAD: usize = 1024;
const FEW: u64 = 16;

/// The time at rest after which a GPU stream is evicted; it is much shorter if there are more than a few hundred streams.
const LONG_REST: Duration = Duration::from_secs(10);
const SHORT_REST: Duration = Duration::from_millis(5);
const CROWD: usize = 256;

/// The time without a new zone after which a device is left alone.
const RESTS: Duration = Duration::from_secs(1);

/// The streams on which zones begin, and the clocks of their devices.
pub(super) struct Streams {
    pub(super) all: Vec<Stream>,
    pub(super) clocks: Clocks,
    /// The recorder's generation of streams at the last discovery.
    pub(super) generation: u64,
    /// The devices whose first zones wait for their clocks.
    newcomer: Option<Newcomer>,
    /// Whether a caller waits for all zones of this round, so that no device is left alone.
    pub(super) is_asked: bool,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams { all: Vec::new(), clocks: Clocks::default(), generation: 0, newcomer: None, is_asked: false }
    }

    /// Adds the streams that have appeared since the last call.
    pub(super) fn discover(&mut self, recorder: &Recorder, stats: &SessionStats) {
        let generation = recorder.generation.load(Ordering::Acquire);
        let contexts = match &self.newcomer {
            None if generation == self.generation => return,
            _ => recorder.contexts(),
        };
        if !self.may_measure(&contexts, recorder) {
            return;
        }
        self.generation = generation;
        for context in contexts {
            if context.is_met.swap(true, Ordering::Relaxed) {
                continue;
            }
            let (reader, clock) = match (&context.info, &context.backend) {
                (Some(info), Some(backend)) => {
                    (Some(backend.reader()), self.clocks.place(info, backend.as_ref(), stats))
                }
                _ => (None, usize::MAX),
            };
            self.all.push(Stream::new(context, reader, clock));
        }
        lock(&stats.notes).extend(recorder.take_refusals());
    }

    /// Returns whether no device among these streams has to be left alone yet. At the end of the session there is none.
    fn may_measure(&mut self, contexts: &[Arc<StreamContext>], recorder: &Recorder) -> bool {
        let is_new = |context: &&Arc<StreamContext>| match (&context.info, &context.backend) {
            (Some(info), Some(backend)) => {
                info.device.kind != DeviceKind::Host
                    && !context.is_met.load(Ordering::Relaxed)
                    && !self.clocks.has(info, backend.as_ref())
            }
            _ => false,
        };
        let begun: u64 = contexts.iter().filter(is_new).map(|context| context.ring().taken()).sum();
        let now = Instant::now();
        let newcomer = self.newcomer.get_or_insert_with(|| Newcomer::new(begun, now));
        let may = begun == 0 || self.is_asked || !recorder.is_on() || newcomer.is_ready(begun, now);
        if may {
            self.newcomer = None;
        }
        may
    }

    /// Finds the streams on which zones have begun since the last look, and creates slots ahead for those that may begin more. Returns
    /// whether GPU zones have begun.
    pub(super) fn see_what_begins(&mut self, recorder: &Recorder) -> bool {
        let now = Instant::now();
        let mut is_launching = false;
        for stream in &mut self.all {
            let begun = stream.context.ring().taken();
            stream.is_launching = begun != stream.active.1;
            stream.is_sparse = begun - stream.active.1 < FEW && stream.has_lazy_ends();
            if stream.is_launching {
                stream.active = (now, begun);
                is_launching |= stream.is_of_device();
                // No zone begins on a stream that the application has dropped, so its slots would only take memory.
                if begun > FEW && !stream.context.forgotten.load(Ordering::Acquire) {
                    stream.context.provide(SLOTS_AHEAD);
                }
            }
        }
        provide(recorder, &self.all);
        is_launching
    }

    /// Measures the clocks of the streams on which zones begin or wait.
    pub(super) fn renew_clocks(&mut self, recorder: &Recorder, stats: &SessionStats) {
        let Streams { all, clocks, .. } = self;
        let is_on = recorder.is_on();
        let is_fresh = |stream: &Stream| is_on && stream.active.0.elapsed() < RESTS;
        let is_used = |stream: &Stream| is_fresh(stream) || !stream.pending.is_empty();
        clocks.renew(stats, |place| all.iter().any(|stream| stream.clock == place && is_used(stream)));
    }

    /// Returns whether no stream has an open or pending zone.
    pub(super) fn are_unused(&self) -> bool {
        self.all.iter().all(|stream| stream.context.in_use(stream.given_back) == 0)
    }

    /// Returns whether the streams on which zones begin have few of them, and a look bounds the ends of these.
    pub(super) fn are_sparse(&self) -> bool {
        self.all.iter().filter(|stream| stream.is_launching && stream.is_of_device()).all(|stream| stream.is_sparse)
    }

    /// Returns whether a stream has a pending zone, or its first zones wait for a clock.
    pub(super) fn are_waiting(&self) -> bool {
        self.newcomer.is_some() || self.all.iter().any(|stream| !stream.pending.is_empty())
    }
}

/// Creates ahead what launching threads would otherwise have to create, unless the session is stopped.
pub(super) fn provide(recorder: &Recorder, streams: &[Stream]) {
    if !recorder.is_on() {
        return;
    }
    for stream in streams {
        if let Some(backend) = &stream.context.backend {
            backend.provide();
        }
        stream.context.grow_ahead(stream.given_back);
    }
}

/// Evicts streams that the application has dropped, and GPU streams at rest: a destroyed stream cannot be distinguished from an unused
/// one, and one that is used again is discovered again. Forgets those whose zones are all accounted for.
pub(super) fn evict(recorder: &Recorder, streams: &mut Vec<Stream>, mut forget: impl FnMut(&Stream)) {
    let crowded = streams.len() > CROWD;
    let now = Instant::now();
    for stream in &*streams {
        let rests = now.duration_since(stream.active.0) >= if crowded { SHORT_REST } else { LONG_REST };
        let is_over = stream.context.forgotten.load(Ordering::Acquire) || (stream.is_of_device() && rests);
        if is_over && !stream.context.is_retired() && stream.pending.is_empty() && stream.context.settled().1 {
            recorder.evict(&stream.context);
        }
    }
    streams.retain(|stream| {
        let is_gone = stream.context.is_retired() && stream.pending.is_empty() && recorder.retire(&stream.context);
        if is_gone {
            forget(stream);
        }
        !is_gone
    });
}
