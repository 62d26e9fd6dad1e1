//! What the tests of zones on the stub driver's streams share.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::ffi::c_void;
use std::thread;
use std::time::{Duration, Instant};

use warpline::{MemorySink, RawStream, Report, Session, SessionBuilder, ZoneRecord};

use crate::stub::{Handle, Stub};

pub fn raw(stream: Handle) -> RawStream {
    // SAFETY: the stub driver treats handles as numbers; the test destroys no stream on which a zone is open.
    unsafe { RawStream::from_ptr(stream as *mut c_void) }
}

pub fn start(change: impl FnOnce(SessionBuilder) -> SessionBuilder) -> (Session, MemorySink) {
    let zones = MemorySink::new(100_000);
    let session = change(Session::builder().sink(zones.clone())).start().expect("no other session");
    (session, zones)
}

pub fn assert_exact(report: &Report) {
    assert_eq!(report.recorded + report.captured + report.dropped.total(), report.begun, "{report}");
}

/// Nothing of ours is left in the driver, and no handle was used after its end.
pub fn assert_clean(driver: &Stub) {
    assert_eq!((driver.stub_live_events(), driver.stub_misuse()), (0, 0), "live events, misused handles");
}

/// Waits until the collector has nothing left to do.
pub fn wait_for(zones: &MemorySink, count: usize) -> Vec<ZoneRecord> {
    let mut taken = Vec::new();
    let since = Instant::now();
    while taken.len() < count && since.elapsed() < Duration::from_secs(10) {
        taken.extend(zones.take());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken.len(), count);
    taken
}
