//! The tables of a rank (`ranks=DIR`): what each of many ranks writes so that they can be compared.
//!
//! [`RanksSink`] is a sink of the session. On the collector's thread it adds records to a [`Window`](window::Window), and hands a closed window to the thread
//! of `writer`, which makes the tables (`layout`, `table`) and writes them. `steps` has the time of each step and `pending` its zones, `ranges`
//! the figures of ranges and `sketch` their histograms, `communicators` the collectives and `sampling` their choice, `identity` the names of files. `progress` is a second thread that says each second where the rank
//! is (`standing`). No launching thread waits for any of it, and neither does the collector. Memory is bounded, and what is lost is counted.

mod communicators;
mod identity;
mod layout;
mod pending;
mod progress;
mod ranges;
mod sampling;
mod sketch;
mod standing;
mod steps;
mod table;
mod window;
mod writer;

use std::io;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use communicators::Communicators;
use identity::{Identity, unix_ns};
use progress::Progress as ProgressFile;
use steps::OpenSteps;
use window::{Counts, Window};
use writer::Writer;

use crate::collector::SessionStats;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::record::ZoneRecord;
use warpline_core::report::Report;
use warpline_core::sink::{Batch, Progress, SessionInfo, Sink, not_started};
use warpline_core::stream::recorder::Recorder;
use warpline_core::suggest::counted;

/// The steps that a window has at least, where steps are marked.
const LEAST_STEPS: usize = 10;

/// The time after the end of a step at which it is closed: its zones have been read by then.
const SETTLED_NS: i64 = 1_000_000_000;

/// The most steps of a window: a loop that is faster closes its windows earlier.
const MOST_STEPS: usize = 1 << 14;

/// Writes the tables of a rank.
pub(crate) struct RanksSink {
    root: PathBuf,
    window_ns: i64,
    patience: Duration,
    recorder: Arc<Recorder>,
    tally: Arc<SessionStats>,
    /// The file of the session's flight recorder.
    flight: Option<PathBuf>,
    begun: Option<Begun>,
    lost: u64,
}

/// The state from the session's begin.
struct Begun {
    writer: Writer,
    progress: ProgressFile,
    steps: OpenSteps,
    communicators: Communicators,
    window: Box<Window>,
    /// The counts when the window began, and now.
    before: Counts,
    now: Counts,
    /// The number of the last window.
    number: i64,
}

impl RanksSink {
    pub(crate) fn new(
        root: PathBuf,
        window: Duration,
        finish_timeout: Duration,
        recorder: Arc<Recorder>,
        tally: Arc<SessionStats>,
    ) -> RanksSink {
        let window_ns = i64::try_from(window.as_nanos()).unwrap_or(i64::MAX).max(1);
        // The other half is for the other sinks, and for what is still on the streams.
        let patience = finish_timeout / 2;
        RanksSink { root, window_ns, patience, recorder, tally, flight: None, begun: None, lost: 0 }
    }

    /// Says in the progress file where the flight recorder's file is: it tells more of a rank that is dead.
    pub(crate) fn with_flight(self, flight: Option<PathBuf>) -> RanksSink {
        RanksSink { flight, ..self }
    }
}

impl Begun {
    fn zone(&mut self, zone: &ZoneRecord) {
        self.steps.zone(zone);
        self.window.zone(zone);
        self.communicators.add(zone, &self.steps, &mut self.window);
    }

    /// Closes the steps that have settled, and the window if its time is over.
    fn tick(&mut self, now_ns: i64, window_ns: i64, tally: &SessionStats) {
        self.steps.close(now_ns - SETTLED_NS, &mut self.window.closed);
        let steps = self.window.closed.steps.len();
        let is_over = now_ns - self.window.begin_ns >= window_ns && (steps == 0 || steps >= LEAST_STEPS);
        if is_over || steps >= MOST_STEPS {
            self.close_window(now_ns, window_ns, tally);
        }
    }

