//! That a sink's code costs that sink alone, whatever it does: in its methods, in its errors, in its panics' payloads and in its
//! `Drop`. The other sinks take every record, the report says what happened, and later sessions start.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warpline::report::{Report, SinkReport};
use warpline::sink::{Batch, MemorySink, PerfettoSink, SessionInfo, Sink};
use warpline::{HostStream, Session, SessionBuilder};
use warpline_tests::alone;

warpline::range! {
    WORK = "api.sink_panics.work": "Work that every sound sink takes.";
}

const ZONES: usize = 100;

/// What the sink does where it is told to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Nothing,
    Panic,
    /// The payload of the panic panics in its own `Drop`.
    PanicWithBomb,
    /// The error's `Display` panics.
    Unshowable,
    /// The error's `Drop` panics.
    Undroppable,
}

const FAILS: [Deed; 4] = [Deed::Panic, Deed::PanicWithBomb, Deed::Unshowable, Deed::Undroppable];

impl Deed {
    fn run(self) -> io::Result<()> {
        match self {
            Deed::Nothing => Ok(()),
            Deed::Panic => panic!("as the test asks"),
            Deed::PanicWithBomb => panic_any(Bomb),
            Deed::Unshowable => Err(io::Error::other(Unshowable)),
            Deed::Undroppable => Err(io::Error::other(Undroppable(Bomb))),
        }
    }

    /// What the report says of it.
    fn said(self) -> &'static str {
        match self {
            Deed::Nothing => "",
            Deed::Panic | Deed::PanicWithBomb => "it panicked",
            Deed::Unshowable => "it failed, and its error's `Display` panicked",
            Deed::Undroppable => "cannot be dropped",
        }
    }
}

#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a `Drop` that panics");
        }
    }
}

#[derive(Debug)]
struct Unshowable;

impl fmt::Display for Unshowable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("a `Display` that panics")
    }
}

impl Error for Unshowable {}

#[derive(Debug)]
struct Undroppable(Bomb);

impl fmt::Display for Undroppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot be dropped")
    }
}

impl Error for Undroppable {}

/// A sink that does what it is told to, everywhere.
struct Hostile {
    name: Deed,
    start: Deed,
    records: Deed,
    flush: Deed,
    finish: Deed,
    lost: Deed,
    _dropped: Option<Bomb>,
}

const SOUND: Hostile = Hostile {
    name: Deed::Nothing,
    start: Deed::Nothing,
    records: Deed::Nothing,
    flush: Deed::Nothing,
    finish: Deed::Nothing,
    lost: Deed::Nothing,
    _dropped: None,
};

impl Sink for Hostile {
    fn name(&self) -> String {
        self.name.run().map_or_else(|_| "hostile".to_owned(), |()| "hostile".to_owned())
    }

    fn start(&mut self, _: &SessionInfo) -> io::Result<()> {
        self.start.run()
    }

    fn write(&mut self, _: Batch<'_>) -> io::Result<()> {
        self.records.run()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush.run()
    }

    fn finish(&mut self, _: &Report) -> io::Result<()> {
        self.finish.run()
    }

    fn lost(&self) -> u64 {
        let _ = self.lost.run();
        0
    }
}

