//! What the tests of zones on the stub driver's streams share.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::time::Duration;

use warpline::record::ZoneRecord;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{RawStream, Session, SessionBuilder};
use warpline_tests::taken;

use crate::harness::driver::{Handle, Stub};

pub fn raw(stream: Handle) -> RawStream {
    // SAFETY: the stub driver treats handles as numbers; the test destroys no stream on which a zone is open.
    unsafe { RawStream::from_ptr(stream as *mut c_void) }
}

/// What a session waits at its end for much that is still to be read: on a busy machine, the default is too short.
pub const MUCH_TO_READ: Duration = Duration::from_secs(60);

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

/// A launching thread made none but these.
#[track_caller]
pub fn assert_only(calls: &[String], allowed: &[&[&str]]) {
    let others: BTreeSet<_> = calls.iter().filter(|call| !allowed.concat().contains(&call.as_str())).collect();
    assert!(others.is_empty(), "calls that a launching thread must not make: {others:?}");
}

/// Waits until the collector has handed out so many zones.
#[track_caller]
pub fn wait_for(zones: &MemorySink, count: usize) -> Vec<ZoneRecord> {
    taken(count, || zones.take())
}

/// `CLOCK_BOOTTIME`.
pub fn boot_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Standard error goes to a file as long as this is there.
pub struct StandardError(i32);

impl StandardError {
    pub fn to(path: &std::path::Path) -> StandardError {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::create(path).expect("a file");
        // SAFETY: both are open; the test has its process for itself.
        unsafe {
            let before = libc::dup(2);
            assert_eq!(libc::dup2(file.as_raw_fd(), 2), 2);
            StandardError(before)
        }
    }
}

impl Drop for StandardError {
    fn drop(&mut self) {
        // SAFETY: it was duplicated from standard error.
        unsafe { libc::dup2(self.0, 2) };
    }
}
