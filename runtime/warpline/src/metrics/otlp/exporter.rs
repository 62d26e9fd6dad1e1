//! The thread that sends metrics, and when it does: each interval, and after a failure as the collector asks or after a growing pause.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::resource::v1::Resource;

use super::client::{Client, Failure};
use super::message;
use crate::collector::SessionStats;
use crate::metrics::figures::Figures;
use crate::metrics::job::Job;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::threads;

/// The first pause after a failure, and the longest one. Each is about twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pause between the tries of the last export.
const LAST_PAUSE: Duration = Duration::from_millis(100);

/// The longest time that an export takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the sink and the thread share.
pub(super) struct Shared {
    pub(super) figures: Mutex<Figures>,
    pub(super) outcome: Mutex<Outcome>,
    pub(super) name: String,
    pub(super) stats: Arc<SessionStats>,
    pub(super) job: Job,
    pub(super) resource: Resource,
    /// The session's begin on the clock of records.
    pub(super) begin_ns: i64,
}

/// What came of the exports.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Exports that were tried, and those that succeeded.
    pub(super) exports: u64,
    succeeded: u64,
    /// The first reason.
    pub(super) first: Option<String>,
    /// Records in the last export that succeeded.
    pub(super) delivered: u64,
    /// Data points that the collector did not take.
    pub(super) rejected: u64,
    /// Whether the last export, with the figures of the whole session, succeeded.
    pub(super) is_complete: bool,
    /// Whether a failure was said, or nobody wants to hear of one any more.
    is_quiet: bool,
}

impl Outcome {
    /// Returns the number of exports that failed, or have not ended.
    pub(super) fn failed(&self) -> u64 {
        self.exports - self.succeeded
    }
}

/// The thread, from the side of the sink.
pub(super) struct Exporter {
    pub(super) shared: Arc<Shared>,
    end: Sender<Instant>,
    done: Receiver<()>,
}

impl Exporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(shared: Shared, url: &str, interval: Duration) -> io::Result<Exporter> {
        let shared = Arc::new(shared);
        let ((end, ends), (is_done, done)) = (mpsc::channel(), mpsc::channel());
        let mut worker = Worker { shared: Arc::clone(&shared), client: Client::new(url), pause: FIRST_PAUSE };
        let run = move || {
            warpline_core::reentrancy::stay();
            worker.run(interval, &ends);
            drop(is_done);
        };
        threads::spawn("warpline-otlp", run)?;
        Ok(Exporter { shared, end, done })
    }

    /// Makes the thread send a last time, waits for it, and returns what came of all. A thread that is not done in time ends by itself.
    pub(super) fn finish(self, within: Duration) -> Outcome {
        let _ = self.end.send(Instant::now() + within);
        let _ = self.done.recv_timeout(within);
        let mut outcome = lock(&self.shared.outcome);
        outcome.is_quiet = true;
        outcome.clone()
    }
}

struct Worker {
    shared: Arc<Shared>,
    client: Client,
    /// The next pause after a failure.
    pause: Duration,
}

impl Worker {
    fn run(&mut self, interval: Duration, ends: &Receiver<Instant>) {
        let mut next = Instant::now() + interval;
        loop {
            match ends.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(deadline) => return self.last(deadline),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let begun = Instant::now();
            next = match self.export(TIMEOUT, false) {
                Ok(()) => begun + interval,
                Err(Failure::Retry { after, .. }) => {
                    let pause = self.next_pause();
                    Instant::now() + after.map_or(pause, |after| after.max(pause))
                }
                Err(Failure::Refused(_)) => Instant::now() + interval.max(FIRST_PAUSE),
            };
        }
    }

    /// Sends the figures of the whole session, again and again until the deadline if the collector may take them then.
    fn last(&mut self, deadline: Instant) {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let failure = self.export(left.max(Duration::from_millis(1)), true);
            let after = match failure {
                Err(Failure::Retry { after, .. }) => after.unwrap_or(LAST_PAUSE).max(LAST_PAUSE),
                _ => return,
            };
            if Instant::now() + after >= deadline {
                return;
            }
            thread::sleep(after);
        }
    }

    /// Sends the figures, and counts what came of it.
    fn export(&mut self, within: Duration, is_last: bool) -> Result<(), Failure> {
        let Shared { figures, outcome, job, resource, begin_ns, .. } = &*self.shared;
        let (body, records) = {
            let mut figures = lock(figures);
            let now_ns = now_ns();
            let now_unix_ns = figures.begin_unix_ns + (now_ns - begin_ns);
            figures.bandwidths.give_series(now_ns);
            (message::encode(&figures, job, resource.clone(), now_unix_ns), figures.records)
        };
        lock(outcome).exports += 1;
        let sent = self.client.post(&body, within);
        let mut outcome = lock(outcome);
        match sent {
            Ok(rejected) => {
                outcome.succeeded += 1;
                outcome.delivered = records;
                outcome.rejected += rejected;
                outcome.is_complete = is_last;
                self.pause = FIRST_PAUSE;
                Ok(())
            }
            Err(failure) => {
                let why = failure.why();
                outcome.first.get_or_insert_with(|| why.to_owned());
                let is_first = !std::mem::replace(&mut outcome.is_quiet, true);
                drop(outcome);
                // At the end, the sink says it.
                if is_first && !is_last {
                    let Shared { name, stats, .. } = &*self.shared;
                    stats
                        .warn(format!("{name}: {why}; the program goes on, and later exports will have these figures"));
                }
                Err(failure)
            }
        }
    }

    /// Returns the pause after a failure, between half of its length and all of it, so that ranks do not come back at once.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        let random = RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64;
        pause.mul_f64(0.5 + random / 2.0)
    }
}
