//! That a session's memory does not depend on how many streams, threads, semaphores and queues the program has had.
//!
//! The test counts what the process has from the allocator, which no machine's load changes. Each test runs in a
//! process of its own.
//!
//! `WARPLINE_TEST_STREAMS=1000000 cargo test --release -p warpline-tests --test stub growth:: -- --nocapture` makes so many streams and
//! says what memory they take (benches/RESULTS.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use warpline::sink::{Batch, ChromeSink, PerfettoSink, Sink};
use warpline::{HostStream, Session};
use warpline_tests::counting::{LIVE, PEAK};
use warpline_tests::{empty_folder, in_a_process_of_its_own, resident_bytes, this_test};

warpline::range! {
    WORK = "stub.growth.work": "Work on a stream that is soon gone.";
    LANE = "stub.growth.lane": "Work on a lane of its own.", lane = "own";
}

/// Zones that have come to the last sink.
#[derive(Clone, Default)]
struct Seen(Arc<AtomicU64>);

impl Sink for Seen {
    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.0.fetch_add(batch.zones().len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Seen {
    /// Waits until so many zones have come.
    fn wait(&self, zones: u64) {
        let since = Instant::now();
        while self.0.load(Ordering::Relaxed) < zones {
            assert!(since.elapsed() < Duration::from_secs(60), "{} of {zones} zones", self.0.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Streams after which every table has been full, and has forgotten some.
const WARM: u64 = 10_240;

/// Streams after which the test looks. Tables forget half of what they hold each few thousand, so what the process holds goes up and
/// down; its least is what does not grow.
const LOOK_EVERY: u64 = 128;

/// Makes streams, one after another, and drops them. Says the least that the process held meanwhile.
fn make(streams: u64, seen: &Seen, zones: &mut u64) -> u64 {
    let mut least = u64::MAX;
    for n in 0..streams {
        let stream = HostStream::new("short");
        drop(WORK.zone(&stream));
        drop(stream);
        *zones += 1;
        if n % LOOK_EVERY == 0 {
            seen.wait(*zones);
            least = least.min(LIVE.load(Ordering::Relaxed));
        }
        if n % 8 == 0 {
            let stream = HostStream::new("with a lane");
            drop(LANE.zone(&stream));
            thread::scope(|scope| drop(scope.spawn(|| drop(WORK.zone(&None::<HostStream>)))));
            *zones += 2;
        }
        // Seldom: the critical path's log keeps the last 65,536 waits, and they are to fill little of it.
        #[cfg(feature = "timeline")]
        if n % 128 == 0 {
            synchronize(n);
        }
    }
    seen.wait(*zones);
    least
}

/// Semaphores and queues of names that nobody had before.
#[cfg(feature = "timeline")]
fn synchronize(n: u64) {
    use warpline::timeline::{Queue, Semaphore};

    const LONG: Duration = Duration::from_secs(20);
    let semaphore = Semaphore::named(&format!("semaphore {n}"), 0);
    let queue = Queue::new(&format!("queue {n}"), HostStream::new("of a queue"));
    let queue = queue.expect("a thread");
    queue.submit(&[], &[(&semaphore, 1)], |_| Ok(())).expect("room");
    semaphore.wait(1, LONG).expect("the queue signals");
}

#[test]
fn ever_new_streams_take_no_memory() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let folder = empty_folder("growth");
    let count = env::var("WARPLINE_TEST_STREAMS").ok().and_then(|count| count.parse::<u64>().ok());
    let seen = Seen::default();
    let session = Session::builder()
        .perfetto(folder.join("rotated.pftrace"))
        .rotate(1 << 20)
        .keep(2)
        .flight_at(4 << 20, folder.join("flight"))
        .sink(PerfettoSink::create(folder.join("whole.pftrace")).expect("a file"))
        .sink(ChromeSink::create(folder.join("whole.json")).expect("a file"))
        .sink(seen.clone())
        .quiet()
        .start()
        .expect("no other session");
    // What grows with zones and is bounded is as large as it gets: the critical path's log, and the lanes of this thread.
    let stream = HostStream::new("warm");
    let mut zones = 0;
    for _ in 0..70 {
        (0..1_000).for_each(|_| drop(WORK.zone(&stream)));
        zones += 1_000;
        seen.wait(zones);
    }
    make(WARM, &seen, &mut zones);
    let before = (make(WARM, &seen, &mut zones), resident_bytes());
    let (more, begin) = (count.unwrap_or(2 * WARM), Instant::now());
    make(more - WARM, &seen, &mut zones);
    let after = (make(WARM, &seen, &mut zones), resident_bytes());
    let length = begin.elapsed();
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.dropped.total()), (zones, zones, 0), "{report}");
    assert!(report.sinks.iter().all(|sink| sink.taken >= zones && (sink.lost, sink.errors) == (0, 0)), "{report}");
    if count.is_some() {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "{more} streams in {length:.1?}: {:.1} MB held before, {:.1} MB after; {:.1} MB resident before, {:.1} MB after",
            mb(before.0),
            mb(after.0),
            mb(before.1),
            mb(after.1)
        );
    }
    // Some tables have a bit for each stream, the log of waits fills slowly, and the least that was seen is not always the least that
    // there was. A name for each stream would be more.
    let grown = after.0.saturating_sub(before.0);
    assert!(grown < (512 << 10) + 4 * more, "{grown} bytes more for {more} streams");
    #[cfg(feature = "timeline")]
    {
        assert!(report.streams.len() <= 1_025, "{} entries", report.streams.len());
        let made = 2 * WARM + more;
        let streams = 1 + made + made / 8;
        let told: u64 = report.streams.iter().map(|stream| stream.streams).sum();
        assert_eq!(told, streams, "{report}");
    }
    drop(stream);
    let _ = std::fs::remove_dir_all(folder);
}

/// What memory short-lived streams take, with the sinks of `WARPLINE_TEST_SINKS` (`summary`, `perfetto=FILE`, …):
///
/// `WARPLINE_TEST_SINKS=summary cargo test --release -p warpline-tests --test growth -- --ignored --nocapture resident`
#[test]
#[ignore = "a measurement of minutes, for benches/RESULTS.md"]
fn resident_memory_of_short_streams() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let settings = env::var("WARPLINE_TEST_SINKS").unwrap_or_else(|_| "summary".to_owned());
    let number = |name, or| env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(or);
    let streams = number("WARPLINE_TEST_STREAMS", 1_000_000);
    let (threads, zones) = (number("WARPLINE_TEST_THREADS", 1), number("WARPLINE_TEST_ZONES", 3));
    let session = Session::builder().settings(&settings).expect("settings").quiet().start().expect("no other session");
    let make = |streams: u64| {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..streams / threads {
                        let stream = HostStream::new("short");
                        (0..zones).for_each(|_| drop(WORK.zone(&stream)));
                    }
                });
            }
        });
    };
    let say = |made: u64, length: Duration| {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let (live, peak) = (LIVE.load(Ordering::Relaxed), PEAK.swap(0, Ordering::Relaxed));
        let resident = mb(resident_bytes());
        println!(
            "{made} streams, {length:.1?}: {resident:.1} MB resident, {:.1} held, {:.1} at most",
            mb(live),
            mb(peak)
        );
    };
    // What grows with zones and is bounded is as large as it gets.
    let stream = HostStream::new("warm");
    for _ in 0..70 {
        (0..1_000).for_each(|_| drop(WORK.zone(&stream)));
        thread::sleep(Duration::from_millis(10));
    }
    let begin = Instant::now();
    make(10_000);
    say(10_000, begin.elapsed());
    let piece = (streams / 10).max(1);
    for n in 1..=10 {
        make(piece);
        say(10_000 + n * piece, begin.elapsed());
    }
    drop(stream);
    let report = session.finish();
    println!("{} begun, {} recorded, {} dropped", report.begun, report.recorded, report.dropped.total());
}