/// Records some zones beside these sinks: the sinks before and behind them take every one. Says what the report says of them.
#[track_caller]
fn beside(hostile: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Vec<SinkReport> {
    let (before, behind) = (MemorySink::new(ZONES), MemorySink::new(ZONES));
    let builder = hostile(Session::builder().sink(before.clone())).sink(behind.clone());
    let session = builder.start().expect("no sink keeps a session from starting");
    let stream = HostStream::new("beside");
    (0..ZONES).for_each(|_| drop(WORK.zone(&stream)));
    let mut report = session.finish();
    assert_eq!((report.recorded, report.begun), (ZONES as u64, ZONES as u64), "{report}");
    assert_eq!((before.take().len(), behind.take().len()), (ZONES, ZONES), "{report}");
    assert_eq!(report.sinks.iter().map(|sink| sink.taken + sink.lost).max(), Some(ZONES as u64), "{report}");
    report.sinks.remove(0);
    report.sinks.pop();
    report.sinks
}

#[test]
fn a_sink_that_fails_to_start_in_any_way_is_left_out() {
    let _turn = alone();
    for deed in FAILS {
        let sinks = beside(|builder| builder.sink(Hostile { start: deed, _dropped: Some(Bomb), ..SOUND }));
        let [sink] = &sinks[..] else { panic!("one sink: {sinks:?}") };
        assert_eq!((sink.taken, sink.lost), (0, ZONES as u64), "{deed:?}: {sink:?}");
        assert_eq!(sink.first_error.as_deref(), Some(deed.said()), "{deed:?}");
    }
}

#[test]
fn a_sink_that_fails_at_its_records_in_any_way_loses_those_alone() {
    let _turn = alone();
    for deed in FAILS {
        let sinks = beside(|builder| builder.sink(Hostile { records: deed, ..SOUND }));
        let [sink] = &sinks[..] else { panic!("one sink: {sinks:?}") };
        assert_eq!((sink.taken, sink.lost), (0, ZONES as u64), "{deed:?}: {sink:?}");
        assert!(sink.errors > 0, "{sink:?}");
        assert_eq!(sink.first_error.as_deref(), Some(deed.said()), "{deed:?}");
    }
}

#[test]
fn a_sink_that_fails_at_its_end_in_any_way_keeps_what_it_took() {
    let _turn = alone();
    for deed in FAILS {
        // A short session may end without a flush.
        let at_finish = (Hostile { finish: deed, ..SOUND }, true);
        for (hostile, must_fail) in [(Hostile { flush: deed, ..SOUND }, false), at_finish] {
            let sinks = beside(|builder| builder.sink(hostile));
            let [sink] = &sinks[..] else { panic!("one sink: {sinks:?}") };
            assert_eq!((sink.taken, sink.lost), (ZONES as u64, 0), "{deed:?}: {sink:?}");
            assert!(sink.errors > 0 || !must_fail, "{deed:?}: {sink:?}");
            assert!(sink.first_error.as_deref().is_none_or(|error| error == deed.said()), "{deed:?}: {sink:?}");
        }
    }
}

#[test]
fn a_sink_may_panic_in_its_name_and_in_its_count_of_what_is_lost() {
    let _turn = alone();
    for deed in [Deed::Panic, Deed::PanicWithBomb] {
        let sinks =
            beside(|builder| builder.sink(Hostile { name: deed, ..SOUND }).sink(Hostile { lost: deed, ..SOUND }));
        let [unnamed, uncounted] = &sinks[..] else { panic!("two sinks: {sinks:?}") };
        assert_eq!((unnamed.name.as_str(), unnamed.taken), ("a sink", ZONES as u64));
        assert_eq!((uncounted.errors, uncounted.first_error.as_deref()), (1, Some("it panicked")));
    }
}

#[test]
fn sinks_may_panic_in_their_drop() {
    let _turn = alone();
    let hostile = || Hostile { _dropped: Some(Bomb), ..SOUND };
    // Two that panic while one unwinding is under way would abort the program.
    let sinks = beside(|builder| builder.sink(hostile()).sink(hostile()));
    for sink in &sinks {
        assert_eq!(
            (sink.taken, sink.errors, sink.first_error.as_deref()),
            (ZONES as u64, 1, Some("its `Drop` panicked"))
        );
    }
    // Those that no session takes are dropped on the program's thread.
    let running = Session::builder().sink(MemorySink::new(1)).start().expect("no other session");
    let refused = Session::builder().sink(hostile()).sink(hostile()).start();
    assert!(refused.is_err(), "one session at a time");
    running.finish();
    drop(Session::builder().sink(hostile()).sink(hostile()));
    assert!(beside(|builder| builder).is_empty(), "later sessions start");
}

#[test]
fn a_writer_that_panics_costs_its_trace() {
    struct Writer(Arc<AtomicBool>);

    impl Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0.swap(true, Ordering::Relaxed) { panic_any(Bomb) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            panic_any(Bomb)
        }
    }

    impl Drop for Writer {
        fn drop(&mut self) {
            panic!("as the test asks");
        }
    }

    let _turn = alone();
    let has_written = Arc::new(AtomicBool::new(false));
    let sinks = beside(|builder| builder.sink(PerfettoSink::new(Writer(Arc::clone(&has_written)))));
    let [sink] = &sinks[..] else { panic!("one sink: {sinks:?}") };
    assert!(has_written.load(Ordering::Relaxed) && sink.errors > 0, "{sink:?}");
}