    /// Hands the window to the writer, and begins the next one.
    fn close_window(&mut self, now_ns: i64, window_ns: i64, tally: &SessionStats) {
        let number = number_of(window_ns).max(self.number + 1);
        let mut window = std::mem::replace(&mut self.window, Box::new(Window::new(number, now_ns)));
        self.number = number;
        window.end_ns = now_ns;
        window.realtime_offset_ns = unix_ns() - now_ns;
        window.clock_err_ns = lock(&tally.clocks).iter().map(|clock| clock.uncertainty_ns).max().unwrap_or(0);
        window.counts = self.now.since(self.before);
        self.before = self.now;
        self.writer.write(window);
    }
}

/// Returns what the rank is doing, as the progress file says it, for a session that writes tables.
#[cfg(target_os = "linux")]
pub(crate) fn standing(recorder: &Arc<Recorder>, flight: Option<PathBuf>) -> serde_json::Value {
    let identity = Identity::new(Path::new("."), &SessionInfo::now());
    let text = standing::Standing::new(identity, Arc::clone(recorder), flight).text(false);
    serde_json::from_str(&text).unwrap_or_default()
}

/// Returns the number of the window that begins now: ranks whose clocks agree have the same.
fn number_of(window_ns: i64) -> i64 {
    unix_ns().div_euclid(window_ns)
}

impl Sink for RanksSink {
    fn name(&self) -> String {
        format!("ranks={}", self.root.display())
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let identity = Identity::new(&self.root, session);
        let writer = Writer::start(identity.clone())?;
        let progress = ProgressFile::start(identity, Arc::clone(&self.recorder), self.flight.clone())?;
        let number = number_of(self.window_ns);
        self.begun = Some(Begun {
            writer,
            progress,
            steps: OpenSteps::default(),
            communicators: Communicators::default(),
            window: Box::new(Window::new(number, session.begin_ns)),
            before: Counts::default(),
            now: Counts::default(),
            number,
        });
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(begun) = &mut self.begun else { return Err(not_started()) };
        match batch {
            Batch::Zones(zones) => zones.iter().for_each(|zone| begun.zone(zone)),
            Batch::Steps(steps) => steps.iter().for_each(|step| begun.steps.step(step)),
            Batch::Waits(waits) => {
                waits.iter().filter_map(|wait| wait.gpu).for_each(|span| begun.steps.wait(span));
            }
            Batch::Replays(replays) => {
                for zone in replays.iter().flat_map(|replay| &replay.zones).map(|replayed| &replayed.zone) {
                    if let Some(gpu) = zone.gpu {
                        begun.steps.work(zone, gpu);
                    }
                    begun.window.zone(zone);
                    begun.communicators.add(zone, &begun.steps, &mut begun.window);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(begun) = &mut self.begun else { return Err(not_started()) };
        let now = Counts::of(progress);
        begun.steps.dropped(now.since(begun.now).dropped as i64);
        begun.now = now;
        begun.tick(now_ns(), self.window_ns, &self.tally);
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(mut begun) = self.begun.take() else { return Err(not_started()) };
        let Report { begun: zones, recorded, captured, .. } = *report;
        begun.now = Counts { begun: zones, recorded, captured, dropped: report.dropped.total() };
        begun.steps.close(i64::MAX, &mut begun.window.closed);
        begun.close_window(now_ns(), self.window_ns, &self.tally);
        begun.progress.finish(self.patience.min(Duration::from_millis(500)));
        let losses = begun.writer.finish(self.patience);
        self.lost = losses.records;
        let late = begun.steps.late;
        if late > 0 {
            let zones = counted(late, "zone");
            let note = format!(
                "{zones} read after their steps were written, or without room: the figures of those steps in `ranks` lack them"
            );
            lock(&self.tally.notes).push(note);
        }
        if losses.windows > 0 {
            let windows = counted(losses.windows, "window");
            let (records, why) = (counted(losses.records, "record"), losses.first.unwrap_or_default());
            return Err(io::Error::other(format!("{windows} with {records} lost: {why}")));
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
