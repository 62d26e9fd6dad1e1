//! The engine for requests: it times requested zones that no session records.
//!
//! It starts with the first request, or with the first zone of one. It ends soon after the last answer, which releases its device
//! resources. It writes to no sink, because each zone carries the ticket of its requester.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::current::ENGINES;
use super::start::CollectorThread;
use crate::collector::{Collector, Context, Inbox, SessionStats, Stage};
use crate::settings::Config;
use warpline_core::backend::Limits;
use warpline_core::lock::lock;
use warpline_core::profile::error::ProfileError;
use warpline_core::profile::waiting;
use warpline_core::stream::recorder::Recorder;
use warpline_core::switch::REQUESTS_EPOCH;
use warpline_core::timing::EndMode;
use warpline_report::sink::SessionInfo;
use warpline_report::sink::held::HeldSinks;

/// The idle time before the end, so that successive requests find the engine running.
const LINGER: Duration = Duration::from_millis(250);

/// The time between two checks for requests.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The time limit of the drain: later results of a device are not needed.
const DRAIN: Duration = Duration::from_millis(100);

/// Returns the recorder for requested zones. Any thread may call it, also at the begin of a zone.
pub(crate) fn for_requests() -> Result<Arc<Recorder>, ProfileError> {
    let mut running = lock(&ENGINES.requests);
    if let Some(recorder) = &*running {
        return Ok(Arc::clone(recorder));
    }
    let recorder = start().map_err(|error| ProfileError::NoThread(error.to_string()))?;
    Ok(Arc::clone(running.insert(recorder)))
}

fn start() -> io::Result<Arc<Recorder>> {
    let (thread, _) = CollectorThread::spawn("warpline-profile")?;
    let Config { ring, events, .. } = Config::default();
    // Single zones: an event after each costs almost no overlap, and is exact.
    let limits = Limits { zones: ring, events, ends: EndMode::Eager, watch: false };
    let recorder = Arc::new(Recorder::new(REQUESTS_EPOCH, limits));
    let (stats, inbox) = (Arc::<SessionStats>::default(), Arc::<Inbox>::default());
    let mut collector = Collector::new(Arc::clone(&recorder), stats, inbox, HeldSinks::default(), &SessionInfo::now());
    collector.add(Box::new(IdleShutdown { looked: Instant::now() }));
    thread.run(collector);
    Ok(recorder)
}

/// Ends the collector when there has been no request for a while.
struct IdleShutdown {
    looked: Instant,
}

impl Stage for IdleShutdown {
    fn pass(&mut self, cx: &mut Context) -> usize {
        if self.looked.elapsed() < LOOK_EVERY {
            return 0;
        }
        self.looked = Instant::now();
        waiting::if_idle_for(LINGER, || {
            *lock(&ENGINES.requests) = None;
            cx.end_by(Instant::now() + DRAIN);
        });
        0
    }
}
