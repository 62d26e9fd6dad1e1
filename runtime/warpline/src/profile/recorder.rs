//! The way of zones that were asked for and that no session has: a recorder and a collector of their own.
//!
//! They come into being with the first request, or with the first zone of one, and end soon after the last answer: then what
//! they hold on devices is given back. They write to no sink. Their streams' counts are nobody's: each zone has an answer.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::collector::{Collector, Context, SessionStats, Stage};
use crate::settings::Config;
use warpline_core::backend::{Limits, NoKey, StreamRef};
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;
use warpline_core::profile::error::ProfileError;
use warpline_core::profile::outside::{Outside, UNSAID};
use warpline_core::profile::{outside, waiting};
use warpline_core::sink::SessionInfo;
use warpline_core::sink::held::HeldSinks;
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::recorder::Recorder;
use warpline_core::stream::thread;
use warpline_core::switch::REQUESTS_EPOCH;
use warpline_core::timing::EndMode;

/// Who asks for one zone after another finds everything there.
const LINGER: Duration = Duration::from_millis(250);

/// Between two looks at whether there are requests.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is still on a device then is not waited for: nobody wants it.
const DRAIN: Duration = Duration::from_millis(100);

static RUNNING: PerProcess<Mutex<Option<Arc<Recorder>>>> = PerProcess::new(Mutex::default);

/// Lets zones that are asked for find it.
pub(super) fn register() {
    outside::register(Outside { prepare, context, host_context });
}

/// Makes it ahead of the zone.
fn prepare() {
    // A failure here comes again, and is answered, with the zone.
    let _ = recorder();
}

/// The context of a stream on which a zone begins that was asked for.
fn context(stream: &StreamRef<'_>) -> Result<Arc<StreamContext>, ProfileError> {
    let recorder = recorder()?;
    discover_thread(&recorder);
    recorder.context(stream).ok_or_else(|| why_not(&recorder, stream))
}

/// The context of the host zones that were asked for.
fn host_context() -> Result<Arc<StreamContext>, ProfileError> {
    let recorder = recorder()?;
    discover_thread(&recorder);
    Ok(Arc::clone(recorder.host()))
}

fn why_not(recorder: &Recorder, stream: &StreamRef<'_>) -> ProfileError {
    match stream.key {
        Err(NoKey::Captured) => ProfileError::Captured,
        _ if recorder.is_closed() => ProfileError::Unfinished,
        _ => ProfileError::Stream(recorder.last_refusal().unwrap_or_else(|| UNSAID.to_owned())),
    }
}

fn discover_thread(recorder: &Recorder) {
    thread::with(|thread| drop(thread.make_known(recorder)));
}

fn recorder() -> Result<Arc<Recorder>, ProfileError> {
    let mut running = lock(&RUNNING);
    if let Some(recorder) = &*running {
        return Ok(Arc::clone(recorder));
    }
    let recorder = start().map_err(|error| ProfileError::NoThread(error.to_string()))?;
    Ok(Arc::clone(running.insert(recorder)))
}

fn start() -> io::Result<Arc<Recorder>> {
    let Config { ring, events, .. } = Config::default();
    // Single zones: an event behind each costs no overlap to speak of, and is exact.
    let ends = EndMode::Eager;
    let recorder = Arc::new(Recorder::new(REQUESTS_EPOCH, Limits { zones: ring, events, ends, watch: false }));
    let (its, tally) = (Arc::clone(&recorder), Arc::new(SessionStats::default()));
    let mut collector = Collector::new(its, tally, HeldSinks::default(), &SessionInfo::now(), ends);
    collector.add(IdleShutdown { looked: Instant::now() });
    let thread = std::thread::Builder::new().name("warpline-profile".to_owned()).spawn(move || collector.run())?;
    recorder.waker.set(thread.thread().clone());
    Ok(recorder)
}

/// Ends the collector when there has been no request for a while.
struct IdleShutdown {
    looked: Instant,
}

impl Stage for IdleShutdown {
    fn end_round(&mut self, cx: &mut Context) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        waiting::if_idle_for(LINGER, || {
            *lock(&RUNNING) = None;
            cx.end_by(Instant::now() + DRAIN);
        });
    }
}
