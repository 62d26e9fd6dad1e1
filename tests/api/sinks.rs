//! Sinks that are added to a running session and removed from it: what they get, what they are told, and what the report says.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use warpline::report::Report;
use warpline::sink::{Batch, MemorySink, SessionInfo, Sink};
use warpline::{HostStream, Session};
use warpline_tests::{alone, taken};

warpline::range! {
    WORK = "api.sinks.work": "Work that every sink takes.";
}

fn memory() -> MemorySink {
    MemorySink::new(1_000_000)
}

fn work(stream: &HostStream, zones: usize) {
    (0..zones).for_each(|_| drop(WORK.zone(stream)));
    stream.synchronize().expect("nothing panics on it");
}

/// Says what it is told, and where.
struct Probe(mpsc::Sender<(&'static str, ThreadId, u64)>);

impl Probe {
    fn say(&self, what: &'static str, number: u64) {
        let _ = self.0.send((what, thread::current().id(), number));
    }
}

impl Sink for Probe {
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.say("start", session.begin_ns as u64);
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.say("write", batch.len() as u64);
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        self.say("finish", report.recorded);
        Ok(())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.say("drop", 0);
    }
}

#[test]
fn a_sink_takes_what_is_recorded_from_when_it_is_added_until_it_is_removed() {
    let _turn = alone();
    let (first, second) = (memory(), memory());
    let session = Session::builder().sink(first.clone()).start().expect("no other session");
    let stream = HostStream::new("compute");
    work(&stream, 10);
    taken(10, || first.take());
    let added = session.add_sink(second.clone());
    work(&stream, 2_000);
    let counts = session.remove_sink(added).expect("the collector comes to it");
    assert_eq!((counts.taken, counts.lost, counts.errors), (2_000, 0, 0), "{counts:?}");
    assert_eq!(second.take().len(), 2_000);
    assert!(counts.added < counts.removed && counts.added > Some(Duration::ZERO), "{counts:?}");
    work(&stream, 5);
    let report = session.finish();
    assert_eq!((first.take().len(), second.take().len()), (2_005, 0));
    assert_eq!((report.begun, report.recorded), (2_015, 2_015), "{report}");
    let [of_first, of_second] = &report.sinks[..] else { panic!("two sinks: {report}") };
    assert_eq!((of_first.taken, of_first.added, of_first.removed), (2_015, None, None));
    assert_eq!(*of_second, counts);
    assert!(report.to_string().contains(": 2000 records, added after "), "{report}");
}

#[test]
fn an_added_sink_is_told_of_its_begin_here_and_of_its_end_on_the_collector() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    // Removed by the program, or completed with the session.
    for is_removed in [true, false] {
        let session = Session::builder().start().expect("no other session");
        let (say, said) = mpsc::channel();
        let added = session.add_sink(Probe(say));
        work(&stream, 3);
        if is_removed {
            session.remove_sink(added).expect("the collector comes to it");
        } else {
            session.finish();
        }
        let all: Vec<_> = said.try_iter().collect();
        let [(begin, here, begin_ns), middle @ .., (end, there, recorded), (last, _, _)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((*begin, *end, *last), ("start", "finish", "drop"), "{all:?}");
        assert!(*begin_ns > 0 && middle.iter().map(|(_, _, zones)| zones).sum::<u64>() == 3, "{all:?}");
        assert_eq!((*here, *recorded), (thread::current().id(), 3), "{all:?}");
        assert_ne!(here, there);
    }
}

#[test]
fn a_sink_that_does_not_start_costs_its_records_and_nothing_else() {
    struct Refuses;

    impl Sink for Refuses {
        fn start(&mut self, _: &SessionInfo) -> io::Result<()> {
            Err(io::Error::other("not today"))
        }

        fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
            panic!("it did not start")
        }
    }

    let _turn = alone();
    let zones = memory();
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    session.add_sink(Refuses);
    work(&HostStream::new("compute"), 7);
    let report = session.finish();
    assert_eq!((zones.take().len(), report.recorded), (7, 7));
    let [_, refused] = &report.sinks[..] else { panic!("two sinks: {report}") };
    assert_eq!((refused.taken, refused.lost, refused.errors), (0, 7, 1), "{report}");
    assert_eq!(refused.first_error.as_deref(), Some("not today"));
}

