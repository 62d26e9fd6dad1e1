//! Times that a backend of the application reads and that no zone can have: its zones are dropped and counted, and the others stay.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use warpline::backend::{
    Backend, BackendError, BackendStream, Call, Clock, EventOverhead, EventPair, Points, Reader, Reading, Refused,
    Scope, StreamKey, StreamRef, new_space, now_ns,
};
use warpline::record::{DeviceInfo, DeviceKind, EndSource, Span};
use warpline::sink::MemorySink;
use warpline::{AsStream, Session};
use warpline_tests::{alone, empty_folder, this_test};

warpline::range! {
    READ = "api.backend_times.read": "A zone of a backend whose times the test chooses.";
}

/// What the reader says of the zones, one after the other; after them the host's own times.
static READINGS: [Reading; 9] = [
    of(i64::MIN, i64::MAX, 0),
    of(i64::MAX, i64::MIN, 0),
    of(i64::MIN, i64::MIN, i64::MIN),
    of(i64::MAX, i64::MAX, i64::MAX),
    of(0, i64::MAX, i64::MAX),
    of(i64::MIN, 0, 1),
    of(i64::MAX - 1, i64::MAX, 1),
    of(1 << 62, (1 << 62) + 1, 0),
    of(-(1 << 62), 1 << 62, -1),
];

const fn of(begin_ns: i64, end_ns: i64, end_early_by_ns: i64) -> Reading {
    Reading { gpu: Span { begin_ns, end_ns }, end: EndSource::Event, end_early_by_ns }
}

static READ_SO_FAR: AtomicUsize = AtomicUsize::new(0);

struct Device(StreamKey);

impl AsStream for Device {
    fn as_stream(&self) -> StreamRef<'_> {
        StreamRef::of_backend(Ok(self.0), self)
    }
}

impl BackendStream for Device {
    fn backend(&self, _: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        Ok(Arc::new(Mad(self.0.number())))
    }
}

struct Mad(u64);

impl Backend for Mad {
    fn name(&self) -> Option<String> {
        Some("mad".to_owned())
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { ordinal: 0, name: "mad".to_owned(), kind: DeviceKind::Other("mad") }
    }

    fn clock_space(&self) -> u64 {
        1 << 63 | self.0
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        Ok(EventPair::new(Nothing))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(MadReader)
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Ok(Box::new(MadClock))
    }
}

struct Nothing;

impl Points for Nothing {
    fn begin(&mut self, _: Call) -> Result<(), Refused> {
        Ok(())
    }

    fn end(&mut self, _: Call) -> Result<(), Refused> {
        Ok(())
    }

    fn release(&mut self) {}
}

struct MadReader;

impl Reader for MadReader {
    fn is_complete(&mut self, _: &EventPair) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn read(&mut self, _: &EventPair, host: Span, clock: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        assert!((clock as &dyn Any).is::<MadClock>());
        let next = READINGS.get(READ_SO_FAR.fetch_add(1, Ordering::Relaxed));
        Ok(Some(next.copied().unwrap_or(Reading::exact(host))))
    }
}

struct MadClock;

impl Clock for MadClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn uncertainty_ns(&self) -> i64 {
        i64::MIN
    }

    fn worst_uncertainty_ns(&self) -> i64 {
        i64::MAX
    }

    fn bracket(&self) -> EventOverhead {
        EventOverhead { idle_ns: i64::MAX, busy_ns: i64::MIN }
    }

    fn zone_ns(&self) -> i64 {
        i64::MAX
    }
}

#[test]
fn times_that_no_zone_can_have_are_dropped_and_counted() {
    let _turn = alone();
    let folder = empty_folder(this_test!());
    let zones = MemorySink::new(1_000);
    let session = Session::builder()
        .sink(zones.clone())
        .perfetto(folder.join("t.pftrace"))
        .chrome(folder.join("t.json"))
        .start()
        .expect("no other session");
    let device = Device(new_space().key(1));
    let from_ns = now_ns();
    // Each reading fails the stream, which drops what waits on it.
    while READ_SO_FAR.load(Ordering::Relaxed) < READINGS.len() {
        drop(READ.zone(&device));
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(10));
    (0..20).for_each(|_| drop(READ.zone(&device)));
    let report = session.finish();
    let (failed, recorded) = (report.dropped.stream_failed, zones.take());
    assert_eq!(failed + report.recorded, report.begun, "{report}");
    assert!(failed >= READINGS.len() as u64 && recorded.len() >= 20, "{report}");
    let note = "stream `mad` failed: its backend read a time that is more than a year from the zone's launch; zones that waited";
    assert!(report.notes.iter().any(|text| text.contains(note)), "{report}");
    for zone in recorded {
        let gpu = zone.gpu.expect("its stream's time");
        assert!(gpu.begin_ns >= from_ns && gpu.end_ns <= now_ns(), "{zone:?}");
        assert_eq!((zone.end_early_by_ns, zone.bracket_ns), (0, 0), "{zone:?}");
    }
}
