//! Records what a test marks. Only tests call it: it waits for other tests, and panics where it cannot record.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use crate::Session;
use crate::record::ZoneRecord;
use crate::sink::MemorySink;
use warpline_core::sorting;
use warpline_core::stderr;

/// The most zones that are kept.
const MOST: usize = 1 << 20;

/// Runs a test's work in a session of its own, and returns the zones that it recorded, in the order in which they
/// began.
///
/// ```
/// use warpline::{HostStream, block, testing};
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// // The body of a test: put `#[test]` on a function with it.
/// # fn main() {
/// let stream = HostStream::new("compute");
/// let zones = testing::record(|| {
///     block::gpu_zone!("demo.scale", &stream, description = "Scales a batch.", { stream.launch(|| ()) });
/// });
/// # if cfg!(feature = "enable") {
/// assert_eq!(zones[0].range.name(), "demo.scale");
/// # }
/// # }
/// ```
///
/// A process has one session at a time, so tests of one binary that call this run one after another: a call waits for
/// those of other threads. Zones that other threads begin while `work` runs are recorded, too. The zones have their
/// times: the call waits until the work on their streams is done, up to the session's default time limit. Zones that
/// are lost are said on standard error. `WARPLINE` is not read. Without feature `enable`, the result is empty.
///
/// # Panics
/// If a session is running that was not started here, if it is called inside of `work`, and if `work` panics.
#[track_caller]
pub fn record(work: impl FnOnce()) -> Vec<ZoneRecord> {
    static TURN: Mutex<()> = Mutex::new(());
    thread_local! {
        static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    }
    /// Ends the call, also if the work panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            IS_RECORDING.set(false);
        }
    }

    assert!(
        !IS_RECORDING.replace(true),
        "`testing::record` is called inside of itself: call it once around all of the work"
    );
    let _end = End;
    // A test that fails in its turn does not take those of others.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let zones = MemorySink::new(MOST);
    let session = Session::builder().sink(zones.clone()).quiet().start();
    let session = session.unwrap_or_else(|error| {
        panic!("`testing::record` cannot start a session: {error}; start sessions in tests only through `testing::record`, or in a process of their own")
    });
    work();
    let report = session.finish();
    let lost = report.dropped.total() + report.sinks.iter().map(|sink| sink.lost).sum::<u64>();
    if lost > 0 {
        stderr::line(format_args!("`testing::record` has lost zones: {report}"));
    }
    let mut zones = zones.take();
    sorting::sort_by_key(&mut zones, |zone| (zone.host.begin_ns, zone.depth));
    zones
}