#[test]
fn what_was_removed_or_is_of_another_session_is_not_removed_again() {
    let _turn = alone();
    let session = Session::builder().start().expect("no other session");
    let added = session.add_sink(memory());
    assert!(session.remove_sink(added).is_some());
    assert!(session.remove_sink(added).is_none());
    let stays = session.add_sink(memory());
    session.finish();
    let next = Session::builder().sink(memory()).start().expect("no other session");
    next.add_sink(memory());
    assert!(next.remove_sink(stays).is_none());
    let report = next.finish();
    assert!(report.sinks.len() == 2 && report.sinks.iter().all(|sink| sink.removed.is_none()), "{report}");
    // Nothing records: the sink is dropped.
    let (say, said) = mpsc::channel();
    let off = Session::builder().settings("off").expect("a setting").start().expect("nothing starts");
    let added = off.add_sink(Probe(say));
    assert_eq!(said.iter().map(|(what, ..)| what).collect::<Vec<_>>(), ["drop"]);
    assert!(off.remove_sink(added).is_none());
}

#[test]
fn sinks_come_and_go_on_many_threads_while_zones_begin() {
    let _turn = alone();
    let all = memory();
    let session = Session::builder().sink(all.clone()).ring(1 << 16).start().expect("no other session");
    let is_over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let adders: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut rounds = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let zones = memory();
                        let added = session.add_sink(zones.clone());
                        let counts = session.remove_sink(added).expect("the collector comes to it");
                        assert_eq!((counts.taken, counts.lost), (zones.take().len() as u64, 0));
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let stream = HostStream::new("compute");
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(300) {
            work(&stream, 50);
        }
        is_over.store(true, Ordering::Relaxed);
        adders.into_iter().map(|adder| adder.join().expect("nothing panics")).sum::<usize>()
    });
    let report = session.finish();
    assert_eq!(report.sinks.len(), 1 + rounds.min(256));
    assert_eq!(report.recorded + report.dropped.total(), report.begun, "{report}");
    assert_eq!(report.recorded, all.take().len() as u64);
}

#[test]
fn a_report_has_the_last_of_many_sinks_that_were_removed() {
    let _turn = alone();
    let session = Session::builder().sink(memory()).start().expect("no other session");
    let stays = session.add_sink(memory());
    let counts: Vec<_> =
        (0..300).map(|_| session.remove_sink(session.add_sink(memory())).expect("the collector comes to it")).collect();
    work(&HostStream::new("compute"), 1);
    let report = session.finish();
    assert_eq!(report.sinks.len(), 2 + 256);
    assert_eq!((report.sinks[0].taken, report.sinks[1].taken), (1, 1), "{stays:?}");
    assert_eq!(report.sinks[2..], counts[300 - 256..]);
}

#[test]
fn a_sink_that_hangs_at_its_end_keeps_who_removes_it_no_longer_than_the_limit() {
    struct Hangs(mpsc::Receiver<()>);

    impl Sink for Hangs {
        fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
            Ok(())
        }

        fn finish(&mut self, _: &Report) -> io::Result<()> {
            let _ = self.0.recv();
            Ok(())
        }
    }

    let _turn = alone();
    let session = Session::builder().finish_timeout(Duration::from_millis(50)).start().expect("no other session");
    let (go, wait) = mpsc::channel();
    let added = session.add_sink(Hangs(wait));
    let since = Instant::now();
    assert!(session.remove_sink(added).is_none());
    assert!(since.elapsed() < Duration::from_secs(10));
    drop(go);
    let report = session.finish();
    assert!(report.sinks.iter().all(|sink| sink.removed.is_some()), "{report}");
}

#[test]
fn a_sink_may_remove_itself() {
    struct Once {
        session: Arc<Session>,
        own: Arc<Mutex<Option<warpline::sink::SinkId>>>,
        said: mpsc::Sender<bool>,
    }

    impl Sink for Once {
        fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
            let own = self.own.lock().expect("nobody panics").take();
            if let Some(own) = own {
                let _ = self.said.send(self.session.remove_sink(own).is_none());
            }
            Ok(())
        }
    }

    let _turn = alone();
    let session = Arc::new(Session::builder().start().expect("no other session"));
    let (own, (say, said)) = (Arc::default(), mpsc::channel());
    let sink = Once { session: Arc::clone(&session), own: Arc::clone(&own), said: say };
    *own.lock().expect("nobody panics") = Some(session.add_sink(sink));
    work(&HostStream::new("compute"), 1);
    assert_eq!(said.recv_timeout(Duration::from_secs(20)), Ok(true), "it does not wait for itself");
    // With the sink its handle on the session goes.
    assert!(said.recv_timeout(Duration::from_secs(20)).is_err());
    let report = Arc::into_inner(session).expect("the sink is gone").finish();
    assert_eq!((report.sinks[0].taken, report.sinks[0].errors), (1, 0), "{report}");
}
