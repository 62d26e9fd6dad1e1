//! The tables of a rank (`ranks=DIR`): what each of many ranks writes so that they can be compared.
//!
//! [`RanksSink`] is a sink of the session. On the collector's thread it adds records to a [`Window`](window::Window),
//! and hands a window that is over to the thread of `writer`, which makes the tables (`layout`, `table`) and writes
//! them. `steps` has the time of each step and `pending` its zones, `ranges` the figures of ranges and `sketch` their
//! histograms, `communicators` the collectives and `sampling` their choice, `identity` the names of files, which
//! `beneath` opens. `progress` is a second thread that says each second where the rank is (`standing`). No launching
//! thread waits for any of it, and neither does the collector. Memory is bounded, and what is lost is counted.

mod activity;
mod beneath;
mod communicators;
mod identity;
mod layout;
mod pending;
mod progress;
mod ranges;
mod sampling;
mod sketch;
mod steps;
mod table;
mod window;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use communicators::Communicators;
use identity::{Identity, unix_ns};
use progress::Progress as ProgressFile;
use steps::OpenSteps;
use window::{Counts, Window, Windows};
use writer::{WAITING, Writer};

use crate::collector::SessionStats;
use crate::collector::engine::{Engine, EngineBuilder};
use crate::flight::Flight;
use crate::settings::Config;
use crate::step_times::SETTLED_NS;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::plural::counted;
use warpline_core::record::ZoneRecord;
use warpline_core::step::StepRecord;
use warpline_core::stream::recorder::Recorder;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(60);

/// The steps that a window has at least, where steps are marked.
const LEAST_STEPS: usize = 10;

/// The most steps of a window: a loop that is faster ends its windows earlier.
const MOST_STEPS: usize = 1 << 14;

/// Writes the tables of a rank.
pub(crate) struct RanksSink {
    root: PathBuf,
    window_ns: i64,
    patience: Duration,
    recorder: Arc<Recorder>,
    stats: Arc<SessionStats>,
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
    windows: Windows,
    /// The counts when the running window began, and now.
    before: Counts,
    now: Counts,
}

/// Creates the sink that writes the tables, if the settings name their folder.
pub(crate) fn sink(config: &Config, engine: &EngineBuilder) -> Option<Box<dyn Sink>> {
    let (recorder, stats) = (Arc::clone(&engine.recorder), Arc::clone(&engine.stats));
    let flight = flight_path(engine.flight.as_deref());
    Some(Box::new(RanksSink { flight, ..RanksSink::new(config.ranks.clone()?, config, recorder, stats) }))
}

impl RanksSink {
    fn new(root: PathBuf, config: &Config, recorder: Arc<Recorder>, stats: Arc<SessionStats>) -> RanksSink {
        let window_ns = i64::try_from(config.ranks_window.unwrap_or(WINDOW).as_nanos()).unwrap_or(i64::MAX).max(1);
        // The other half is for the other sinks, and for what is still on the streams.
        let patience = config.finish_timeout / 2;
        RanksSink { root, window_ns, patience, recorder, stats, flight: None, begun: None, lost: 0 }
    }
}

/// Returns where the flight recorder's file is, for the progress file: it tells more of a rank that is dead.
fn flight_path(flight: Option<&Flight>) -> Option<PathBuf> {
    flight.map(|flight| flight.path().to_owned())
}

/// A moment, on the clock of records and on the wall clock.
#[derive(Clone, Copy)]
struct Moment {
    ns: i64,
    unix_ns: i64,
}

impl Moment {
    fn now() -> Moment {
        Moment { ns: now_ns(), unix_ns: unix_ns() }
    }

    /// Returns the number of the window that begins then: ranks whose clocks agree have the same. A rank whose wall
    /// clock was wrong for a while, or whose loop is so fast that a window is full early, writes several windows under
    /// one number.
    fn window(self, window_ns: i64) -> i64 {
        self.unix_ns.div_euclid(window_ns)
    }
}

impl Begun {
    fn zone(&mut self, zone: &ZoneRecord) {
        self.steps.zone(zone);
        self.windows.running.zone(zone);
        self.communicators.add(zone, &self.steps.times, &mut self.windows.running);
    }

    fn step(&mut self, step: &StepRecord) {
        self.steps.step(step);
        self.windows.step(step.host.end_ns);
    }

    /// Closes the steps that have settled, writes the windows whose steps have, and ends the running one if its time is
    /// over.
    fn tick(&mut self, now: Moment, window_ns: i64, stats: &SessionStats) {
        let settled_ns = now.ns - SETTLED_NS;
        self.steps.close(settled_ns, &mut self.windows);
        self.write(settled_ns);
        let Window { begin_ns, steps, .. } = *self.windows.running;
        let is_over = now.ns - begin_ns >= window_ns && (steps == 0 || steps >= LEAST_STEPS);
        if is_over || steps >= MOST_STEPS {
            self.end_window(now, window_ns, stats);
        }
    }

