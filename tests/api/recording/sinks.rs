//! What a session does with sinks that fail, do not start, block, or lose what they took.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use warpline::report::Report;
use warpline::sink::{Batch, MemorySink, Progress, SessionInfo, Sink};
use warpline::{HostStream, Session};
use warpline_tests::{Pace, again, alone, this_test};

use super::{INNER, OUTER, assert_exact, memory};

struct Failing;

impl Sink for Failing {
    fn name(&self) -> String {
        "failing".to_owned()
    }

    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        Err(io::Error::other("the disk is full"))
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        panic!("a sink may even panic");
    }
}

#[test]
fn a_sink_that_fails_loses_its_own_records_only() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let zones = MemorySink::new(10);
    let session = Session::builder().sink(Failing).sink(zones.clone()).start().expect("no other session");
    drop(OUTER.zone(&stream));
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.recorded, zones.take().len()), (1, 1));
    let failing = &report.sinks[0];
    assert_eq!((failing.name.as_str(), failing.taken, failing.lost, failing.errors), ("failing", 0, 1, 2));
    assert_eq!(failing.first_error.as_deref(), Some("the disk is full"));
    assert!(report.to_string().contains("sink failing: 2 calls failed, 1 record lost"), "{report}");
}

/// A sink whose `start` fails, and which counts the calls that come after that.
struct Unable(Arc<AtomicU64>);

impl Sink for Unable {
    fn name(&self) -> String {
        "unable".to_owned()
    }

    fn start(&mut self, _: &SessionInfo) -> io::Result<()> {
        Err(io::Error::other("there is no such place"))
    }

    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_sink_that_does_not_start_is_left_out_and_its_records_count_as_lost() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (calls, zones) = (Arc::new(AtomicU64::new(0)), MemorySink::new(10));
    let builder = Session::builder().sink(Unable(Arc::clone(&calls))).sink(zones.clone());
    let session = builder.start().expect("no other session");
    drop(OUTER.zone(&stream));
    let report = session.finish();
    assert_exact(&report);
    assert_eq!((report.recorded, zones.take().len()), (1, 1));
    assert_eq!(calls.load(Ordering::Relaxed), 0, "a sink that did not start gets no records");
    let unable = &report.sinks[0];
    assert_eq!((unable.name.as_str(), unable.taken, unable.lost, unable.errors), ("unable", 0, 1, 1));
    assert_eq!(unable.first_error.as_deref(), Some("there is no such place"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_session_that_is_dropped_does_not_panic_where_standard_error_is_full() {
    const CHILD: &str = "WARPLINE_TEST_DROPS_A_SESSION";
    if std::env::var_os(CHILD).is_some() {
        let session = Session::builder().sink(Unable(Arc::default())).start().expect("no other session");
        return drop(session);
    }
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = again(this_test!(), CHILD, "").stderr(full).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

struct Watching(mpsc::Sender<Progress>);

impl Sink for Watching {
    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let _ = self.0.send(*progress);
        Ok(())
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        Err(io::Error::other("two of them do not fit"))
    }

    fn lost(&self) -> u64 {
        2
    }
}

#[test]
fn a_sink_hears_how_the_session_stands_and_can_say_later_what_it_lost() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (send, progress) = mpsc::channel();
    let session = Session::builder().sink(Watching(send)).ring(4).start().expect("no other session");
    let open: Vec<_> = (0..5).map(|_| OUTER.zone(&stream)).collect();
    let mut news = progress.iter().skip_while(|news| news.begun < 5);
    let while_open = news.next().expect("it comes ten times a second");
    assert_eq!((while_open.recorded, while_open.dropped, while_open.fullest_ring), (0, 1, 1.0));
    drop(open);
    let ended = news.find(|news| news.recorded == 4).expect("it comes though nothing new does");
    assert_eq!((ended.dropped, ended.fullest_ring), (1, 0.0));
    let report = session.finish();
    let watching = &report.sinks[0];
    assert_eq!((watching.taken, watching.lost, watching.errors), (2, 2, 1));
    assert_eq!(watching.first_error.as_deref(), Some("two of them do not fit"));
}

struct Blocking(mpsc::Receiver<()>);

impl Sink for Blocking {
    fn name(&self) -> String {
        "blocking".to_owned()
    }

    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        let _ = self.0.recv();
        Ok(())
    }
}

#[test]
fn a_sink_that_blocks_stops_neither_the_program_nor_finish() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let (release, wait) = mpsc::channel();
    let builder = Session::builder().sink(Blocking(wait)).ring(16).finish_timeout(Duration::from_millis(50));
    let session = builder.start().expect("no other session");
    for _ in 0..1_000 {
        drop(OUTER.zone(&stream));
    }
    let pace = Pace::start();
    let report = session.finish();
    assert!(pace.elapsed() < Duration::from_secs(2), "{:?}", pace.elapsed());
    assert_exact(&report);
    assert_eq!(report.begun, 1_000);
    assert!(report.notes.iter().any(|note| note.contains("sink blocking did not return")), "{report}");
    let (second, zones) = memory();
    drop(INNER.zone(&stream));
    drop(release);
    assert_eq!(second.finish().recorded, 1, "the next session is not disturbed");
    assert_eq!(zones.take().len(), 1);
}

/// Blocks at the first batch, and counts the steps of a later session.
struct Held {
    wait: mpsc::Receiver<()>,
    later: Arc<AtomicU64>,
}

/// The steps of the later session begin here.
const LATER: u64 = 1_000_000;

impl Sink for Held {
    fn name(&self) -> String {
        "held".to_owned()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let _ = self.wait.recv();
        if let Batch::Steps(steps) = batch {
            let later = steps.iter().filter(|step| step.number >= LATER).count();
            self.later.fetch_add(later as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[test]
fn a_collector_that_was_given_up_takes_no_step_and_closes_no_window_of_the_next_session() {
    let _turn = alone();
    let later = Arc::new(AtomicU64::new(0));
    let (release, wait) = mpsc::channel();
    let held = Held { wait, later: Arc::clone(&later) };
    let builder = Session::builder().sink(held).budget(0.5).finish_timeout(Duration::from_millis(50));
    let session = builder.start().expect("no other session");
    (0..3_u64).for_each(warpline::step);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(200) {
        warpline::step(0_u64);
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = session.finish();
    assert!(report.notes.iter().any(|note| note.contains("sink held did not return")), "{report}");
    let (second, zones) = memory();
    let mut release = Some(release);
    for step in 0..400 {
        warpline::step(LATER + step);
        drop(INNER.host());
        if step == 100 {
            drop(release.take());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let report = second.finish();
    assert_eq!(later.load(Ordering::Relaxed), 0, "steps of the later session");
    assert_eq!(report.steps.count, 399, "{report}");
    assert_eq!((report.recorded, zones.take().len()), (400, 400), "{report}");
}