/// A destroyed CUDA stream cannot be told from one that rests: the session lets go of both, and meets anew what comes back.
#[cfg(all(feature = "cuda", target_os = "linux"))]
#[test]
fn ever_new_cuda_streams_take_no_memory() {
    use crate::harness::driver::{self, SUCCESS};
    use warpline::RawStream;

    const ROOM: u64 = 1 << 20;
    driver::on_stub(this_test!(), |driver| {
        let folder = empty_folder("growth-cuda");
        driver.start();
        let (seen, mut zones) = (Seen::default(), 0);
        let session = Session::builder()
            .sink(PerfettoSink::create(folder.join("whole.pftrace")).expect("a file"))
            .sink(ChromeSink::create(folder.join("whole.json")).expect("a file"))
            .sink(seen.clone())
            .start()
            .expect("no other session");
        // SAFETY: the stub driver treats handles as numbers, and no zone is open on a stream that is destroyed.
        let zone = |stream: driver::Handle| drop(WORK.zone(&unsafe { RawStream::from_ptr(stream as *mut _) }));
        let kept = driver.stream();
        for _ in 0..70 {
            (0..1_000).for_each(|_| zone(kept));
            zones += 1_000;
            seen.wait(zones);
        }
        let mut make = |streams: u64| {
            let mut least = u64::MAX;
            for n in 0..streams {
                let stream = driver.stream();
                zone(stream);
                zones += 1;
                assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
                if n % LOOK_EVERY == 0 {
                    zone(kept);
                    zones += 1;
                    seen.wait(zones);
                    least = least.min(LIVE.load(Ordering::Relaxed));
                }
            }
            least
        };
        make(WARM);
        // The larger of two, because the collector is now and then so far ahead that a round has much less than the others.
        let before = make(WARM).max(make(WARM));
        make(WARM);
        // What leaks is in every round; what a late collector holds is not.
        let mut grown = u64::MAX;
        for _ in 0..5 {
            grown = grown.min(make(WARM).saturating_sub(before));
            if grown < ROOM {
                break;
            }
        }
        let report = session.finish();
        assert_eq!((report.begun, report.recorded, report.dropped.total()), (zones, zones, 0), "{report}");
        assert!(grown < ROOM, "{grown} bytes more for {} streams or more", 2 * WARM);
        assert_eq!((driver.stub_live_events(), driver.stub_misuse()), (0, 0));
        let _ = std::fs::remove_dir_all(folder);
    });
}