    /// Ends the running window, and begins the next one.
    fn end_window(&mut self, now: Moment, window_ns: i64, stats: &SessionStats) {
        let window = &mut self.windows.running;
        window.end_ns = now.ns;
        window.realtime_offset_ns = now.unix_ns - now.ns;
        window.clock_err_ns = lock(&stats.clocks).iter().map(|clock| clock.uncertainty_ns).max().unwrap_or(0);
        window.counts = self.now.since(self.before);
        self.before = self.now;
        self.windows.begin(Window::new(now.window(window_ns), now.ns));
    }

    /// Hands over the windows that ended before this time: their steps are closed. Some for which the disk has no room
    /// wait here.
    fn write(&mut self, until_ns: i64) {
        while let Some(window) = self.windows.ended(until_ns) {
            let Some(window) = self.writer.offer(window) else { continue };
            match self.windows.keep(window, WAITING) {
                None => return,
                Some(window) => self.writer.lose(&window),
            }
        }
    }

    /// Hands over all windows at the end of the session. Waits until then for the disk.
    fn write_all(&mut self, deadline: Instant) {
        while let Some(mut window) = self.windows.ended(i64::MAX) {
            while let Some(back) = self.writer.offer(window) {
                if Instant::now() >= deadline {
                    self.writer.lose(&back);
                    break;
                }
                window = back;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Returns what the rank is doing, as the progress file says it, for a session that writes tables.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only the control server asks, which needs Linux"))]
pub(crate) fn standing(engine: &Engine) -> serde_json::Value {
    let identity = Identity::new(Path::new("."), &SessionInfo::now());
    let text = activity::Standing::new(identity, Arc::clone(&engine.recorder), flight_path(engine.flight.as_deref()))
        .text(false);
    serde_json::from_str(&text).unwrap_or_default()
}

impl Sink for RanksSink {
    fn name(&self) -> String {
        format!("ranks={}", self.root.display())
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let identity = Identity::new(&self.root, session);
        let writer = Writer::start(identity.clone())?;
        let progress =
            ProgressFile::start(identity, Arc::clone(&self.recorder), self.flight.clone(), Arc::clone(&self.stats))?;
        let number = Moment::now().window(self.window_ns);
        self.begun = Some(Begun {
            writer,
            progress,
            steps: OpenSteps::default(),
            communicators: Communicators::default(),
            windows: Windows::new(Window::new(number, session.begin_ns)),
            before: Counts::default(),
            now: Counts::default(),
        });
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(begun) = &mut self.begun else { return Err(not_started()) };
        match batch {
            Batch::Zones(zones) => zones.iter().for_each(|zone| begun.zone(zone)),
            Batch::Steps(steps) => steps.iter().for_each(|step| begun.step(step)),
            Batch::Waits(waits) => waits.iter().for_each(|wait| begun.steps.times.wait(wait)),
            Batch::Replays(replays) => {
                for zone in replays.iter().flat_map(|replay| &replay.zones).map(|replayed| &replayed.zone) {
                    if let Some(gpu) = zone.gpu {
                        begun.steps.times.work(zone, gpu);
                    }
                    begun.windows.running.zone(zone);
                    begun.communicators.add(zone, &begun.steps.times, &mut begun.windows.running);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(begun) = &mut self.begun else { return Err(not_started()) };
        let now = Counts::new(progress, self.recorder.steps());
        begun.steps.dropped(now.since(begun.now).dropped as i64);
        begun.now = now;
        begun.tick(Moment::now(), self.window_ns, &self.stats);
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(mut begun) = self.begun.take() else { return Err(not_started()) };
        let Report { begun: zones, recorded, captured, .. } = *report;
        let (dropped, steps_dropped) = (report.dropped.total(), report.steps.dropped);
        begun.now = Counts { begun: zones, recorded, captured, dropped, steps_dropped };
        begun.steps.close(i64::MAX, &mut begun.windows);
        begun.end_window(Moment::now(), self.window_ns, &self.stats);
        let deadline = Instant::now() + self.patience;
        begun.write_all(deadline);
        begun.progress.finish(self.patience.min(Duration::from_millis(500)));
        let losses = begun.writer.finish(deadline.saturating_duration_since(Instant::now()));
        self.lost = losses.records;
        let late = begun.steps.late;
        if late > 0 {
            let zones = counted(late, "zone");
            let note = format!(
                "{zones} arrived after their steps were written, or there was no room for them: the figures of those steps in `ranks` lack them"
            );
            lock(&self.stats.notes).push(note);
        }
        if losses.windows > 0 {
            let windows = counted(losses.windows, "window");
            let (records, why) = (counted(losses.records, "record"), losses.why());
            return Err(io::Error::other(format!("{windows} with {records} lost: {why}")));
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::num::NonZeroU32;
    use std::path::Path;

    use parquet::file::reader::SerializedFileReader;
    use warpline_core::backend::Limits;
    use warpline_core::timing::EndMode;
    use warpline_report::fixture;

    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    fn sink(root: &Path) -> RanksSink {
        let limits = Limits { zones: 16, events: 16, ends: EndMode::Eager, watch: true };
        let recorder = Arc::new(Recorder::new(NonZeroU32::MIN, limits));
        let config = Config { finish_timeout: Duration::from_secs(60), ..Config::default() };
        let mut sink = RanksSink::new(root.to_owned(), &config, recorder, Arc::default());
        sink.start(&fixture::session()).expect("a thread");
        sink
    }

    /// Runs steps of a second each, with a tick after each, on a wall clock that is `wall(second)` seconds after the
    /// epoch. Returns the rows of the tables `windows` and `steps` by the numbers of their windows.
    fn run(name: &str, seconds: i64, wall: impl Fn(i64) -> i64) -> BTreeMap<i64, [Vec<(i64, i64)>; 2]> {
        let root = std::env::temp_dir().join(format!("warpline-{name}-{}", std::process::id()));
        let mut sink = sink(&root);
        let begun = sink.begun.as_mut().expect("a session");
        let at = |second: i64| Moment { ns: fixture::BEGIN_NS + second * SECOND_NS, unix_ns: wall(second) * SECOND_NS };
        begun.windows = Windows::new(Window::new(at(0).window(60 * SECOND_NS), at(0).ns));
        for second in 0..seconds {
            let host = fixture::span(second * SECOND_NS, (second + 1) * SECOND_NS);
            begun.step(&StepRecord { number: second as u64, thread: fixture::main_thread(), host });
            begun.tick(at(second + 1), 60 * SECOND_NS, &sink.stats);
            // A minute has passed for the session, and none for the disk.
            while !begun.writer.is_idle() {
                std::thread::yield_now();
            }
        }
        begun.steps.close(i64::MAX, &mut begun.windows);
        begun.end_window(at(seconds), 60 * SECOND_NS, &sink.stats);
        begun.write_all(Instant::now() + Duration::from_secs(60));
        assert_eq!(begun.writer.finish(Duration::from_secs(60)).windows, 0);
        begun.progress.finish(Duration::from_secs(10));
        let mut found: BTreeMap<i64, [Vec<(i64, i64)>; 2]> = BTreeMap::new();
        for (which, (table, begin, end)) in
            [("windows", "begin_ns", "end_ns"), ("steps", "begin_ns", "wall_ns")].into_iter().enumerate()
        {
            let run = fs::read_dir(root.join(table)).expect("a table").next().expect("a run").expect("a folder").path();
            for window in fs::read_dir(run).expect("windows").map(|entry| entry.expect("a folder").path()) {
                let number = window.to_str().and_then(|path| path.rsplit_once('=')).expect("a window").1;
                let of_window = found.entry(number.parse().expect("a number")).or_default();
                for file in fs::read_dir(window).expect("files").map(|entry| entry.expect("a file").path()) {
                    for row in SerializedFileReader::new(File::open(file).expect("a file")).expect("Parquet") {
                        let columns = row.expect("a row").into_columns();
                        let of = |name: &str| {
                            let column = columns.iter().find(|(known, _)| known == name).expect("a column");
                            let parquet::record::Field::Long(value) = column.1 else { panic!("{name}") };
                            value
                        };
                        let (begin, end) = (of(begin), if which == 0 { of(end) } else { of(begin) + of(end) });
                        of_window[which].push((begin - fixture::BEGIN_NS, end - fixture::BEGIN_NS));
                    }
                }
                of_window[which].sort_unstable();
            }
        }
        fs::remove_dir_all(root).expect("a folder");
        found
    }

    #[test]
    fn many_windows_at_the_end_of_a_session_wait_for_the_disk() {
        let root = std::env::temp_dir().join(format!("warpline-many-windows-{}", std::process::id()));
        let mut sink = sink(&root);
        let begun = sink.begun.as_mut().expect("a session");
        for n in 1..=30 {
            begun.end_window(Moment { ns: n, unix_ns: n }, 1, &sink.stats);
        }
        sink.finish(&Report::default()).expect("no window is lost");
        assert_eq!(sink.lost(), 0);
        fs::remove_dir_all(root).expect("a folder");
    }

    #[test]
    fn a_step_is_in_the_window_in_which_it_ended_although_it_is_closed_later() {
        let found = run("filed", 200, |second| 6_000_000 + second);
        let ends: Vec<i64> = found.values().flat_map(|[windows, _]| windows).map(|(_, end)| *end / SECOND_NS).collect();
        assert_eq!(ends, [60, 120, 180, 200]);
        for [windows, steps] in found.values() {
            let [(begin, end)] = windows[..] else { panic!("one window: {windows:?}") };
            assert!(steps.iter().all(|step| begin < step.1 && step.1 <= end), "{begin} to {end}: {steps:?}");
            assert_eq!(steps.len() as i64, (end - begin) / SECOND_NS);
        }
    }

    #[test]
    fn a_wall_clock_that_was_wrong_for_a_while_moves_no_later_window() {
        // It is a day ahead from the 70th to the 130th second.
        let found =
            run("jump", 400, |second| 6_000_000 + second + if (70..130).contains(&second) { 86_400 } else { 0 });
        let numbers: Vec<i64> = found.keys().map(|number| number - 100_000).collect();
        assert_eq!(numbers, [0, 1, 3, 4, 5, 6, 1442]);
        assert_eq!(found.values().map(|[_, steps]| steps.len()).sum::<usize>(), 400);
    }
}
